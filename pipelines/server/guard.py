"""What stands before every request: the token, and counting; refusals and errors become short answers in JSON."""

from __future__ import annotations

import hmac
import sys
import time
import traceback

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines.server.limits import Limits, Refused
from pipelines.server.metrics import Metrics
from pipelines.server.sent import Answer

HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"content-security-policy": b"default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    b"frame-ancestors 'none'",
}
OPEN = ("/health", "/docs", "/openapi.json")  # without a token, as are the files of the page


class Guard:
    """Middleware around the whole application."""

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics):
        self.app, self.limits, self.metrics = app, limits, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS.items()]
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, receive, sent)
        except Refused as refused:
            retry = {"retry-after": "1"} if refused.status == 429 else {}
            await Answer({"error": str(refused)}, refused.status, retry)(scope, receive, sent)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            if status:  # the answer has begun
                raise
            await Answer({"error": "the server failed; its log says why"}, 500)(scope, receive, sent)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self.metrics.count(route, status, time.perf_counter() - began)

    def _check(self, scope: Scope) -> None:
        """Raise Refused for a request that lacks the token where one is needed."""
        is_file = scope["method"] in ("GET", "HEAD") and not scope["path"].startswith(("/runs", "/v1", "/metrics"))
        if self.limits.token is None or is_file or scope["path"] in OPEN:
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        if not hmac.compare_digest(given, f"Bearer {self.limits.token}".encode()):
            raise Refused(401, "this server asks for a token: authorization: Bearer TOKEN")
