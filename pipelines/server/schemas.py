"""Bodies of requests as pydantic classes, from which FastAPI checks them and writes the OpenAPI schema."""

from types import GenericAlias
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, Field, SkipValidation, create_model

from common.config import Section
from common.input_files import Inputs

LONGEST_TEXT = 10_000  # characters of a prompt
MOST_TOKENS = 1000  # of a completion
NO_EFFECT = {"user", "metadata", "store"}  # without an effect on the text
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


class Document(Section):
    """A Word document to fill with a plan, or to read."""

    template: str = Field("", description="the document in base64; empty: a new one for the plan")
    plan: str | None = Field(None, max_length=400_000, description="texts below headings with #; null: read it")


def for_inputs(body: type[Body], inputs: Inputs) -> type[Body]:
    """Return `body` with a workload's types in its schema; inputs are validated later, one by one."""
    own, settings = SkipValidation[inputs.input], SkipValidation[inputs.settings]  # type: ignore[misc, name-defined]
    types = {"input": own, "inputs": GenericAlias(tuple, (own, ...)), "settings": settings}
    fields: dict[str, Any] = {name: (types[name], field) for name, field in body.model_fields.items() if name in types}
    return create_model(f"{inputs.input.__name__}{body.__name__}", __base__=body, **fields)


class Suggest(Section):
    """A field of a form to complete."""

    field_type: str = Field(max_length=200, description="name of the field")
    partial_text: str = Field("", max_length=LONGEST_TEXT, description="its text so far; empty: its usual beginning")
    max_length: int | None = Field(
        None, ge=1, le=1000, description="most characters that the model writes as `text`; null: the first suggestion"
    )
    model: str | None = Field(None, max_length=200, description="the run to ask; null: the first that completes forms")
    session: str | None = Field(None, max_length=64, description="the session whose text stands before")
    document: str = Field("", max_length=400_000, description="the text before, where there is no session")


class SessionText(Section):
    """The text of a plan being written."""

    text: str | None = Field(None, max_length=400_000, description="the whole text; null: as it is")
    append: str = Field("", max_length=400_000, description="text to append")
    model: str | None = Field(None, max_length=200, description="the run to ask; null: the first that completes forms")


class Generate(Section):
    """Text to continue."""

    prompt: str = Field(min_length=1, max_length=LONGEST_TEXT, description="the text")
    field_type: str | None = Field(None, max_length=200, description="name of the form field it is for")
    max_length: int = Field(200, ge=1, le=1000, description="most characters to add")
    temperature: float = Field(0.7, ge=0, le=2, description="sampling temperature; 0: the likeliest character")


class OpenAI(Section):
    """A request of OpenAI's clients; other keys are ignored, and listed in the header x-ignored-keys."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(max_length=200, description="name of a text run, as GET /runs lists it")
    max_tokens: int | None = Field(None, ge=1, description="most tokens, or characters, to add; above 1000: 1000")
    temperature: float | None = Field(None, ge=0, le=2, description="sampling temperature; 0: the likeliest; null: 1")
    top_p: float | None = Field(None, gt=0, le=1, description="share of the probability that is drawn from; null: 1")
    seed: int | None = Field(None, description="random seed; null: 0")
    stop: str | tuple[str, ...] | None = Field(None, description="text, or texts, before which a completion ends")
    stream: bool | None = Field(None, description="send the text as it is written, as server-sent events")
    stream_options: dict[str, object] | None = Field(None, description="include_usage: report usage at a stream's end")
    n: int | None = Field(None, ge=1, le=128, description="completions per prompt")
    logprobs: bool | int | None = Field(None, description="log-probabilities of so many likeliest tokens, or true")
    top_logprobs: int | None = Field(None, description="number of likeliest tokens, if logprobs is true")

    def settings(self) -> dict[str, object]:
        """Return the settings of the run."""
        stop = tuple(filter(None, [self.stop] if isinstance(self.stop, str) else self.stop or ()))
        settings = {"length": self.length, "top_k": 0, "stop": stop or None, "seed": (self.seed or 0) % 2**32}
        asked = {} if self.num_likely is None else {"logprobs": self.num_likely}
        temperature = 1.0 if self.temperature is None else self.temperature
        return settings | asked | {"temperature": temperature, "top_p": self.top_p or 1.0}

    @property
    def length(self) -> int:
        """The most tokens to add."""
        return min(self.max_tokens or 16, MOST_TOKENS)

    @property
    def num_likely(self) -> int | None:
        """The number of likeliest tokens to return per place; None: no log-probabilities."""
        asked = self.logprobs
        return ((self.top_logprobs or 0) if asked else None) if isinstance(asked, bool) else asked

    def ignored(self) -> list[str]:
        """Return the given keys that have no effect."""
        return [key for key, value in (self.model_extra or {}).items() if value and key not in NO_EFFECT]


class Completion(OpenAI):
    """A completion as OpenAI's clients request it."""

    prompt: str | tuple[str, ...] = Field("", description="one text, or several")
    echo: bool | None = Field(None, description="begin the completion with the prompt")
    suffix: str | None = Field(None, description="refused unless empty: the models write from left to right")


class Part(Section):
    """A part of a message."""

    type: Literal["text"]
    text: str


class Message(Section):
    """A message of a conversation."""

    model_config = ConfigDict(extra="ignore")

    role: str
    content: str | tuple[Part, ...] | None = None

    @property
    def text(self) -> str:
        """The message's text."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content or ())


class Chat(OpenAI):
    """A conversation as OpenAI's clients send it; the models continue its text, they do not answer."""

    messages: tuple[Message, ...] = Field(min_length=1, description="messages, whose joined text is continued")
    max_completion_tokens: int | None = Field(None, ge=1, description="the newer name of max_tokens")

    @property
    def length(self) -> int:
        """The most tokens to add."""
        return min(self.max_completion_tokens or self.max_tokens or 200, MOST_TOKENS)
