"""Signals that ask a program to stop, handled in one way by training and by the fan-out."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StopRequest:
    """The number of the signal that asked to stop, if one did. A second Ctrl-C stops at once, by KeyboardInterrupt."""

    def __init__(self) -> None:
        self.number: int | None = None

    @contextmanager
    def listening(self, then: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Within it SIGTERM and Ctrl-C set `number` and call `then` instead of ending the process."""

        def remember(number: int, frame: object) -> None:
            if self.number is not None and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.number = number
            then()

        before = {number: signal.signal(number, remember) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
