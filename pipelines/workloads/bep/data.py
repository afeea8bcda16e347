"""Prepared documents: read, cleaned, divided by family, encoded as characters.

<folder>/              Arrow: a row per document, or per block of one: name, family, part, text, outline
<folder>/corpus.json   the vocabulary and the facts
<folder>/masked.csv    what was masked, for review; data.reviewed takes a changed copy
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from common import sheets
from common.disk.files import write_json
from common.errors import UserError, as_user_error
from common.foreign_text import to_csv
from common.plain import Plain
from models.plans.characters import COPIED, MASKS, UNKNOWN, Characters
from models.plans.outline import divide as clauses
from pipelines.workloads.bep.config import Config, Data
from pipelines.workloads.bep.documents import families, sources
from pipelines.workloads.bep.documents.cleaning import MASK_OF, Cleaned, clean
from pipelines.workloads.bep.documents.lexicon import lower_case
from pipelines.workloads.bep.documents.sources import Document
from pipelines.workloads.bep.splits import PARTS, Rows, check_sizes, described_overlap, divide, held_out

REVIEWED = ("document", "kind", "text", "times", "line", "context", "decision")  # columns of masked.csv
EMBEDDED = Path(__file__).with_name("corpus")
FEWEST_CHARACTERS = 10_000  # fewer are too little to train and evaluate with


@dataclass(frozen=True)
class Text:
    """A document, or a block of one."""

    name: str
    tokens: np.ndarray  # (T,) uint8, or uint16 where the vocabulary is larger; an id per character, no <end>
    family: str | None = None  # of its project, or of its versions; None: it has none
    outline: np.ndarray = field(default_factory=lambda: np.zeros((0, 4), np.int32))  # (N, 4) of its clauses


@dataclass(frozen=True)
class Corpus:
    """Prepared documents."""

    vocabulary: tuple[str, ...]  # sorted characters of the training text; their ids follow those of SPECIAL_TOKENS
    parts: dict[str, list[Text]]  # "train", "validation" and "test"
    facts: Mapping[str, Plain]


def prepare(config: Config, folder: Path) -> Mapping[str, Plain]:
    """Write the documents and their tokens; return facts for the manifest.

    Raises UserError for files that cannot be used, and for a corpus too small to hold some of it out.
    """
    data = config.data
    source = f"folder or file {data.sources}" if data.sources else "embedded documents"
    found = sources.find(data.sources or str(EMBEDDED))
    files, cleaned, bad = _texts(found, data)
    if bad and not data.skip_bad:
        listed = "".join(f"\n  {name}: {reason}" for name, reason in bad.items())
        unusable = f"{source}: {len(bad)} of {len(found.files) + len(found.refused)} files cannot be used"
        way = "repair or remove them, or leave them out with data.skip_bad=true"
        raise UserError(f"{unusable}; {way}:{listed}")
    project = families.projects(cleaned, data.projects)
    label = families.labels(cleaned, project, data.labels)
    texts = {label[name]: each.text for name, each in cleaned.items()}
    _check_size(texts, source, found)
    project = {label[name]: of for name, of in project.items()}
    groups, pairs = families.group(texts, data.duplicates, project)
    shown = data.labels != "hidden"
    family = {name: (shown and project.get(group[0])) or group[0] for group in groups for name in group}
    parts, how, note = divide(texts, groups, data)
    held = held_out(texts, groups, data)
    check_sizes(parts, held, data, source)
    share, worst, copies = described_overlap(parts, held, family)
    lines = [*sources.listed({**bad, **found.ignored}), *_without_effect(data.reviewed, cleaned)]
    note = "\n".join(filter(None, (*lines, "; ".join(filter(None, (note, copies)))))) or None
    characters = Characters(sorted(set().union(*(text for _, text in parts["train"])) - set(MASKS)), data.lower_case)
    judged = np.concatenate([_encode(characters, text) for part in PARTS[1:] for _, text in parts[part]])
    kinds = sorted(set().union(*(each.counts for each in cleaned.values())))
    facts: dict[str, Plain] = {
        "source": source,
        "files": files,
        "skipped": bad,
        "ignored": found.ignored,
        "cleaned": {kind: sum(each.counts.get(kind, 0) for each in cleaned.values()) for kind in kinds},
        "masked": dict(Counter(part.kind for each in cleaned.values() for part in each.masked)),
        "review": "masked.csv, in the folder below: in a copy, say keep or add lines, and give data.reviewed=COPY",
        "labels": {name: label[name] for name in cleaned if label[name] != name},
        "lower_case": data.lower_case,
        "families": len(groups),
        "families_of_several": [
            {"documents": group, "similarity": min((pairs[pair] for pair in pairs if pair[0] in group), default=None)}
            for group in groups
            if len(group) > 1
        ],
        "split": how,
        "held_out": held,
        "note": note,
        **{
            part: {
                "documents": len({name for name, _ in rows}),
                "families": len({family[name] for name, _ in rows}),
                "characters": sum(len(text) for _, text in rows),
                "names": sorted({name for name, _ in rows}),
            }
            for part, rows in parts.items()
        },
        "overlap": {"share": share, "span": COPIED, "worst": worst},
        "vocabulary": len(characters),
        "unknown_share": float((judged == UNKNOWN).mean()),
    }
    _save(folder, parts, family, characters, facts)
    _save_masked(folder / "masked.csv", cleaned)
    return facts


def load(folder: Path, vocabulary: str | None = None) -> Corpus:
    """Read what `prepare` wrote, with the ids of another `vocabulary` if one is given."""
    import datasets

    stored = json.loads((folder / "corpus.json").read_text())
    characters = Characters(vocabulary or stored["vocabulary"], stored["facts"]["lower_case"])
    parts: dict[str, list[Text]] = {part: [] for part in PARTS}
    for row in datasets.load_from_disk(folder):
        outline = np.array(row["outline"], np.int32).reshape(-1, 4)
        parts[row["part"]].append(Text(row["name"], _encode(characters, row["text"]), row["family"], outline))
    return Corpus(tuple(stored["vocabulary"]), parts, stored["facts"])


def _texts(found: sources.Found, data: Data) -> tuple[dict[str, Plain], dict[str, Cleaned], dict[str, str]]:
    """Read the files; return by name a report and the text of usable files, and the reason for each unusable one."""
    files: dict[str, Plain] = {}
    cleaned: dict[str, Cleaned] = {}
    bad = dict(found.refused)
    documents: dict[str, Document] = {}
    for name, path in found.files.items():
        try:
            documents[name] = sources.read(path, name, data.maximum_bytes)
        except UserError as error:
            bad[name] = str(error).removeprefix(f"{name}: ")
    # What one document writes in lower case is no name in another.
    words = set().union(*(lower_case(each.text) for each in documents.values())) if data.mask_names else set()
    reviewed = _reviewed(data.reviewed)
    for name, document in documents.items():
        try:
            cleaned[name] = _prose(document, data, words, {each[1:] for each in reviewed if each[0] in ("", name)})
        except UserError as error:
            bad[name] = str(error)
            continue
        files[name] = {
            "characters": len(document.text),
            "kept": len(cleaned[name].text),
            "pages": document.pages,
            "warnings": list(document.warnings),
            "sha256": document.sha256,
        }
    return files, cleaned, bad


def _reviewed(reviewed: str | None) -> set[tuple[str, str, str, str]]:
    """Return (document, kind, text, decision) of the lines of a reviewed masked.csv. Raises UserError."""
    if reviewed is None:
        return set()
    with as_user_error(f"data.reviewed={reviewed}: no table of the columns {', '.join(REVIEWED)} (", ")", KeyError):
        # A spreadsheet may have saved it, with semicolons.
        rows = [row for _, row in sheets.named(Path(reviewed)) if row["text"].strip()]
        lines = {(row.get("document", ""), row["kind"], row["text"], row["decision"].lower()) for row in rows}
    if wrong := {decision for *_, decision in lines} - {"mask", "keep", "add"}:
        raise UserError(f"data.reviewed={reviewed}: a decision is mask, keep or add, not {min(wrong)!r}")
    if wrong := {kind for _, kind, _, decision in lines if decision == "add"} - {*MASK_OF}:
        raise UserError(f"data.reviewed={reviewed}: a kind to add is one of {', '.join(MASK_OF)}, not {min(wrong)!r}")
    return lines


def _save_masked(path: Path, cleaned: Mapping[str, Cleaned]) -> None:
    rows: list[tuple[str | int, ...]] = []
    for name, each in cleaned.items():
        times = Counter((part.kind, part.text) for part in each.masked)
        first = {(part.kind, part.text): part for part in reversed(each.masked)}
        rows += ((name, *key, times[key], first[key].line, first[key].context, "mask") for key in times)
    path.write_text(to_csv(REVIEWED, rows), encoding="utf-8-sig")  # the byte order mark tells Excel that it is UTF-8


def _without_effect(reviewed: str | None, cleaned: Mapping[str, Cleaned]) -> Iterator[str]:
    """Yield a line on decisions to keep text that no document has, such as a number that a spreadsheet has changed."""
    texts = {name: each.text.lower() for name, each in cleaned.items()}
    kept = {(name, text) for name, _, text, decision in _reviewed(reviewed) if decision == "keep"}
    if lost := [text for name, text in kept if not any(text.lower() in texts[at] for at in texts if name in ("", at))]:
        some = ", ".join(sorted(lost)[:5])
        yield f"data.reviewed={reviewed}: decisions to keep text that no document has: {len(lost)}, such as {some}"


def _prose(document: Document, data: Data, words: Collection[str], said: Collection[tuple[str, str, str]]) -> Cleaned:
    """Return the document's training text. Raises UserError if nothing is left."""
    names = data.mask_names and data.sources is not None
    keep, add = ({(kind, text) for kind, text, it in said if it == decision} for decision in ("keep", "add"))
    cleaned = clean(document.text, data.mask, document.pages is not None, names, words, keep, add)
    if not cleaned.text:
        raise UserError("has no text besides page headers, footers and tables of contents")
    return replace(cleaned, text=cleaned.text.lower()) if data.lower_case else cleaned


def _check_size(texts: Mapping[str, str], source: str, found: sources.Found) -> None:
    if not texts:
        there = "".join(f"\n  {line}" for line in sources.listed(found.ignored))
        raise UserError(f"{source}: it contains no documents that can be read; {sources.WAYS}{there}")
    if (characters := sum(map(len, texts.values()))) < FEWEST_CHARACTERS:
        few = f"{source}: {characters:,} characters are too few to train on and to evaluate with"
        raise UserError(f"{few}; give documents with {FEWEST_CHARACTERS:,} or more")


def _encode(characters: Characters, text: str) -> np.ndarray:
    return np.array(characters.encode(text), np.uint8 if len(characters) <= 256 else np.uint16)


def _save(
    folder: Path, parts: Mapping[str, Rows], family: Mapping[str, str], known: Characters, facts: Mapping[str, Plain]
) -> None:
    import datasets

    datasets.disable_progress_bars()
    rows = [
        {"name": name, "family": family[name], "part": part, "text": text, "outline": clauses(text).ravel()}
        for part in PARTS
        for name, text in parts[part]
    ]
    datasets.Dataset.from_list(rows).save_to_disk(folder)
    write_json(folder / "corpus.json", {"vocabulary": list(known.vocabulary), "facts": facts})
