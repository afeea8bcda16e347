"""Known names, ordinary words and terms of building, and which of both an unknown word sounds like."""

import importlib
import lzma
import pkgutil
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import log, sqrt
from pathlib import Path
from types import ModuleType

from pipelines.workloads.bep.documents.masking import WORDS

LETTER = r"[^\W\d_]"
HERE = Path(__file__)
UPPER = "".join(filter(str.isupper, map(chr, [*range(0x250), *range(0x1E00, 0x1F00)])))
WORD = rf"(?:(?:al|el|as|ash|an|ar)-|[dl{UPPER}]['\u2019])?[{UPPER}]{LETTER}+(?:[-'\u2019]{LETTER}+)*"


@cache
def known_names() -> tuple[frozenset[str], frozenset[str]]:
    """Return given names and surnames in Latin letters: those of the package Faker and of masking.json."""
    spellings = [{ord(form): way[a] for a in way for form in (a, a.upper())} for way in WORDS["letters"]]
    kinds: tuple[set[str], set[str]] = set(WORDS["given_names"]), set(WORDS["surnames"] + WORDS["eastern_surnames"])
    for module in faker_modules("person"):
        for attribute in dir(module.Provider):
            values = getattr(module.Provider, attribute) if "_name" in attribute and "lang" not in attribute else None
            if isinstance(values, tuple | list | dict):
                listed = {word for value in values for word in str(value).split()}
                spelled = {word.translate(way).title() for word in listed if word > "\u0370" for way in spellings}
                plain = {"".join(c for c in unicodedata.normalize("NFKD", word) if c < "\u0300") for word in listed}
                kinds["last" in attribute].update(listed, spelled, plain)
    given, surnames = (frozenset(filter(re.compile(WORD).fullmatch, names)) for names in kinds)
    return given, surnames


@cache
def listed_names() -> tuple[frozenset[str], frozenset[str]]:
    """Return the known given names and surnames, and those of the United States' census that are no ordinary words.

    tests/workloads/bep/documents/census_names.py says where census.txt.xz comes from and makes it.
    """
    lines = lzma.decompress(HERE.with_name("census.txt.xz").read_bytes()).decode("ascii").split("\n")
    given, surnames = ({name for name in line.split() if name.lower() not in terms()} for line in lines)
    return known_names()[0] | given, known_names()[1] | surnames


@cache
def terms() -> frozenset[str]:
    """Return the words, in lower case, of terms.txt, of the embedded documents and of Faker's lists of words."""
    listed = HERE.with_name("terms.txt").read_text(encoding="utf-8")
    words = {word.lower() for word in re.findall(r"[^\W\d_]+", re.sub("(?m)^#.*", "", listed))}
    for path in (HERE.parents[1] / "corpus").glob("*.md"):
        words |= lower_case(path.read_text(encoding="utf-8"))
    return frozenset(words | _lower("en_US"))


@cache
def english() -> frozenset[str]:
    """Return English words in lower case, which tests/workloads/bep/documents/english_words.py collects."""
    lines = lzma.decompress(HERE.with_name("english.txt.xz").read_bytes()).decode("ascii").split("\n")
    return frozenset(line for line in lines if not line.startswith("#"))  # its notice


def faker_modules(kind: str) -> Iterator[ModuleType]:
    """Yield the modules of the package Faker, one a locale, that make a kind of text."""
    from faker import providers

    package = importlib.import_module(f"{providers.__name__}.{kind}")
    modules = pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
    return (importlib.import_module(each.name) for each in modules)


def _lower(locale: str = "") -> set[str]:
    """Return Faker's ordinary words of a locale or of all."""
    found = (module.Provider.word_list for module in faker_modules("lorem") if module.__name__.endswith(locale))
    return {word for words in found for word in words if word.islower()}


@cache
def sound(word: str) -> float:
    """Return how much likelier the trigrams of a word are in names than in ordinary words: 1.6 and -0.7 on average."""
    parts = _trigrams(word.lower())
    return float(sum(_weights().get(part, 0.0) for part in parts) / sqrt(len(parts)))


def _trigrams(word: str) -> list[str]:
    return ["".join(part) for part in zip(f"^{word}", f"{word}$", f"{word}$"[1:], strict=False)]


@cache
def _weights() -> dict[str, float]:
    """Return the log-ratio of each trigram's frequencies in names and in ordinary words."""
    names = {word.lower() for kind in known_names() for word in kind}
    words = (terms() | _lower()) - names
    first, second = (Counter(part for word in kind for part in _trigrams(word)) for kind in (names, words))
    base = log(second.total() / first.total())
    return {part: log((first[part] + 0.5) / (second[part] + 0.5)) + base for part in first | second}


def lower_case(text: str) -> set[str]:
    """Return the words that a text writes in lower case, which are no names there."""
    return {word for word in re.findall(r"(?<![\w@.-])[^\W\d_]+(?![\w@])", text) if word.islower()}
