"""The page of a server in Chromium, played by the keyboard with a small model of each workload."""

import base64
import io as streams
import re

import docx
import pytest
import torch

from common.foreign_text import from_csv
from models import io
from models.plans.fields import FIELDS
from pipelines.server.limits import Limits
from tests.exporters.web.models import MODELS
from tests.report.browser.driver import played
from tests.server.test_server import served

pytestmark = pytest.mark.slow


def with_clause(model):
    """The model with a document whose clause fits a field."""
    text = "# Clash detection\n\nThe cat checks the model with care.\n"
    config = type(model.config)(**{**vars(model.config), "documents": {"plan.md": len(text)}})
    stored = type(model)(config).eval()
    tokens = torch.tensor(model.characters.encode(text)).short()
    stored.load_state_dict(model.state_dict() | {"text": tokens})
    return stored


@pytest.fixture(scope="module")
def found(tmp_path_factory, once):
    """What was found on the page; screenshots go to REPORT_SCREENSHOTS, if that is set."""

    def play():
        folder = tmp_path_factory.mktemp("page")
        for workload, make in MODELS.items():
            io.save(with_clause(make()) if workload == "bep" else make(), folder / workload / "small")
        document = docx.Document()
        document.add_heading("4.2 Clash Detection")
        document.add_heading("Project scope")
        document.add_paragraph("All works.", "Quote")
        document.save(folder / "template.docx")
        models = [f"{workload}={folder / workload / 'small'}" for workload in MODELS]
        with pytest.MonkeyPatch.context() as patch, served(models, Limits(sessions=folder / "sessions")) as port:
            patch.setenv("PLAN_TEMPLATE", str(folder / "template.docx"))
            address = f"http://127.0.0.1:{port}/"
            return played(folder, "server", {workload: f"{address}#{workload}/small" for workload in MODELS})

    return once("served page", play)


@pytest.mark.parametrize("workload", MODELS)
def test_a_workload_is_played_by_the_keyboard(found, workload):
    panel = found[workload]["played"]
    assert found[workload]["alert"] == ""
    # What is no Word document, and a plan that the server has forgotten.
    refused = re.compile("status of (422|404)" if workload == "bep" else "(?!)")
    assert [each for each in found[workload]["unexpected"] if not refused.search(each)] == []
    if workload == "cvrp":
        assert (panel["customers"], panel["tours"], panel["rows"]) == (6, 4, 4)
        for said in (panel["opened"], panel["csv"], panel["told"]):
            assert all(name in said for name in ("savings: ", "PyVRP: ", "ruin and recreate: ", "model: "))
        ((left_out, *hours), plain), clock = panel["times"], r" (\d+):(\d\d)"
        arrivals = {
            name: 60 * int(h) + int(m) for row in hours for name, h, m in re.findall(r"([A-Z][a-z]+)" + clock, row)
        }
        assert (plain, left_out) == ([], "Not worth their detour: Bert")  # whose prize is 100 metres
        opens = {"Anna": (480, 540), "Dora": (840, 960)}
        assert arrivals.keys() == opens.keys()
        assert all(low <= arrivals[name] <= high for name, (low, high) in opens.items())
    elif workload == "crypto":
        assert panel["rows"] == 24
        assert panel["told"].startswith("Never evaluated: ")
        assert ". After the newest candle: " in panel["told"]
    elif workload == "lmol":
        assert (panel["drawn"], panel["rows"], panel["head"]) == (8, 3, "score")
        assert panel["scores"] == sorted(panel["scores"])
        assert "ranks higher than" in panel["answer"]
        voted = panel["voted"]
        assert re.match(r"3 votes; the intervals are [\d.]+ wide on average", voted["told"])
        assert (voted["rows"], voted["pictures"]) == (43, 2)
        assert "Ranked by 3 votes" in voted["caption"]
        assert "Ranked by 3 votes" not in voted["back"]
        rows = from_csv(panel["saved"])
        assert list(rows[0]) == ["rank", "image", "score", "low", "high", "note"]
        assert [int(row["rank"]) for row in rows] == list(range(1, 44))
        ranked = [float(row["score"]) for row in rows]
        assert ranked == sorted(ranked, reverse=True)
        assert all(float(row["low"]) < float(row["score"]) < float(row["high"]) for row in rows)
        assert {row["image"] for row in rows} >= {'=1,"1.png', "39.png", "drop.png"}
    elif workload == "tinystories":
        assert panel["told"].startswith("The cat")
        assert len(panel["told"]) > len("The cat")


@pytest.mark.parametrize("workload", MODELS)
def test_the_page_can_be_read_on_a_telephone_in_light_and_dark(found, workload):
    assert found[workload]["widths"] == {"light": 1280, "dark": 1280, "telephone": 390}
    assert found[workload]["faults"] == {"light": [], "dark": [], "telephone": []}


def test_a_form_is_filled_with_clauses_and_says_where_nothing_fits(found):
    played = found["bep"]["played"]
    assert played["silent"].endswith("nothing of yours fits")
    assert played["fields"] == len(FIELDS)
    assert played["taken"] == f"The cat{played['text']}" == "The cat checks the model with care."
    assert played["source"] == "plan.md, line 3: Clash detection"
    assert played["open"] == 0


def test_a_word_document_is_read_filled_and_downloaded(found):
    played = found["bep"]["played"]
    assert played["read"] == ["template.docx: 1 fields read; the download fills in the others", "All works."]
    document = docx.Document(streams.BytesIO(base64.b64decode(played["filled"])))
    assert [(each.text, each.style.name) for each in document.paragraphs] == [
        ("4.2 Clash Detection", "Heading 1"),
        (played["taken"], "Normal"),
        ("Project scope", "Heading 1"),
        ("All works.", "Quote"),
    ]
    assert played["left"] == ""
    assert "cannot be read as a Word document" in played["refused"]


def test_clauses_come_again_where_the_server_has_forgotten_the_plan(found):
    assert found["bep"]["played"]["remembered"] == "e cat checks the model with care."


def test_a_text_is_there_when_the_page_opens_and_the_next_one_has_another_seed(found):
    played = found["tinystories"]["played"]
    assert len(played["opened"]) > len("The cat")
    assert len(set(played["seeds"])) == len(played["seeds"]) >= 2
    assert max(map(int, played["seeds"])) > 2**16  # of so few, eleven would hold two alike one time in 1,200
