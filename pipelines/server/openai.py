"""Interfaces defined elsewhere: the form's /suggest, /sessions and /generate, and OpenAI's /v1/completions."""

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
from pipelines.server.sessions import Sessions

SUGGESTED = 3
AT_ONCE = 20_000  # characters of a document read before others are answered


@runtime_checkable
class Suggesting(Protocol):
    """A model that suggests clauses of documents."""

    def suggest(self, field: str, partial: str, n: int, document: str) -> Sequence[object]:
        """Return the best suggestions, as dataclasses."""

    def read_ahead(self, document: str, most: int) -> bool:
        """Read so many further characters of a document; return whether it is read."""


class Completions:
    """The endpoints; the first run that can completes forms, the run named by a request completes prompts."""

    def __init__(self, runs: Sequence[Answering], limits: Limits):
        self.limits = limits
        self.runs = {run.name: run for run in runs if run.streams}
        self.sessions = Sessions(limits.sessions)

    async def suggest(self, body: bodies.Suggest) -> Response:
        """Suggest clauses for a field of a form below a plan's text, and write on if that is asked for."""
        run, model = self._form(body.model)
        before = self.sessions.text(body.session) if body.session else body.document
        found: dict[str, object] = {"text": "", "prompt_used": body.partial_text, "suggestions": []}
        if body.max_length is not None or not isinstance(model, Suggesting):
            settings = {"length": body.max_length or 200}
            found |= await _completed(run, body.field_type, body.partial_text, settings, before)
        if isinstance(model, Suggesting):
            await self._read(run, model, before)
            asked = (body.field_type, body.partial_text, SUGGESTED, before)
            ways = [vars(way) for way in await run.run(lambda: model.suggest(*asked))]
            found["suggestions"] = ways
            found["text"] = found["text"] or (ways[0]["text"] if ways else "")
        return Answer(found)

    async def begin(self, body: bodies.SessionText) -> Response:
        """Begin a session, and read its text."""
        return await self._extended(self.sessions.begin(), body.text or "", body)

    async def extend(self, name: str, body: bodies.SessionText) -> Response:
        """Replace a session's text, or append to it, and read what is new."""
        before = self.sessions.text(name)
        return await self._extended(name, before if body.text is None else body.text, body)

    async def _extended(self, name: str, text: str, body: bodies.SessionText) -> Response:
        run, model = self._form(body.model)
        whole = text + body.append
        self.sessions.write(name, whole)
        if isinstance(model, Suggesting):
            await self._read(run, model, whole)
        return Answer({"session": name, "characters": len(whole)})

    async def end(self, name: str) -> Response:
        """Forget a session and its text."""
        self.sessions.end(name)
        return Answer({"session": name})

    async def _read(self, run: Answering, model: Suggesting, document: str) -> None:
        """Read a document in pieces, between which others are answered."""
        while not await run.run(lambda: model.read_ahead(document, AT_ONCE)):
            pass

    async def generate(self, body: bodies.Generate) -> Response:
        """Continue a text."""
        settings = {"length": body.max_length, "temperature": body.temperature}
        return Answer(await _completed(self._form()[0], body.field_type, body.prompt, settings))

    def _form(self, name: str | None = None) -> tuple[Answering, object]:
        for run in self.runs.values():
            if name in (None, run.name) and "field" in run.trained.inputs.input.model_fields:
                return run, next(iter(run.trained.models.values()))
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
    run: Answering, field: str | None, prompt: str, settings: Mapping[str, object], document: str = ""
) -> dict[str, object]:
    """Return the continuation of a prompt in a field, and the prompt that was completed. Raises Refused."""
    (answer,) = await run.answers([{"field": field, "prompt": prompt, "document": document}], settings)
    return {"text": usable(answer)["text"], "prompt_used": answer["prompt"]}


def _choice(index: int, text: Plain, finish: Plain = None) -> dict[str, Plain]:
    return {"index": index, "text": text, "finish_reason": finish, "logprobs": None}
