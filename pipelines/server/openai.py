"""Interfaces that others have defined: the form's /suggest and /generate, and OpenAI's /v1/completions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from pipelines.server import bodies
from pipelines.server.answering import Answering
from pipelines.server.limits import Limits, Refused
from pipelines.server.sent import Answer, Events

SUGGESTED = 3  # continuations of a field, beside the completion


class Completions:
    """The endpoints; forms are completed by the first run that can, prompts by the run that a request names."""

    def __init__(self, runs: Sequence[Answering], limits: Limits):
        self.limits = limits
        self.runs = {run.name: run for run in runs if run.streams}
        self.form = next((run for run in self.runs.values() if "field" in run.trained.inputs.input.model_fields), None)

    async def suggest(self, body: bodies.Suggest) -> Response:
        """Complete a field of a form, and suggest continuations with where they stand in documents."""
        given = {"field": body.field_type, "prompt": body.partial_text}
        found = await self._for_the_form(given, {"length": body.max_length})
        suggest = getattr(next(iter(self.form.trained.models.values())), "suggest", None)
        if suggest:
            ways = await self.form.run(lambda: suggest(body.field_type, body.partial_text, SUGGESTED))
            found["suggestions"] = [vars(way) for way in ways]
        return Answer(found)

    async def generate(self, body: bodies.Generate) -> Response:
        """Go on with a text."""
        given = {"field": body.field_type, "prompt": body.prompt}
        return Answer(await self._for_the_form(given, {"length": body.max_length, "temperature": body.temperature}))

    async def _for_the_form(self, given: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
        if self.form is None:
            raise Refused(404, "no run that completes forms is served")
        (answer,) = await self.form.answers([given], settings)
        if "error" in answer:
            raise Refused(422, answer["error"])
        return {"text": answer["text"], "prompt_used": answer["prompt"]}

    async def models(self) -> Response:
        """List the runs of text, as OpenAI lists models."""
        return Answer({"object": "list", "data": [{"id": name, "object": "model"} for name in self.runs]})

    async def complete(self, body: bodies.Completion) -> Response:
        """Complete one prompt or several."""
        run = self.runs.get(body.model)
        if run is None:
            raise Refused(404, f"no run of text {body.model!r} is served; there are {', '.join(self.runs)}")
        prompts = [body.prompt] if isinstance(body.prompt, str) else list(body.prompt)
        if not 1 <= len(prompts) <= (1 if body.stream else self.limits.inputs):
            raise Refused(422, f"prompt: {len(prompts)} texts; a request takes 1 to {self.limits.inputs}, a stream 1")
        stop = body.stop if isinstance(body.stop, str | None) else body.stop[0]
        settings = {"length": body.max_tokens, "top_k": 0, "stop": stop}
        settings |= {"temperature": body.temperature, "top_p": body.top_p, "seed": body.seed}
        about = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time())}
        about["model"] = body.model
        if body.stream:
            pieces = await run.pieces({"prompt": prompts[0]}, settings)
            return Events(pieces, lambda text: {**about, "choices": [_choice(0, text)]}, b"[DONE]", self.limits.seconds)
        answers = await run.answers([{"prompt": prompt, "item": i} for i, prompt in enumerate(prompts)], settings)
        wrong = [answer["error"] for answer in answers if "error" in answer]
        if wrong:
            raise Refused(422, wrong[0])
        choices = [_choice(index, answer["text"], answer["finish"]) for index, answer in enumerate(answers)]
        return Answer({**about, "choices": choices})


def _choice(index: int, text: str, finish: str | None = None) -> dict[str, Any]:
    return {"index": index, "text": text, "finish_reason": finish, "logprobs": None}
