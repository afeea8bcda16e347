"""Guards before every route: who may ask, how much and how slowly; refusals and errors become short JSON answers."""

import asyncio
import contextlib
import hmac
import ipaddress
import sys
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from pipelines.server.limits import Limits, Refused
from pipelines.server.metrics import Metrics
from pipelines.server.sent import Answer

HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"content-security-policy": b"default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    b"script-src 'self' https://appsforoffice.microsoft.com; frame-ancestors 'none'",  # Word's pane
}
OPEN = ("/health", "/docs", "/openapi.json")  # without a token, like the files of the page


class Guard:
    """The middleware, which counts requests, too; they must address one of the `hosts`, if given, or an IP address."""

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics, hosts: Collection[str] | None):
        self.app, self.limits, self.metrics, self.hosts = app, limits, metrics, hosts
        self.held = 0  # bytes in the bodies of unanswered requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, held = time.perf_counter(), 0, 0
        scope = {**scope, "path": scope["path"].rstrip("/") or "/"}  # a redirect would cost some clients their body

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                retry = [(b"retry-after", b"1")] if status == 429 else []
                message["headers"] = [*message["headers"], *HEADERS.items(), *retry]
            await send(message)

        try:
            headers = dict(scope["headers"])
            self._admit(scope, headers)
            held = self._hold(headers)
            await self.app(scope, self._bounded(receive), sent)
        except Refused as refused:
            await Answer({"error": refused.detail}, refused.status_code)(scope, receive, sent)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            if status:  # the answer has begun
                raise
            await Answer({"error": "the server failed; its log says why"}, 500)(scope, receive, sent)
        finally:
            self.held -= held
            self.metrics.count(getattr(scope.get("route"), "path", "none"), status, time.perf_counter() - began)

    def _admit(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Raise Refused for requests from other sites' pages, to foreign host names, or without a token.

        A page can forge neither its origin nor the name it was loaded from (DNS rebinding). A token, which no other
        page has, suffices where it is required. Bodies must be JSON: any page may send others without a preflight.
        """
        asked, origin = headers.get(b"host", b"").lower(), headers.get(b"origin")
        if self.hosts is not None and not self._is_own(asked):
            raise Refused(400, f"host {_shown(asked)} is not this server; use {' or '.join(self.hosts)}")
        if self.limits.token is None and origin is not None and origin.lower().partition(b"://")[2] != asked:
            raise Refused(403, f"pages of other sites are not answered (origin {_shown(origin)})")

        is_file = scope["method"] in ("GET", "HEAD") and not scope["path"].startswith(("/runs", "/v1", "/metrics"))
        needs_token = self.limits.token is not None and not is_file and scope["path"] not in OPEN
        given, token = headers.get(b"authorization", b""), f"Bearer {self.limits.token}".encode()
        if needs_token and not hmac.compare_digest(given, token):
            raise Refused(401, "this server requires a token: authorization: Bearer TOKEN")
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if scope["method"] == "POST" and kind != b"application/json":
            raise Refused(415, f"the body needs the header content-type: application/json (given {_shown(kind)})")

    def _is_own(self, host: bytes) -> bool:
        """Return whether a Host header has one of the server's own names, or an address, which DNS cannot redirect."""
        name = ""
        with contextlib.suppress(ValueError):
            name = urlsplit(f"//{host.decode('ascii')}").hostname or ""
            return bool(ipaddress.ip_address(name))
        return name in (self.hosts or ())

    def _bounded(self, receive: Receive) -> Receive:
        """Return a `receive` that raises Refused for a body too long or too late."""
        end, size, whole = time.monotonic() + self.limits.seconds, 0, False

        async def received() -> Message:
            nonlocal size, whole
            if whole:  # all that can follow is that the client leaves
                return await receive()
            try:
                async with asyncio.timeout(end - time.monotonic()):
                    message = await receive()
            except TimeoutError:
                raise Refused(408, f"the body did not arrive within {self.limits.seconds:g} s") from None
            size, whole = size + len(message.get("body", b"")), not message.get("more_body", False)
            if size > self.limits.body_bytes:
                raise Refused(413, f"the body has more than {self.limits.body_bytes} bytes")
            return message

        return received

    def _hold(self, headers: Mapping[bytes, bytes]) -> int:
        """Count the bytes of a body as held, and return them; Refused for too many: parsed, they take more."""
        length, most = headers.get(b"content-length", b""), self.limits.body_bytes
        # A body in chunks may be of any size, whatever length is given beside it.
        size = most if b"transfer-encoding" in headers else int(length) if length.isdigit() else 0
        if size > most:
            raise Refused(413, f"the body has more than {most} bytes")
        if self.held + size > most * self.limits.bodies:
            raise Refused(429, f"bodies of {self.held} bytes are unanswered; try later")
        self.held += size
        return size


def _shown(text: bytes) -> str:
    return repr(text[:100].decode("latin-1"))


class Connection(H11Protocol):
    """A connection that closes when headers take longer than the idle time, or nothing is read that long."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for headers."""
        super().connection_made(transport)
        self.clocks: dict[str, asyncio.TimerHandle] = {}
        self._start("late", transport.close)

    def data_received(self, data: bytes) -> None:
        """Take bytes, and time the arrival of headers."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._start("late", self.transport.close)
        else:
            self._stop("late")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop both clocks."""
        self._stop("late", "full")
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the clock of a client that does not read."""
        super().pause_writing()
        self._start("full", self.transport.abort)

    def resume_writing(self) -> None:
        """Stop it: the client reads again."""
        self._stop("full")
        super().resume_writing()

    def _start(self, clock: str, then: Callable[[], None]) -> None:
        if clock not in self.clocks:
            self.clocks[clock] = self.loop.call_later(self.timeout_keep_alive, then)

    def _stop(self, *clocks: str) -> None:
        for clock in self.clocks.keys() & {*clocks}:
            self.clocks.pop(clock).cancel()
