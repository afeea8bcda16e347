"""The command `python -m exporters`, for tests."""

import subprocess
import sys
from pathlib import Path

import pytest

from exporters import __main__ as exporters
from tests import forked

ROOT = Path(__file__).resolve().parents[2]


def command(*words: str | Path) -> subprocess.CompletedProcess:
    """The command in a process of its own."""
    return forked.run(["-m", "exporters", *map(str, words)], ROOT)


def refusal(capsys, monkeypatch, *words: str | Path) -> str:
    """The line on standard error of a command that exits with 2."""
    monkeypatch.setattr(sys, "argv", ["exporters", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        exporters.main()
    assert stop.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    return said.err
