"""Answers to requests to a run: those that arrive while it computes form the next batches.

A batch takes about `TURN_SECONDS`, by the times of such inputs before. A short request goes before those that wait,
which get at least half of the time. Models with a `writer` use continuous batching instead (`continuous_batching.py`).
"""

import asyncio
import contextlib
import functools
import itertools
import json
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import starlette.requests

from common.config import Section, checked
from common.errors import UserError
from common.plain import Plain
from pipelines.answers.trained import Pieces, Trained
from pipelines.server.continuous_batching import Request, Scheduler
from pipelines.server.limits import Limits, Refused, too_large

TURN_SECONDS = 0.5  # that a batch should take at most, if it has several inputs
MUCH = 4  # times the work of a request that may go before another
MOST_KINDS = 10_000  # of inputs whose times are remembered

Result = TypeVar("Result")


def usable(answer: dict[str, Plain]) -> dict[str, Plain]:
    """Return an answer. Raises Refused if it is an error."""
    if "error" in answer:
        raise Refused(422, str(answer["error"]))
    return answer


async def unless_gone(request: starlette.requests.Request, work: Coroutine[object, object, Result]) -> Result:
    """Return the result of `work`, which is cancelled when the client disconnects."""

    async def leaves() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    answer, gone = asyncio.ensure_future(work), asyncio.ensure_future(leaves())
    try:
        await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Refused(499, "the client has gone")
        return answer.result()
    finally:
        answer.cancel()
        gone.cancel()


OnEnd = Callable[[Plain], object]  # gets the reason why a text ended
Kind = tuple[str, int]  # of inputs that take about equally long


@dataclass(eq=False)
class Waiting:
    """An unanswered request."""

    asked: Sequence[object]
    settings: Mapping[str, object]
    at_once: int  # inputs, of any requests, to answer together
    answers: asyncio.Future[list[dict[str, Plain]]]
    found: list[dict[str, Plain]] = field(default_factory=list)  # answers to its first inputs

    @functools.cached_property
    def key(self) -> str:
        """Equal for requests that can be answered together."""
        return json.dumps(self.settings, sort_keys=True)

    @functools.cached_property
    def kinds(self) -> list[Kind]:
        """The kind of each input: its settings, and its size within a fifth."""
        return [(self.key, round(4 * math.log2(len(repr(asked))))) for asked in self.asked]


class Pace:
    """Seconds that kinds of inputs have taken, and the time spent on requests before and in their turn."""

    def __init__(self) -> None:
        self.seconds: dict[Kind, float] = {}
        self.used = {True: 0.0, False: 0.0}  # by requests that went before others, and by those whose turn it was

    def left(self, request: Waiting) -> float:
        """Estimate the time for what is left of a request; unknown kinds count as 0."""
        return sum(self.seconds.get(kind, 0.0) for kind in request.kinds[len(request.found) :])

    def within(self, kinds: Sequence[Kind], seconds: float) -> int:
        """Return how many of the first inputs are estimated to take at most `seconds`; unknown kinds, a turn."""
        total = itertools.accumulate(self.seconds.get(kind, TURN_SECONDS) for kind in kinds)
        return sum(1 for taken in total if taken <= seconds)

    def queue(self, waiting: Sequence[Waiting]) -> tuple[list[Waiting], bool]:
        """Return the requests in the order to answer them, and whether the first goes before its turn."""
        shortest = sorted(waiting, key=self.left)
        before = self.left(shortest[0]) < self.left(waiting[0]) / MUCH and self.used[True] <= self.used[False]
        return (shortest if before else list(waiting)), before

    def learn(self, kinds: Sequence[Kind], seconds: float, before: bool) -> None:
        """Remember what a batch took, shared by its inputs as the estimates were."""
        self.used[before] += seconds
        weights = [self.seconds.get(kind, TURN_SECONDS) for kind in kinds]
        for kind, weight in zip(kinds, weights, strict=True):
            self.seconds.pop(kind, None)  # so that the kinds met last are kept longest
            self.seconds[kind] = seconds * max(weight, 1e-6) / max(sum(weights), 1e-6)
        while len(self.seconds) > MOST_KINDS:
            del self.seconds[next(iter(self.seconds))]


class Answering:
    """The models of a run, in a thread of their own."""

    def __init__(self, trained: Trained, verdict: str, limits: Limits):
        self.trained, self.verdict, self.limits = trained, verdict, limits
        self.thread = ThreadPoolExecutor(1, f"answers of {self.name}")
        self.waiting: deque[Waiting] = deque()
        self.pace = Pace()
        self.wake = asyncio.Event()
        self.open = 0  # unfinished requests, including streams
        self.batches = self.batched = 0  # how often inputs or tokens were computed together, and how many in all
        writer = getattr(trained.first, "writer", None) if len(trained.models) == 1 else None
        self.scheduler = Scheduler(writer(), self._in_thread, self._count) if writer else None

    @property
    def name(self) -> str:
        """WORKLOAD/NAME."""
        return f"{self.trained.workload}/{self.trained.name}"

    @property
    def streams(self) -> bool:
        """Whether the models write text, which can be sent as it is written."""
        return all(hasattr(model, "stream") for model in self.trained.models.values())

    async def answers(self, inputs: Sequence[object], settings: Mapping[str, object]) -> list[dict[str, Plain]]:
        """Return an answer or an error for each input. Raises Refused, and UserError for unusable settings."""
        found, chosen = await asyncio.to_thread(self._read, inputs, settings)
        usable = [asked for asked in found if not isinstance(asked, ValueError)]
        if usable and self.scheduler:
            request = Request(usable, chosen)
            with self._counted():
                written = await self._in_time(self.scheduler.answers(request), lambda: bool(request.texts))
        else:
            written = await self._in_turn(usable, chosen) if usable else []
        answers = iter(written)
        return [{"error": str(asked)} if isinstance(asked, ValueError) else next(answers) for asked in found]

    async def pieces(self, given: object, settings: Mapping[str, object], ended: OnEnd = bool) -> AsyncGenerator[str]:
        """Return the text of an answer piece by piece, and call `ended` with why it ended: length or stop.

        Close it to cancel. Raises as `answers` does.
        """

        def begun() -> AsyncGenerator[str]:
            asked, chosen = self.usable(given, settings)
            if self.scheduler:
                return self.scheduler.pieces(Request([asked], chosen), ended)
            return self._each(self.trained.pieces(asked, settings), ended)

        streamed = self._streamed(await asyncio.to_thread(begun))
        await anext(streamed)  # counted from here on, or refused while the status can still say so
        return streamed

    async def _each(self, pieces: Pieces, ended: OnEnd) -> AsyncGenerator[str]:
        def all_pieces() -> Iterator[str]:
            ended((yield from pieces))

        following = all_pieces()
        while (piece := await self._in_thread(lambda: next(following, None))) is not None:
            yield piece

    async def _streamed(self, pieces: AsyncGenerator[str]) -> AsyncGenerator[str]:
        """Yield "", once counted, and then the pieces."""
        with self._counted():
            yield ""
            async with contextlib.aclosing(pieces):
                async for piece in pieces:
                    yield piece

    def usable(self, given: object, settings: Mapping[str, object]) -> tuple[object, Section]:
        """Validate an input and settings for the models. Raises Refused or UserError."""
        (asked,), chosen = self._read([given], settings)
        if isinstance(asked, ValueError):
            raise Refused(422, str(asked))
        return asked, chosen

    def _read(self, inputs: Sequence[object], settings: Mapping[str, object]) -> tuple[list[object], Section]:
        """Validate inputs, with errors in place of unusable ones, and settings; UserError for unusable settings."""
        chosen = checked(self.trained.inputs.settings, settings, "settings")
        if large := too_large(chosen, self.trained.inputs.served):
            raise UserError(f"settings: {large}")
        found = [self._read_one(each, chosen) for each in inputs]
        usable = [each for each in found if not isinstance(each, ValueError)]
        return found, self.trained.inputs.timed(usable, chosen, self.limits.seconds)

    def _read_one(self, given: object, settings: Section) -> object:
        try:
            asked: object = self.trained.read(given, files=False)
            if self.scheduler:
                asked = self.trained.first.prepared(asked, settings)
        except ValueError as error:  # a UserError is one
            return error
        large = too_large(asked, self.trained.inputs.served)
        return UserError(large) if large else asked

    async def _in_turn(self, asked: Sequence[object], settings: Section) -> list[dict[str, Plain]]:
        at_once, answers = self.trained.inputs.together(settings), asyncio.get_running_loop().create_future()
        own = Waiting(asked, settings.model_dump(exclude_unset=True), at_once, answers)
        with self._counted():
            self.waiting.append(own)
            self.wake.set()
            try:
                return await self._in_time(own.answers, lambda: bool(own.found) or own not in self.waiting)
            finally:
                if own in self.waiting:
                    self.waiting.remove(own)

    async def _in_time(self, result: Awaitable[Result], begun: Callable[[], bool]) -> Result:
        """Await a result. Raises Refused after the time limit: with 503 if it had `begun`, else 429."""
        try:
            return await asyncio.wait_for(result, self.limits.seconds)
        except TimeoutError:
            if begun():
                raise Refused(503, f"the answer took more than {self.limits.seconds:g} s") from None
            raise Refused(429, f"no answer within {self.limits.seconds:g} s: too many requests; try later") from None

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        if self.open >= self.limits.waiting:
            raise Refused(429, f"{self.open} requests to this run are unanswered; try later")
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    async def work(self) -> None:
        """Answer waiting requests forever."""
        if self.scheduler:
            await self.scheduler.work()
        while True:
            await self.wake.wait()
            self.wake.clear()
            self.pace.used = {True: 0.0, False: 0.0}
            while self.waiting:
                queue, before = self.pace.queue(list(self.waiting))
                await self._answer(self._together(queue), before)

    def _together(self, queue: Sequence[Waiting]) -> list[tuple[Waiting, int]]:
        """Dequeue the first request and those to batch with it; return each with its number of inputs."""
        first, chosen, taken = queue[0], [], list[Kind]()
        for each in queue:
            if each.key == first.key:
                kinds = each.kinds[len(each.found) :][: first.at_once - len(taken)]
                number = self.pace.within([*taken, *kinds], TURN_SECONDS) - len(taken)
                if number := max(number, 0 if taken else 1):
                    chosen.append((each, number))
                    taken += kinds[:number]
                    self.waiting.remove(each)
        self._count(len(taken))
        return chosen

    def _count(self, together: int) -> None:
        self.batches, self.batched = self.batches + 1, self.batched + together

    async def _answer(self, chosen: Sequence[tuple[Waiting, int]], before: bool) -> None:
        """Answer the next inputs of requests; those with more left go to the end of the queue."""
        parts = [(each, slice(len(each.found), len(each.found) + number)) for each, number in chosen]
        whole = [asked for each, part in parts for asked in each.asked[part]]
        together = functools.partial(self.trained.together, whole, chosen[0][0].settings)
        began = time.perf_counter()
        try:
            found = iter(await self._in_thread(together))
        except Exception as error:  # raised to the clients concerned; others are served on
            for request, _ in chosen:
                if not request.answers.done():
                    request.answers.set_exception(error)
            return
        kinds = [kind for each, part in parts for kind in each.kinds[part]]
        self.pace.learn(kinds, time.perf_counter() - began, before)
        for request, number in chosen:
            request.found += itertools.islice(found, number)
            if request.answers.done():  # given up
                continue
            if len(request.found) < len(request.asked):
                self.waiting.append(request)
            else:
                request.answers.set_result(request.found)

    async def run(self, function: Callable[[], Result]) -> Result:
        """Call a function in the models' thread, after what already waits there. Raises Refused after too long."""
        with self._counted():
            return await self._in_time(self._in_thread(function), lambda: True)

    def _in_thread(self, function: Callable[[], Result]) -> asyncio.Future[Result]:
        return asyncio.get_running_loop().run_in_executor(self.thread, function)

    def close(self) -> None:
        """End the thread after its current work."""
        self.thread.shutdown(cancel_futures=True)
