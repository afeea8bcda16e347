"""A run that answers requests: those that arrive while it computes are answered together afterwards.

Models that write texts side by side begin with those that arrive at once (`scheduling.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from common.config import checked
from common.errors import UserError
from common.input_files import Given
from pipelines.answers.trained import Trained
from pipelines.server.limits import Limits, Refused, too_large
from pipelines.server.scheduling import PLACES, Request, Scheduler

Result = TypeVar("Result")


@dataclass(eq=False)
class Waiting:
    """A request that is not answered yet."""

    asked: Sequence[Any]
    settings: Mapping[str, Any]
    at_once: int  # inputs, of any requests, that are answered together
    answers: asyncio.Future[list[dict[str, Any]]]
    found: list[dict[str, Any]] = field(default_factory=list)  # answers to the first of its inputs

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
        self.scheduler: Scheduler | None = None
        if len(trained.models) == 1 and hasattr(model := next(iter(trained.models.values())), "writer"):
            self.scheduler = Scheduler(model.writer(), PLACES, self._in_thread, self._count)

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
            answers = iter(await self._in_turn(usable, settings, chosen) if usable else [])
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

    async def _in_turn(self, asked: Sequence[Any], settings: Mapping[str, Any], chosen: Any) -> list[dict[str, Any]]:
        """Return answers to inputs, together with those of other requests; `chosen` are the settings as a Section."""
        at_once = self.trained.inputs.together(chosen)
        own = Waiting(asked, settings, at_once, asyncio.get_running_loop().create_future())
        with self._counted():
            self.waiting.append(own)
            self.wake.set()
            try:
                return await self._in_time(own.answers, lambda: bool(own.found) or own not in self.waiting)
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

    def _together(self) -> list[tuple[Waiting, Sequence[Any]]]:
        """Take inputs of the first request that waits, and of others that can be answered with them."""
        first, chosen = self.waiting[0], []
        room = first.at_once
        for each in list(self.waiting):
            if room and each.key == first.key:
                chosen.append((each, each.asked[len(each.found) :][:room]))
                room -= len(chosen[-1][1])
                self.waiting.remove(each)
        self._count(first.at_once - room)
        return chosen

    def _count(self, together: int) -> None:
        self.batches, self.batched = self.batches + 1, self.batched + together

    async def _answer(self, chosen: Sequence[tuple[Waiting, Sequence[Any]]]) -> None:
        """Answer some inputs of requests; those with more of them go to the end of the queue."""
        whole = [each for _, inputs in chosen for each in inputs]
        together = functools.partial(self.trained.together, whole, chosen[0][0].settings)
        try:
            found = iter(await self._in_thread(together))
        except Exception as error:  # told to those who asked, and the next ones are answered
            for request, _ in chosen:
                if not request.answers.done():
                    request.answers.set_exception(error)
            return
        for request, inputs in chosen:
            request.found += itertools.islice(found, len(inputs))
            if request.answers.done():  # nobody waits any longer
                continue
            if len(request.found) < len(request.asked):
                self.waiting.append(request)
            else:
                request.answers.set_result(request.found)

    async def run(self, function: Callable[[], Result]) -> Result:
        """Call a function after what waits for the models already. Raises Refused where that takes too long."""
        with self._counted():
            return await self._in_time(self._in_thread(function), lambda: True)

    def _in_thread(self, function: Callable[[], Result]) -> asyncio.Future[Result]:
        return asyncio.get_running_loop().run_in_executor(self.thread, function)

    def close(self) -> None:
        """End the thread, after what it is doing."""
        self.thread.shutdown(cancel_futures=True)
