"""No test reads or writes the checkout's runs/ and data/: what lies there changes nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked
from tests.guard import sitecustomize as guard
from tests.stages import PYTHONPATH, ROOT, copy_checkout
from tests.test_words import begin

# Tests whose commands look for runs or prepare data, a few of each kind, and those of the folders themselves.
BESIDE_DECOYS = (
    "tests/test_words.py",
    "tests/run",
    "tests/test_runs.py",
    "tests/common/disk/test_prepared.py",
    "tests/test_commands.py",
)


@pytest.mark.parametrize("path", ["runs", "data/cvrp/decoy", "runs/../runs/cvrp", b"data"])
def test_a_test_that_touches_the_checkout_is_stopped_and_told_of(path, touched, monkeypatch):
    monkeypatch.chdir(ROOT)
    for touch in (os.listdir, os.mkdir, os.remove, lambda path: os.rename("none", path)):
        with pytest.raises(guard.Touched, match="a test works in a folder of its own"):
            touch(path)
    assert len(touched().splitlines()) == 4


@pytest.mark.parametrize("fresh", [False, True])
def test_so_is_a_command_that_a_test_starts(fresh, touched, tmp_path):
    (tmp_path / "script.py").write_text(f"open({str(ROOT / 'runs/none')!r})")
    places = {"PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
    done = forked.run([str(tmp_path / "script.py")], tmp_path, {**os.environ, **places}, fresh=fresh)
    assert "Touched" in done.stderr
    assert "script.py" in touched()


def test_folders_of_similar_names_and_those_of_the_test_are_free(tmp_path, monkeypatch):
    assert not (ROOT / "runsheet").exists()
    with pytest.raises(FileNotFoundError):
        (ROOT / "runsheet").open()
    monkeypatch.chdir(tmp_path)
    os.mkdir("runs")
    assert os.listdir("runs") == []
    monkeypatch.chdir(ROOT)
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "data/runs").mkdir(parents=True)
    shutil.rmtree(tmp_path / "data")  # by names in a folder that is open, which are not those of the checkout


@pytest.mark.slow
def test_tests_pass_beside_runs_and_data_that_are_rubbish(tmp_path):
    copy_checkout(tmp_path)
    for workload in ("bep", "crypto", "cvrp", "lmol", "tinystories", "toy"):
        begin(tmp_path, workload)
        for name in ("config.yaml", "metrics.jsonl", "provenance.json", "outcome.json"):
            (tmp_path / "runs" / workload / "default" / name).write_text("} rubbish")
        (tmp_path / "data" / workload / "manifest.json").parent.mkdir(parents=True)
        (tmp_path / "data" / workload / "manifest.json").write_text("} rubbish")
    before = _contents(tmp_path)
    outer = ("CHECKOUT_GUARD", "PYTHONPATH", *(name for name in os.environ if name.startswith("PYTEST_")))
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    words = ["-m", "pytest", "-n", "1", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/tmp", *BESIDE_DECOYS]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    assert _contents(tmp_path) == before


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for top in ("runs", "data") for path in (folder / top).rglob("*") if path.is_file()}
