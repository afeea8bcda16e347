"""Mistakes in keys and values, each explained in a line, with the nearest match."""

import difflib
import typing
from collections.abc import Collection, Iterator, Sequence

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from common.foreign_text import printable

MOST_ERRORS = 20  # in one message
OWN_FILES = ("folder", "sources", "source", "instances")  # keys for a user's files, each of some workload


def problems_of(cls: type[BaseModel], errors: Sequence[ErrorDetails]) -> list[str]:
    """Return a line for each key that is wrong."""
    problems: dict[str, tuple[list[str], str]] = {}
    for number, item in enumerate(errors[:MOST_ERRORS]):
        key, message, given = _explain(cls, item)
        within = any(item["loc"] == before["loc"][: len(item["loc"])] for before in errors[:number])
        if item["type"] in ("too_short", "tuple_type") and (key in problems or within):
            continue  # pydantic reports a wrong item as missing, too; a single value was reported before
        problems.setdefault(key, ([], given))[0].append(message)  # one message per member of a union
    lines = [f"{key}{', or '.join(dict.fromkeys(messages))}{given}" for key, (messages, given) in problems.items()]
    more = len(errors) - MOST_ERRORS
    return [*lines, f"and {more} more"] if more > 0 else lines


def _explain(cls: type[BaseModel], item: ErrorDetails) -> tuple[str, str, str]:
    known = list(dotted(cls))
    # Pydantic puts the names of union members into the location; they are no keys.
    parts = [str(part) for part in item["loc"] if "[" not in str(part) or part == item["loc"][-1]]
    key = ".".join(parts)
    given = item["input"]
    strange = key.rpartition(".")[2] not in OWN_FILES
    files = [] if strange else [name for own in OWN_FILES for name in known if name.endswith(f".{own}")][:1]
    if item["type"] == "extra_forbidden":
        bare = ".".join(part for part in parts if not part.isdigit())  # the numbers are of items of a list
        siblings = [name for name in known if name.rpartition(".")[0] == bare.rpartition(".")[0]]
        same = [name for name in known if name.rpartition(".")[2] == parts[-1]] if bare == key else []
        near = same or files or difflib.get_close_matches(bare, siblings if bare != key else known, 1, 0.5)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known keys: {', '.join(siblings)}" * bool(siblings)
        return f"{printable(key, 200)}: ", f"unknown key{hint}", f" (given {quoted(given)})"
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
    if isinstance(given, bool) and item["type"] != "number_type":
        message += "; YAML reads a bare yes, no, on or off as true or false: quote it"
    return f"{key}: ", message, f" (given {quoted(given)})"


def _message(cls: type[BaseModel], item: ErrorDetails, key: str) -> str:
    if item["type"] == "tuple_type":
        *sections, leaf = key.split(".")
        for name in sections:
            cls = cls.model_fields[name].annotation  # type: ignore[assignment]
        field = cls.model_fields[leaf]
        any_length = ... in typing.get_args(field.annotation) or not isinstance(field.default, tuple)
        example = [printable(str(item["input"]), 60)] if any_length else map(str, field.default)
        return f"give a list in brackets, as in {key}=[{', '.join(example)}]"
    if item["type"] == "model_type":
        own = [name.rpartition(".")[2] for name in dotted(cls) if name.rpartition(".")[0] == key]
        return f"it must be an object{' with ' * bool(own)}{', '.join(own)}"
    if item["type"] == "too_short" and "ctx" in item:
        return f"give {item['ctx']['min_length']} or more"
    return "give true or false" if item["type"] == "bool_parsing" else item["msg"].removeprefix("Value error, ")


def quoted(value: object) -> str:
    """Return a value as errors show it."""
    return printable(repr(value), 200)


def nearest(word: str, known: Collection[str], most: int = 1) -> list[str]:
    """Return up to `most` of the `known` words that resemble `word`, the nearest first."""
    return difflib.get_close_matches(word, known, most, 0.6)


def dotted(cls: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all sections and keys."""
    for name, field in cls.model_fields.items():
        yield prefix + name
        for each in (field.annotation, *typing.get_args(field.annotation)[:1]):  # a section, or a list of some
            if isinstance(each, type) and issubclass(each, BaseModel):
                yield from dotted(each, f"{prefix}{name}.")
