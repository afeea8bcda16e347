"""Bounds on what clients may ask, on how many wait and for how long, and the exception that refuses."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from starlette.exceptions import HTTPException

Result = TypeVar("Result")


@dataclass(frozen=True)
class Limits:
    """Bounds on requests."""

    body_bytes: int = 8 * 2**20  # per request
    bodies: int = 8  # as many bytes as this many largest bodies, over all unanswered requests
    inputs: int = 64  # per request
    waiting: int = 256  # unanswered requests per run
    seconds: float = 60.0  # for the body to arrive, and for the answer
    token: str | None = None  # required of requests; None: anyone is answered
    sessions: Path = Path("runs/.sessions")  # folder of the texts of sessions


class Refused(HTTPException):
    """A request that is not answered: the response's status, and what is wrong."""


class Unanswered:
    """The requests to a run that have no answer yet, streams included."""

    def __init__(self, limits: Limits):
        self.limits, self.number = limits, 0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count one more within the block. Raises Refused if there are too many."""
        if self.number >= self.limits.waiting:
            raise Refused(429, f"{self.number} requests to this run are unanswered; try later")
        self.number += 1
        try:
            yield
        finally:
            self.number -= 1

    async def in_time(self, result: Awaitable[Result], begun: Callable[[], bool]) -> Result:
        """Return a result. Raises Refused after too long: another status where it was not even `begun`."""
        try:
            return await asyncio.wait_for(result, self.limits.seconds)
        except TimeoutError:
            if begun():
                raise Refused(503, f"the answer took more than {self.limits.seconds:g} s") from None
            raise Refused(429, f"no answer within {self.limits.seconds:g} s: too many requests; try later") from None


def too_large(values: object, served: Mapping[str, float]) -> str | None:
    """Say which number, or length of a text or a list, exceeds what a server takes; None if none does."""
    for key, most in served.items():
        value = getattr(values, key, None)
        size = len(value) if isinstance(value, str | tuple) else value
        if size is not None and size > most:
            what = "is longer than" if isinstance(value, str | tuple) else f"is {value}, more than"
            return f"{key} {what} the {most:g} that this server takes"
    return None
