"""The HTTP application: its routes, and the runs that answer them."""

import asyncio
import base64
import contextlib
import functools
import re
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from fastapi import FastAPI, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles

from common import browser
from common.config import Section, checked
from common.config.key_help import as_text, groups
from common.errors import UserError
from common.plain import Plain
from pipelines.answers.command_inputs import described as described_fields
from pipelines.report.markup import beside
from pipelines.server import schemas
from pipelines.server.answering import Answering, unless_gone, usable
from pipelines.server.guard import Guard
from pipelines.server.limits import Limits, Refused
from pipelines.server.metrics import Metrics
from pipelines.server.sent import Answer, Events, to_json
from pipelines.server.text_routes import Completions

PAGE = Path(__file__).resolve().parent / "page"
ERRORS = {"description": "what is wrong, as `error`; 422 for unusable inputs, 429 for too many requests"}


def make(runs: Sequence[Answering], limits: Limits, hosts: Sequence[str] | None = None) -> FastAPI:
    """Return the application that answers for `runs`; requests address one of the `hosts`, if given, or an IP."""
    metrics = Metrics()
    app = FastAPI(
        title="Trained models",
        version="1",
        docs_url=None,
        redoc_url=None,
        responses={"4XX": ERRORS},
        dependencies=[Security(HTTPBearer(auto_error=False))] if limits.token else [],
        middleware=[Middleware(Guard, limits=limits, metrics=metrics, hosts=hosts)],
        exception_handlers={HTTPException: _failed, RequestValidationError: _misfit, UserError: _unusable},
        lifespan=functools.partial(_alive, runs),
    )
    forms = Completions(runs, limits)
    names = [run.name for run in runs]

    @app.get("/health", summary="Whether the server answers, and its runs.")
    async def health() -> Response:
        return Answer({"status": "healthy", "model_loaded": bool(runs), "runs": names})

    @app.get("/metrics", summary="Counts of requests, times and memory in Prometheus's format.")
    async def counts() -> Response:
        return PlainTextResponse(metrics.text(runs))

    @app.get("/runs", summary="The runs, with their models and the verdicts of their evaluations.")
    async def listed() -> Response:
        return Answer([described(run) for run in runs])

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        shown = [route for route in app.routes if isinstance(route, APIRoute) and route.include_in_schema]
        return HTMLResponse(str(beside(__file__, "docs.html", routes=shown)))

    def post(path: str, endpoint: Callable[..., Awaitable[Response]], summary: str, body: type[Section]) -> None:
        text = textwrap.dedent(as_text(groups(body), {}))  # FastAPI would dedent all but the first line
        app.post(path, summary=summary, description=text)(endpoint)

    post("/suggest", forms.suggest, "Suggest clauses for a field of a form.", schemas.Suggest)
    post("/sessions", forms.begin, "Begin a plan, whose text is read once and kept.", schemas.SessionText)
    post("/sessions/{name}/text", forms.extend, "Replace a plan's text, or append to it.", schemas.SessionText)
    app.delete("/sessions/{name}", summary="Forget a plan.", description=" ")(forms.end)
    post("/generate", forms.generate, "Continue a text with the model of forms.", schemas.Generate)
    post("/v1/completions", forms.complete, "Complete prompts, as OpenAI's clients request it.", schemas.Completion)
    post("/v1/chat/completions", forms.chat, "Continue a conversation's text, for OpenAI's clients.", schemas.Chat)
    app.get("/v1/models", summary="The text runs, for OpenAI's clients.", description=" ")(forms.models)
    for run in runs:
        _add_run(app, run, limits)

    @app.post("/runs/{name:path}/{action}", include_in_schema=False)
    async def unknown(name: str, action: str) -> Response:
        strange = f"no run {name[:200]!r} is served; there are {', '.join(names)}"
        raise Refused(404, "Not Found" if name in names else strange)

    for route in [each for each in app.routes if isinstance(each, APIRoute) and "GET" in (each.methods or ())]:
        app.head(route.path, include_in_schema=False)(route.endpoint)
    shared, own = StaticFiles(directory=browser.FOLDER), StaticFiles(directory=PAGE, html=True)
    files = dict.fromkeys((each.name for each in browser.FOLDER.glob("*.[cj]s*")), shared)
    files |= dict.fromkeys(("", *(each.name for each in PAGE.iterdir())), own)
    app.router.routes += [Route(f"/{name}", folder, methods=["GET"]) for name, folder in files.items()]
    return app


@contextlib.asynccontextmanager
async def _alive(runs: Sequence[Answering], app: FastAPI) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(run.work()) for run in runs]
    try:
        yield
    finally:
        for task, run in zip(tasks, runs, strict=True):
            task.cancel()
            run.close()


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    broken = error.detail == "There was an error parsing the body"  # by FastAPI
    message = f"the body is not JSON: {error.__cause__}" if broken else error.detail
    if message in ("Not Found", "Method Not Allowed"):  # the latter of any path, from the folder of pages
        path = request.url.path
        at_path = [each for each in request.app.routes if isinstance(each, Route) and each.path_regex.match(path)]
        shown = [route for route in at_path if route.include_in_schema or not route.param_convertors]
        if takes := ", ".join(sorted({method for route in shown for method in route.methods or ()})):
            return Answer({"error": f"{path[:200]} takes {takes}, not {request.method}"}, 405, {"Allow": takes})
        return Answer({"error": f"there is nothing at {path[:200]}: GET /docs lists what there is"}, 404, error.headers)
    return Answer({"error": message}, error.status_code, error.headers)


async def _misfit(request: Request, error: Exception) -> Response:
    """Report a malformed body as configs do, with the nearest key."""
    assert isinstance(error, RequestValidationError)
    (first, *_) = error.errors()
    if first["type"] == "json_invalid":
        return Answer({"error": f"the body is not JSON: {first['ctx']['error']} at {first['loc'][-1]}"}, 400)
    try:
        checked(request.scope["route"].body_field.field_info.annotation, error.body, "the body")
    except UserError as misfit:
        return Answer({"error": str(misfit)}, 422)
    raise error


async def _unusable(request: Request, error: Exception) -> Response:
    """Report what a client can fix: settings that are wrong, or that this machine or model does not support."""
    if isinstance(error.__cause__, OSError):
        raise error  # of this server's disk
    return Answer({"error": str(error)}, 422)


def _add_run(app: FastAPI, run: Answering, limits: Limits) -> None:
    """Add the routes of a run; requests its models cannot answer are refused, and left out of the schema."""
    inputs = run.trained.inputs

    async def predict(request: Request, body: schemas.Predict) -> Response:
        if len(body.inputs) > limits.inputs:
            raise Refused(413, f"{len(body.inputs)} inputs are more than the {limits.inputs} of a request")
        outputs = await unless_gone(request, run.answers(body.inputs, body.settings))
        status = 200 if any("error" not in output for output in outputs) else 422
        return Answer({"outputs": outputs, "verdict": run.verdict}, status)

    async def stream(body: schemas.Stream) -> Response:
        pieces = await run.pieces(body.input, body.settings)
        return Events(pieces, lambda piece: {"text": piece}, to_json({"done": True}), limits.seconds)

    async def rivals(body: schemas.Rivals) -> Response:
        if (solve := inputs.rivals) is None:
            raise Refused(404, f"there are no rivals of {run.name}")
        asked, chosen = await asyncio.to_thread(run.usable, body.input, body.settings)

        def solved() -> dict[str, Plain]:
            began = time.perf_counter()  # in the model's turn: waiting for it must not lengthen the others' time
            own = usable(*run.trained.together([asked], chosen.model_dump(exclude_unset=True)))
            taken = 1000 * (time.perf_counter() - began)
            others = solve(asked, min(body.milliseconds or taken, schemas.MAX_MILLISECONDS) / 1000)
            return {**others, "model": {**own, "milliseconds": taken}}

        return Answer({"outputs": await run.run(solved)})

    async def document(body: schemas.Document) -> Response:
        if (exchange := inputs.document) is None:
            raise Refused(404, f"{run.name} fills no documents")
        try:
            content = base64.b64decode(re.sub(r"[\r\n]", "", body.template), validate=True)
            return Answer(await asyncio.to_thread(exchange, content, body.plan))
        except ValueError as error:  # a UserError is one
            wrong = error if isinstance(error, UserError) else f"is not base64 ({error}); encode the file's bytes so"
            raise Refused(422, f"template {wrong}") from error

    text = "\n\n".join(f"{head}\n\n{fields}" for head, fields in described_fields(inputs))
    for endpoint, body, offered, summary in (
        (predict, schemas.Predict, True, "Answer inputs, all with the same settings."),
        (stream, schemas.Stream, run.streams, "Answer an input with text, as server-sent events."),
        (rivals, schemas.Rivals, inputs.rivals is not None, "Answer an input by the model and by other methods."),
        (document, schemas.Document, inputs.document is not None, "Fill a Word document with a plan, or read one."),
    ):
        endpoint.__annotations__["body"] = schemas.for_inputs(body, inputs)
        path = f"/runs/{run.name}/{endpoint.__name__}"
        app.post(path, summary=summary, description=text, include_in_schema=offered)(endpoint)


def described(run: Answering) -> dict[str, Plain]:
    """Return a run's name, its verdict, and facts about its models."""
    models = list(run.trained.models.values())
    about = {
        "family": models[0].family,
        "parameters": sum(p.numel() for p in models[0].parameters()),
        "models": list(run.trained.models),
        "streams": run.streams,
        **(run.trained.inputs.about(models) if run.trained.inputs.about else {}),
    }
    judged = {"verdict": run.verdict, "unjudged": run.trained.unjudged}
    return {"name": run.name, "workload": run.trained.workload, "model": about, **judged}
