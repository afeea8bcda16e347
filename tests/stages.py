"""Running the commands a user types."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests import forked

ROOT = Path(__file__).resolve().parents[1]
PYTHONPATH = os.pathsep.join([str(ROOT), str(ROOT / "tests/guard")])  # of a command that imports the project


def stage(folder, script, *words, processes=1, fresh=False, **environment):
    """Run a stage of the workload in `folder`, in a new interpreter if `fresh`; returns the finished process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return forked.run(command(script, *words)[1:], folder, environment, processes, fresh=fresh)


def export(form, *words, folder=ROOT):
    """Run `python -m exporters` in `folder`; returns the finished process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PYTHONPATH}
    return forked.run(["-m", "exporters", form, *map(str, words)], folder, environment)


def copy_checkout(folder):
    """Copy the files that git tracks or does not ignore into `folder`."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def command(script, *words):
    """The command line of a stage in a new interpreter."""
    workload = [] if "--workload" in words or script == "ask.py" else ["--workload", "cvrp"]
    return [sys.executable, str(ROOT / "pipelines" / script), *workload, *words]


def refused(done, *texts):
    """Assert exit status 2 and an error of a few lines, without a traceback, that contains all `texts`."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    message = done.stderr[done.stderr.index("error: ") :]
    assert len(message.splitlines()) <= 6
    for text in texts:
        assert text in message


def records(run, key):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return {entry["step"]: entry[key] for entry in map(json.loads, lines) if key in entry}
