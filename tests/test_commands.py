"""`python -m pipelines`: every command from any folder."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pipelines import exits
from tests import forked
from tests.stages import PYTHONPATH

ROOT = Path(__file__).resolve().parents[1]
LONG = "x" * 300


def command(folder: Path, *words: str, fresh: bool = True) -> subprocess.CompletedProcess[str]:
    """Run `python -m pipelines` in another folder, as where the project is installed."""
    program = "import runpy, sys; sys.path.append(sys.argv.pop(1)); runpy.run_module('pipelines', run_name='__main__')"
    return forked.run(["-c", program, str(ROOT), *words], folder, fresh=fresh)


def test_the_version_is_that_of_the_project(tmp_path):
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert command(tmp_path, "--version").stdout == f"{stated}\n"
    assert f"## {stated} " in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(("imported", "frozen"), [("json", True), ("triton", False)])
def test_nothing_of_triton_is_kept_from_being_collected_at_the_end(imported, frozen):
    lines = f"""
        import atexit, gc, sys, types
        atexit.register(lambda: print(gc.get_freeze_count() > 0))
        from pipelines.exits import run_main
        run_main(lambda: sys.modules.setdefault({imported!r}, types.ModuleType({imported!r})))
    """
    program = "\n".join(map(str.strip, lines.splitlines()))
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{frozen}\n", "")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (["-m", "pipelines", "prepare", "--workload", "tinystöries"], "tinystöries"),
        ([str(ROOT / "pipelines/prepare.py"), "--workload", "tinystöries"], "tinystöries"),
        (["-m", "exporters", "onxn", "r\xfcn"], "did you mean onnx?"),
    ],
)
def test_names_and_files_are_utf_8_whatever_the_locale(tmp_path, program, said):
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, *program], cwd=tmp_path, env=environment, capture_output=True)
    assert b"Traceback" not in done.stderr
    assert said.encode() in done.stderr


def test_ctrl_c_where_nothing_is_saved_is_a_line(capsys):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(SystemExit, match="130"):
        exits.run_main(interrupted)
    assert capsys.readouterr().err == "stopped by Ctrl-C\n"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["trian"], "unknown command 'trian'; did you mean train? known commands: ask, benchmark"),
        (["train", "--workload", "cvrp", "training.stepss=3"], "did you mean 'training.steps'?"),
        (["export", "onxn", "runs/cvrp/none"], "did you mean onnx?"),
    ],
)
def test_a_slip_is_answered_from_any_folder(tmp_path, words, answer):
    done = command(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert answer in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", [("--model", LONG), ("--name", LONG), ("--name", "lmol-digits", LONG), ("--csv", f"{LONG}/a.csv", "a.png")]
)
def test_a_name_too_long_for_a_file_is_said_to_be(tmp_path, words):
    (tmp_path / "runs/lmol").mkdir(parents=True)
    done = command(tmp_path, "predict", "--workload", "lmol", *words, *["a.png"] * (len(words) < 3), fresh=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "the name is too long for a file or folder; give a shorter one" in done.stderr
