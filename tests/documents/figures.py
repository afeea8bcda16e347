"""Figures of the documents and where they come from.

A figure is a number with a decimal point, a number before a unit, or a number in a table below its head and beside its
first column. A section with figures has comments in it that name their sources:

    <!-- figures: evidence bep.table; log 2026-11-22: what beats the models; pipelines/configs/bep.yaml -->

`evidence PART.KEY` is what docs/evidence.json holds there, all of the part without a KEY; `log HEADING` is an entry of
docs/log that begins so. Any other source is a file of the repository. A figure is quoted if a source has a number
that rounds to it. Left out are code, names in backticks, and tables between `<!-- gpu: NAME -->` and `<!-- end -->`,
which tests/gpu/figures.py writes.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NUMBER = r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
UNITS = (
    r"%|k?B\b|[MG]i?B\b|bytes?|[mµn]?s\b|(?:core-|CPU-)?(?:milli)?seconds?|minutes?|hours?|bits?\b|nats?\b|tokens?/s|"
    r"examples/s|cycles|times\b|x\b|points?\b|CPU-s|core-ms"
)
FIGURE = re.compile(
    rf"(?<![\w.+/-])({NUMBER})(?![\w.]*\d)(?=\s?(?:{UNITS}))|(?<![\w./+-])(-?\d[\d,]*\.\d+(?:e-?\d+)?)(?!\d|\.\d)"
)
COMMENT = re.compile(r"<!-- figures: (.*?) -->", re.DOTALL)


def unsourced(text: str, root: Path = ROOT) -> list[str]:
    """Return a sentence for each figure of a document that its sources do not have."""
    faults = []
    for section in sections(text):
        named = [source.strip() for found in COMMENT.findall(section) for source in found.split(";")]
        known = [number for source in named for number in numbers_of(source, root)]
        lacking = [figure for figure in figures(COMMENT.sub("", section)) if not quoted(figure, known)]
        sources = "; ".join(named) or "a source, since its section names none"
        faults += [f"{section.strip().splitlines()[0]}: {figure} is not in {sources}" for figure in lacking]
    return faults


def sections(text: str) -> list[str]:
    """Return the parts that begin with a heading, without what is code."""
    text = re.sub(r"<!-- gpu: .*?<!-- end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^ {4}.*$|`[^`]*`|\]\([^)]*\)", "", text, flags=re.MULTILINE)
    return [part for part in re.split(r"^(?=#)", text, flags=re.MULTILINE) if part.strip()]


def figures(section: str) -> Iterator[str]:
    """Iterate over the figures of a section as they are written."""
    heads = True  # of a table, until its rule has come
    for line in section.splitlines():
        if line.startswith("|"):
            cells = [] if heads else line.strip("| ").split("|")[1:]
            heads = heads and not re.match(r"\|[-| :]+\|$", line)
            yield from (each for cell in cells for each in re.findall(rf"(?<![\w.+/-]){NUMBER}(?![\w.]*\w)", cell))
        elif not line.startswith("#"):
            heads = True
            yield from (first or second for first, second in FIGURE.findall(line))


def quoted(figure: str, known: list[float]) -> bool:
    """Return whether one of the numbers `known` rounds to the figure; a share may be quoted in per cent."""
    plain = figure.replace(",", "").lstrip("-")
    digits = len(plain.partition("e")[0].partition(".")[2])
    if "e" in plain:
        return any(f"{abs(number):.{digits}e}".replace("e-0", "e-").replace("e+0", "e") == plain for number in known)
    half = 0.5000001 * 10**-digits
    return any(abs(abs(number) * scale - float(plain)) <= half for number in known for scale in (1, 100))


def numbers_of(source: str, root: Path) -> Iterator[float]:
    """Iterate over all numbers of a source. Raises LookupError if there is no such source."""
    kind, _, place = source.partition(" ")
    if kind == "evidence":
        part, _, key = place.partition(".")
        entry = json.loads((root / "docs/evidence.json").read_text())[part]
        yield from _leaves(entry["figures"][key] if key else entry)
    elif kind == "log":
        entries = [entry for path in (root / "docs/log").glob("20*.md") for entry in log_entries(path.read_text())]
        found = [entry for entry in entries if entry.startswith(place)]
        if not place or not found:
            raise LookupError(f"docs/log has no entry {place!r}")
        yield from _leaves(found[0])
    elif (root / source).is_file():
        yield from _leaves((root / source).read_text())
    else:
        raise LookupError(f"{source!r} is no source of figures; tests/documents/figures.py says which there are")


def log_entries(text: str) -> list[str]:
    """Return the entries of a month of docs/log, each with its date and title first."""
    return re.split(r"^## ", text, flags=re.MULTILINE)[1:]


def _leaves(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, str):
        yield from (float(number.replace(",", "")) for number in re.findall(rf"(?<![\w.]){NUMBER}", value))
    elif isinstance(value, int | float):
        yield float(value)
