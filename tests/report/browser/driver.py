"""Chromium, and the scripts that drive it over pages."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent


def chromium() -> str:
    """The browser's path; it must be there, and what its driver needs."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if not path or not shutil.which("node") or not (FOLDER / "node_modules" / "axe-core").is_dir():
        pytest.fail("no browser: install Debian's chromium, node 20 or later, and npm ci --prefix tests/report/browser")
    return path


def driven(script: str, folder: Path, name: str, *words: str | Path) -> Any:
    """What a script prints. Where REPORT_SCREENSHOTS is set, it takes screenshots into that folder, under the name."""
    screenshots = Path(os.environ.get("REPORT_SCREENSHOTS", folder)) / name
    command = ["node", FOLDER / script, chromium(), screenshots, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def played(folder: Path, name: str, pages: Mapping[str, str]) -> Any:
    """What came of playing with pages, {workload: address}."""
    return driven("play.mjs", folder, name, *(f"{workload}={address}" for workload, address in pages.items()))
