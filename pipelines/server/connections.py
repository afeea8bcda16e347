"""Connections that close on clients too slow to send their headers or to read their answers."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """A connection that closes when headers take longer than the idle time, which uvicorn alone would wait out.

    It is also aborted when its client reads nothing of an answer for that long; a regular close would wait for the
    client. h11 bounds the size of headers.
    """

    late: asyncio.TimerHandle | None = None
    full: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for headers."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Take bytes, and watch the time until headers are whole."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._expect()
        else:
            self._arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop both clocks."""
        self._arrived()
        self._taken()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the clock of a client that does not read."""
        super().pause_writing()
        self.full = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop it: the client reads again."""
        self._taken()
        super().resume_writing()

    def _taken(self) -> None:
        if self.full is not None:
            self.full.cancel()
            self.full = None

    def _expect(self) -> None:
        if self.late is None:
            self.late = self.loop.call_later(self.timeout_keep_alive, self.transport.close)

    def _arrived(self) -> None:
        if self.late is not None:
            self.late.cancel()
            self.late = None
