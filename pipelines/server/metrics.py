"""Counters in the text format of Prometheus."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable

import psutil

from pipelines.server.answering import Answering

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)  # seconds


class Metrics:
    """Requests by route and status, with their durations."""

    def __init__(self) -> None:
        self.requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.within: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(BOUNDS))

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is one of the server's own, which bounds their number."""
        self.requests[route, status] += 1
        self.seconds[route] += seconds
        for place, bound in enumerate(BOUNDS):
            self.within[route][place] += seconds <= bound

    def text(self, runs: Iterable[Answering]) -> str:
        """Return the counters."""
        lines = ["# TYPE requests_total counter"]
        lines += [
            f'requests_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(self.requests.items())
        ]
        lines.append("# TYPE request_seconds histogram")
        for route, total in sorted(self.seconds.items()):
            count = sum(each for (own, _), each in self.requests.items() if own == route)
            for bound, within in zip((*BOUNDS, "+Inf"), (*self.within[route], count), strict=True):
                lines.append(f'request_seconds_bucket{{route="{route}",le="{bound}"}} {within}')
            lines += [f'request_seconds_sum{{route="{route}"}} {total:.6f}']
            lines += [f'request_seconds_count{{route="{route}"}} {count}']
        for kind, name in (("gauge", "open"), ("counter", "batches"), ("counter", "batched")):
            lines.append(f"# TYPE run_{name} {kind}")
            lines += [f'run_{name}{{run="{run.name}"}} {getattr(run, name)}' for run in runs]
        lines += ["# TYPE resident_bytes gauge", f"resident_bytes {psutil.Process().memory_info().rss}"]
        lines += ["# TYPE cpu_seconds_total counter", f"cpu_seconds_total {time.process_time():.3f}"]
        return "\n".join(lines) + "\n"
