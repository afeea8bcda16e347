"""Work that is done in order beside its caller."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

BACKLOG = 2  # pieces of work that wait or run: each may hold a copy of a model


class Background(ThreadPoolExecutor):
    """A thread that works in order; leaving its `with` block waits for it. After a failure it does nothing more."""

    def __init__(self) -> None:
        super().__init__(1, "background")
        self._pending: deque[Future[None]] = deque()
        self._failed = False

    def start(self, work: Callable[[], None]) -> None:
        """Do `work` after what was started before."""
        self._pending.append(self.submit(self._do, work))

    def _do(self, work: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            work()
        except BaseException:
            self._failed = True
            raise

    def wait(self, most: int = 0) -> None:
        """Wait until at most `most` pieces of work are left. Raises the first error of any."""
        while len(self._pending) > most or (self._pending and self._pending[0].done()):
            self._pending.popleft().result()
