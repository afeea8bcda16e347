"""What a shell completes."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.stages import ROOT

ASK = """
source "$2"
COMP_LINE=$1 COMP_POINT=${#1} COMPREPLY=()
_pipelines
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash here")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("python pipelines/train.py --workload c", ["crypto", "cvrp"]),
        ("accelerate launch pipelines/train.py --workload cvrp data.c", ["data.capacity=", "data.customers="]),
        (
            "python pipelines/train.py --workload cvrp evaluation.decode=",
            ["adaptive", "greedy", "multistart", "sampling"],
        ),
        ("python pipelines/train.py --workload lmol --r", ["--resume"]),
        ("python pipelines/predict.py --workload bep pro", ["prompt="]),
        (
            "python -m exporters ",
            sorted(path.stem.removeprefix("to_") for path in (ROOT / "exporters").glob("to_*.py")),
        ),
        ("python pipelines/train.py --workload cvpr model.", [""]),
        ("python other.py --workload ", [""]),
    ],
)
def test_bash_completes_what_commands_understand(tmp_path, line, words):
    command = ["bash", "--norc", "-c", ASK, "bash", line, str(ROOT / "pipelines/completion.bash")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == words


def test_runs_are_completed_by_name_and_by_folder(tmp_path, monkeypatch):
    (tmp_path / "runs/cvrp/mine").mkdir(parents=True)
    (tmp_path / "runs/cvrp/mine/config.yaml").write_text("seed: 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    from pipelines.completions import completions

    assert completions("python pipelines/evaluate.py --workload cvrp --name m") == ["mine"]
    assert completions("python pipelines/runs.py compare cvrp/") == ["cvrp/mine"]
    assert completions("python -m exporters safetensors runs/") == ["runs/cvrp/mine"]
