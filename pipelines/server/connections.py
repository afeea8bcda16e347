"""Connections whose requests must begin, and whose answers must be taken, in time."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """A connection that ends where a request's headers do not arrive within the seconds that it may be idle.

    uvicorn waits for them as long as something comes, or nothing has yet; h11 bounds how much they are. It ends, too,
    where its client takes nothing of an answer for so long: closed in the usual way, it would wait to be read.
    """

    late: asyncio.TimerHandle | None = None
    full: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Read what has come; see the class."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._expect()
        else:
            self._arrived()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        self._taken()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Hear that the client has not read what fills the buffer."""
        super().pause_writing()
        self.full = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def resume_writing(self) -> None:
        """Hear that the client reads again."""
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
