"""The fields of a BIM Execution Plan form, and how well headings fit them."""

import functools
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from models.plans.outline import NUMBER

WORD = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[^\W\d_]+")  # also the two of clashDetection, and BIM
_WORDS = json.loads(Path(__file__).with_name("words.json").read_text("utf-8"))
MINOR, SUFFIXES = frozenset(_WORDS["minor"]), _WORDS["suffixes"]
STRANGE = 0.5  # weight of a word that no field has
SYNONYM = 0.95  # fit of a field's synonym, relative to its name
FITTING = 0.55  # least fit of a heading about a field
LONG = 1.2  # weight of a phrase of several words, which is found in longer headings too, ...
WITHIN = 0.6  # with a fit of at least this
AND = re.compile(r",? (?:and|und|&) |, ", re.IGNORECASE)
PART = 0.85  # factor of the fit of a heading's part


@dataclass(frozen=True)
class Field:
    """A field of the form."""

    label: str
    group: str
    question: str
    beginning: str  # of a text for a model to continue
    synonyms: tuple[str, ...]  # other headings of the same content
    translated: tuple[str, ...]  # the same in German and French


FIELDS = {
    name: Field(**{**each, **{kind: tuple(each[kind]) for kind in ("synonyms", "translated")}})
    for name, each in json.loads(Path(__file__).with_suffix(".json").read_text()).items()
}
NAMES = tuple(FIELDS)


@functools.lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """Return the stem of a word, so that modelling and models are the same."""
    word = word.lower().replace("z", "s")
    word = f"{word[:-3]}y" if word.endswith("ies") else word
    if not word.endswith(("ss", "us", "is")):
        word = next((word[: -len(end)] for end in SUFFIXES if word.endswith(end) and len(word) > len(end) + 2), word)
    if len(word) > 3 and word[-1] == word[-2] and word[-1] in "lnmptg":
        word = word[:-1]
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def stems(text: str) -> list[str]:
    """Return the stems of a text's words, without minor ones."""
    return [stem(word) for word in WORD.findall(text) if word.lower() not in MINOR]


def significant(heading: str) -> frozenset[str]:
    """Return the stems of a heading without its number."""
    found = NUMBER.match(heading)
    return frozenset(stems(heading[found.end() :] if found else heading))


_PHRASES = [[significant(one) for one in (name, *field.synonyms, *field.translated)] for name, field in FIELDS.items()]
_FLAT = [phrase for phrases in _PHRASES for phrase in phrases]
_FIRSTS = np.cumsum([0, *map(len, _PHRASES)])[:-1]
_OWN = [frozenset().union(*map(significant, (name, *field.synonyms))) for name, field in FIELDS.items()]
# Words of English weigh by English headings alone, others by all.
_KINDS = {**Counter(word for phrases in _PHRASES for word in set().union(*phrases)), **Counter(chain(*_OWN))}
WEIGHTS = {word: max(0.25, count**-0.5) for word, count in _KINDS.items()}  # words of many fields say little
_COLUMNS = {word: column for column, word in enumerate(_KINDS)}
_PHRASE_WORDS = np.array([[WEIGHTS[word] * (word in phrase) for word in _COLUMNS] for phrase in _FLAT])
_FACTORS = np.full(len(_FLAT), SYNONYM)
_FACTORS[_FIRSTS] = 1
_SUMS = _PHRASE_WORDS.sum(1)
_IS_LONG = (_SUMS >= LONG) & ((_PHRASE_WORDS > 0).sum(1) > 1)


def weight(words: frozenset[str]) -> float:
    """Return how much words say about a field."""
    return float(sum(WEIGHTS.get(word, STRANGE) for word in words))


def fits(headings: Sequence[str]) -> np.ndarray:
    """Return how well headings (H,) fit the fields, (H, F): the share of words, 0 to 1, in common with a synonym.

    A heading such as "Mobilisation and risk" also fits, a little less, what its parts fit.
    """
    parts = [[heading, *halves] if len(halves := AND.split(heading)) > 1 else [heading] for heading in headings]
    found = [significant(part) for own in parts for part in own]
    inside = np.array([[word in words for word in _COLUMNS] for words in found], float).reshape(len(found), -1)
    common = inside @ _PHRASE_WORDS.T
    whole = np.array([weight(words) for words in found])[:, None] + _SUMS - common
    alike = common / np.maximum(whole, 1e-9)
    alike = np.where(_IS_LONG & (common > _SUMS - 1e-9), WITHIN + (1 - WITHIN) * alike, alike)
    alike = np.maximum.reduceat(alike * _FACTORS, _FIRSTS, 1)
    firsts = np.cumsum([0, *map(len, parts)])[:-1]
    factors = np.full(len(alike), PART)
    factors[firsts] = 1
    return np.asarray(np.maximum.reduceat(alike * factors[:, None], firsts)) if len(firsts) else alike


@functools.lru_cache(maxsize=1_000)
def field_of(heading: str) -> str | None:
    """Return the field that a heading, or the field's own name, is about."""
    if heading in FIELDS:
        return heading
    (found,) = fits([heading])
    return NAMES[int(found.argmax())] if found.max() >= FITTING else None
