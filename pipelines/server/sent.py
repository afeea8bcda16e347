"""Responses: JSON, and server-sent events."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

Piece = TypeVar("Piece")
FAREWELL_SECONDS = 1.0  # for a client to take the last event


class Answer(JSONResponse):
    """JSON in ASCII, so that lone surrogates can be sent."""

    def render(self, content: object) -> bytes:
        """Return the body."""
        return to_json(content)


def to_json(content: object) -> bytes:
    """Return a value as JSON in ASCII. Raises ValueError for NaN and infinity."""
    return json.dumps(content, allow_nan=False).encode("ascii")


class Events(StreamingResponse, Generic[Piece]):
    """Server-sent events: `shown(piece)` for each of `pieces`, which are closed at the end, then `last` or an error."""

    def __init__(self, pieces: AsyncGenerator[Piece], shown: Callable[[Piece], object], last: bytes, seconds: float):
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__((), headers=headers, media_type="text/event-stream")
        self.pieces, self.shown, self.last, self.seconds = pieces, shown, last, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, and close the pieces."""
        async with contextlib.aclosing(self.pieces):
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        """Send the events, or as many as a slow client takes in time."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

        async def event(data: bytes, more: bool) -> None:
            await send({"type": "http.response.body", "body": b"data: " + data + b"\n\n", "more_body": more})

        try:
            async with asyncio.timeout(self.seconds):
                async for piece in self.pieces:
                    if piece:
                        await event(to_json(self.shown(piece)), True)
        except TimeoutError:
            self.last = to_json({"error": f"the answer took more than {self.seconds:g} s"})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await event(self.last, False)
