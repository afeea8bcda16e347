"""Checks of the installation, by the standard library alone: Python, packages, the disk, the import of torch."""

import importlib.metadata
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from pipelines.checks import Finding, dotted, ok, problem, warning

ROOT = Path(__file__).resolve().parents[2]
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)
FREE_BYTES = 2 * 10**9  # a data folder, a few checkpoints and a report of the default runs


def check_python(found: tuple[int, int] = sys.version_info[:2]) -> Iterator[Finding]:
    """Check that this Python is a supported one."""
    text = f"Python {dotted(found)} ({sys.executable})"
    supported = f"{dotted(OLDEST_PYTHON)} to {dotted(NEWEST_PYTHON)} are supported"
    new_environment = "python3.12 -m venv .venv && .venv/bin/python -m pip install -r requirements.txt"
    if found < OLDEST_PYTHON:
        yield problem(f"{text}: too old; {supported}", new_environment)
    elif found > NEWEST_PYTHON:
        yield warning(f"{text}: newer than the tested versions; {supported}", new_environment)
    else:
        yield ok(text)


def check_packages() -> Iterator[Finding]:
    """Compare the installed packages with the pins; another version may work, a missing package does not."""
    text = (ROOT / "requirements.txt").read_text()
    pins = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;#]+)", text, flags=re.MULTILINE)
    missing, differing = [], []
    for name, pinned in pins:
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(f"{name}=={pinned}")
            continue
        if installed.partition("+")[0] != pinned:  # 2.13.0+cpu is 2.13.0
            differing.append(f"{name} {installed} (pinned: {pinned})")
    if missing:
        yield problem(f"not installed: {', '.join(missing)}", install_requirements())
    if differing:
        yield warning(f"versions that differ from requirements.txt: {', '.join(differing)}", install_requirements())
    if not missing and not differing:
        yield ok(f"{len(pins)} packages as pinned in requirements.txt")


def check_disk() -> Iterator[Finding]:
    """Check the free space for data and runs."""
    free = shutil.disk_usage(Path.cwd()).free
    text = f"{free / 1e9:.1f} GB free for data/ and runs/ ({Path.cwd()})"
    if free < FREE_BYTES:
        show_largest = "du -hd 2 data runs | sort -h | tail   # then delete what you no longer need"
        yield problem(f"{text}; at least {FREE_BYTES / 1e9:.0f} GB are needed", show_largest)
    else:
        yield ok(text)


def check_torch_import() -> Iterator[Finding]:
    """Yield nothing if torch can be imported; broken shared libraries raise OSError."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        yield problem(f"torch cannot be imported: {error}", install_requirements())
    except OSError as error:
        again = f"install --force-reinstall --no-deps torch=={importlib.metadata.version('torch')}"
        yield problem(f"torch is broken: {error}", f"{pip()} {again}")


def install_requirements() -> str:
    """Return the command that installs the pinned packages."""
    return f"{pip()} install -r {shlex.quote(_as_typed(ROOT / 'requirements.txt'))}"


def pip() -> str:
    """Return the command for pip of the running Python, whether its environment is activated or not."""
    return f"{shlex.quote(_as_typed(Path(sys.executable)))} -m pip"


def _as_typed(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
