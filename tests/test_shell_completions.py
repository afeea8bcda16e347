"""What a shell completes."""

import os
import shutil
import subprocess

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
        pytest.param(
            "python pipelines/train.py --workload cvrp evaluation.decode=",
            ["greedy", "multistart", "sampling"],
            marks=pytest.mark.slow,
        ),
        pytest.param("python pipelines/train.py --workload lmol --r", ["--resume"], marks=pytest.mark.slow),
        ("python pipelines/train.py --workload cvrp x='a b' --resume data.cap", ["data.capacity="]),
        pytest.param("python pipelines/train.py --workload cvrp --keys ev", ["evaluation"], marks=pytest.mark.slow),
        pytest.param("python pipelines/runs.py cl", ["clean"], marks=pytest.mark.slow),
        pytest.param("python pipelines/ask.py --ra", ["--ranking"], marks=pytest.mark.slow),
        pytest.param("python pipelines/follow.py --workload crypto --on", ["--once"], marks=pytest.mark.slow),
        pytest.param("python pipelines/doctor.py --", [""], marks=pytest.mark.slow),
        pytest.param("accelerate launch -m pipelines evaluate --workload cv", ["cvrp"], marks=pytest.mark.slow),
        pytest.param("five-workloads predict --workload lmol --st", ["--stream"], marks=pytest.mark.slow),
        pytest.param("five-workloads export o", ["onnx"], marks=pytest.mark.slow),
        pytest.param("python pipelines/predict.py --workload bep pro", ["prompt="], marks=pytest.mark.slow),
        (
            "python -m exporters ",
            sorted(path.stem.removeprefix("to_") for path in (ROOT / "exporters").glob("to_*.py")),
        ),
        pytest.param("python pipelines/train.py --workload cvpr model.", [""], marks=pytest.mark.slow),
        ("python other.py --workload ", [""]),
    ],
)
def test_bash_completes_what_commands_understand(tmp_path, line, words):
    assert completed(tmp_path, line) == words


def completed(folder, line):
    """The words that bash offers at the end of a line in a folder."""
    command = ["bash", "--norc", "-c", ASK, "bash", line, str(ROOT / "pipelines/completion.bash")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("python pipelines/evaluate.py --workload cvrp --name m", ["mine"]),
        pytest.param("python pipelines/runs.py compare cvrp/", ["cvrp/mine"], marks=pytest.mark.slow),
        pytest.param("python pipelines/serve.py cvrp/", ["cvrp/mine"], marks=pytest.mark.slow),
        pytest.param("python -m exporters safetensors runs/", ["runs/cvrp/mine"], marks=pytest.mark.slow),
    ],
)
def test_runs_are_completed_by_name_and_by_folder(tmp_path, line, words):
    (tmp_path / "runs/cvrp/mine").mkdir(parents=True)
    (tmp_path / "runs/cvrp/mine/config.yaml").write_text("seed: 0\n")
    assert completed(tmp_path, line) == words
