"""A workload outside this project, found by its folder: every stage works on it and no file here knows of it."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest
import torch

from common.errors import UserError
from common.packages import recorded_folder
from exporters import __main__ as exporters
from models import io
from pipelines import workloads
from pipelines.inventory import found
from tests import forked
from tests.exporters.onnx_examples import imported
from tests.exporters.web.models import asked
from tests.stages import ROOT, command, export, records, refused, stage
from tests.test_dependencies import faults

EXAMPLE = Path(__file__).with_name("example_workload")
EXAMPLE_PACKAGE = "tests.example_workload"
TINY = ["data.examples=200", "training.steps=40", "training.checkpoint_steps=5", "training.log_steps=1"]
MANY = """

import dataclasses


def expand(config, folder):
    return {} if config.seed else {f"seed-{seed}": config.model_copy(update={"seed": seed}) for seed in (1, 2)}


WORKLOAD = dataclasses.replace(WORKLOAD, expand=expand)
"""


def copy_to(folder):
    """The example's package in `folder`, under the name waves."""
    return shutil.copytree(EXAMPLE, folder / "waves", ignore=shutil.ignore_patterns("__pycache__"))


def weights(folder, run, which="last"):
    return (folder / "runs/waves" / run / "model" / which / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(folder of the package, folder with the run `default`)."""
    package, folder = copy_to(tmp_path_factory.mktemp("my own")), tmp_path_factory.mktemp("work")
    done = stage(folder, "train.py", "--workload", str(package), *TINY)
    assert done.returncode == 0, done.stderr
    assert f"pipelines/evaluate.py --workload '{package}' --name default" in done.stdout
    return package, folder


def test_the_example_is_short_and_imports_what_a_workload_may():
    files = [path for path in EXAMPLE.iterdir() if path.is_file()]
    assert len(files) <= 10
    assert sum(len(path.read_text().splitlines()) for path in files) <= 350
    exported = ("onnx_program.py", "onnx_example.py", "web_page.py")  # for exporters, and read by them alone
    for path in (path for path in EXAMPLE.glob("*.py") if path.name not in exported):
        assert faults(path.read_text(), f"pipelines/workloads/bep/{path.name}") == []  # as in any workload


def test_prepare_shows_the_data_and_its_folder(trained):
    package, folder = trained
    done = stage(folder, "prepare.py", "--workload", str(package), *TINY)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^examples.held_out +40$", done.stdout, re.MULTILINE)
    assert len(list((folder / "data/waves").iterdir())) == 1  # training had prepared it


def test_evaluate_writes_figures_examples_and_a_report(trained):
    package, folder = trained
    done = stage(folder, "evaluate.py", "--workload", str(package))
    assert done.returncode == 0, done.stderr
    run = folder / "runs/waves/default"
    summary = json.loads((run / "evaluations/held_out.json").read_text())
    assert summary["n"] == 40
    assert summary["rmse"] == summary["table"][0]["rmse"]
    assert len((run / "evaluations/held_out.csv").read_text().splitlines()) == 41
    assert "Predictions" in (run / "report.html").read_text()
    *_, predict, serve = done.stdout.splitlines()
    assert serve == "  python pipelines/serve.py waves/default"
    again = stage(folder, *shlex.split(predict.partition("pipelines/")[2]))
    assert len(json.loads(again.stdout)["next"]) == 4, again.stderr


@pytest.mark.slow
def test_benchmark_times_it(trained):
    package, folder = trained
    done = stage(folder, "benchmark.py", "--workload", str(package), *TINY, "--steps", "2")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["workload"] == "waves"


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_weights(trained):
    package, folder = trained
    words = ["--workload", str(package), "--name", "killed", *TINY]
    process = forked.Process(command("train.py", *words)[1:], folder)
    assert forked.until(lambda: any((folder / "runs/waves/killed/checkpoints").glob("step-*")), forked.LONG)
    process.send_signal(signal.SIGKILL)
    assert process.finish() == -signal.SIGKILL
    process.output()
    done = stage(folder, "train.py", *words, "--resume")
    assert done.returncode == 0, done.stderr
    assert "resumed from" in done.stderr
    for which in ("best", "last"):
        assert weights(folder, "killed", which) == weights(folder, "default", which)


@pytest.mark.slow
def test_two_processes_follow_the_same_curve(trained):
    package, folder = trained
    words = ["--workload", str(package), "--name", "two", *TINY]
    done = stage(folder, "train.py", *words, processes=2, ACCELERATE_USE_CPU="true")
    assert done.returncode == 0, done.stderr
    runs = folder / "runs/waves"
    for key in ("train/loss", "val/squared_error"):
        assert records(runs / "two", key) == pytest.approx(records(runs / "default", key), rel=1e-3)


@pytest.mark.slow
def test_an_export_of_a_model_alone_needs_its_workload_and_says_so(trained, tmp_path):
    package, folder = trained
    copied = shutil.copytree(folder / "runs/waves/default/model/best", tmp_path / "copied")
    refused(export("safetensors", copied), "unknown family 'waves'", "--workload FOLDER")
    refused(export("safetensors", copied, "--workload", "waves"), "there is no workload in waves")
    done = export("safetensors", copied, "--workload", package, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "equal to copied in every weight and output" in done.stdout


def test_a_model_is_loaded_in_python_once_its_family_is_known(trained, monkeypatch):
    _, folder = trained
    best = folder / "runs/waves/default/model/best"
    monkeypatch.delitem(io.FAMILIES, "waves", raising=False)
    with pytest.raises(ValueError, match="if it is your own, import its package first"):
        io.load(best)
    monkeypatch.setitem(io.FAMILIES, "waves", f"{EXAMPLE_PACKAGE}.model")
    model = io.load(best)
    assert torch.equal(model(**model.example()), io.load(best)(**model.example()))
    assert type(model) is type(io.load(best))


@pytest.mark.slow
def test_its_name_is_enough_in_the_folder_above(tmp_path):
    copy_to(tmp_path)
    for word in ("waves", "./waves", "waves/"):
        done = stage(tmp_path, "prepare.py", "--workload", word)
        assert done.returncode == 0, done.stderr
    done = stage(tmp_path / "waves", "prepare.py", "--workload", ".")
    assert "data/waves/" in done.stdout, done.stderr
    (tmp_path / "waves/input_files.py").unlink()
    done = stage(tmp_path, "predict.py", "--workload", "waves", "in.jsonl")
    refused(done, "its models have no predictions", "there is no INPUTS in waves.input_files")


PAST = [0.1 * k for k in range(16)]


def predicted(folder):
    """What the trained model answers, asked in this process."""
    module = io.FAMILIES.get("waves")
    io.FAMILIES["waves"] = f"{EXAMPLE_PACKAGE}.model"
    try:
        return next(io.load(folder / "runs/waves/default/model/best").predict([{"past": PAST}], steps=3))["next"]
    finally:
        io.FAMILIES.pop("waves") if module is None else io.FAMILIES.update(waves=module)


def test_its_runs_are_found_by_name_since_they_record_where_their_workload_lies(trained):
    package, folder = trained
    provenance = json.loads((folder / "runs/waves/default/provenance.json").read_text())
    assert provenance["workload_folder"] == str(package)
    table = forked.run([str(ROOT / "pipelines/runs.py")], folder)
    assert "waves: best val/squared_error, lower is better" in table.stdout, table.stderr
    evaluated = stage(folder, "evaluate.py", "--workload", "waves")
    assert evaluated.returncode == 0, evaluated.stderr
    (folder / "past.txt").write_text(" ".join(map(str, PAST)) + "\n0.5 0.6\n")
    done = stage(folder, "predict.py", "--workload", "waves", "past.txt", "steps=3")
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["next"] == pytest.approx(predicted(folder), rel=1e-5)
    assert second["error"] == "past has 2 values; give 16 or more"


@pytest.mark.slow
def test_its_runs_are_served_by_name(trained):
    _, folder = trained
    process = forked.Process([str(ROOT / "pipelines/serve.py"), "waves/default", "--port", "0"], folder)

    def said():
        return os.pread(process.streams[0].fileno(), 1000, 0).decode()

    assert forked.until(lambda: "answers with waves/default" in said(), forked.LONG)
    body = json.dumps({"inputs": [{"past": PAST}], "settings": {"steps": 3}}).encode()
    url = said().split()[0] + "runs/waves/default/predict"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        assert json.loads(answer.read())["outputs"][0]["next"] == pytest.approx(predicted(folder), rel=1e-5)
    process.send_signal(signal.SIGTERM)
    process.finish()
    process.output()


@pytest.mark.slow
def test_its_own_program_and_its_own_page_are_exported_without_more_words(trained):
    _, folder = trained
    done = export("onnx", "runs/waves/default", folder=folder)
    assert done.returncode == 0, done.stderr
    out = folder / "runs/waves/default/exports/onnx"
    with imported(out / "example.py") as example:
        assert example.predict(PAST) == pytest.approx(predicted(folder)[0], rel=1e-4)
    done = export("web", "runs/waves/default", folder=folder)
    assert done.returncode == 0, done.stderr
    page = folder / "runs/waves/default/exports/web/index.html"
    done = subprocess.run(asked(page, [["predict", {"past": PAST}]]), capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["difference"] < 1e-5, done.stderr
    assert found["answers"][0]["next"] == pytest.approx(predicted(folder)[:1], rel=1e-4)


def test_a_workload_that_has_moved_is_named_and_one_that_a_run_brings_is_not_run(trained, tmp_path, monkeypatch):
    _, folder = trained
    run = tmp_path / "runs/waves/default"
    shutil.copytree(folder / "runs/waves/default", run)

    def record(path):
        known = json.loads((run / "provenance.json").read_text())
        (run / "provenance.json").write_text(json.dumps({**known, "workload_folder": str(path)}))

    monkeypatch.chdir(tmp_path)
    record(tmp_path / "gone/waves")
    with pytest.raises(UserError, match=r"no longer in .*gone/waves; give the folder, as in --workload FOLDER/waves"):
        workloads.find("waves")
    assert "waves" in found.table(found.find())
    with pytest.raises(ValueError, match=r"there is no workload in .*gone/waves; give that of the run"):
        exporters.add_workload(recorded_folder(run))
    copy_to(run)
    record(run / "waves")
    with pytest.raises(UserError, match="brings code of its own"):
        workloads.find("waves")
    with pytest.raises(UserError, match="brings code of its own"):
        exporters.add_workload(recorded_folder(run))
    record(copy_to(tmp_path / "a"))
    shutil.copytree(run, run.with_name("other"))
    record(copy_to(tmp_path / "b"))
    with pytest.raises(UserError, match=r"trained from .*a/waves and .*b/waves; give the folder"):
        workloads.own_folder("waves")


def test_a_folder_that_is_no_workload_is_refused(tmp_path):
    def prepare(name):
        return stage(tmp_path, "prepare.py", "--workload", str(tmp_path / name))

    refused(prepare("nothing"), "a Python package with a WORKLOAD")
    for name, message in (("cvrp", "this project has a workload cvrp"), ("json", "Python has another package json")):
        copy_to(tmp_path).rename(tmp_path / name)
        refused(prepare(name), message, "give your folder another name")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare/__init__.py").write_text("")
    refused(prepare("bare"), "defines no WORKLOAD")


@pytest.mark.slow
def test_many_models_of_it_are_trained_in_processes_of_their_own(tmp_path):
    package = copy_to(tmp_path)
    file = package / "__init__.py"
    file.write_text(file.read_text() + MANY)
    done = stage(tmp_path, "train.py", "--workload", str(package), *TINY, "training.steps=4")
    assert done.returncode == 0, done.stderr
    assert weights(tmp_path, "default/members/seed-1") != weights(tmp_path, "default/members/seed-2")
    done = stage(tmp_path, "evaluate.py", "--workload", str(package), "--name", "default/seed-2")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/waves/default/members/seed-2/evaluations/held_out.json").is_file()


def test_no_file_of_the_project_knows_the_example():
    for path in (
        path for folder in ("common", "models", "pipelines", "exporters") for path in (ROOT / folder).rglob("*.py")
    ):
        assert "example_workload" not in path.read_text(), path
