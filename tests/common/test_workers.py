"""Work in worker processes: in order, in bounded memory, with errors of its own, and never longer than its parent."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from common import workers
from common.errors import UserError
from tests.forked import LONG, until
from tests.stages import PYTHONPATH

ROOT = Path(__file__).resolve().parents[2]
ORPHANS = """
import time
from common import workers

if __name__ == "__main__":
    workers.WORTH = 0
    for _ in workers.in_order(time.sleep, [0, 0.01, *[60] * 9], "sleeping", processes=2):
        print("slept", flush=True)
"""

SAVING = """
import time
from common import stopping, workers

def save():
    stopping.attend()
    stop = stopping.StopRequest()
    with stop.listening():
        print("begun", flush=True)
        while not stop.number:
            time.sleep(0.01)
        time.sleep(0.5)
    raise SystemExit(7)

if __name__ == "__main__":
    stop = stopping.StopRequest()
    with stop.listening():
        process = workers.start_server(["slow"]).Process(target=save)
        print("starting", flush=True)
        process.start()
        if stop.number:
            process.terminate()
        process.join()
        print(process.exitcode, flush=True)
"""


def refuse(number):
    """Work that fails for one number, and whose process dies at another."""
    if number == 7:
        raise UserError("seven is refused")
    if number == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


@pytest.fixture
def at_once(monkeypatch):
    """Start worker processes however little there is to do."""
    monkeypatch.setattr(workers, "WORTH", -1)


def test_results_come_in_the_order_of_the_tasks_from_other_processes(at_once):
    tasks = [0.1 * (number % 3 == 0) for number in range(12)]
    assert list(workers.in_order(time.sleep, tasks, "sleeping", processes=2)) == [None] * 12
    found = list(workers.in_order(refuse, [0] * 9, "working", processes=2))
    assert found[:2] == [os.getpid()] * 2
    assert os.getpid() not in found[2:]


@pytest.mark.parametrize(
    "spread", [partial(workers.in_order, what="sleeping"), partial(workers.pooled, begin=os.getpid)]
)
def test_tasks_that_nobody_waits_for_any_more_are_ended(at_once, spread):
    found = spread(time.sleep, [0, 0.01, 0.01, *[60] * 4], processes=2)
    for _ in range(3):
        next(found)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        found.throw(KeyboardInterrupt)
    assert time.monotonic() - began < 20


def test_little_work_starts_no_process():
    assert set(workers.in_order(refuse, range(7), "working", processes=2)) == {os.getpid()}


def test_what_a_worker_raises_arrives_and_one_that_dies_is_explained(at_once):
    with pytest.raises(UserError, match="seven is refused"):
        list(workers.in_order(refuse, [0, 0, 7, 0], "working", processes=2))
    with pytest.raises(UserError, match="one of 2 worker processes was killed, most likely for lack of memory"):
        list(workers.in_order(refuse, [0, 0, 8, 0], "working", processes=2))


def test_an_error_cancels_the_tasks_that_have_not_begun(at_once, tmp_path):
    tasks = [tmp_path / name for name in ("a", "b", "none/there", *map(str, range(40)))]
    with pytest.raises(FileNotFoundError):
        list(workers.in_order(Path.touch, tasks, None, processes=2))
    assert len(list(tmp_path.iterdir())) < 12


def test_tasks_are_handed_out_only_as_results_are_taken(at_once, tmp_path):
    paths = [tmp_path / str(number) for number in range(40)]
    results = workers.in_order(Path.touch, paths, "touching", processes=2)
    for _ in range(4):
        next(results)
    time.sleep(0.2)
    assert len(list(tmp_path.iterdir())) < 12
    results.close()


def test_workers_end_with_their_parent_however_it_ends(tmp_path):
    (tmp_path / "sleep.py").write_text(ORPHANS)
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    parent = subprocess.Popen([sys.executable, "sleep.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE)
    children = []
    try:
        assert parent.stdout.readline() == parent.stdout.readline() == b"slept\n"
        # The server that workers are forked from, the tracker of its resources, and two workers.
        assert until(lambda: len(psutil.Process(parent.pid).children(recursive=True)) == 4, LONG)
        children = psutil.Process(parent.pid).children(recursive=True)
    finally:
        parent.kill()
        parent.communicate()
    assert until(lambda: not any(child.is_running() for child in children), LONG)


@pytest.mark.parametrize(("awaited", "status"), [("begun", 7), ("starting", -signal.SIGTERM)])
def test_a_signal_to_a_whole_group_leaves_the_server_so_that_a_worker_can_save(tmp_path, awaited, status):
    (tmp_path / "save.py").write_text(SAVING)
    (tmp_path / "slow.py").write_text("import time\n\ntime.sleep(1)\n")
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    parent = subprocess.Popen(
        [sys.executable, "save.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        while parent.stdout.readline() not in (f"{awaited}\n", ""):
            pass
        time.sleep(0.1)
        os.killpg(parent.pid, signal.SIGTERM)  # as timeout, Slurm and the end of a container do
        assert parent.communicate(timeout=LONG) == (f"{status}\n", "")
    finally:
        parent.kill()


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(workers, "SECONDS", 0)
    assert list(workers.progress("abc", 3, "reading")) == list("abc")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"reading: {done} of 3  left 0:00" for done in (1, 2, 3)]
    monkeypatch.setattr(workers, "SECONDS", 10)
    list(workers.progress("abc", 3, "reading"))
    assert capsys.readouterr().err == ""
