"""Work spread over processes, and its progress as the user sees it."""

import functools
import itertools
import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import TypeVar

from common.errors import UserError
from common.machine import cores
from common.stopping import STOPPING, attend

ROOT = Path(__file__).resolve().parents[1]
AHEAD = 2  # tasks handed out per process: one at work and one waiting
WORTH = 4.0  # seconds of work that justify starting processes, which takes about as long
SECONDS = 10  # between plain lines of progress; what takes less shows none

Task = TypeVar("Task")
Result = TypeVar("Result")
Item = TypeVar("Item")


def in_order(
    function: Callable[[Task], Result], tasks: Sequence[Task], what: str | None, processes: int | None = None
) -> Iterator[Result]:
    """Yield function(task), importable by name, for each task in order, by `processes` (one a core) if it pays."""
    yield from progress(_computed(function, tasks, processes or cores()), len(tasks), what)


def _computed(function: Callable[[Task], Result], tasks: Sequence[Task], processes: int) -> Iterator[Result]:
    for done, task in enumerate(tasks):
        began = time.monotonic()
        yield function(task)
        left = len(tasks) - done - 1
        # The first task may have waited for imports.
        if min(processes, left, done + 1) > 1 and left * (time.monotonic() - began) > WORTH:
            yield from pooled(function, tasks[-left:], min(processes, left))
            return


def pooled(
    function: Callable[[Task], Result], tasks: Iterable[Task], processes: int, begin: Callable[[], None] | None = None
) -> Iterator[Result]:
    """Yield function(task) for each task in order, by this many `processes`, each of which calls `begin` first."""
    module = function
    while isinstance(module, functools.partial):
        module = module.func
    pool = ProcessPoolExecutor(processes, start_server(["__main__", module.__module__]), _begin, (begin,))
    waiting: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(function, task))
            if len(waiting) >= AHEAD * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        fewer = f"let fewer work at a time, as in: taskset --cpu-list 0 python {sys.argv[0]} ..."
        lost = f"one of {processes} worker processes was killed, most likely for lack of memory"
        raise UserError(f"{lost}; free some, or {fewer}") from error
    except BaseException:  # Ctrl-C too: do not wait for tasks under way
        for process in list(pool._processes.values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def start_server(modules: Sequence[str]) -> ForkServerContext:
    """Start a fork server, which imports `modules` in parallel; a plain fork would copy threads' locks."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    # The server has the module path of a new interpreter, without this project.
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(ROOT) not in places:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, places)])
    resource_tracker.ensure_running()  # now, as its start unblocks SIGTERM
    # A signal to the whole process group is for the workers, which save; the server has to outlive them.
    heard = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)
    return context


def _begin(begin: Callable[[], None] | None) -> None:
    if begin is None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, with which workers end
    attend()
    if begin is not None:
        begin()  # its tasks are long: Ctrl-C ends them


def progress(items: Iterable[Item], total: int, what: str | None) -> Iterator[Item]:
    """Yield the items and show progress on stderr, a bar on a terminal, else plain lines; nothing if `what` is None."""
    if what is None:
        yield from items
        return
    if sys.stderr.isatty():
        from tqdm import tqdm

        yield from tqdm(items, desc=what, total=total, delay=1, dynamic_ncols=True)
        return
    began = said = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - said >= SECONDS:
            left = (total - done) * (now - began) / done
            say(f"{what}: {done:,} of {total:,}  left {clock(left)}")
            said = now


def say(line: str) -> None:
    """Print a line of progress on stderr."""
    print(line, file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """Format seconds as h:mm:ss or m:ss."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of up to `size` items, each as soon as it is full."""
    remaining = iter(items)
    while part := list(itertools.islice(remaining, size)):
        yield part
