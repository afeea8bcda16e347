"""What is sent back: JSON, and server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import JSONResponse, StreamingResponse


class Answer(JSONResponse):
    """JSON in ASCII, so that text of any kind can be sent."""

    def render(self, content: Any) -> bytes:
        return to_json(content)


def to_json(content: Any) -> bytes:
    """Return a value as JSON in ASCII. Raises ValueError for NaN and infinity, which JSON has not."""
    return json.dumps(content, allow_nan=False).encode("ascii")


def events(objects: AsyncIterator[Any], last: bytes) -> StreamingResponse:
    """Return server-sent events: one for each object, and one of the bytes `last`."""

    async def lines() -> AsyncIterator[bytes]:
        async for each in objects:
            yield b"data: " + to_json(each) + b"\n\n"
        yield b"data: " + last + b"\n\n"

    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(lines(), media_type="text/event-stream", headers=headers)
