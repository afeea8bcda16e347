"""Running the commands a user types."""

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def stage(folder, script, *words, processes=1, **environment):
    """Run a stage of the workload in `folder`; returns the finished process."""
    return subprocess.run(
        command(script, *words, processes=processes),
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )


def command(script, *words, processes=1):
    python = [sys.executable]
    if processes > 1:
        python += ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    workload = [] if "--workload" in words else ["--workload", "cvrp"]
    return [*python, str(ROOT / "pipelines" / script), *workload, *words]


def stage_here(folder, script, *words):
    """As `stage`, within this process and so without the seconds that imports take: for what ends at once."""
    error = io.StringIO()
    argv, path, place = sys.argv, sys.path.copy(), Path.cwd()
    try:
        sys.argv = command(script, *words)[1:]
        os.chdir(folder)
        with contextlib.redirect_stderr(error), pytest.raises(SystemExit) as ended:
            runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        sys.argv, sys.path[:] = argv, path
        os.chdir(place)
    return subprocess.CompletedProcess(words, ended.value.code, "", error.getvalue())


def refused(done, *texts):
    """Exit status 2, no traceback, a few lines, and all of `texts` among them."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    message = done.stderr[done.stderr.index("error: ") :]
    assert len(message.splitlines()) <= 6
    for text in texts:
        assert text in message


def records(run, key):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return {entry["step"]: entry[key] for entry in map(json.loads, lines) if key in entry}
