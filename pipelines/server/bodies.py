"""Bodies of requests: read within bounds, parsed, and checked against a class of what fits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import Field
from starlette.requests import ClientDisconnect, Request

from common.config import Section, checked
from common.errors import UserError
from pipelines.server.limits import Limits, Refused

Body = TypeVar("Body", bound=Section)
Object = dict[str, Any]
MOST_MILLISECONDS = 10_000  # for each of the rivals


class Predict(Section):
    """Inputs to be answered, all with the same settings."""

    inputs: tuple[Any, ...] = Field(min_length=1, description="inputs, as the run's workload has them")
    settings: Object = Field({}, description="settings, as the run's workload has them")


class Stream(Section):
    """An input whose answer is a text, to be sent as it comes."""

    input: Object = Field(description="an input, as the run's workload has it")
    settings: Object = Field({}, description="settings, as the run's workload has them")


class Rivals(Section):
    """A problem for other methods to solve beside the model."""

    input: Object = Field(description="an input, as the run's workload has it")
    milliseconds: int | None = Field(
        None, ge=1, le=MOST_MILLISECONDS, description="time for each of the others; null: as long as the model takes"
    )
    settings: Object = Field({}, description="settings of the model, as the run's workload has them")


class Suggest(Section):
    """A field of a form to be completed."""

    field_type: str = Field(max_length=200, description="name of the field")
    partial_text: str = Field("", max_length=10_000, description="what stands in it; empty: its usual beginning")
    max_length: int = Field(200, ge=1, le=1000, description="largest number of characters that are added")


class Generate(Section):
    """A text to be gone on with."""

    prompt: str = Field(min_length=1, max_length=10_000, description="the text")
    field_type: str | None = Field(None, max_length=200, description="name of the form's field that it is for")
    max_length: int = Field(200, ge=1, le=1000, description="largest number of characters that are added")
    temperature: float = Field(0.7, ge=0, le=2, description="sampling temperature; 0: the likeliest character")


class Completion(Section):
    """A completion as OpenAI's clients ask for it."""

    model: str = Field(max_length=200, description="name of a run of text, as GET /runs has it")
    prompt: str | tuple[str, ...] = Field("", description="one text, or several")
    max_tokens: int = Field(16, ge=1, le=1000, description="largest number of tokens, or of characters, that are added")
    temperature: float = Field(1.0, ge=0, le=2, description="sampling temperature; 0: the likeliest")
    top_p: float = Field(1.0, gt=0, le=1, description="share of the probability that is drawn from")
    seed: int = Field(0, ge=0, lt=2**32, description="random seed")
    stop: str | tuple[str] | None = Field(None, description="text before which a completion ends")
    stream: bool = Field(False, description="send the text as it comes, as server-sent events")
    n: Literal[1] = Field(1, description="completions of a prompt; only 1")
    user: str | None = Field(None, description="not used")


async def read(request: Request, cls: type[Body], limits: Limits) -> Body:
    """Return the body as a `cls`. Raises Refused."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # what pages of other sites may send without asking is of other kinds
        raise Refused(415, f"the body must be application/json (given {kind[:100]!r})")
    try:
        data = await asyncio.wait_for(_received(request, limits.body_bytes), limits.seconds)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {limits.seconds:g} s") from None
    except ClientDisconnect:
        raise Refused(400, "the connection was closed") from None
    return await asyncio.to_thread(_parsed, data, cls)


async def _received(request: Request, most: int) -> bytes:
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > most:
            raise Refused(413, f"the body has more than {most} bytes")
    return bytes(data)


def _parsed(data: bytes, cls: type[Body]) -> Body:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise Refused(400, f"the body must be an object with {', '.join(cls.model_fields)}")
    try:
        return checked(cls, found, "the body")
    except UserError as error:
        raise Refused(422, str(error)) from error
