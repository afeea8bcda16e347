"""Connections whose requests must begin in time."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """A connection that is closed where a request's headers do not arrive within the seconds that it may be idle.

    uvicorn waits for them as long as something comes, or nothing has yet; h11 bounds how much they are.
    """

    late: asyncio.TimerHandle | None = None

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
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self.late is None:
            self.late = self.loop.call_later(self.timeout_keep_alive, self.transport.close)

    def _arrived(self) -> None:
        if self.late is not None:
            self.late.cancel()
            self.late = None
