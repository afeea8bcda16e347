"""Continuous batching (Yu et al. 2022, Orca): the texts of all requests to a run grow side by side, token by token.

A text takes a place as soon as one is free and leaves it when it ends, so a short text does not wait for a long one. A
request gets at most half of the places that the others leave.
"""

import asyncio
import contextlib
import functools
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from typing import Protocol

from common.plain import Plain

PLACES = 32  # texts growing together; the counts of the longest document accepted take 10 MB
TURN_SECONDS = 0.02  # between looks at new and cancelled requests; also how often streams get what was written


class Text(Protocol):
    """A text that grows."""

    ended: bool

    def taken(self) -> str:
        """Return the text that is final and was not returned before."""

    def answer(self) -> dict[str, Plain]:
        """Return the answer of a text that has ended."""


class Writer(Protocol):
    """A model that writes texts side by side."""

    def begun(self, given: object, settings: object) -> Text:
        """Read a prompt."""

    def advance(self, texts: Sequence[Text]) -> None:
        """Write one more token of each text."""


class Request:
    """Texts requested together."""

    def __init__(self, inputs: Sequence[object], settings: object):
        self.waiting, self.settings = deque(inputs), settings
        self.texts: list[Text] = []  # begun
        self.fault: Exception | None = None
        self.written: asyncio.Queue[str] = asyncio.Queue()  # of a single text, piece by piece
        self.done = asyncio.Event()

    @property
    def going(self) -> list[Text]:
        """The texts that still grow."""
        return [text for text in self.texts if not text.ended]

    def answers(self) -> list[dict[str, Plain]]:
        """Return the answers once done; raise the fault if there was one."""
        if self.fault:
            raise self.fault
        return [text.answer() for text in self.texts]


class Scheduler:
    """Schedules the requests to a text model; `in_thread` runs its work, `count` gets each step's number of tokens."""

    def __init__(
        self, writer: Writer, in_thread: Callable[[Callable[[], None]], Awaitable[None]], count: Callable[[int], None]
    ):
        self.writer, self.in_thread, self.count = writer, in_thread, count
        self.requests: list[Request] = []
        self.wake = asyncio.Event()

    async def answers(self, request: Request) -> list[dict[str, Plain]]:
        """Return the answers to a request; cancel it to give up."""
        with self._served(request):
            await request.done.wait()
            return request.answers()

    async def pieces(self, request: Request, ended: Callable[[Plain], object] = bool) -> AsyncGenerator[str]:
        """Yield a text as it is written, then call `ended` with why it ended; close it to give up."""
        with self._served(request):
            while not request.done.is_set() or not request.written.empty():
                yield await request.written.get()
            ended(request.answers()[0].get("finish", "stop"))

    @contextlib.contextmanager
    def _served(self, request: Request) -> Iterator[None]:
        self.requests.append(request)
        self.wake.set()
        try:
            yield
        finally:
            self.requests = [each for each in self.requests if each is not request]

    async def work(self) -> None:
        """Serve requests forever."""
        while True:
            await self.wake.wait()
            self.wake.clear()
            while self.requests:
                taken = list(self.requests)
                try:
                    await self.in_thread(functools.partial(self._turn, taken))
                except Exception as error:  # raised to the clients concerned; others are served on
                    for request in taken:
                        request.fault = request.fault or error
                for request in taken:
                    if request.fault or not (request.waiting or request.going):
                        request.done.set()
                        self.requests = [each for each in self.requests if each is not request]
                    request.written.put_nowait("".join(text.taken() for text in request.texts))

    def _turn(self, requests: Sequence[Request]) -> None:
        """Begin texts and write tokens, in the model's thread."""
        end = time.monotonic() + TURN_SECONDS
        while True:
            while request := self._next(requests):
                try:
                    request.texts.append(self.writer.begun(request.waiting.popleft(), request.settings))
                except Exception as error:  # concerns this request alone
                    request.fault = error
                    request.waiting.clear()
                if time.monotonic() > end:
                    break
            if going := [text for request in requests for text in request.going]:
                self.writer.advance(going)
                self.count(len(going))
            if not going or time.monotonic() > end:
                return

    def _next(self, requests: Sequence[Request]) -> Request | None:
        """Return the request whose text begins next: the one with the fewest texts; None without a free place."""
        free = PLACES - sum(len(request.going) for request in requests)
        waiting = [request for request in requests if request.waiting and len(request.going) < free]
        return min(waiting, key=lambda request: len(request.going), default=None)
