"""Bodies of requests as pydantic classes, from which FastAPI checks them and writes the OpenAPI schema."""

from __future__ import annotations

from types import GenericAlias
from typing import Any, Literal, TypeVar

from pydantic import Field, SkipValidation, create_model

from common.config import Section
from common.input_files import Inputs

MAX_MILLISECONDS = 10_000  # for each of the rivals
Body = TypeVar("Body", bound=Section)


class Predict(Section):
    """Inputs to answer, all with the same settings."""

    inputs: tuple[object, ...] = Field(min_length=1)
    settings: dict[str, object] = Field({})


class Stream(Section):
    """An input whose answer is text, to be sent as it is written."""

    input: object
    settings: dict[str, object] = Field({})


class Rivals(Stream):
    """A problem for other methods to solve beside the model."""

    milliseconds: int | None = Field(
        None, ge=1, le=MAX_MILLISECONDS, description="time for each other method; null: as long as the model takes"
    )


def for_inputs(body: type[Body], inputs: Inputs) -> type[Body]:
    """Return `body` with a workload's inputs and settings in its schema.

    They are validated later, so that a misfit among several inputs leaves the others their answers.
    """
    own, settings = SkipValidation[inputs.input], SkipValidation[inputs.settings]  # type: ignore[misc, name-defined]
    types = {"input": own, "inputs": GenericAlias(tuple, (own, ...)), "settings": settings}
    fields: dict[str, Any] = {name: (types[name], field) for name, field in body.model_fields.items() if name in types}
    return create_model(f"{inputs.input.__name__}{body.__name__}", __base__=body, **fields)


class Suggest(Section):
    """A field of a form to complete."""

    field_type: str = Field(max_length=200, description="name of the field")
    partial_text: str = Field("", max_length=10_000, description="its text so far; empty: its usual beginning")
    max_length: int | None = Field(
        None, ge=1, le=1000, description="most characters that the model writes as `text`; null: the first suggestion"
    )
    model: str | None = Field(None, max_length=200, description="the run to ask; null: the first that completes forms")
    session: str | None = Field(None, max_length=64, description="the session whose text stands before")
    document: str = Field("", max_length=400_000, description="the text before, where there is no session")


class SessionText(Section):
    """The text of a plan being written."""

    text: str | None = Field(None, max_length=400_000, description="all of it; null: what there is")
    append: str = Field("", max_length=400_000, description="what follows it")
    model: str | None = Field(None, max_length=200, description="the run to ask; null: the first that completes forms")


class Generate(Section):
    """Text to continue."""

    prompt: str = Field(min_length=1, max_length=10_000, description="the text")
    field_type: str | None = Field(None, max_length=200, description="name of the form field it is for")
    max_length: int = Field(200, ge=1, le=1000, description="most characters to add")
    temperature: float = Field(0.7, ge=0, le=2, description="sampling temperature; 0: the likeliest character")


class Completion(Section):
    """A completion as OpenAI's clients request it."""

    model: str = Field(max_length=200, description="name of a text run, as GET /runs lists it")
    prompt: str | tuple[str, ...] = Field("", description="one text, or several")
    max_tokens: int = Field(16, ge=1, le=1000, description="most tokens, or characters, to add")
    temperature: float = Field(1.0, ge=0, le=2, description="sampling temperature; 0: the likeliest")
    top_p: float = Field(1.0, gt=0, le=1, description="sample from the likeliest tokens of this total probability")
    seed: int = Field(0, ge=0, lt=2**32, description="random seed")
    stop: str | tuple[str] | None = Field(None, description="text before which a completion ends")
    stream: bool = Field(False, description="send the text as it is written, as server-sent events")
    n: Literal[1] = Field(1, description="completions per prompt; only 1")
    user: str | None = Field(None, description="ignored")
