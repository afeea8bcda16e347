"""Measure the suggestion of clauses.

    python -m tests.peers.clause_figures found          # hits of held-out embedded plans, beside TF-IDF and others
    python -m tests.peers.clause_figures fields [8:16]  # what a firm of these plans (of 16) suggests for every field
    python -m tests.peers.clause_figures speed          # in a plan of 140,000 characters, and of eight clients at once

`speed` is of the model that ships, on one thread: CPU-ms of a suggestion after the first reading, and over HTTP, server
and clients together, the 95th percentile of the wait in seconds, by session and with `document`.
"""

import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from models import io
from models.plans.fields import FIELDS
from models.plans.library import Document, Library
from models.plans.outline import divide
from models.plans.suggester import Suggester
from pipelines.server.limits import Limits
from pipelines.workloads.bep import clause_finding, data
from tests.server.test_server import ask, served

MODEL, LONG = Path(__file__).resolve().parents[2] / "models/pretrained/bep-plans", 140_000
ASKED = ("clashDetection", "projectScope", "handoverRequirements", "cdeWorkflow", "securityMeasures", "midpDescription")
CLIENTS, TIMES = 8, 15


def plans() -> list[Document]:
    """Return the embedded plans, a project each."""
    texts = {path.name: path.read_text() for path in sorted(data.EMBEDDED.glob("*.md"))}
    return [Document(name, name, text, divide(text)) for name, text in texts.items()]


def found() -> None:
    summary, table = clause_finding.measure(plans(), 120, 0)
    for row in (summary, *table):
        print(json.dumps(row))


def fields(which: str = ":8") -> None:
    begin, _, end = which.partition(":")
    suggester = Suggester(Library(plans()[int(begin or 0) : int(end or 16)]))
    for name, field in FIELDS.items():
        print(f"{name}: {field.question}")
        for clause in suggester.find(name, "") or ():
            print(f"  - {clause.text} ({' > '.join(clause.places[0].headings[-2:])})")


def speed() -> None:
    torch.set_num_threads(1)
    model, text = io.load(MODEL), "\n\n".join(each.text for each in plans())[:LONG]
    for name in ASKED:  # reads the plan, and finds the clauses of each field once
        model.suggest(name, document=text)
    for what, more in (("the same plan", ""), ("a sentence longer each time", " Each model is reviewed every week.")):
        spent = []
        for number in range(TIMES):
            text += more
            began = time.process_time()
            model.suggest(ASKED[number % len(ASKED)], ["", "The models are "][number % 2], document=text)
            spent.append(1000 * (time.process_time() - began))
        print(f"CPU-ms, {what}: median {np.median(spent):.0f}, most {max(spent):.0f}")
    with tempfile.TemporaryDirectory() as folder, served([f"bep={MODEL}"], Limits(sessions=Path(folder))) as port:
        for way in ("session", "document"):
            clients(port, text[:LONG], way)


def clients(port: int, text: str, way: str) -> None:
    """Let eight clients, each in a plan of its own, ask in turn; print the waits and the CPU time."""
    own = [f"Plan {number}.\n\n{text[50 * number :]}" for number in range(CLIENTS)]
    sessions = [ask(port, "/sessions", {"text": each})[1]["session"] for each in own]

    def asked(client: int) -> list[float]:
        waits = []
        for number in range(TIMES):
            body = {"field_type": ASKED[(number + client) % len(ASKED)]}
            body[way] = sessions[client] if way == "session" else own[client]
            began = time.perf_counter()
            assert ask(port, "/suggest", body)[1]["suggestions"]
            waits.append(time.perf_counter() - began)
        return waits

    began = time.process_time()
    with ThreadPoolExecutor(CLIENTS) as pool:
        waits = np.concatenate(list(pool.map(asked, range(CLIENTS))))
    spent = 1000 * (time.process_time() - began) / len(waits)
    print(f"{way}: p95 {np.quantile(waits, 0.95):.2f} s, CPU-ms a request {spent:.0f}, of {len(waits)}")


if __name__ == "__main__":
    {"found": found, "fields": fields, "speed": speed}[sys.argv[1]](*sys.argv[2:])
