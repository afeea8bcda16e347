"""A package that is not installed is named with the extra that brings it, by commands and by the library; --version."""

import pytest

from common.packages import version
from pipelines.__main__ import EXPORT, commands
from tests import forked
from tests.stages import ROOT

BLOCKED = "import sys; sys.modules[sys.argv[1]] = None; sys.argv = sys.argv[2:]; sys.path.insert(0, {root!r})\n{then}"
RUN = "import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
# Torch is imported already where the process is forked, and this project, which has to look for the package again.
LOAD = """for name in [*sys.modules]:
    if name.partition(".")[0] in ("common", "exporters", "models", "pipelines"):
        del sys.modules[name]
from models import io; io.load(sys.argv[0])"""
CVRP = "models/pretrained/cvrp-20"


def without(package, folder, then, *words, fresh=True):
    """Run Python in `folder` as if the package were not installed."""
    code = BLOCKED.format(root=str(ROOT), then=then)
    words = [str(ROOT / word) if (ROOT / word).exists() else word for word in words]
    return forked.run(["-c", code, package, *words], folder, fresh=fresh)


@pytest.mark.parametrize(
    ("package", "words", "advice"),
    [
        ("torch", ["pipelines/predict.py", "--workload", "cvrp", "x.vrp"], "pip install -e ."),
        pytest.param(
            "uvicorn", ["pipelines/serve.py", "cvrp/cvrp-20"], "pip install -e '.[serve]'", marks=pytest.mark.slow
        ),
        pytest.param(
            "onnx", ["exporters/__main__.py", "onnx", CVRP], "pip install -e '.[export]'", marks=pytest.mark.slow
        ),
        pytest.param(
            "sklearn",
            ["pipelines/prepare.py", "--workload", "lmol"],
            "pip install -e '.[crypto]' or ",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_command_names_the_extra_that_brings_a_missing_package(tmp_path, package, words, advice):
    done = without(package, tmp_path, RUN, *words)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "is missing; install it with " + advice in done.stderr.splitlines()[-1]


def test_loading_a_model_names_it_too(tmp_path):
    (tmp_path / "config.json").write_text('{"family": "vlm_comparator", "config": {}}')
    done = without("PIL", ROOT, LOAD, str(tmp_path), fresh=False)
    said = f"ValueError: {tmp_path}: the package pillow is missing; install it with pip install -e '.[lmol]'\n"
    assert done.stderr.endswith(said)


@pytest.mark.parametrize("name", sorted(commands().keys() - {EXPORT}))
def test_every_command_tells_the_version(tmp_path, name):
    done = forked.run([str(commands()[name]), "--version"], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{version()}\n", "")
