"""Evaluations on disk, and the page that shows a run."""

import base64
import hashlib
import html
import json
import re

import pytest

from pipelines.engine.config import BaseConfig, Training
from pipelines.engine.workload import Evaluation
from pipelines.report import page
from pipelines.run.folder import Run
from tests.report.pages import Page, checked


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


def test_the_page_leads_with_the_verdict_and_ends_with_how_it_was_made(run):
    run.record({"step": 1, "train/loss": 1.0})
    page.keep(run, [Evaluation("test", {"cost": 1.5}, ({"method": "model", "cost": 1.5},))])
    text = written(run, [("Better", "<p>by 1 %</p><table></table>"), ("Tours", "<p>drawn</p>")])
    assert checked(text).headings() == [
        *("Better", "Tours", "Evaluation: test", "Training", "How it was made", "Configuration")
    ]
    assert "<h1>toy / default</h1>" in text
    assert '<th scope="row">model</th>' in text
    assert "<p>by 1 %</p>" in text
    assert "<p>drawn</p>" in text
    assert "steps: 3" in text


def test_a_workload_without_sections_and_a_run_without_metrics_have_a_page(run):
    assert Page(written(run)).headings() == ["How it was made", "Configuration"]


def test_an_exported_page_is_linked_to_where_there_is_one(run):
    assert '<p class="web" hidden><a href="exports/web/index.html">' in written(run)  # what the export looks for
    (run.folder / "exports/web").mkdir(parents=True)
    (run.folder / "exports/web/index.html").write_text("")
    assert '<p class="web"><a href="exports/web/index.html">' in written(run)


def test_only_the_pages_own_script_may_run(run):
    text = written(run)
    (script,) = [script for tag, script in Page(text).texts if tag == "script"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html.unescape(text)


def test_figures_are_folded_up_below_a_table(run):
    page.keep(run, [Evaluation("test", {"a": 1, "b": {"c": None}}, ({"method": "model", "cost": 1.5},))])
    text = written(run)
    assert re.search(r"<details>\s*<summary>all 2 figures</summary>", text)
    assert '<th scope="row">b.c</th><td></td>' in text


def test_figures_without_a_table_are_open(run):
    page.keep(run, [Evaluation("test", {"a": 1})])
    assert re.search(r"<details open>\s*<summary>all 1 figures</summary>", written(run))


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
    assert [evaluation.split for evaluation in page.keep(run, [Evaluation("test", {})])] == ["test", "first", "second"]
    assert known[0] == Evaluation("first", {"cost": 1.5}, [], files={"first.tours.jsonl": "{}\n"})
    assert json.loads((run.member("A").evaluations / "first.json").read_text())["cost"] == 3.5


def test_names_of_files_may_be_anything(run):
    name = b"<b>=1\xff$\\frac$\r.vrp".decode(errors="surrogateescape")
    evaluation = Evaluation("test", {"worst": name}, ({"method": name},), {"instance": [name, "=1+1"]})
    text = written(run, evaluations=[evaluation])
    name = "&lt;b&gt;=1\\udcff$\\frac$\\r.vrp"
    assert f'<th scope="row">{name}</th>' in text
    assert f"<td>{name}</td>" in text
    assert (run.evaluations / "test.csv").read_bytes() == b'instance\n"<b>=1\\udcff$\\frac$\r.vrp"\n\'=1+1\n'


def test_files_of_an_evaluation_are_read_back_as_they_were_written(run):
    page.keep(run, [Evaluation("first", {}, files={"first.notes.csv": "a\r\nb\n"})])
    assert page.keep(run, [])[0].files == {"first.notes.csv": "a\r\nb\n"}
