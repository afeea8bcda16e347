"""Text routes with schemas defined elsewhere: /suggest, /sessions and /generate, and OpenAI's completions."""

import contextlib
import itertools
import re
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from common.disk.files import remove, write_text
from common.plain import Plain
from pipelines.server import schemas
from pipelines.server.answering import Answering, unless_gone, usable
from pipelines.server.limits import Limits, Refused
from pipelines.server.sent import Answer, Events

MOST_SESSIONS = 1000  # sessions kept; beyond, the least recently written are removed
LONGEST_SESSION = 400_000  # characters of a session's text
AT_ONCE = 20_000  # characters of a document read before others are answered


@runtime_checkable
class Suggesting(Protocol):
    """A model that suggests clauses of documents."""

    def suggest(self, field: str, partial: str, *, document: str) -> Sequence[object]:
        """Return the best suggestions, as dataclasses."""

    def read_ahead(self, document: str, most: int) -> bool:
        """Read up to `most` further characters of a document; return whether all is read."""


class Sessions:
    """Texts of plans being written, in a folder of the server's user, so that a restart of the server loses none."""

    def __init__(self, folder: Path):
        self.folder = folder

    def text(self, name: str) -> str:
        """Return a session's text. Raises Refused for an unknown one."""
        try:
            return self._path(name).read_bytes().decode()  # with its own line ends
        except FileNotFoundError:
            raise Refused(404, "there is no such session; POST /sessions begins one") from None

    def write(self, name: str, text: str) -> None:
        """Store a session's text. Raises Refused for one too long."""
        if len(text) > LONGEST_SESSION:
            raise Refused(413, f"the text has {len(text):,} characters; a session takes {LONGEST_SESSION:,}")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_text(self._path(name), text)
        for path in sorted(self.folder.glob("*.txt"), key=lambda path: path.stat().st_mtime)[:-MOST_SESSIONS]:
            remove(path)

    def end(self, name: str) -> None:
        """Forget a session. Raises Refused for an unknown one."""
        self.text(name)
        remove(self._path(name))

    def _path(self, name: str) -> Path:
        if not re.fullmatch("[0-9a-f]{32}", name):
            raise Refused(404, "the name of a session is the one that POST /sessions returned")
        return self.folder / f"{name}.txt"


class Completions:
    """The endpoints; the first run that can completes forms, the run named by a request completes prompts."""

    def __init__(self, runs: Sequence[Answering], limits: Limits):
        self.limits = limits
        self.runs = {run.name: run for run in runs if run.streams}
        self.sessions = Sessions(limits.sessions)

    async def suggest(self, body: schemas.Suggest) -> Response:
        """Suggest clauses for a field of a form below a plan's text, and generate text if requested."""
        run, model = self._form(body.model)
        before = self.sessions.text(body.session) if body.session else body.document
        found: dict[str, object] = {"text": "", "prompt_used": body.partial_text, "suggestions": []}
        if body.max_length is not None or not isinstance(model, Suggesting):
            settings = {"length": body.max_length or 200}
            found |= await _completed(run, body.field_type, body.partial_text, settings, before)
        if isinstance(model, Suggesting):
            await self._read(run, model, before)
            clauses = await run.run(lambda: model.suggest(body.field_type, body.partial_text, document=before))
            found["suggestions"] = ways = [vars(clause) for clause in clauses]
            found["text"] = found["text"] or (ways[0]["text"] if ways else "")
        return Answer(found)

    async def begin(self, body: schemas.SessionText) -> Response:
        """Begin a session, and read its text."""
        return await self._extended(uuid.uuid4().hex, body.text or "", body)  # a name that no one can guess

    async def extend(self, name: str, body: schemas.SessionText) -> Response:
        """Replace a session's text, or append to it, and read what is new."""
        before = self.sessions.text(name)
        return await self._extended(name, before if body.text is None else body.text, body)

    async def _extended(self, name: str, text: str, body: schemas.SessionText) -> Response:
        run, model = self._form(body.model)
        whole = text + body.append
        self.sessions.write(name, whole)
        await self._read(run, model, whole)
        return Answer({"session": name, "characters": len(whole)})

    async def end(self, name: str) -> Response:
        """Forget a session and its text."""
        self.sessions.end(name)
        return Answer({"session": name})

    async def _read(self, run: Answering, model: object, document: str) -> None:
        """Read a document in pieces, between which others are answered, if the model suggests clauses."""
        while isinstance(model, Suggesting) and not await run.run(lambda: model.read_ahead(document, AT_ONCE)):
            pass

    async def generate(self, request: Request, body: schemas.Generate) -> Response:
        """Continue a text."""
        settings = {"length": body.max_length, "temperature": body.temperature}
        completed = _completed(self._form()[0], body.field_type, body.prompt, settings)
        return Answer(await unless_gone(request, completed))

    def _form(self, name: str | None = None) -> tuple[Answering, object]:
        forms = {each: run for each, run in self.runs.items() if "field" in run.trained.inputs.input.model_fields}
        if (run := forms.get(name or next(iter(forms), ""))) is None:
            raise Refused(404, f"no run {name or 'here'} completes forms; those that do: {', '.join(forms) or 'none'}")
        return run, run.trained.first

    async def models(self) -> Response:
        """List the text runs, as OpenAI lists models."""
        about = {"object": "model", "created": 0, "owned_by": "this server"}
        return Answer({"object": "list", "data": [{"id": name, **about} for name in self.runs]})

    async def complete(self, request: Request, body: schemas.Completion) -> Response:
        """Complete one prompt or several."""
        if body.suffix:
            raise Refused(400, "suffix: the models write from left to right and ignore what follows; leave it out")
        prompts = [body.prompt] if isinstance(body.prompt, str) else list(body.prompt)
        return await self._answered(request, body, prompts, "text", bool(body.echo))

    async def chat(self, request: Request, body: schemas.Chat) -> Response:
        """Continue the text of a conversation."""
        prompt = "\n\n".join(message.text for message in body.messages if message.text)
        return await self._answered(request, body, [prompt], "message", False)

    async def _answered(
        self, request: Request, body: schemas.OpenAI, prompts: Sequence[str], key: str, echo: bool
    ) -> Response:
        """Return completions in OpenAI's format, with texts at `key`, as one object or a stream of chunks."""
        if (run := self.runs.get(body.model)) is None:
            raise Refused(404, f"no text run {body.model!r} is served; there are {', '.join(self.runs)}")
        asked = [prompt for prompt in prompts for _ in range(body.n or 1)]
        if not 1 <= len(asked) <= self.limits.inputs:
            raise Refused(422, f"{len(asked)} completions are asked for; a request takes 1 to {self.limits.inputs}")
        chat = key == "message"
        made: dict[str, object] = {"id": f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"}
        made |= {"object": "chat.completion" if chat else "text_completion"}
        made |= {"created": int(time.time()), "model": body.model}
        inputs = [_input(run, prompt, item) for item, prompt in enumerate(asked)]
        headers = {"x-ignored-keys": quote(", ".join(body.ignored())[:1000], safe=", ")} if body.ignored() else {}
        settings = body.settings()
        has_logprobs = "logprobs" in run.trained.inputs.settings.model_fields
        if body.num_likely is not None and (body.stream or not has_logprobs):
            has = "streams have" if has_logprobs else f"{run.name} has"
            raise Refused(400, f"logprobs: {has} none; leave out logprobs{' or stream' * has_logprobs}")
        if not body.stream:
            answers = [usable(answer) for answer in await unless_gone(request, run.answers(inputs, settings))]
            texts = [prompt * echo + str(answer["text"]) for prompt, answer in zip(asked, answers, strict=True)]
            choices = [_choice(index, key, text, answers[index]["finish"]) for index, text in enumerate(texts)]
            for choice, answer, prompt in zip(choices, answers, asked, strict=True):
                choice["logprobs"] = _logprobs(answer.get("logprobs"), key, len(prompt) * echo)
            usage = _usage(run, prompts, [str(each["text"]) for each in answers])
            return Answer({**made, "choices": choices, "usage": usage}, headers=headers)

        async def pieces() -> AsyncGenerator[dict[str, object]]:
            delta, written = "delta" if chat else key, [""] * len(inputs)
            for index, given in enumerate(inputs):
                ends: list[Plain] = []
                async with contextlib.aclosing(await run.pieces(given, settings, ends.append)) as texts:
                    if not index:
                        yield {}  # begun, or refused while the status can still say so
                    yield {"choices": [_choice(index, delta, asked[index] * echo)]}
                    async for text in texts:
                        written[index] += text
                        if text:
                            yield {"choices": [_choice(index, delta, text)]}
                # Only characters can be counted here; models of other tokens report the end themselves.
                cut = not hasattr(run.trained.first, "encoded") and len(written[index]) >= body.length
                yield {"choices": [_choice(index, delta, "", ends[0] or ("length" if cut else "stop"))]}
            if (body.stream_options or {}).get("include_usage") is True:
                yield {"choices": [], "usage": _usage(run, prompts, written)}

        streamed = pieces()
        await anext(streamed)
        made["object"] = f"{made['object']}{'.chunk' * chat}"
        response = Events(streamed, lambda part: {**made, **part}, b"[DONE]", self.limits.seconds)
        response.headers.update(headers)
        return response


def _usage(run: Answering, prompts: Sequence[str], texts: Sequence[str]) -> dict[str, Plain]:
    """Return how many tokens were read and written; a model of characters counts these."""
    encoded = getattr(run.trained.first, "encoded", str)
    read, written = (sum(len(encoded(each)) for each in part) for part in (prompts, texts))
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _input(run: Answering, prompt: str, item: int) -> dict[str, object]:
    """Return the input of a run; a prompt too long for it is continued from its end, as a document's."""
    if len(prompt) <= schemas.LONGEST_TEXT or "document" not in run.trained.inputs.input.model_fields:
        return {"prompt": prompt, "item": item}
    return {"document": prompt[: -schemas.LONGEST_TEXT], "prompt": prompt[-schemas.LONGEST_TEXT :], "item": item}


async def _completed(
    run: Answering, field: str | None, prompt: str, settings: Mapping[str, object], document: str = ""
) -> dict[str, object]:
    """Return the continuation of a prompt in a field, and the prompt that was completed. Raises Refused."""
    (answer,) = await run.answers([{"field": field, "prompt": prompt, "document": document}], settings)
    return {"text": usable(answer)["text"], "prompt_used": answer["prompt"]}


def _choice(index: int, key: str, text: str, finish: Plain = None) -> dict[str, Plain]:
    content: Plain = text if key == "text" else {"role": "assistant", "content": text}
    return {"index": index, key: content, "finish_reason": finish, "logprobs": None}


def _logprobs(pieces: Plain, key: str, begin: int) -> Plain:
    """Return log-probabilities in the format of OpenAI's completions or chats, by `key`; None without any."""
    if not isinstance(pieces, list):
        return None
    if key == "message":
        tops = [[_token(*each) for each in place["likely"].items()] for place in pieces]
        places = [_token(place["token"], place["logprob"]) for place in pieces]
        return {"content": [{**place, "top_logprobs": top} for place, top in zip(places, tops, strict=True)]}
    tokens = [place["token"] for place in pieces]
    return {
        "tokens": tokens,
        "token_logprobs": [place["logprob"] for place in pieces],
        "top_logprobs": [place["likely"] for place in pieces],
        "text_offset": list(itertools.accumulate(map(len, tokens[:-1]), initial=begin))[: len(tokens)],
    }


def _token(token: str, log_prob: float) -> dict[str, Plain]:
    return {"token": token, "logprob": log_prob, "bytes": list(token.encode("utf-8", "replace"))}
