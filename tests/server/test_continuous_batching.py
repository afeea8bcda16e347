"""Texts of many requests side by side, by a writer whose texts have a known number of tokens."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from pipelines.server import continuous_batching
from pipelines.server.continuous_batching import Request, Scheduler

PLACES = 8


class Counting:
    """Writes as many signs as are asked for; its texts are written side by side one sign at a time."""

    def __init__(self):
        self.sizes = []  # how many texts were written side by side, sign by sign

    def begun(self, length, settings):
        assert length >= 0, "this one cannot be begun"
        text = SimpleNamespace(length=length, written="", told=0, ended=False)
        text.answer = lambda: {"text": text.written}
        text.taken = lambda: self.take(text)
        return text

    def take(self, text):
        begin, text.told = text.told, len(text.written)
        return text.written[begin:]

    def advance(self, texts):
        self.sizes.append(len(texts))
        assert len(texts) <= PLACES
        for text in texts:
            assert not text.ended
            assert text.length, "this one cannot be written"
            text.written += "a"
            text.ended = len(text.written) == text.length


@contextlib.asynccontextmanager
async def working(monkeypatch):
    """A scheduler that works, a sign a turn."""
    monkeypatch.setattr(continuous_batching, "TURN_SECONDS", -1)
    monkeypatch.setattr(continuous_batching, "PLACES", PLACES)
    writer = Counting()
    scheduler = Scheduler(writer, asyncio.to_thread, lambda _: None)
    task = asyncio.create_task(scheduler.work())
    try:
        yield scheduler, writer
    finally:
        task.cancel()


def test_short_texts_do_not_wait_for_long_ones_and_a_request_leaves_places_to_others(monkeypatch):
    async def asked():
        async with working(monkeypatch) as (scheduler, writer):
            long = asyncio.create_task(scheduler.answers(Request([100_000] * 64, None)))
            while len(writer.sizes) < 30:
                await asyncio.sleep(0.001)
            assert writer.sizes[-1] == PLACES // 2
            before = len(writer.sizes)
            answers = await scheduler.answers(Request([3, 1, 5], None))
            assert len(writer.sizes) - before < 20
            assert [len(answer["text"]) for answer in answers] == [3, 1, 5]  # in their order
            assert not long.done()
            long.cancel()

    asyncio.run(asked())


def test_as_many_as_there_are_places_wait_for_no_other(monkeypatch):
    async def asked():
        async with working(monkeypatch) as (scheduler, writer):
            found = await asyncio.gather(*(scheduler.answers(Request([9], None)) for _ in range(20)))
            assert [len(answers[0]["text"]) for answers in found] == [9] * 20
            assert max(writer.sizes) == PLACES
            assert len(writer.sizes) < 9 * 20 / 3

    asyncio.run(asked())


def test_a_stream_is_told_as_it_is_written_and_what_nobody_wants_is_not_written(monkeypatch):
    async def asked():
        async with working(monkeypatch) as (scheduler, writer):
            streamed = [piece async for piece in scheduler.pieces(Request([5], None))]
            assert ("".join(streamed), max(map(len, streamed))) == ("aaaaa", 1)
            endless = scheduler.pieces(Request([10**9], None))
            waited = asyncio.create_task(asyncio.wait_for(scheduler.answers(Request([10**9], None)), 0.1))
            assert await anext(endless) == "a"
            await endless.aclose()
            with pytest.raises(TimeoutError):
                await waited
            assert not scheduler.requests
            written = len(writer.sizes)
            await asyncio.sleep(0.05)
            assert len(writer.sizes) <= written + 1

    asyncio.run(asked())


def test_a_fault_is_told_to_those_who_asked_and_the_next_are_answered(monkeypatch):
    async def asked():
        async with working(monkeypatch) as (scheduler, _):
            with pytest.raises(AssertionError, match="this one cannot be written"):
                await scheduler.answers(Request([0], None))
            with pytest.raises(AssertionError, match="this one cannot be written"):
                [piece async for piece in scheduler.pieces(Request([0], None))]
            assert await scheduler.answers(Request([2], None)) == [{"text": "aa"}]

    asyncio.run(asked())


def test_a_text_that_cannot_be_begun_ends_its_own_request_alone(monkeypatch):
    async def asked():
        async with working(monkeypatch) as (scheduler, writer):
            other = asyncio.create_task(scheduler.answers(Request([400], None)))
            while not writer.sizes:
                await asyncio.sleep(0.001)
            with pytest.raises(AssertionError, match="this one cannot be begun"):
                await scheduler.answers(Request([5, -1, 5], None))
            assert await other == [{"text": "a" * 400}]

    asyncio.run(asked())


def test_a_turn_writes_as_many_tokens_as_it_has_time_for(monkeypatch):
    async def asked():
        async with working(monkeypatch) as (scheduler, _):
            monkeypatch.setattr(continuous_batching, "TURN_SECONDS", 10)
            pieces = [piece async for piece in scheduler.pieces(Request([1000], None))]
            assert pieces == ["a" * 1000]

    asyncio.run(asked())
