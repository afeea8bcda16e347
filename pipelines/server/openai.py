"""Interfaces defined elsewhere: the form's /suggest and /generate, and OpenAI's /v1/completions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from starlette.responses import Response

from common.plain import Plain
from pipelines.server import bodies
from pipelines.server.answering import Answering, usable
from pipelines.server.limits import Limits, Refused
from pipelines.server.sent import Answer, Events


@runtime_checkable
class Suggesting(Protocol):
    """A model that suggests continuations and their places in documents."""

    def suggest(self, field: str, partial: str) -> Sequence[object]:
        """Return the most useful suggestions, as dataclasses."""


class Completions:
    """The endpoints; the first run that can completes forms, the run named by a request completes prompts."""

    def __init__(self, runs: Sequence[Answering], limits: Limits):
        self.limits = limits
        self.runs = {run.name: run for run in runs if run.streams}

    async def suggest(self, body: bodies.Suggest) -> Response:
        """Complete a field of a form, and suggest continuations with their places in documents."""
        run = self._form(body.model)
        found = await _completed(run, body.field_type, body.partial_text, {"length": body.max_length})
        model = next(iter(run.trained.models.values()))
        if isinstance(model, Suggesting):
            ways = await run.run(lambda: model.suggest(body.field_type, body.partial_text))
            found["suggestions"] = [vars(way) for way in ways]
        return Answer(found)

    async def generate(self, body: bodies.Generate) -> Response:
        """Continue a text."""
        settings = {"length": body.max_length, "temperature": body.temperature}
        return Answer(await _completed(self._form(), body.field_type, body.prompt, settings))

    def _form(self, name: str | None = None) -> Answering:
        for run in self.runs.values():
            if name in (None, run.name) and "field" in run.trained.inputs.input.model_fields:
                return run
        raise Refused(404, "no run that completes forms is served")

    async def models(self) -> Response:
        """List the text runs, as OpenAI lists models."""
        return Answer({"object": "list", "data": [{"id": name, "object": "model"} for name in self.runs]})

    async def complete(self, body: bodies.Completion) -> Response:
        """Complete one prompt or several."""
        run = self.runs.get(body.model)
        if run is None:
            raise Refused(404, f"no text run {body.model!r} is served; there are {', '.join(self.runs)}")
        prompts = [body.prompt] if isinstance(body.prompt, str) else list(body.prompt)
        if not 1 <= len(prompts) <= (1 if body.stream else self.limits.inputs):
            raise Refused(422, f"prompt: {len(prompts)} texts; a request takes 1 to {self.limits.inputs}, a stream 1")
        stop = body.stop if isinstance(body.stop, str | None) else body.stop[0]
        settings: dict[str, object] = {"length": body.max_tokens, "top_k": 0, "stop": stop}
        settings |= {"temperature": body.temperature, "top_p": body.top_p, "seed": body.seed}
        about = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time())}
        about["model"] = body.model
        if body.stream:
            pieces = await run.pieces({"prompt": prompts[0]}, settings)
            return Events(pieces, lambda text: {**about, "choices": [_choice(0, text)]}, b"[DONE]", self.limits.seconds)
        answers = await run.answers([{"prompt": prompt, "item": i} for i, prompt in enumerate(prompts)], settings)
        choices = [
            _choice(index, answer["text"], answer["finish"]) for index, answer in enumerate(map(usable, answers))
        ]
        return Answer({**about, "choices": choices})


async def _completed(
    run: Answering, field: str | None, prompt: str, settings: Mapping[str, object]
) -> dict[str, object]:
    """Return the continuation of a prompt in a field, and the prompt that was completed. Raises Refused."""
    (answer,) = await run.answers([{"field": field, "prompt": prompt}], settings)
    return {"text": usable(answer)["text"], "prompt_used": answer["prompt"]}


def _choice(index: int, text: Plain, finish: Plain = None) -> dict[str, Plain]:
    return {"index": index, "text": text, "finish_reason": finish, "logprobs": None}
