"""Inputs of a command: files, folders, lines of a pipe, and words `key=value`."""

import contextlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from common.config import Section, checked, plain_yaml
from common.config.key_help import as_text, groups
from common.config.mistakes import nearest
from common.config.overrides import warn_of_repeated
from common.errors import UserError, as_user_error
from common.input_files import Given, Inputs

PIPE = Path("-")
LINES = (".jsonl", ".ndjson")
FIELDS = "words"  # source of an input whose fields are words
WORD = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def sorted_out(words: Sequence[str], inputs: Inputs) -> tuple[list[Path], dict[str, object], dict[str, object]]:
    """Sort words into paths (existing, or not key=value), settings and an input's fields; UserError for misfits."""
    paths: list[Path] = []
    settings: dict[str, object] = {}
    fields: dict[str, object] = {}
    for word in words:
        found = WORD.fullmatch(word)
        if found is None or os.path.exists(word):  # False also for a prompt too long for a name
            paths.append(Path(word))
        elif found[1] in inputs.input.model_fields:
            fields[found[1]] = _value(inputs.input, *found.groups())
            if inputs.line and fields[found[1]] == found[2] and os.path.isfile(found[2]):
                raise UserError(f'{word}: this is a file, not the text; give {found[1]}="$(cat {found[2]})"')
        else:
            near = nearest(found[1], [*inputs.settings.model_fields, *inputs.input.model_fields])
            if near and near[0] in inputs.input.model_fields:
                raise UserError(f"{word}: unknown key {found[1]}; did you mean {near[0]}={found[2]}?")
            if found[1] not in inputs.settings.model_fields and os.path.exists(found[2]):
                raise UserError(f"{word}: unknown key {found[1]}; give a file or folder without a key: {found[2]}")
            settings[found[1]] = _value(inputs.settings, *found.groups())
    warn_of_repeated(word for word in words if WORD.fullmatch(word) and not os.path.exists(word))
    checked(inputs.settings, settings, "settings")
    return paths, settings, fields


def described(inputs: Inputs) -> list[tuple[str, str]]:
    """Return (heading, text) of the help on an input's fields and on settings."""
    shown = (("fields of an input:", inputs.input), ("settings:", inputs.settings))
    return [(head, as_text(groups(cls), {})) for head, cls in shown]


def _value(cls: type[Section], key: str, text: str) -> object:
    """Return a word's value: the text itself if the key takes text, else, or for a list of texts, as YAML."""
    types = {each.name: each.type for group in groups(cls) for each in group.keys}
    if "text" in (kind := types.get(key, "")) and not ("[" in kind and text.startswith("[")):
        return text
    with as_user_error(f"{key}={text}: not a YAML value (", ")"):
        return plain_yaml.parse(os.fsencode(text))


def given(
    paths: Sequence[Path], fields: Mapping[str, object], inputs: Inputs, pipe: IO[bytes] | None
) -> Iterator[Given]:
    """Yield the inputs that the words name, else those from the pipe, as they arrive; shared fields apply to each."""
    shared = {key: value for key, value in fields.items() if key in inputs.shared}
    alone = fields != shared or not (paths or pipe)  # the fields are an input of their own
    if alone:
        yield Given(FIELDS, fields)
    for each in _from_files(paths or [PIPE] * (not alone), inputs, pipe):
        yield each if each.input is None else each._replace(input={**each.input, **shared})


def _from_files(paths: Sequence[Path], inputs: Inputs, pipe: IO[bytes] | None) -> Iterator[Given]:
    for lines, group in itertools.groupby(paths, lambda path: path == PIPE or path.suffix.lower() in LINES):
        if lines:
            for path in group:
                try:
                    with contextlib.nullcontext(pipe or ()) if path == PIPE else path.open("rb") as file:
                        yield from of_lines(file, str(path), inputs)
                except OSError as error:
                    yield Given(str(path), None, f"{path}: cannot be read: {error.strerror}")
        else:
            for given in inputs.read(list(group)):
                if given.input is None and inputs.line and not os.path.exists(given.source):
                    keys = [key for key, text in inputs.line(given.source).items() if text == given.source]
                    hint = f'; for a text to continue, give {keys[0]}="{given.source}"' if keys else ""
                    given = given._replace(error=given.error + hint)
                yield given


def of_lines(lines: Iterable[bytes], name: str, inputs: Inputs) -> Iterator[Given]:
    """Yield the input of each line that is not blank: a JSON object, else a text or a file name."""
    for number, line in enumerate(lines):
        if not number and line.startswith((b"\xff\xfe", b"\xfe\xff")):
            yield Given(name, None, f"{name}: this is UTF-16; convert it first: iconv -f UTF-16 -t UTF-8")
            return
        # As in `other_encoding`: non-ASCII letters in cp1252 are not valid UTF-8.
        encoding = "cp1252" if not line.isascii() and line.decode("utf-8", "ignore").isascii() else "utf-8-sig"
        source, text = f"{name}:{number + 1}", line.decode(encoding, "replace").strip("\r\n")
        if text.lstrip().startswith(("{", "[")):
            yield _object(source, text, number)
        elif text.strip() and inputs.line:
            yield Given(source, {"item": number, **inputs.line(text)})
        elif text.strip():
            for given in inputs.read([Path(text)]):
                wrong = f"{given.error}; a line is a JSON object or a file name"
                yield given if given.input is not None else Given(source, None, wrong)


def _object(source: str, text: str, number: int) -> Given:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Given(source, None, f"this is not JSON: {error}")
    if isinstance(found, dict):
        return Given(source, {"item": number, **found})
    return Given(source, None, f"an input must be an object, as {{...}} (given {text[:40]})")
