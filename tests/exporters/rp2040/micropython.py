"""Runs code in MicroPython on this computer."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def in_micropython(folder: Path, code: str) -> str:
    """The output of `code` in MicroPython, which sees the files in `folder`."""
    if not shutil.which("node") or not (HERE / "node_modules" / "@micropython").is_dir():
        pytest.fail("MicroPython is not installed; with node 18 or later: npm ci --prefix tests/exporters/rp2040")
    words = ["node", HERE / "micropython.mjs", folder]
    done = subprocess.run(words, input=code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
