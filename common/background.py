"""Work that is done in order beside its caller."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

BACKLOG = 2  # pieces of work that wait or run: each may hold a copy of a model


class Background:
    """A thread that does one piece of work after another; leaving its `with` block waits for all of them."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "background")
        self._pending: deque[Future[None]] = deque()

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown()

    def start(self, work: Callable[[], None]) -> None:
        """Have `work` done after what was started before."""
        self._pending.append(self._executor.submit(work))

    def wait(self, most: int = 0) -> None:
        """Wait until at most so many pieces of work are left. Raises the first error that one of them has raised."""
        while len(self._pending) > most or (self._pending and self._pending[0].done()):
            self._pending.popleft().result()
