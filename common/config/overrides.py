"""Words `key.path=value`, which override the values of a config's tree."""

import os
import sys
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from pydantic import BaseModel

from common.config import plain_yaml
from common.config.mistakes import dotted, quoted
from common.errors import UserError, as_user_error
from common.foreign_text import printable


def patch(cls: type[BaseModel], tree: dict[str, object], words: Sequence[str]) -> None:
    """Put the values of `words` into a plain tree. Raises UserError for a malformed word."""
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        _patch_word(tree, word, following if word in dotted(cls) else "")
    typed = {word.partition("=")[0] for word in words}
    for name, section in cls.model_fields.items():
        keys, bounds = (getattr(section.annotation, each, ()) for each in ("one_of", "bounds"))
        given, values = [key for key in keys if f"{name}.{key}" in typed], tree.get(name)
        if len(given) == 1 and isinstance(values, dict) and values.get(given[0]) is not None:
            values.update(dict.fromkeys(key for key in (*keys, *bounds) if f"{name}.{key}" not in typed))


def _patch_word(tree: dict[str, object], word: str, following: str) -> None:
    key, equals, text = word.partition("=")
    if not equals or not key:
        torn = following and "=" not in following
        hint = f"; did you mean {word}={following}?" if torn else ", as in training.steps=100"
        raise UserError(f"{word!r} is not of the form key.path=value{hint}")
    if not text.strip():
        raise UserError(f"{word} has no value: give one, as in training.steps=100, or null for none")
    text = os.path.expanduser(text) if text.startswith("~/") else text  # shells do not expand it there
    *parents, leaf = key.split(".")
    node = tree
    for name in parents:
        if not isinstance(inner := node.setdefault(name, {}), dict):
            raise UserError(f"{key}: {name!r} is a value, not a section (given {word!r})")
        node = inner
    with as_user_error(f"{key}: {quoted(text)} is not a YAML value; put it in quotes (", ")"):
        node[leaf] = plain_yaml.parse(os.fsencode(text))


def warn_of_repeated(words: Iterable[str]) -> None:
    """Warn on stderr of keys that words key=value give several values: the last one counts."""
    given: dict[str, list[str]] = {}
    for key, equals, value in (word.partition("=") for word in words):
        given.setdefault(key, []).extend([value] if equals else [])
    for key, values in given.items():
        if len(set(values)) > 1 and int(os.environ.get("RANK", 0)) == 0:
            times = f"{len(values)} times: {printable(values[-1], 80)} counts"
            print(f"{printable(key, 80)} is given {times}", file=sys.stderr)
