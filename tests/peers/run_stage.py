"""A stage of the pipeline, run in a folder."""

import subprocess
import sys
from pathlib import Path

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"


def run_stage(folder: str, script: str, *words: str) -> str:
    """What a stage prints, run in `folder`."""
    done = subprocess.run([sys.executable, str(PIPELINES / script), *words], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{script} {' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout
