"""Put a server under load: answers and times of 1, 8 and 64 clients, memory, and requests that are nearly right.

    python tests/server/load.py cvrp/default tinystories/default bep/default crypto/default/AAAUSDT lmol/default

The server is a process of its own; server and clients share this machine. To each run, every number of clients sends
--requests in all; then 8 clients send --memory requests to all runs in turn, and --mutated ones with changes. The last
line is an object in JSON.
"""

import argparse
import asyncio
import base64
import contextlib
import io
import itertools
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

import numpy as np
from PIL import Image

from tests.server.client import Client
from tests.server.mutations import Asked, mutated

CLIENTS = (1, 8, 64)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="as pipelines/serve.py takes them")
    parser.add_argument("--requests", type=int, default=256, help="of each run and number of clients; 256")
    parser.add_argument("--memory", type=int, default=10_000, help="requests between two looks at the memory; 10,000")
    parser.add_argument("--mutated", type=int, default=10_000, help="requests with changes; 10,000")
    args = parser.parse_args(words)
    with serving(args.runs) as port:
        found = asyncio.run(measured(port, args.requests, args.memory, args.mutated))
    print(json.dumps(found))
    lost = found["lost"] or found["mutated"]["lost"] or any(int(status) >= 500 for status in found["mutated"]["status"])
    return int(bool(lost))


@contextlib.contextmanager
def serving(words: Sequence[str], folder: Path | None = None) -> Iterator[int]:
    """Run pipelines/serve.py within the block, and yield its port; it must end well within seconds of SIGTERM."""
    command = [sys.executable, str(ROOT / "pipelines/serve.py"), *words, "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline()
        yield int(re.search(r":(\d+)/", said)[1])
    finally:
        process.terminate()
        status = process.wait(60)
        process.stdout.close()
    assert status in (0, -15, 143), status


async def measured(port: int, requests: int, memory: int, changed: int) -> dict[str, Any]:
    """Return the figures of a server."""
    client = Client(port)
    runs = json.loads((await client.ask("/runs"))[1])
    client.close()
    questions = {run["name"]: question(run) for run in runs}
    rows, lost = {}, 0
    for name, asked in questions.items():
        first = Client(port)
        await one(first, asked(0))  # what a first request takes, such as starting threads
        first.close()
        for number in CLIENTS:
            used = await gauge(port, "cpu_seconds_total")
            seconds, statuses, wall = await by_clients(port, number, [asked(i) for i in range(requests)])
            used = await gauge(port, "cpu_seconds_total") - used
            lost += requests - statuses[200]
            row = {"p50_ms": np.quantile(seconds, 0.5) * 1000, "p95_ms": np.quantile(seconds, 0.95) * 1000}
            row |= {"core_ms": 1000 * used / requests, "requests_per_s": requests / wall}
            rows[f"{name}, {number}"] = row
            print(f"{name:28} {number:3} clients  " + "  ".join(f"{k} {v:9.2f}" for k, v in row.items()), flush=True)
    turns = itertools.islice(itertools.cycle(questions.values()), memory)
    everything = [short(asked(number)) for number, asked in enumerate(turns)]
    warm = min(1000, memory // 4)
    _, statuses, _ = await by_clients(port, 8, everything[:warm])
    before = await gauge(port, "resident_bytes")
    _, more, _ = await by_clients(port, 8, everything[warm:])
    after = await gauge(port, "resident_bytes")
    lost += memory - (statuses + more)[200]
    print(f"{memory} requests: {before / 2**20:.1f} MiB, then {after / 2**20:.1f} MiB", flush=True)
    bases = [short(asked(0)) for asked in questions.values()] + others(runs)
    wrong = [mutated(bases[seed % len(bases)], seed) for seed in range(changed)]
    _, told, _ = await by_clients(port, 8, wrong)
    print(f"{changed} changed requests: {dict(told)}", flush=True)
    assert await gauge(port, "resident_bytes")
    return {
        "p95": rows,
        "lost": lost,
        "memory": {"before_bytes": before, "after_bytes": after, "growth_percent": 100 * (after / before - 1)},
        "mutated": {"status": {str(key): count for key, count in sorted(told.items())}, "lost": told[0]},
    }


async def one(client: Client, asked: Asked) -> int:
    """Return the status of an answer, 0 where none came."""
    try:
        return (await client.ask(asked.path, asked.body, asked.method, asked.headers))[0]
    except (OSError, EOFError, ValueError) as error:
        print(f"no answer to {asked.method} {asked.path}: {error!r}", file=sys.stderr)
        client.close()
        return 0


async def by_clients(port: int, number: int, asked: Sequence[Asked]) -> tuple[list[float], Counter[int], float]:
    """Send requests by a number of clients, each the next one when it has its answer; return times, statuses, wall."""
    remaining, seconds, statuses = iter(asked), [], Counter()

    async def work() -> None:
        client = Client(port)
        for each in remaining:
            began = time.perf_counter()
            statuses[await one(client, each)] += 1
            seconds.append(time.perf_counter() - began)
        client.close()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(number)))
    return seconds, statuses, time.perf_counter() - began


async def gauge(port: int, name: str) -> float:
    """Return a figure of the server."""
    client = Client(port)  # another one may have been idle for too long
    text = (await client.ask("/metrics"))[1].decode()
    client.close()
    return float(re.search(rf"^{name} (\S+)", text, re.MULTILINE)[1])


def question(run: Mapping[str, Any]) -> Callable[[int], Asked]:
    """Return a function from a number to a request to a run, all of one kind and size."""
    inputs, settings = INPUTS[run["workload"]]
    path = f"/runs/{run['name']}/predict"
    return lambda number: Asked(path, {"inputs": [inputs(number, run["model"])], "settings": settings})


def short(asked: Asked) -> Asked:
    """Return a request with less text to answer."""
    settings = asked.body["settings"]
    return asked._replace(
        body={**asked.body, "settings": {**settings, "length": 5} if "length" in settings else settings}
    )


def others(runs: Sequence[Mapping[str, Any]]) -> list[Asked]:
    """Return a request to each of the other endpoints."""
    found = [Asked("/suggest", {"field_type": "projectScope", "partial_text": "The", "max_length": 5})]
    found.append(Asked("/generate", {"prompt": "The", "max_length": 5, "temperature": 0.5}))
    found += [Asked(path, None, "GET") for path in ("/health", "/runs", "/docs", "/openapi.json", "/v1/models", "/")]
    for run in runs:
        inputs, settings = INPUTS[run["workload"]]
        given = {"input": inputs(0, run["model"]), "settings": settings}
        path = f"/runs/{run['name']}"
        if run["model"]["streams"]:
            few = {**given, "settings": {"length": 5}}
            words = {"model": run["name"], "prompt": "The", "max_tokens": 5, "stop": "."}
            found += [Asked(f"{path}/stream", few), Asked("/v1/completions", words)]
        elif run["workload"] == "cvrp":
            found.append(Asked(f"{path}/rivals", {**given, "milliseconds": 1}))
    return found


def _problem(number: int, model: Mapping[str, Any]) -> dict[str, Any]:
    generator = np.random.default_rng(number)
    customers, demands = generator.random((20, 2)).tolist(), generator.integers(1, 10, 20).tolist()
    return {"depot": [0.5, 0.5], "customers": customers, "demands": demands, "capacity": 30}


def _candles(number: int, model: Mapping[str, Any]) -> dict[str, Any]:
    generator = np.random.default_rng(number)
    close = 100 * np.exp(np.cumsum(generator.normal(0, 0.004, 300)))
    first = np.concatenate([[100.0], close[:-1]])
    columns = {"open": first, "high": np.maximum(first, close), "low": np.minimum(first, close), "close": close}
    step = model["timeframe_ms"]
    time_ms = (1_700_000_000_000 // step + np.arange(300)) * step
    values = {name: column.tolist() for name, column in {"time": time_ms, **columns, "volume": close}.items()}
    return {"coin": model["coins"][number % len(model["coins"])], "candles": values}


def _pair(number: int, model: Mapping[str, Any]) -> dict[str, Any]:
    def picture(seed: int) -> str:
        file = io.BytesIO()
        pixels = np.random.default_rng(seed).integers(0, 256, (32, 32), dtype=np.uint8)
        Image.fromarray(pixels).save(file, "PNG")
        return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()

    return {"first": picture(2 * number), "second": picture(2 * number + 1)}


Make = Callable[[int, Mapping[str, Any]], dict[str, Any]]
INPUTS: dict[str, tuple[Make, dict[str, Any]]] = {
    "cvrp": (_problem, {}),
    "tinystories": (lambda number, model: {"prompt": "Once upon a time", "item": number}, {"length": 30}),
    "bep": (lambda number, model: {"field": "projectScope", "item": number}, {"length": 30}),
    "crypto": (_candles, {"now": "newest"}),
    "lmol": (_pair, {}),
}

FEWER = {"cvrp": {"augment": False, "starts": 4}}  # settings of requests that are answered sooner

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
