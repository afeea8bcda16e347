"""YAML and `key.path=value` words -> one frozen, strictly checked object: defaults < YAML < words."""

import copy
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar, Unpack

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic_core import PydanticCustomError, core_schema

from common.config import plain_yaml
from common.config.mistakes import problems_of, quoted
from common.config.overrides import patch, warn_of_repeated
from common.errors import UserError, as_user_error

Config = TypeVar("Config", bound="Section")
OF_WORDS = "in the words of the command:"  # opens a message


@dataclass(frozen=True)
class Choice:
    """Restricts a `str` field to the keys of a table: `Annotated[str, Choice(TABLE)]`."""

    table: Collection[str]

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> core_schema.CoreSchema:
        return core_schema.literal_schema(list(self.table))


class Section(BaseModel):
    """Part of a config, closed and frozen. `class Own(Training, defaults={"steps": 5})` changes inherited defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)
    one_of: ClassVar[tuple[str, ...]] = ()  # exclusive keys: a word for one alone sets the others to null

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

    @field_validator("*", mode="wrap")
    @classmethod
    def refuse_truth(cls, value: object, validate: Callable[[object], object]) -> object:
        """Refuse true and false for numbers, which pydantic reads as 1 and 0."""
        checked = validate(value)
        if isinstance(value, bool) and type(checked) in (int, float):
            raise PydanticCustomError("number_type", "Input should be a number")
        return checked


def load(path: Path, cls: type[Config], words: Sequence[str] = (), outlived: str = "", run: object = None) -> Config:
    """`build` from a file; in a run's own, unknown keys of the section `outlived` are reported and left out."""
    with as_user_error(f"cannot read the config {path}: ", of=(OSError, ValueError)), path.open("rb") as file:
        tree = plain_yaml.parse(file.read(plain_yaml.MOST_BYTES + 1))
    if not isinstance(tree, dict | None):
        raise UserError(f"{path} must hold a mapping of sections, it holds {quoted(tree)}")
    if outlived and not tree:
        raise UserError(f"{path} is empty: restore a copy, or begin another run with --name")
    tree = tree or {}
    if outlived in cls.model_fields and isinstance(section := tree.get(outlived), dict):
        known = getattr(cls.model_fields[outlived].annotation, "model_fields", section)
        if gone := sorted(section.keys() - known):
            tree[outlived] = {name: section[name] for name in section if name in known}
            if os.environ.get("RANK", "0") == "0":
                print(f"{path}: {outlived} has no {', '.join(gone)} any more: left out", file=sys.stderr)
    return build(cls, tree, words, str(path), copy.deepcopy(tree) if outlived else run)


def build(cls: type[Config], tree: dict[str, object], words: Sequence[str], source: str, run: object = None) -> Config:
    """Patch a plain tree with `words` and check it; `source` names it in errors; validators see the `run` continued."""
    before = copy.deepcopy(tree) if words else {}
    patch(cls, tree, words)
    try:
        return cls.model_validate(tree, context={"run": run, "typed": {word.partition("=")[0] for word in words}})
    except ValidationError as error:
        where = f"config {source}:"
        with suppress(ValidationError):
            if words and cls.model_validate(before):
                where = OF_WORDS
        raise UserError("\n  ".join([where, *problems_of(cls, error.errors(include_url=False))])) from error


def check_words(cls: type[Section], words: Sequence[str]) -> None:
    """Raise UserError for words that are wrong whatever config they patch: unknown keys, values of another type."""
    warn_of_repeated(words)
    tree: dict[str, object] = {}
    patch(cls, tree, words)
    try:
        cls.model_validate(tree)
    except ValidationError as error:
        wrong = [item for item in error.errors(include_url=False) if item["type"] not in ("missing", "value_error")]
        if wrong:
            raise UserError("\n  ".join([OF_WORDS, *problems_of(cls, wrong)])) from error


def checked(cls: type[Config], tree: object, what: str, context: Mapping[str, object] | None = None) -> Config:
    """Validate plain values as a `cls`; UserErrors are a line that begins with `what`. Validators see `context`."""
    if not isinstance(tree, Mapping):
        raise UserError(f"{what}: it must be an object with {', '.join(cls.model_fields)} (given {quoted(tree)})")
    try:
        return cls.model_validate(dict(tree), context=context)
    except ValidationError as error:
        raise UserError(f"{what}: {'; '.join(problems_of(cls, error.errors(include_url=False)))}") from error


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
