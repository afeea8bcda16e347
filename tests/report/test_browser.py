"""Reports of tiny runs of all workloads as Chromium shows them: sizes, colours, telephones, prints, accessibility."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.report.browser.driver import driven
from tests.report.pages import checked
from tests.stages import records, stage
from tests.test_stages import TINY as ROUTES
from tests.workloads.bep.firm import prose, written
from tests.workloads.crypto.test_crypto_member import WORDS as COINS
from tests.workloads.lmol.test_lmol import TINY as IMAGES
from tests.workloads.tinystories.test_tinystories import TINY as STORIES

pytestmark = pytest.mark.slow

SHORT = ["training.steps=30", "training.log_steps=10", "training.validation_steps=15", "training.checkpoint_steps=30"]
DOCUMENTS = [
    *SHORT,
    "data.sources=documents",
    *("model.width=16", "model.embedding=8", "model.mixing_places=600"),
    *("training.sequence=20", "training.batch_size=8"),
    *("evaluation.typed=10", "evaluation.clauses=3"),
]
RUNS = {
    "bep": DOCUMENTS,
    "crypto": ["data.symbols=[AAAUSDT,BBBUSDT,CCCUSDT]", *COINS[1:], "evaluation.repetitions=100"],
    "cvrp": [*ROUTES, "data.test_instances=40"],
    "lmol": IMAGES,
    "tinystories": STORIES[2:],
}
COLOURS = {"light": ("rgb(26, 26, 26)", "rgb(255, 255, 255)"), "dark": ("rgb(230, 230, 230)", "rgb(21, 24, 28)")}
HOSTILE = "a$\\frac$<img src=x onerror=alert(1)>\u202e.vrp"
VRP = """NAME : square
TYPE : CVRP
DIMENSION : 4
EDGE_WEIGHT_TYPE : EUC_2D
CAPACITY : 2
NODE_COORD_SECTION
1 0 0
2 0 9
3 9 9
4 9 0
DEMAND_SECTION
1 0
2 1
3 1
4 1
DEPOT_SECTION
1
-1
EOF
"""


class Shown(NamedTuple):
    """A workload's report, and what browser/measure.mjs found in it."""

    workload: str
    report: Path
    found: dict


@pytest.fixture(scope="module", params=RUNS)
def shown(request, tmp_path_factory):
    """The report of a run that is trained and evaluated, cvrp's also on a file whose name is markup.

    Screenshots go to the folder REPORT_SCREENSHOTS, if it is set.
    """
    workload, folder = request.param, tmp_path_factory.mktemp(request.param)
    written(folder / "documents", {str(seed): prose(seed) for seed in range(5)})  # for bep
    stages = [("train.py", RUNS[workload]), ("evaluate.py", [])]
    if workload == "cvrp":
        (folder / HOSTILE).write_text(VRP)
        stages.append(("evaluate.py", [f"evaluation.instances={HOSTILE}"]))
    for script, words in stages:
        done = stage(folder, script, "--workload", workload, *words)
        assert done.returncode == 0, done.stderr
    report = folder / "runs" / workload / "default" / "report.html"
    return Shown(workload, report, driven("measure.mjs", folder, workload, report))


def test_a_page_is_self_contained_and_small(shown):
    html = shown.report.read_text()
    checked(html)
    assert len(html.encode()) < 2_000_000


def test_verdict_and_picture_are_seen_without_scrolling(shown):
    found = shown.found["light"]
    assert 0 < found["verdict"] < found["picture"] < 800
    assert found["width"] == 1280


def test_a_telephone_scrolls_in_one_direction_and_text_in_plots_can_be_read(shown):
    found = shown.found["telephone"]
    assert found["width"] == found["open"]["width"] == 390
    assert found["open"]["height"] > found["height"]  # something was folded up
    assert found["open"]["text"] >= 9
    assert shown.found["light"]["open"]["text"] >= 9


def test_nothing_keeps_people_from_reading_in_light_or_dark(shown):
    assert {view: shown.found[view]["faults"] for view in ("light", "dark", "telephone")} == {
        "light": [],
        "dark": [],
        "telephone": [],
    }
    for scheme, colours in COLOURS.items():
        assert (shown.found[scheme]["ink"], shown.found[scheme]["paper"]) == colours


def test_nothing_is_fetched_and_no_foreign_script_runs(shown):
    assert shown.found["unexpected"] == []


def test_the_pointer_tells_the_values_of_curves(shown):
    told = shown.found["light"]["tip"]
    if shown.workload == "crypto":  # whose curves are folded up with their coins
        assert told is None
        return
    name, _, told = told.partition(": ")
    assert name == "examples_per_s"
    value, step = told.split(" at ")
    assert float(value) == pytest.approx(records(shown.report.parent, name)[int(step)], rel=1e-3)


def test_a_page_without_what_is_folded_prints_on_few_pages(shown):
    assert shown.found["light"]["pages"] <= 6
    if shown.workload == "crypto":
        assert shown.found["light"]["pages"] <= 4
