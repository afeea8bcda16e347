"""YAML and `key.path=value` words -> one frozen, strictly checked object: defaults < YAML < words."""

import copy
import difflib
import os
import sys
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar, TypeVar, Unpack

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, core_schema

from common.config import plain_yaml
from common.errors import UserError, as_user_error
from common.foreign_text import printable

Config = TypeVar("Config", bound="Section")
MOST_ERRORS = 20  # in one message
OF_WORDS = "in the words of the command:"  # opens a message
OWN_FILES = ("folder", "sources", "source", "instances")  # keys for a user's files, by another name in each workload


@dataclass(frozen=True)
class Choice:
    """Restricts a `str` field to the keys of a table: `Annotated[str, Choice(TABLE)]`."""

    table: Collection[str]

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> core_schema.CoreSchema:
        return core_schema.literal_schema(list(self.table))


class Section(BaseModel):
    """Part of a config, closed and frozen. `class Own(Training, defaults={"steps": 5})` changes inherited defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)
    one_of: ClassVar[tuple[str, ...]] = ()  # keys of which one is given: a word for it alone makes the others null

    def __init_subclass__(cls, defaults: Mapping[str, object] | None = None, **kwargs: Unpack[ConfigDict]) -> None:
        super().__init_subclass__(**kwargs)  # `defaults` is for the method below, which runs once fields are known

    @classmethod
    def __pydantic_init_subclass__(cls, defaults: Mapping[str, object] | None = None, **kwargs: object) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for name, value in (defaults or {}).items():
            cls.model_fields[name] = copy.copy(cls.model_fields[name])
            cls.model_fields[name].default = value
        if defaults:
            cls.model_rebuild(force=True)


def load(path: Path, cls: type[Config], words: Sequence[str] = (), outlived: str = "", run: object = None) -> Config:
    """`build` from a file; from a run's own, keys gone from the section `outlived` are named and left out."""
    try:
        with path.open("rb") as file:
            tree = plain_yaml.parse(file.read(plain_yaml.MOST_BYTES + 1))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the config {path}: {getattr(error, 'strerror', error)}") from error
    if not isinstance(tree, dict | None):
        raise UserError(f"{path} must hold a mapping of sections, it holds {_given(tree)}")
    tree = tree or {}
    if outlived in cls.model_fields and isinstance(section := tree.get(outlived), dict):
        known = getattr(cls.model_fields[outlived].annotation, "model_fields", section)
        if gone := sorted(section.keys() - known):
            tree[outlived] = {name: section[name] for name in section if name in known}
            if os.environ.get("RANK", "0") == "0":
                print(f"{path}: {outlived} has no {', '.join(gone)} any more: left out", file=sys.stderr)
    return build(cls, tree, words, str(path), copy.deepcopy(tree) if outlived else run)


def build(cls: type[Config], tree: dict[str, object], words: Sequence[str], source: str, run: object = None) -> Config:
    """Patch a plain tree with `words` and check it; `source` names it in errors. Validators get `run`, gone on with."""
    before = copy.deepcopy(tree) if words else {}
    _patch_all(cls, tree, words)
    try:
        return cls.model_validate(tree, context={"run": run, "typed": {word.partition("=")[0] for word in words}})
    except ValidationError as error:
        where = f"config {source}:"
        with suppress(ValidationError):
            if words and cls.model_validate(before):
                where = OF_WORDS
        raise UserError("\n  ".join([where, *_problems(cls, error.errors(include_url=False))])) from error


def check_words(cls: type[Section], words: Sequence[str]) -> None:
    """Raise UserError for words that are wrong whatever config they patch: unknown keys, values of another type."""
    tell_repeated(words)
    tree: dict[str, object] = {}
    _patch_all(cls, tree, words)
    try:
        cls.model_validate(tree)
    except ValidationError as error:
        wrong = [item for item in error.errors(include_url=False) if item["type"] not in ("missing", "value_error")]
        if wrong:
            raise UserError("\n  ".join([OF_WORDS, *_problems(cls, wrong)])) from error


def tell_repeated(words: Iterable[str]) -> None:
    """Say on standard error which of the values counts that words key=value give a key: the last one."""
    given: dict[str, list[str]] = {}
    for key, equals, value in (word.partition("=") for word in words):
        given.setdefault(key, []).extend([value] if equals else [])
    for key, values in given.items():
        if len(set(values)) > 1 and int(os.environ.get("RANK", 0)) == 0:
            times = f"{len(values)} times: {printable(values[-1], 80)} counts"
            print(f"{printable(key, 80)} is given {times}", file=sys.stderr)


def checked(cls: type[Config], tree: object, what: str, context: Mapping[str, object] | None = None) -> Config:
    """Return plain values as a `cls`; a one-line UserError begins with `what` they are. Validators get `context`."""
    if not isinstance(tree, Mapping):
        raise UserError(f"{what}: it must be an object with {', '.join(cls.model_fields)} (given {_given(tree)})")
    try:
        return cls.model_validate(dict(tree), context=context)
    except ValidationError as error:
        raise UserError(f"{what}: {'; '.join(_problems(cls, error.errors(include_url=False)))}") from error


def _problems(cls: type[Section], errors: Sequence[ErrorDetails]) -> list[str]:
    problems: dict[str, tuple[list[str], str]] = {}
    for number, item in enumerate(errors[:MOST_ERRORS]):
        key, message, given = _explain(cls, item)
        within = any(item["loc"] == before["loc"][: len(item["loc"])] for before in errors[:number])
        if item["type"] in ("too_short", "tuple_type") and (key in problems or within):
            continue  # pydantic reports a wrong item as missing, too; a single value was reported before
        problems.setdefault(key, ([], given))[0].append(message)  # of a union, each member has its say
    lines = [f"{key}{', or '.join(messages)}{given}" for key, (messages, given) in problems.items()]
    more = len(errors) - MOST_ERRORS
    return [*lines, f"and {more} more"] if more > 0 else lines


def dump(config: Section) -> str:
    """Return the resolved config as YAML, defaults included."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)


def differences(old: Section, new: Section) -> list[str]:
    """Return `key: old -> new` for every dotted key whose value differs."""
    before, after = dict(leaves(old.model_dump(mode="json"))), dict(leaves(new.model_dump(mode="json")))
    keys = dict.fromkeys([*before, *after])
    return [f"{key}: {before.get(key)} -> {after.get(key)}" for key in keys if before.get(key) != after.get(key)]


def leaves(tree: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the dotted keys and values of a nested mapping."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _patch_all(cls: type[Section], tree: dict[str, object], words: Sequence[str]) -> None:
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        _patch(tree, word, following if word in _dotted(cls) else "")
    typed = {word.partition("=")[0] for word in words}
    for name, section in cls.model_fields.items():
        keys, bounds = (getattr(section.annotation, each, ()) for each in ("one_of", "bounds"))
        given, values = [key for key in keys if f"{name}.{key}" in typed], tree.get(name)
        if len(given) == 1 and isinstance(values, dict) and values.get(given[0]) is not None:
            values.update(dict.fromkeys(key for key in (*keys, *bounds) if f"{name}.{key}" not in typed))


def _patch(tree: dict[str, object], word: str, following: str) -> None:
    key, equals, text = word.partition("=")
    if not equals or not key:
        torn = following and "=" not in following
        hint = f"; did you mean {word}={following}?" if torn else ", as in training.steps=100"
        raise UserError(f"{word!r} is not of the form key.path=value{hint}")
    if not text.strip():
        raise UserError(f"{word} has no value: give one, as in training.steps=100, or null for none")
    text = os.path.expanduser(text) if text.startswith("~/") else text  # which shells leave as it is in such words
    *parents, leaf = key.split(".")
    node = tree
    for name in parents:
        if not isinstance(inner := node.setdefault(name, {}), dict):
            raise UserError(f"{key}: {name!r} is a value, not a section (given {word!r})")
        node = inner
    with as_user_error(f"{key}: {_given(text)} is not a YAML value; put it in quotes (", ")"):
        node[leaf] = plain_yaml.parse(os.fsencode(text))


def _explain(cls: type[Section], item: ErrorDetails) -> tuple[str, str, str]:
    known = list(_dotted(cls))
    # Pydantic appends the names of union members to the location; they are no keys.
    parts = [str(part) for part in item["loc"]]
    key = ".".join(parts)
    given = item["input"]
    strange = key.rpartition(".")[2] not in OWN_FILES
    files = [] if strange else [name for own in OWN_FILES for name in known if name.endswith(f".{own}")][:1]
    if item["type"] == "extra_forbidden":
        same = [name for name in known if name.rpartition(".")[2] == parts[-1]]
        near = same or files or difflib.get_close_matches(key, known, 1, 0.5)
        siblings = [name for name in known if name.rpartition(".")[0] == ".".join(parts[:-1])]
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(siblings)}"
        return f"{printable(key, 200)}: ", f"unknown key; {hint}", f" (given {_given(given)})"
    if item["type"] == "missing":
        return f"{key}: ", "it is missing", ""
    while parts and key not in known:
        parts.pop()
        key = ".".join(parts)
    message = _message(cls, item, key)
    if item["type"] == "literal_error" and files not in ([], [key]):
        message += f"; files of your own are given as {files[0]}={printable(str(given), 60)}"
    if item["type"] == "value_error":  # a rule across fields: its message names the keys and values itself
        return "", message, ""
    if isinstance(given, bool):
        message += "; YAML reads a bare yes, no, on or off as true or false: quote it"
    return f"{key}: ", message, f" (given {_given(given)})"


def _message(cls: type[Section], item: ErrorDetails, key: str) -> str:
    if item["type"] == "tuple_type":
        *sections, leaf = key.split(".")
        for name in sections:
            cls = cls.model_fields[name].annotation  # type: ignore[assignment]
        field = cls.model_fields[leaf]
        any_length = ... in typing.get_args(field.annotation) or not isinstance(field.default, tuple)
        example = [printable(str(item["input"]), 60)] if any_length else map(str, field.default)
        return f"give a list in brackets, as in {key}=[{', '.join(example)}]"
    if item["type"] == "model_type":
        own = [name.rpartition(".")[2] for name in _dotted(cls) if name.rpartition(".")[0] == key]
        return f"it must be an object{' with ' * bool(own)}{', '.join(own)}"
    if item["type"] == "too_short" and "ctx" in item:
        return f"give {item['ctx']['min_length']} or more"
    return "give true or false" if item["type"] == "bool_parsing" else item["msg"].removeprefix("Value error, ")


def _given(value: object) -> str:
    return printable(repr(value), 200)


def _dotted(cls: type[Section], prefix: str = "") -> Iterator[str]:
    for name, field in cls.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _dotted(field.annotation, f"{prefix}{name}.")
