"""The application: routes, and the life of the runs that answer them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from common import browser
from pipelines.server import bodies, description, openai
from pipelines.server.answering import Answering
from pipelines.server.guard import Guard
from pipelines.server.limits import Limits, Refused
from pipelines.server.metrics import Metrics
from pipelines.server.sent import Answer, Events, to_json

PAGE = Path(__file__).resolve().parent / "page"


def make(runs: Sequence[Answering], limits: Limits, hosts: Sequence[str] | None = None) -> Starlette:
    """Return the application that answers for `runs`; requests name one of the `hosts`, if given, or an address."""
    server = Server({run.name: run for run in runs}, limits)
    routes = [
        Route("/health", server.health),
        Route("/metrics", server.measured),
        Route("/runs", server.listed),
        Route("/runs/{name:path}/predict", server.predict, methods=["POST"]),
        Route("/runs/{name:path}/stream", server.stream, methods=["POST"]),
        Route("/runs/{name:path}/rivals", server.rivals, methods=["POST"]),
        *openai.routes(server.runs, limits),
        Route("/openapi.json", lambda request: Answer(description.openapi(runs))),
        Route("/docs", lambda request: HTMLResponse(description.page(runs))),
    ]
    # Files of the page, and after them those that all pages share.
    shared = StaticFiles(directory=browser.FOLDER)
    routes += [Route(f"/{path.name}", shared) for path in sorted(browser.FOLDER.glob("*.[cj]s*"))]
    routes.append(Mount("/", StaticFiles(directory=PAGE, html=True)))
    middleware = [Middleware(Guard, limits=limits, metrics=server.metrics, hosts=hosts)]
    told = {HTTPException: lambda request, error: Answer({"error": error.detail}, error.status_code, error.headers)}
    return Starlette(routes=routes, middleware=middleware, exception_handlers=told, lifespan=server.lifespan)


class Server:
    """The endpoints that all runs have."""

    def __init__(self, runs: Mapping[str, Answering], limits: Limits):
        self.runs, self.limits, self.metrics = runs, limits, Metrics()

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Let the runs answer while the application lives."""
        tasks = [asyncio.create_task(run.work()) for run in self.runs.values()]
        try:
            yield
        finally:
            for task, run in zip(tasks, self.runs.values(), strict=True):
                task.cancel()
                run.close()

    async def health(self, request: Request) -> Response:
        """Say that the server answers."""
        return Answer({"status": "healthy", "model_loaded": bool(self.runs), "runs": list(self.runs)})

    async def measured(self, request: Request) -> Response:
        """Return counts as Prometheus reads them."""
        return PlainTextResponse(self.metrics.text(self.runs.values()))

    async def listed(self, request: Request) -> Response:
        """Return the runs, with what is known of their models."""
        return Answer([described(run) for run in self.runs.values()])

    async def predict(self, request: Request) -> Response:
        """Answer inputs."""
        run = self._run(request)
        body = await bodies.read(request, bodies.Predict, self.limits)
        if len(body.inputs) > self.limits.inputs:
            raise Refused(413, f"{len(body.inputs)} inputs are more than the {self.limits.inputs} of a request")
        outputs = await run.answers(body.inputs, body.settings)
        usable = any("error" not in output for output in outputs)
        return Answer({"outputs": outputs, "verdict": run.verdict}, 200 if usable else 422)

    async def stream(self, request: Request) -> Response:
        """Answer an input with a text, piece by piece."""
        run = self._run(request)
        body = await bodies.read(request, bodies.Stream, self.limits)
        pieces = await run.pieces(body.input, body.settings)
        return Events(pieces, lambda piece: {"text": piece}, to_json({"done": True}), self.limits.seconds)

    async def rivals(self, request: Request) -> Response:
        """Answer an input by the model and by other methods."""
        run = self._run(request)
        solve = run.trained.inputs.rivals
        if solve is None:
            raise Refused(404, f"{run.name} has no rivals here")
        body = await bodies.read(request, bodies.Rivals, self.limits)
        asked, _ = await asyncio.to_thread(run.usable, body.input, body.settings)

        def solved() -> dict[str, Any]:
            began = time.perf_counter()  # in the model's turn: what it waited for it is not the others' time, too
            (own,) = run.trained.together([asked], body.settings)
            if "error" in own:
                raise Refused(422, own["error"])
            taken = 1000 * (time.perf_counter() - began)
            others = solve(asked, min(body.milliseconds or taken, bodies.MOST_MILLISECONDS) / 1000)
            return {**others, "model": {**own, "milliseconds": taken}}

        return Answer({"outputs": await run.run(solved)})

    def _run(self, request: Request) -> Answering:
        name = request.path_params["name"]
        if name not in self.runs:
            raise Refused(404, f"no run {name[:200]!r} is served; there are {', '.join(self.runs)}")
        return self.runs[name]


def described(run: Answering) -> dict[str, Any]:
    """Return what is known of a run."""
    models = list(run.trained.models.values())
    facts = run.trained.inputs.about(models) if run.trained.inputs.about else {}
    about = {
        "family": models[0].family,
        "parameters": sum(p.numel() for p in models[0].parameters()),
        "models": list(run.trained.models),
        "streams": run.streams,
        **facts,
    }
    return {"name": run.name, "workload": run.trained.workload, "model": about, "verdict": run.verdict}
