"""What is sent back: JSON, and server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

FAREWELL_SECONDS = 1.0  # in which a client takes the last event


class Answer(JSONResponse):
    """JSON in ASCII, so that text of any kind can be sent."""

    def render(self, content: Any) -> bytes:
        return to_json(content)


def to_json(content: Any) -> bytes:
    """Return a value as JSON in ASCII. Raises ValueError for NaN and infinity, which JSON has not."""
    return json.dumps(content, allow_nan=False).encode("ascii")


class Events(StreamingResponse):
    """A text as server-sent events: one for each piece, as `shown` makes it, and one of the bytes `last`.

    `pieces` are closed when all was sent, when the client is gone, and when it took more than `seconds`: then an error
    is the last event.
    """

    def __init__(self, pieces: AsyncGenerator[str], shown: Callable[[str], Any], last: bytes, seconds: float):
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(pieces, headers=headers, media_type="text/event-stream")
        self.pieces, self.shown, self.last, self.seconds = pieces, shown, last, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self.pieces):
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        """Send the events, or as many as a client takes that reads too slowly."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        last = self.last
        try:
            async with asyncio.timeout(self.seconds):
                async for piece in self.pieces:
                    if piece:
                        await send(_event(to_json(self.shown(piece)), True))
        except TimeoutError:
            last = to_json({"error": f"the answer took more than {self.seconds:g} s"})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await send(_event(last, False))


def _event(data: bytes, more: bool) -> Message:
    return {"type": "http.response.body", "body": b"data: " + data + b"\n\n", "more_body": more}
