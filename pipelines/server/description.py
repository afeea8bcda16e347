"""What the server offers: as an OpenAPI document, and as a page for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from common.config import Section
from common.config.keys import as_text, groups
from pipelines.report.markup import fragment
from pipelines.server import bodies
from pipelines.server.answering import Answering

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>What this server answers</title>
<style>:root{color-scheme:light dark}body{max-width:60rem;margin:2rem auto;padding:0 1rem;font:1rem/1.5 sans-serif}
pre{overflow-x:auto}</style></head><body><h1>What this server answers</h1>
<p><a href="/openapi.json">The same as OpenAPI</a></p>
{% for path, summary, fields in endpoints %}
<h2>{{ path }}</h2><p>{{ summary }}</p>
{% if fields %}<pre tabindex="0">{{ fields }}</pre>{% endif %}
{% endfor %}</body></html>
"""
SHARED: dict[str, tuple[str, type[Section] | None]] = {
    "GET /health": ("Whether the server answers, and which runs it has.", None),
    "GET /metrics": ("Counts of requests, times and memory, as Prometheus reads them.", None),
    "GET /runs": ("The runs, with their models and the verdicts of their evaluations.", None),
    "POST /suggest": ("Complete a field of a form.", bodies.Suggest),
    "POST /generate": ("Go on with a text, by the model of forms.", bodies.Generate),
    "POST /v1/completions": ("Complete prompts, as OpenAI's clients ask.", bodies.Completion),
    "GET /v1/models": ("The runs of text, as OpenAI's clients list models.", None),
}
OF_RUNS = {
    "predict": "Answer inputs, all with the same settings.",
    "stream": "Answer an input with text, as server-sent events.",
    "rivals": "Answer an input by the model and by other methods in a given time.",
}


def openapi(runs: Sequence[Answering]) -> dict[str, Any]:
    """Return the OpenAPI document."""
    classes = [cls for _, cls in SHARED.values() if cls]
    classes += [cls for run in runs for cls in (run.trained.inputs.input, run.trained.inputs.settings)]
    references, definitions = models_json_schema(
        [(cls, "validation") for cls in dict.fromkeys(classes)], ref_template="#/components/schemas/{model}"
    )
    schema = {cls: reference for (cls, _), reference in references.items()}
    paths: dict[str, Any] = {}
    for endpoint, (summary, cls) in SHARED.items():
        method, path = endpoint.split()
        paths[path] = {method.lower(): _operation(summary, schema[cls] if cls else None)}
    for run in runs:
        inputs = run.trained.inputs
        own, settings = schema[inputs.input], schema[inputs.settings]
        for action in actions(run):
            fields: dict[str, Any] = {"input": own}
            if action == "predict":
                fields = {"inputs": {"type": "array", "items": own, "minItems": 1}}
            elif action == "rivals":
                fields["milliseconds"] = {
                    "type": ["integer", "null"],
                    "minimum": 1,
                    "maximum": bodies.MOST_MILLISECONDS,
                }
            body = {
                "type": "object",
                "required": list(fields)[:1],
                "properties": {**fields, "settings": settings},
                "additionalProperties": False,
            }
            paths[f"/runs/{run.name}/{action}"] = {"post": _operation(OF_RUNS[action], body)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Trained models", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(summary: str, body: Any) -> dict[str, Any]:
    responses = {
        "200": {"description": "the answer"},
        "4XX": {"description": "what is wrong, as `error`; 422 for inputs that cannot be used, 429 where too many ask"},
    }
    if body is None:
        return {"summary": summary, "responses": responses}
    content = {"application/json": {"schema": body}}
    return {"summary": summary, "requestBody": {"required": True, "content": content}, "responses": responses}


def actions(run: Answering) -> list[str]:
    """Return what can be asked of a run."""
    offered = {"predict": True, "stream": run.streams, "rivals": run.trained.inputs.rivals is not None}
    return [name for name, here in offered.items() if here]


def page(runs: Sequence[Answering]) -> str:
    """Return the page."""
    endpoints = [(path, summary, _fields(cls) if cls else "") for path, (summary, cls) in SHARED.items()]
    for run in runs:
        inputs = run.trained.inputs
        for action in actions(run):
            told = f"inputs:\n\n{_fields(inputs.input)}\n\nsettings:\n\n{_fields(inputs.settings)}"
            endpoints.append((f"POST /runs/{run.name}/{action}", OF_RUNS[action], told))
    return str(fragment(PAGE, endpoints=endpoints))


def _fields(cls: type[Section]) -> str:
    return as_text(groups(cls), {})
