"""Evaluations on disk, and the page that shows a run."""

import json

import pytest

from pipelines.engine.config import BaseConfig, Training
from pipelines.engine.run import Run
from pipelines.engine.workload import Evaluation
from pipelines.report import page


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run("toy", "default")
    run.begin(BaseConfig(training=Training(steps=3)), 1, {})
    return run


def written(run, sections=(), evaluations=()):
    page.write(run, page.keep(run, evaluations), sections)
    return run.report.read_text()


def test_an_evaluation_is_kept_as_json_csv_and_its_own_files(run):
    rows = ({"method": "model", "cost": 1.5},)
    examples = {"cost": [1.0, 2.0], "name": ["a", "b, c"]}
    page.keep(run, [Evaluation("test", {"cost": 1.5, "n": 2}, rows, examples, {"samples.txt": "Once\n"})])
    summary = json.loads((run.evaluations / "test.json").read_text())
    assert summary == {"cost": 1.5, "n": 2, "table": list(rows), "files": ["samples.txt"]}
    assert (run.evaluations / "test.csv").read_text() == 'cost,name\n1.0,a\n2.0,"b, c"\n'
    assert (run.evaluations / "samples.txt").read_text() == "Once\n"


def test_an_evaluation_without_examples_writes_no_csv(run):
    page.keep(run, [Evaluation("test", {"cost": 1.5})])
    assert [path.name for path in run.evaluations.iterdir()] == ["test.json"]


def test_the_page_holds_provenance_curves_evaluations_sections_and_config_in_order(run):
    run.record({"step": 1, "train/loss": 1.0})
    page.keep(run, [Evaluation("test", {"cost": 1.5}, ({"method": "model", "cost": 1.5},))])
    text = written(run, [("Tours", "<p>drawn</p>")])
    headings = ["How it was made", "Training", "Evaluation: test", "Tours", "Configuration"]
    places = [text.index(f"<h2>{heading}</h2>") for heading in headings]
    assert places == sorted(places)
    assert "<h1>toy / default</h1>" in text
    assert "<td>model</td>" in text
    assert "<p>drawn</p>" in text
    assert "steps: 3" in text


def test_a_run_without_metrics_has_no_curves(run):
    assert "<h2>Training</h2>" not in written(run)


def test_the_page_needs_no_other_file(run):
    run.record({"step": 1, "train/loss": 1.0})
    text = written(run)
    assert "<script" not in text
    assert "<link" not in text
    assert "src=" not in text


def test_a_long_list_of_figures_is_folded_up(run):
    page.keep(run, [Evaluation("short", {f"figure {i}": i for i in range(page.SHOWN_FACTS)})])
    assert "<details>" not in written(run)
    page.keep(run, [Evaluation("long", {f"figure {i}": i for i in range(page.SHOWN_FACTS + 1)})])
    assert f"<details><summary>all {page.SHOWN_FACTS + 1} figures</summary>" in written(run)


def test_headings_and_config_are_escaped(run):
    run.config_file.write_text("name: <i>\n")
    text = written(run, [("a < b", "")])
    assert "<h2>a &lt; b</h2>" in text
    assert "<pre>name: &lt;i&gt;\n</pre>" in text


def test_a_file_that_looks_like_an_evaluation_is_none(run):
    """An evaluation's own file may have any name and hold anything."""
    files = {"numbers.json": "[1, 2]", "torn.json": "{", "table.json": '{"table": [{"a": 1}], "n": 3}'}
    text = written(run, evaluations=[Evaluation("test", {"cost": 1.5}, files=files)])
    assert text.count("<h2>Evaluation: ") == 1
    assert written(run).count("<h2>Evaluation: ") == 1  # read back from the folder


def test_evaluations_of_other_splits_stay_on_the_page_with_their_files(run):
    page.keep(run, [Evaluation("first", {"cost": 1.5}, files={"first.tours.jsonl": "{}\n"})])
    known = page.keep(run, [Evaluation("second", {"cost": 2.5}), Evaluation("first", {"cost": 3.5}, member="A")])
    assert [evaluation.split for evaluation in known] == ["first", "second"]
    assert known[0] == Evaluation("first", {"cost": 1.5}, [], files={"first.tours.jsonl": "{}\n"})
    assert json.loads((run.member("A").evaluations / "first.json").read_text())["cost"] == 3.5


def test_evaluations_from_before_their_files_were_listed_are_read(run):
    run.evaluations.mkdir()
    (run.evaluations / "test.json").write_text('{"cost": 1.5, "table": []}')
    (run.evaluations / "test.tours.jsonl").write_text("{}\n")
    (known,) = page.keep(run, [])
    assert known.files == {"test.tours.jsonl": "{}\n"}


def test_names_of_files_may_be_anything(run):
    name = b"<b>=1\xff$\\frac$\r.vrp".decode(errors="surrogateescape")
    evaluation = Evaluation("test", {"worst": name}, ({"method": name},), {"instance": [name, "=1+1"]})
    text = written(run, evaluations=[evaluation])
    assert text.count("<td>&lt;b&gt;=1\\udcff$\\frac$\\r.vrp</td>") == 2
    assert (run.evaluations / "test.csv").read_bytes() == b'instance\n"<b>=1\\udcff$\\frac$\r.vrp"\n\'=1+1\n'


def test_files_of_an_evaluation_are_read_back_as_they_were_written(run):
    page.keep(run, [Evaluation("first", {}, files={"first.notes.csv": "a\r\nb\n"})])
    assert page.keep(run, [])[0].files == {"first.notes.csv": "a\r\nb\n"}
