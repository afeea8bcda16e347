"""Requests to stop a process: a signal, or the end of its parent."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from common.errors import Stopped

# Ctrl-C, the end of a job, a closed terminal, and the signal that Slurm can send before a job's time limit.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)

_listening: "StopRequest | None" = None
_elsewhere: "list[StopRequest]" = []  # in other threads; only the main one receives signals


class StopRequest:
    """Holds the number of the signal that asked to stop. A second Ctrl-C stops at once, by KeyboardInterrupt."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.own = False  # whether this process has received a signal itself

    @contextmanager
    def listening(self, then: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Let STOPPING signals that are not ignored set `number` and call `then`; in threads, those to the main one."""
        global _listening
        if threading.current_thread() is not threading.main_thread():
            self.number = _listening.number if _listening else None
            _elsewhere.append(self)
            try:
                yield
            finally:
                _elsewhere.remove(self)
            return

        def remember(number: int, frame: object) -> None:
            if self.own and number == signal.SIGINT:
                raise KeyboardInterrupt
            for request in (self, *_elsewhere):
                request.number, request.own = number, True
            then()

        heard = [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, remember) for number in heard}
        others, _listening = _listening, self
        try:
            yield
        finally:
            _listening = others
            for number, handler in before.items():
                signal.signal(number, handler)


def asked() -> int | None:
    """Return the signal that a StopRequest has received, if any."""
    return _listening.number if _listening else None


def stop_if_asked() -> None:
    """Raise Stopped if a StopRequest has received a signal. For work that takes minutes."""
    if (number := asked()) is not None:
        raise Stopped(number)


def attend() -> None:
    """Unblock signals in this child of a fork server, also those since its start, and let it end with its parent."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is no child process"

    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
