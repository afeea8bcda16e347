"""Settings of all tests."""

import fcntl
import gc
import json
import os
import shlex
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for a bare `pytest`; `python -m pytest` does it itself

import pytest
from threadpoolctl import threadpool_limits

from tests import forked
from tests.guard import sitecustomize as guard

TOUCHED = tempfile.NamedTemporaryFile("r", prefix="touched-")  # noqa: SIM115 (open for as long as tests run)


def pytest_configure(config):
    """Set up the processes that run tests; xdist's controller runs none."""
    if config.getoption("numprocesses", None):
        share_imports(config)
        return
    forked.shared = os.environ.pop("TEST_SERVER", None)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # Ignored, as under nohup: the tests' commands would inherit that, but they do not inherit an empty handler.
        signal.signal(signal.SIGHUP, lambda *_: None)
    os.environ["CHECKOUT_GUARD"] = TOUCHED.name
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (guard.FOLDER, os.environ.get("PYTHONPATH"))))
    guard.watch(TOUCHED.name)
    gc.disable()  # until tests are collected: imports make hardly any garbage
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # tests compare bits with those of a CPU
    import hypothesis
    import torch

    torch.set_num_threads(1)  # pytest runs one worker per core
    # The same examples in every run, so that a failure belongs to the change at hand: a quarter of them, or all with
    # HYPOTHESIS_PROFILE=same, as in the gate; HYPOTHESIS_PROFILE=fresh looks for new ones. There is no deadline, as the
    # time of an example depends on the machine.
    same = hypothesis.settings(derandomize=True, database=None, deadline=None)
    hypothesis.settings.register_profile("few", same, max_examples=25)
    hypothesis.settings.register_profile("same", same)
    hypothesis.settings.register_profile("fresh", derandomize=False, database=None, deadline=None, print_blob=True)
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))


def share_imports(config):
    """Fork workers, and the commands of their tests, from one server that has already imported everything."""
    if not config.option.tx or sys.platform != "linux" or os.environ.get("TEST_PROCESSES") == "fresh":
        return
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # as below
    address, end = forked.share({**os.environ, "PYTHONPATH": guard.FOLDER, "OMP_NUM_THREADS": "1"})
    os.environ["TEST_SERVER"] = address
    config.add_cleanup(end)
    worker = shlex.join([sys.executable, "-S", "-E", str(Path(forked.__file__).with_name("worker.py")), address])
    config.option.tx = [f"popen//python={worker}" for _ in config.option.tx]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave exhaustive tests out of `-m slow`, such as a case of a slow fixture or of a slow module."""
    if config.option.markexpr == "slow":
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]


def pytest_collection_finish():
    threadpool_limits(1)  # threads of numpy, scipy and scikit-learn, imported by the collection, wait by spinning
    forked.BASE.update(os.environ)
    gc.collect()
    gc.freeze()  # imports stay: no garbage collection has to visit them
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    """Undo what a test, or a library that it imports, does to the environment: the next test begins like the first.

    A training in this process may have left products to oneDNN, which rounds differently from MKL, or disabled oneDNN.
    """
    before = dict(os.environb)
    result = yield
    mkldnn = sys.modules["torch"].backends.mkldnn
    mkldnn.enabled, mkldnn.matmul.fp32_precision = True, "ieee"
    if before != (now := dict(os.environb)):  # bytes, which are compared without being decoded
        for name in now.keys() - before.keys():
            del os.environb[name]
        os.environb.update(before)
    return result


@pytest.fixture(autouse=True)
def touched():
    """Fail the test that touched the checkout's runs or data, itself or by a command, even if the error was caught."""
    yield TOUCHED.read
    found = TOUCHED.read()
    assert not found, found


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """A function that computes a slow result once for all workers: the first one computes it, the others wait.

    `once(NAME, MAKE)` returns the result of MAKE(), which JSON must be able to hold.
    """
    common = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # each worker's folder lies in the session's
        common = common.parent

    def made(name, make):
        path = common / f"{name}.json"
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                found = json.dumps(make())
                path.write_text(found)
            return json.loads(path.read_text())

    return made


def pytest_unconfigure():
    forked.stop()
    TOUCHED.close()
