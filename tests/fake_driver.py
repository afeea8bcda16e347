"""Build the stand-in for the NVIDIA driver's library, and run Python with it or with no driver at all."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stages import PYTHONPATH

ROOT = Path(__file__).parents[1]


def build(folder: Path) -> Path:
    """Compile the library into `folder` and return the folder, which belongs on LD_LIBRARY_PATH."""
    if sys.platform != "linux":
        pytest.skip("the fake driver is a Linux shared library")
    if shutil.which("gcc") is None:
        pytest.skip("gcc is needed to compile tests/fake_nvml.c")
    source, library = ROOT / "tests" / "fake_nvml.c", folder / "libnvidia-ml.so.1"
    warnings = ["-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *warnings, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return folder


def absent(folder: Path) -> Path:
    """Return `folder` with an empty library, at which the loader stops before it finds a real driver."""
    (folder / "libnvidia-ml.so.1").touch()
    return folder


def run(words: list[str], libraries: Path, **environment: str) -> subprocess.CompletedProcess:
    """Run Python with `words` in the repository root, with a folder's libraries and without a launcher's variables."""
    launcher = ("ACCELERATE_", "CUDA_VISIBLE_", "FAKE_NVML_", "LOCAL_", "MASTER_", "RANK", "WORLD_SIZE", "HF_HOME")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(launcher)}
    clean |= {"LD_LIBRARY_PATH": str(libraries), "PYTHONPATH": PYTHONPATH, "HF_HOME": str(libraries / "hub")}
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=clean | environment, capture_output=True, text=True, timeout=600
    )
