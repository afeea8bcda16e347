"""A run that answers requests: those that arrive while it computes are answered together afterwards.

Models that write texts side by side begin with those that arrive at once (`scheduling.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from common.batches import batched
from common.config import checked
from common.errors import UserError
from common.inputs import Given
from pipelines.answers.trained import Trained
from pipelines.server.limits import Limits, Refused, too_large
from pipelines.server.scheduling import Request, Scheduler

Result = TypeVar("Result")


@dataclass
class Waiting:
    """A request that is not answered yet."""

    asked: Sequence[Any]
    settings: Mapping[str, Any]
    answers: asyncio.Future[list[dict[str, Any]]]

    @functools.cached_property
    def key(self) -> str:
        """Requests with equal keys can be answered together."""
        return json.dumps(self.settings, sort_keys=True)


class Answering:
    """The models of a run, in a thread of their own."""

    def __init__(self, trained: Trained, verdict: str, limits: Limits):
        self.trained, self.verdict, self.limits = trained, verdict, limits
        self.thread = ThreadPoolExecutor(1, f"answers of {self.name}")
        self.waiting: deque[Waiting] = deque()
        self.wake = asyncio.Event()
        self.open = 0  # requests, streams among them, that are not finished
        self.batches = self.batched = 0  # how often inputs or tokens were computed together, and how many in all
        first, *others = trained.models.values()
        writer = first.writer() if hasattr(first, "writer") and not others else None
        self.scheduler = Scheduler(writer, trained.inputs.at_once, self._in_thread, self._count) if writer else None

    @property
    def name(self) -> str:
        """The run's name with its workload's."""
        return f"{self.trained.workload}/{self.trained.name}"

    @property
    def streams(self) -> bool:
        """Whether the models are of text, which can be sent as it comes."""
        return all(hasattr(model, "stream") for model in self.trained.models.values())

    async def answers(self, inputs: Sequence[Any], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return an answer to each input, or what is wrong with it. Raises Refused."""
        found, chosen = await asyncio.to_thread(self._read, inputs, settings)
        usable = [asked for asked, _ in found if asked is not None]
        if usable and self.scheduler:
            answers = iter(await self._written(self.scheduler, Request(usable, chosen)))
        else:
            answers = iter(await self._in_turn(usable, settings) if usable else [])
        return [next(answers) if asked is not None else {"error": error} for asked, error in found]

    async def pieces(self, given: Any, settings: Mapping[str, Any]) -> AsyncGenerator[str]:
        """Return the text of an answer piece by piece; who wants no more of it closes it. Raises Refused."""

        def begun() -> AsyncGenerator[str]:
            asked, chosen = self.usable(given, settings)
            if self.scheduler:
                return self.scheduler.pieces(Request([asked], chosen))
            try:
                return self._each(self.trained.pieces(asked, settings))
            except UserError as refused:
                raise Refused(422, str(refused)) from refused

        streamed = self._streamed(await asyncio.to_thread(begun))
        await anext(streamed)  # counted from here on, or refused while that can still be told
        return streamed

    async def _each(self, pieces: Iterator[str]) -> AsyncGenerator[str]:
        while (piece := await self._in_thread(lambda: next(pieces, None))) is not None:
            yield piece

    async def _streamed(self, pieces: AsyncGenerator[str]) -> AsyncGenerator[str]:
        """Yield nothing, and then the pieces."""
        with self._counted():
            yield ""
            async with contextlib.aclosing(pieces):
                async for piece in pieces:
                    yield piece

    def usable(self, given: Any, settings: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return an input and settings as the models take them. Raises Refused where they do not fit."""
        ((asked, error),), chosen = self._read([given], settings)
        if asked is None:
            raise Refused(422, error)
        return asked, chosen

    def _read(self, inputs: Sequence[Any], settings: Mapping[str, Any]) -> tuple[list[tuple[Any, str]], Any]:
        chosen = self._checked(settings)
        return [self._asked(each, chosen) for each in inputs], chosen

    def _asked(self, given: Any, settings: Any) -> tuple[Any, str]:
        """Return an input as the models take it, or None and what is wrong with it."""
        try:
            asked = self.trained.asked(Given("request", given), files=False)
            if self.scheduler:
                asked = self.scheduler.writer.model.prepared(asked, settings)
        except ValueError as error:  # a UserError is one
            return None, str(error)
        large = too_large(asked, self.trained.inputs.served)
        return (None, large) if large else (asked, "")

    def _checked(self, settings: Mapping[str, Any]) -> Any:
        """Return settings as the models take them. Raises Refused for those that do not fit."""
        try:
            chosen = checked(self.trained.inputs.settings, settings, "settings")
        except UserError as error:
            raise Refused(422, str(error)) from error
        if large := too_large(chosen, self.trained.inputs.served):
            raise Refused(422, f"settings: {large}")
        return chosen

    async def _in_turn(self, asked: Sequence[Any], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return answers to inputs, together with those of other requests."""
        own = Waiting(asked, settings, asyncio.get_running_loop().create_future())
        with self._counted():
            self.waiting.append(own)
            self.wake.set()
            try:
                return await self._in_time(own.answers, lambda: own not in self.waiting)
            finally:
                if own in self.waiting:
                    self.waiting.remove(own)

    async def _written(self, scheduler: Scheduler, request: Request) -> list[dict[str, Any]]:
        """Return texts, which are written beside those of other requests."""
        with self._counted():
            return await self._in_time(scheduler.answers(request), lambda: bool(request.texts))

    async def _in_time(self, result: Awaitable[Result], begun: Callable[[], bool]) -> Result:
        """Return a result. Raises Refused where it takes too long, or is not even `begun` then."""
        try:
            return await asyncio.wait_for(result, self.limits.seconds)
        except TimeoutError:
            if begun():
                raise Refused(503, f"the answer took more than {self.limits.seconds:g} s") from None
            raise Refused(429, f"no answer within {self.limits.seconds:g} s, too many ask; try later") from None

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        if self.open >= self.limits.waiting:
            raise Refused(429, f"{self.open} requests to this run are not answered yet; try later")
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    async def work(self) -> None:
        """Answer what waits, for ever."""
        if self.scheduler:
            await self.scheduler.work()
        while True:
            await self.wake.wait()
            self.wake.clear()
            while self.waiting:
                await self._answer(self._together())

    def _together(self) -> list[Waiting]:
        """Take the first request that waits, and others that can be answered with it."""
        first = self.waiting.popleft()
        chosen, count = [first], len(first.asked)
        for each in list(self.waiting):
            if each.key == first.key and count + len(each.asked) <= self.trained.inputs.at_once:
                self.waiting.remove(each)
                chosen.append(each)
                count += len(each.asked)
        self._count(count)
        return chosen

    def _count(self, together: int) -> None:
        self.batches, self.batched = self.batches + 1, self.batched + together

    async def _answer(self, requests: Sequence[Waiting]) -> None:
        found: list[dict[str, Any]] = []
        try:
            for part in batched((each for request in requests for each in request.asked), self.trained.inputs.at_once):
                if all(request.answers.done() for request in requests):  # nobody waits any longer
                    return
                found += await self._in_thread(functools.partial(self.trained.together, part, requests[0].settings))
        except Exception as error:  # told to those who asked, and the next ones are answered
            for request in requests:
                if not request.answers.done():
                    request.answers.set_exception(error)
            return
        answers = iter(found)
        for request in requests:
            own = [next(answers) for _ in request.asked]
            if not request.answers.done():
                request.answers.set_result(own)

    async def run(self, function: Callable[[], Result]) -> Result:
        """Call a function after what waits for the models already. Raises Refused where that takes too long."""
        with self._counted():
            return await self._in_time(self._in_thread(function), lambda: True)

    def _in_thread(self, function: Callable[[], Result]) -> asyncio.Future[Result]:
        return asyncio.get_running_loop().run_in_executor(self.thread, function)

    def close(self) -> None:
        """End the thread, after what it is doing."""
        self.thread.shutdown(cancel_futures=True)
