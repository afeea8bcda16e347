"""Documents made ready for training: read, cleaned, split by family, and cut into characters.

<folder>/           Arrow: a row per document, or per block of one: name, family, part, text, tokens
<folder>/corpus.json   the vocabulary and the facts
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common.errors import UserError
from common.files import write_json
from models.char_lstm import MASKS, UNKNOWN, Characters
from pipelines.workloads.bep import documents, families
from pipelines.workloads.bep.cleaning import Cleaned, clean
from pipelines.workloads.bep.documents import Document
from pipelines.workloads.bep.families import PARTS, SPAN

if TYPE_CHECKING:
    from pipelines.workloads.bep import Config, Data

EMBEDDED = Path(__file__).with_name("corpus")
FEWEST_CHARACTERS = 10_000  # of a corpus: with less there is neither a language to learn nor one to be judged by
FEWEST_PER_PART = 500
FEWEST_FAMILIES = 3  # one for each part
WORST = 5  # documents that a refusal names


@dataclass(frozen=True)
class Text:
    """A document, or a block of one."""

    name: str
    tokens: np.ndarray  # (T,) uint8, or uint16 where the vocabulary is larger; an id per character, no <end>


@dataclass(frozen=True)
class Corpus:
    """Prepared documents."""

    vocabulary: tuple[str, ...]  # characters of the training text, sorted; ids go on from SPECIAL_TOKENS'
    parts: dict[str, list[Text]]  # "train", "validation" and "test"
    facts: Mapping[str, Any]


def prepare(config: "Config", folder: Path) -> Mapping[str, Any]:
    """Write the documents and their tokens; returns facts for the manifest.

    Raises UserError for files that cannot be used, for a corpus too small to hold some of it out, and where training
    has more of the held-out text than `data.maximum_overlap`.
    """
    data = config.data
    source = f"folder or file {data.sources}" if data.sources else "embedded documents"
    found = documents.find(data.sources or str(EMBEDDED))
    files, cleaned, bad = _texts(found, data)
    if bad and not data.skip_bad:
        listed = "".join(f"\n  {name}: {reason}" for name, reason in bad.items())
        raise UserError(
            f"{source}: {len(bad)} of {len(found.files) + len(found.refused)} files cannot be used; mend or remove "
            f"them, or leave them out with data.skip_bad=true:{listed}"
        )
    texts = {name: each.text for name, each in cleaned.items()}
    _check_size(texts, source, found)
    groups, pairs = families.group(texts, data.duplicates)
    family = {name: group[0] for group in groups for name in group}
    parts, how, note = _split(texts, groups, data)
    _check_parts(parts, data, source)
    share, by_document = families.overlap(parts)
    if share > data.maximum_overlap and not data.force:
        raise UserError(_too_much_overlap(share, by_document, parts, data))
    characters = Characters(_alphabet(parts["train"]), data.lower_case)
    tokens = {part: [_encode(characters, text) for _, text in rows] for part, rows in parts.items()}
    held_out = np.concatenate([*tokens["validation"], *tokens["test"]])
    facts = {
        "source": source,
        "files": files,
        "skipped": bad,
        "ignored": found.ignored,
        "cleaned": _summed(each.counts for each in cleaned.values()),
        "masked": _summed(each.masked for each in cleaned.values()),
        "lower_case": data.lower_case,
        "families": len(groups),
        "families_of_several": [
            {"documents": group, "similarity": min(pairs[pair] for pair in pairs if pair[0] in group)}
            for group in groups
            if len(group) > 1
        ],
        "duplicate_lines": families.duplicate_lines(texts),
        "split": how,
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
        "overlap": {"share": share, "span": SPAN, "worst": _worst(by_document)},
        "vocabulary": len(characters),
        "unknown_share": float((held_out == UNKNOWN).mean()),
    }
    _save(folder, parts, tokens, family, characters, facts)
    return facts


def inputs(data: "Data") -> list[Path]:
    """The user's files that the texts come from, those skipped too; none for the embedded ones and what is missing."""
    sources = data.sources
    if sources is None or not Path(sources).exists():
        return []
    return [path for path in documents.find(sources).files.values() if os.access(path, os.R_OK)]


def load(folder: Path) -> Corpus:
    """What `prepare` has written."""
    import datasets

    table = datasets.load_from_disk(folder).data.table.combine_chunks()
    lists = table.column("tokens").combine_chunks()
    values, ends = lists.flatten().to_numpy(), np.cumsum(lists.value_lengths().to_numpy())
    parts: dict[str, list[Text]] = {part: [] for part in PARTS}
    rows = zip(table["name"].to_pylist(), table["part"].to_pylist(), np.split(values, ends[:-1]), strict=True)
    for name, part, tokens in rows:
        parts[part].append(Text(name, tokens))
    stored = json.loads((folder / "corpus.json").read_text())
    return Corpus(tuple(stored["vocabulary"]), parts, stored["facts"])


def _texts(found: documents.Found, data: "Data") -> tuple[dict[str, Any], dict[str, Cleaned], dict[str, str]]:
    """Of each file the report, of each that can be used the text, and of the others why not, by name."""
    files, cleaned, bad = {}, {}, dict(found.refused)
    for name, path in found.files.items():
        try:
            document = documents.read(path, name, data.maximum_bytes)
            cleaned[name] = _prose(document, data)
        except UserError as error:
            bad[name] = str(error).removeprefix(f"{name}: ")
            continue
        files[name] = {
            "characters": len(document.text),
            "kept": len(cleaned[name].text),
            "pages": document.pages,
            "warnings": list(document.warnings),
            "sha256": document.sha256,
        }
    return files, cleaned, bad


def _prose(document: Document, data: "Data") -> Cleaned:
    """The document's text as it is trained on. Raises UserError where nothing is left of it."""
    cleaned = clean(document.text, data.mask, wrapped=document.pages is not None)
    if not cleaned.text:
        raise UserError("has no text but page headers, footers and tables of contents")
    return replace(cleaned, text=cleaned.text.lower()) if data.lower_case else cleaned


def _check_size(texts: Mapping[str, str], source: str, found: documents.Found) -> None:
    if not texts:
        ignored = f" (ignored: {', '.join(list(found.ignored)[:WORST])})" if found.ignored else ""
        raise UserError(f"{source}: there are no documents in it that can be read{ignored}; {documents.WAYS}")
    characters = sum(map(len, texts.values()))
    if characters < FEWEST_CHARACTERS:
        raise UserError(
            f"{source}: {characters:,} characters are too few to learn from and to be judged by; "
            f"give documents with {FEWEST_CHARACTERS:,} or more"
        )


def _split(
    texts: Mapping[str, str], groups: Sequence[Sequence[str]], data: "Data"
) -> tuple[dict[str, list[tuple[str, str]]], str, str | None]:
    """{part: (name, text)}, how they were split, and what a user should know of it."""
    if len(groups) >= FEWEST_FAMILIES:
        sizes = [sum(len(texts[name]) for name in group) for group in groups]
        chosen = families.split(sizes, data.validation, data.test, data.seed)
        parts: dict[str, list[tuple[str, str]]] = {part: [] for part in PARTS}
        for group, part in zip(groups, chosen, strict=True):
            parts[part] += [(name, texts[name]) for name in group]
        return parts, f"by family of documents, seed {data.seed}", None
    kept = [max(group, key=lambda name: len(texts[name])) for group in groups]
    left_out = sorted(set(texts) - set(kept))
    note = (
        f"families of documents: {len(groups)}, fewer than the {FEWEST_FAMILIES} parts; so training, validation and "
        "test are successive blocks of the same text, and the figures do not speak for a document the model has not "
        "seen: give more documents"
    )
    note += f" (left out as versions of others: {', '.join(left_out)})" if left_out else ""
    rows = [(name, texts[name]) for name in kept]
    parts = families.blocks(rows, data.validation, data.test, data.guard)
    return parts, f"successive blocks, {data.guard} characters left out between them", note


def _check_parts(parts: Mapping[str, Sequence[tuple[str, str]]], data: "Data", source: str) -> None:
    for part, rows in parts.items():
        characters = sum(len(text) for _, text in rows)
        if characters < FEWEST_PER_PART and (part != "test" or data.test):
            raise UserError(
                f"{source}: {characters:,} characters for {part} are too few, {FEWEST_PER_PART} are needed; give more "
                f"text, or change data.validation={data.validation}, data.test={data.test} or data.guard={data.guard}"
            )


def _too_much_overlap(
    share: float, by_document: Mapping[str, float], parts: Mapping[str, Sequence[tuple[str, str]]], data: "Data"
) -> str:
    held_out = dict([*parts["validation"], *parts["test"]])
    worst = [
        f"{name} {part:.1%} (most of it in {families.most_alike(held_out[name], parts['train'])})"
        for name, part in _worst(by_document).items()
    ]
    return (
        f"{share:.1%} of the held-out text stands in training in pieces of {SPAN} characters, more than "
        f"data.maximum_overlap={data.maximum_overlap}: {', '.join(worst)}; remove what is copied, make such documents "
        f"one family by a lower data.duplicates={data.duplicates}, or go on in spite of it with data.force=true"
    )


def _worst(by_document: Mapping[str, float]) -> dict[str, float]:
    order = sorted(by_document.items(), key=lambda item: (-item[1], item[0]))
    return {name: share for name, share in order[:WORST] if share > 0}


def _alphabet(rows: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The characters that occur, sorted, without those that stand for what was masked."""
    return tuple(sorted(set().union(*(text for _, text in rows)) - set(MASKS)))


def _encode(characters: Characters, text: str) -> np.ndarray:
    return np.array(characters.encode(text), np.uint8 if len(characters) <= 256 else np.uint16)


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)  # unlike +, keeps what is 0
    return dict(total)


def _save(
    folder: Path,
    parts: Mapping[str, Sequence[tuple[str, str]]],
    tokens: Mapping[str, Sequence[np.ndarray]],
    family: Mapping[str, str],
    characters: Characters,
    facts: Mapping[str, Any],
) -> None:
    import datasets
    import pyarrow as pa

    datasets.disable_progress_bars()
    rows = [(part, name, text) for part in PARTS for name, text in parts[part]]
    arrays = [each for part in PARTS for each in tokens[part]]
    columns = {
        "name": [name for _, name, _ in rows],
        "family": [family[name] for _, name, _ in rows],
        "part": [part for part, _, _ in rows],
        "text": [text for _, _, text in rows],
        "tokens": pa.array(arrays, pa.list_(pa.from_numpy_dtype(arrays[0].dtype))),
    }
    datasets.Dataset(pa.table(columns)).save_to_disk(folder)
    write_json(folder / "corpus.json", {"vocabulary": list(characters.vocabulary), "facts": facts})
