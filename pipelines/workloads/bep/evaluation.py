"""Evaluation on held-out documents: the model beside baselines, and clauses for the fields of the form."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from common import kneser_ney, text
from common.errors import UserError
from common.foreign_text import to_csv
from common.plain import Plain
from common.statistics import resampled_counts
from common.text import MOST_CHARACTERS, ppmd_baseline, xz_rows
from common.workers import progress
from models.plans.char_lstm import CharLSTM
from models.plans.char_mixture import CharMixture
from models.plans.characters import COPIED, PAD
from models.plans.fields import FIELDS
from models.plans.library import Document
from pipelines.engine.workload import Evaluation, MapItems
from pipelines.workloads.bep import clause_finding, data, typist
from pipelines.workloads.bep.comparison import BITS, LSTM, RESAMPLES, gain, rows_of, together
from pipelines.workloads.bep.config import Config
from pipelines.workloads.bep.mixing import between_ends, left_out, load_base
from pipelines.workloads.bep.task import Windows, held_out, scored

SPLITS, LEFT_OUT = ("validation", "test"), "left_out"
WINDOWS_AT_ONCE = 32
FIRST = 0x100  # character of token 0 in the search for copies
PROMPT = 2000  # characters of a document read before a block, instead of all
BLOCK = 500  # characters; neighbouring characters are not independent evidence


def evaluate(
    config: Config, models: Mapping[str, CharLSTM], folder: Path, device: torch.device, map_items: MapItems
) -> list[Evaluation]:
    """Evaluate on validation, which picked the best model and flatters it, and on test, which picked nothing."""
    (model,) = models.values()
    corpus = data.load(folder, model.config.vocabulary)
    if set(corpus.vocabulary) - set(model.config.vocabulary):
        changed = "the documents, or how they are cleaned, have changed since"
        way = "restore the old ones and delete that folder, or train under another --name"
        raise UserError(f"the model was trained on other characters than those in {folder}: {changed}; {way}")
    training = corpus.parts["train"]
    if corpus.facts.get("held_out", True):
        evaluations = [
            _predict(config, model, documents, split, training, device, map_items)
            for split in SPLITS
            if (documents := corpus.parts[split])
        ]
    else:
        quiet = config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"typed": 0})})
        found = [
            _predict(quiet, each, held, LEFT_OUT, others, device, map_items)
            for each, held, others in left_out(config, corpus, load_base(config))
        ]
        evaluations = [together(found, config.seed)]
    plans = [  # the blocks of a single document are documents here
        Document(each.name, each.family or each.name, model.characters.signs(each.tokens.tolist()), each.outline)
        for part in corpus.parts.values()
        for each in part
    ]
    found_clauses, clauses = clause_finding.measure(plans, config.evaluation.clauses, config.seed)
    last = evaluations[-1]
    suggested = {f"{last.split}.suggestions.csv": suggest_fields(model)} if isinstance(model, CharMixture) else {}
    summary = {**last.summary, **found_clauses, "clauses": clauses}
    return [*evaluations[:-1], replace(last, summary=summary, files={**last.files, **suggested})]


def _predict(
    config: Config,
    model: CharLSTM,
    documents: Sequence[data.Text],
    split: str,
    training: Sequence[data.Text],
    device: torch.device,
    map_items: MapItems,
) -> Evaluation:
    """Predict every character of the documents once, with the model and with the baselines."""
    began = time.perf_counter()
    starts, numbers, characters = blocks_of([len(each.tokens) for each in documents])
    training_text = _text(model, training)
    network = _by_character(model, held_out(documents, config.training.sequence, device), map_items)
    found: dict[str, np.ndarray] = {config.model.kind: network}
    if isinstance(model, CharMixture):
        found = {"mixture, frozen": read(model, documents, False), "mixture, adapting": read(model, documents, True)}
        found[LSTM] = network
    bits = {name: np.add.reduceat(each * text.BITS_PER_NAT, starts) for name, each in found.items()}
    bits |= _baseline_bits(model, training, training_text, documents, starts)
    drawn = resampled_counts(len(starts), RESAMPLES, config.seed)
    rows = rows_of(bits, characters, drawn)
    summary = {
        "bits_per_character": rows[0]["bits/character"],
        "interval": rows[0]["95 %"],
        "new_text": _new_text(training, documents, next(iter(found.values()))),
        **gain(bits, max(1, len(found) - 1), characters, drawn),
        "n": int(characters.sum()),
        "documents": len(documents),
        **typist.measure(model, documents, config.evaluation.typed, config.seed),
        "kind": config.model.kind,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": time.perf_counter() - began,
    }
    if isinstance(model, CharMixture):
        summary |= {"bits_per_character_adaptive": rows[1]["bits/character"]}
        summary |= {"bits_per_character_prompt": _bits_after_prompts(model, documents)}
    in_one = xz_rows(training_text, _text(model, documents), MOST_CHARACTERS)
    examples = {
        "document": [documents[number].name for number in numbers],
        "characters": characters.tolist(),
        **{f"{BITS}{name}": values.tolist() for name, values in bits.items()},
    }
    return Evaluation(split, summary, [*rows, *in_one], examples)


def read(model: CharMixture, documents: Sequence[data.Text], adapting: bool) -> np.ndarray:
    """Return the nats (N,) of the characters of documents read one after the other."""
    reader = model.reader(adapting=adapting)
    parts = []
    for number, document in progress(enumerate(documents), len(documents), "reading held-out text, documents"):
        if number:
            reader.begin()
        parts.append(_nats(reader.read(between_ends(document.tokens)[1:])[:-1], document.tokens))
    return np.concatenate(parts)


def _nats(log_probs: Tensor, tokens: np.ndarray) -> np.ndarray:
    """Return the nats (N,) of `tokens` (N,) by `log_probs` (N, V)."""
    return -log_probs.gather(1, torch.from_numpy(tokens.astype(np.int64))[:, None])[:, 0].double().numpy()


def _bits_after_prompts(model: CharMixture, documents: Sequence[data.Text]) -> float | None:
    """Return the bits per character of blocks, each read after only the characters before it."""
    nats: list[np.ndarray] = []
    for tokens in (document.tokens for document in documents):
        for at in range(PROMPT, len(tokens), BLOCK):
            reader, block = model.reader(int(tokens[at - PROMPT])), tokens[at : at + BLOCK]
            reader.skim(tokens[at - PROMPT + 1 : at])
            nats.append(_nats(reader.read(block), block))
    return float(np.concatenate(nats).mean() * text.BITS_PER_NAT) if nats else None


def _new_text(training: Sequence[data.Text], documents: Sequence[data.Text], nats: np.ndarray) -> dict[str, Plain]:
    """Return the share of characters not copied from training text, and their bits per character by `nats` (N,)."""
    known, wanted = (
        "\0".join("".join(map(chr, each.tokens.astype(int) + FIRST)) for each in texts)
        for texts in (training, documents)
    )
    separators = np.cumsum([len(each.tokens) + 1 for each in documents])[:-1] - 1
    new = ~np.delete(text.copied_characters(wanted, known, COPIED), separators)
    return {
        "share": float(new.mean()),
        "bits_per_character": float(nats[new].mean() * text.BITS_PER_NAT) if new.any() else None,
    }


def _by_character(model: CharLSTM, windows: Windows, map_items: MapItems) -> np.ndarray:
    """Return the nats (N,) of the characters of the documents in order."""

    def figures(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        window = batch["window"].long()
        with torch.autocast(window.device.type, enabled=False):  # in the precision of the weights
            logits, targets = model(window[:, :-1])[0], window[:, 1:]
        return {"nats": text.token_nats(logits, targets, PAD), "counted": scored(batch, windows.stride)[1]}

    found = map_items(windows, figures, WINDOWS_AT_ONCE)
    return found["nats"][found["counted"]].numpy()


def _baseline_bits(
    model: CharLSTM, training: Sequence[data.Text], read: str, documents: Sequence[data.Text], starts: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the bits (n,) of each block under the baselines, which have `read` the training text, by their names."""
    known, wanted = ([between_ends(each.tokens) for each in texts] for texts in (training, documents))
    # The last id of a sequence is the end of the document, which is not counted.
    bits = {
        name: np.add.reduceat(np.concatenate([part[:-1] for part in nats]) * text.BITS_PER_NAT, starts)
        for name, nats in kneser_ney.baselines(known, wanted, len(model.characters)).items()
    }
    characters = np.split(np.concatenate([each.tokens for each in documents]), starts[1:])
    name, found = ppmd_baseline(read, [model.characters.decode(each.tolist()) for each in characters])
    return {**bits, name: found}


def _text(model: CharLSTM, documents: Sequence[data.Text]) -> str:
    return "\n".join(model.characters.decode(each.tokens.tolist()) for each in documents)


def blocks_of(lengths: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut the concatenated documents into blocks of 500 characters, a document's last one shorter.

    Returns where each block starts, the number of its document, and its characters.
    """
    ends = np.cumsum(lengths)
    parts = [np.arange(end - length, end, BLOCK) for end, length in zip(ends, lengths, strict=True)]
    starts = np.concatenate(parts)
    numbers = np.repeat(np.arange(len(lengths)), [len(part) for part in parts])
    return starts, numbers, np.diff(starts, append=ends[-1])


def suggest_fields(model: CharMixture) -> str:
    """Return, as CSV, the three best clauses for every field, with their places; a rank of 0 where none fits."""
    rows: list[tuple[Plain, ...]] = []
    for name, field in FIELDS.items():
        found: list[tuple[Plain, ...]] = [
            (rank, each.text, each.likelihood, each.document, each.heading, each.line, each.count)
            for rank, each in enumerate(model.suggest(name), 1)
        ]
        rows += [(name, field.question, *each) for each in found or [(0, "", None, "", "", None, 0)]]
    names = ("field", "question", "rank", "suggestion", "likelihood", "document", "heading", "line", "projects")
    return to_csv(names, rows)
