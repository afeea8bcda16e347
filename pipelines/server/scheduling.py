"""Texts that a run writes side by side, those of all requests: a token of each in turn (Yu et al. 2022, Orca).

A text takes a place as soon as one is free, and leaves it when it ends, so that a short one does not wait for a long
one. A request has at most half of the places that the others leave.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

PLACES = 32  # texts under way together; what was counted of the longest document that is taken has 10 MB
TURN_SECONDS = 0.02  # after which what was written is told, and new requests and those given up are noticed


class Request:
    """Texts that are asked for together."""

    def __init__(self, inputs: Sequence[Any], settings: Any):
        self.waiting, self.settings = deque(inputs), settings
        self.texts: list[Any] = []  # those that were begun
        self.fault: Exception | None = None
        self.told: asyncio.Queue[str] = asyncio.Queue()  # of a single text, piece by piece
        self.done = asyncio.Event()

    @property
    def going(self) -> list[Any]:
        """The texts that are under way."""
        return [text for text in self.texts if not text.ended]

    def answers(self) -> list[dict[str, Any]]:
        """Return the answers, once it is done; raise what went wrong."""
        if self.fault:
            raise self.fault
        return [text.answer() for text in self.texts]


class Scheduler:
    """The requests to a model of text.

    `in_thread` calls a function in the model's thread, and `count` is told how many tokens are written side by side.
    """

    def __init__(
        self,
        writer: Any,
        places: int,
        in_thread: Callable[[Callable[[], None]], Awaitable[None]],
        count: Callable[[int], None],
    ):
        self.writer, self.places, self.in_thread, self.count = writer, places, in_thread, count
        self.requests: list[Request] = []
        self.wake = asyncio.Event()

    async def answers(self, request: Request) -> list[dict[str, Any]]:
        """Return the answers to a request; who wants them no longer cancels this."""
        self._add(request)
        try:
            await request.done.wait()
            return request.answers()
        finally:
            self._remove(request)

    async def pieces(self, request: Request) -> AsyncGenerator[str]:
        """Yield what is written of a text; who wants no more of it closes this."""
        self._add(request)
        try:
            while not request.done.is_set() or not request.told.empty():
                yield await request.told.get()
            request.answers()
        finally:
            self._remove(request)

    def _add(self, request: Request) -> None:
        self.requests.append(request)
        self.wake.set()

    def _remove(self, request: Request) -> None:
        if request in self.requests:
            self.requests.remove(request)

    async def work(self) -> None:
        """Write what is asked for, for ever."""
        while True:
            await self.wake.wait()
            self.wake.clear()
            while self.requests:
                taken = list(self.requests)
                try:
                    await self.in_thread(lambda taken=taken: self._turn(taken))
                except Exception as error:  # told to those who asked, and the next ones are answered
                    for request in taken:
                        request.fault = request.fault or error
                for request in taken:
                    self._tell(request)

    def _tell(self, request: Request) -> None:
        """Tell what is new of a request, and whether it is done."""
        if request.fault or not (request.waiting or request.going):
            request.done.set()
            self._remove(request)
        request.told.put_nowait("".join(text.taken() for text in request.texts))

    def _turn(self, requests: Sequence[Request]) -> None:
        """Begin texts and write tokens, in the model's thread."""
        end = time.monotonic() + TURN_SECONDS
        while True:
            while request := self._next(requests):
                request.texts.append(self.writer.begun(request.waiting.popleft(), request.settings))
                if time.monotonic() > end:
                    break
            going = [text for request in requests for text in request.going]
            if going:
                self.writer.advance(going)
                self.count(len(going))
            if not going or time.monotonic() > end:
                return

    def _next(self, requests: Sequence[Request]) -> Request | None:
        """Return the request whose next text is to begin, if there is a place for one: that with the fewest texts."""
        going = [len(request.going) for request in requests]
        free = self.places - sum(going)
        waiting = [(own, number) for number, own in enumerate(going) if requests[number].waiting and own < max(free, 1)]
        return requests[min(waiting)[1]] if waiting and free > 0 else None
