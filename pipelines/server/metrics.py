"""GET /metrics: counts and seconds of requests, and figures of the runs and the process."""

import time
from collections import defaultdict
from collections.abc import Iterable

import psutil

from pipelines.report.markup import beside
from pipelines.server.answering import Answering


class Metrics:
    """Requests by route and status, and the seconds that they took."""

    def __init__(self) -> None:
        self.requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.seconds: defaultdict[tuple[str, int], float] = defaultdict(float)

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is one of the server's own, which bounds their number."""
        self.requests[route, status] += 1
        self.seconds[route, status] += seconds

    def text(self, runs: Iterable[Answering]) -> str:
        """Return the counters."""
        counted = {"requests_total": self.requests, "request_seconds_total": self.seconds}
        own = {"resident": psutil.Process().memory_info().rss, "seconds": time.process_time()}
        return str(beside(__file__, "metrics.txt", counted=counted, runs=list(runs), **own))
