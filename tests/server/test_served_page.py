"""The page of a server in Chromium, played by the keyboard with a small model of each workload."""

import pytest

from models import io
from pipelines.server.limits import Limits
from tests.exporters.web.models import MODELS
from tests.report.browser.driver import played
from tests.server.test_server import served

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What was found on the page; screenshots go to REPORT_SCREENSHOTS, if that is set."""
    folder = tmp_path_factory.mktemp("page")
    for workload, make in MODELS.items():
        io.save(make(), folder / workload / "small")
    with served([f"{workload}={folder / workload / 'small'}" for workload in MODELS], Limits()) as port:
        address = f"http://127.0.0.1:{port}/"
        return played(folder, "server", {workload: f"{address}#{workload}/small" for workload in MODELS})


@pytest.mark.parametrize("workload", MODELS)
def test_a_workload_is_played_by_the_keyboard(found, workload):
    panel = found[workload]["played"]
    assert found[workload]["alert"] == ""
    assert found[workload]["unexpected"] == []
    if workload == "cvrp":
        assert (panel["customers"], panel["tours"], panel["rows"]) == (6, 4, 4)
        for said in (panel["opened"], panel["csv"], panel["told"]):
            assert all(name in said for name in ("savings: ", "PyVRP: ", "ruin and recreate: ", "model: "))
    elif workload == "crypto":
        assert panel["rows"] == 24
        assert panel["told"].startswith("after the newest candle: ")
    elif workload == "lmol":
        assert (panel["drawn"], panel["rows"], panel["head"]) == (8, 3, "score")
        assert panel["scores"] == sorted(panel["scores"])
        assert "ranks higher than" in panel["answer"]
    else:
        assert panel["told"].startswith("The cat")
        assert len(panel["told"]) > len("The cat")


@pytest.mark.parametrize("workload", MODELS)
def test_the_page_can_be_read_on_a_telephone_in_light_and_dark(found, workload):
    assert found[workload]["widths"] == {"light": 1280, "dark": 1280, "telephone": 390}
    assert found[workload]["faults"] == {"light": [], "dark": [], "telephone": []}


def test_suggestions_are_taken_by_tab_and_closed_by_escape(found):
    suggestion = found["bep"]["played"]["suggestion"]
    assert suggestion["taken"] == f"The cat{suggestion['text']}"
    assert suggestion["source"] == "written by the model" or ", line " in suggestion["source"]
    assert [suggestion[each] for each in ("marked", "next", "open")] == ["proposal-0", "proposal-1", 0]


@pytest.mark.parametrize("workload", ["bep", "tinystories"])
def test_a_text_is_there_when_the_page_opens_and_the_next_one_has_another_seed(found, workload):
    played = found[workload]["played"]
    assert len(played["opened"]) > len("The cat")
    assert len(set(played["seeds"])) == len(played["seeds"]) >= 2
