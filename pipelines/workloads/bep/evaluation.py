"""How well held-out documents are predicted, beside what anyone could have without a network, and what is written."""

import csv
import io
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from common import text
from common.errors import UserError
from models.char_lstm import END, UNKNOWN, CharLSTM
from pipelines.engine.workload import Evaluation, MapItems
from pipelines.workloads.bep import data
from pipelines.workloads.bep.cleaning import EMAILS, TELEPHONES, URLS
from pipelines.workloads.bep.fields import FIELDS
from pipelines.workloads.bep.task import Windows, held_out, scored, stream_of, token_nats

if TYPE_CHECKING:
    from pipelines.workloads.bep import Config

SPLITS = ("validation", "test")
WINDOWS_AT_ONCE = 32
ORDERS = (1, 5, 6)  # of the Witten-Bell baselines; the unigram is none that a verdict is made on
POSITIONS = ((1, 10), (11, 50), (51, 100), (101, 300))  # characters read since the zero state
BLOCK = 500  # characters; neighbouring characters are no independent evidence
RESAMPLES = 2000
COPIED = 50  # characters from which a copy is one
MOST_CHARACTERS = 20_000_000  # of training text to look for copies in, and for xz
MASKED = (EMAILS, TELEPHONES, URLS)  # what the training text has none of, unless data.mask=false
BITS = 1 / math.log(2)  # in a nat


def evaluate(
    config: "Config", models: Mapping[str, CharLSTM], folder: Path, device: torch.device, map_items: MapItems
) -> list[Evaluation]:
    """Validation, which picked the best model and so flatters it, and test, which picked nothing."""
    (model,) = models.values()
    corpus = data.load(folder)
    if "".join(corpus.vocabulary) != model.config.vocabulary:
        raise UserError(
            f"the model was trained on other characters than those of {folder}: its documents, or how they are "
            "cleaned, have changed since; bring the old ones back and delete that folder, or train another --name"
        )
    training = [_between_ends(each.tokens) for each in corpus.parts["train"]]
    ngrams = {order: text.NGram(order, len(model.characters)).fit(training) for order in ORDERS}
    training_text = "\n".join(model.characters.decode(each.tokens.tolist()) for each in corpus.parts["train"])
    evaluations = [
        _predict(config, model, corpus.parts[split], split, ngrams, training_text, device, map_items)
        for split in SPLITS
        if corpus.parts[split]
    ]
    completions, judged = complete_fields(config, model, training_text)
    last = evaluations[-1]
    files = {f"{last.split}.completions.csv": completions}
    return [*evaluations[:-1], replace(last, summary={**last.summary, "completions": judged}, files=files)]


def _predict(
    config: "Config",
    model: CharLSTM,
    documents: Sequence["data.Text"],
    split: str,
    ngrams: Mapping[int, text.NGram],
    training_text: str,
    device: torch.device,
    map_items: MapItems,
) -> Evaluation:
    """Every character of the documents predicted once, by the model and by the baselines."""
    began = time.perf_counter()
    found = _by_character(model, held_out(documents, config.training.sequence, device), map_items)
    nats = {"model": found["nats"]}
    for order, ngram in ngrams.items():
        parts = ngram.nats([_between_ends(each.tokens) for each in documents])
        nats[f"{order}-gram"] = np.concatenate([part[:-1] for part in parts])  # without the end of the document
    lengths = np.array([len(each.tokens) for each in documents])
    blocks, document = _blocks(lengths)
    bits = {name: np.add.reduceat(values * BITS, blocks) for name, values in nats.items()}
    characters = np.diff(blocks, append=lengths.sum())
    per_character = {name: float(values.sum() / lengths.sum()) for name, values in bits.items()}

    drawn = resamples(len(blocks), config.seed)
    strongest = min((f"{order}-gram" for order in ORDERS[1:]), key=lambda name: per_character[name])
    gain = 100 * (1 - per_character["model"] / per_character[strongest])
    ratio = interval(bits["model"], bits[strongest], drawn)
    gain_interval = ratio and [100 * (1 - ratio[1]), 100 * (1 - ratio[0])]
    labels = {"model": config.model.preset, "1-gram": "unigram (Witten-Bell)"}
    table = [
        {
            "predictor": labels.get(name, f"{name} (Witten-Bell)"),
            "bits/character": per_character[name],
            "95 %": interval(own, characters, drawn),
        }
        for name, own in bits.items()
    ]
    table[0] |= {"top-1": float(found["top_1"].mean()), "top-5": float(found["top_5"].mean())}
    written = "\n".join(model.characters.decode(each.tokens.tolist()) for each in documents)
    used = training_text[-MOST_CHARACTERS:]
    cut = f" on its last {MOST_CHARACTERS:,} characters" if len(used) < len(training_text) else ""
    for how, value in text.xz_bits_per_character(used, written).items():
        table.append({"predictor": f"xz -9e, {how}{cut if how != 'alone' else ''}", "bits/character": value})
    summary = {
        "bits_per_character": per_character["model"],
        "interval": table[0]["95 %"],
        "top_1": table[0]["top-1"],
        "top_5": table[0]["top-5"],
        "verdict": verdict(gain, gain_interval),
        "strongest_baseline": strongest,
        "gain_percent": gain,
        "gain_percent_interval": gain_interval,
        "n": int(lengths.sum()),
        "documents": len(documents),
        "unknown_characters": int(sum((each.tokens == UNKNOWN).sum() for each in documents)),
        "bits_by_position": _by_position(config, model, documents, device, map_items),
        "trained_on_characters": len(training_text),
        "preset": config.model.preset,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": time.perf_counter() - began,
    }
    examples = {
        "document": [documents[i].name for i in document],
        "characters": characters.tolist(),
        **{f"bits_{name}": values.tolist() for name, values in bits.items()},
    }
    return Evaluation(split, summary, table, examples)


def _predictions(model: CharLSTM, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Logits (b, S, V) and targets (b, S) of a batch of windows, in the precision of the weights."""
    window = batch["window"].long()
    with torch.autocast(window.device.type, enabled=False):
        return model(window[:, :-1])[0], window[:, 1:]


def _by_character(model: CharLSTM, windows: Windows, map_items: MapItems) -> dict[str, np.ndarray]:
    """nats, top_1, top_5: (N,) over the characters of the documents in their order."""

    def figures(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        logits, targets = _predictions(model, batch)
        better = (logits > logits.gather(-1, targets[..., None])).sum(-1)
        nats = token_nats(logits, targets)
        return {"nats": nats, "top_1": better < 1, "top_5": better < 5, "counted": scored(batch, windows.stride)[1]}

    found = {name: values.numpy() for name, values in map_items(windows, figures, WINDOWS_AT_ONCE).items()}
    counted = found.pop("counted")
    return {name: values[counted] for name, values in found.items()}


def _by_position(
    config: "Config", model: CharLSTM, documents: Sequence["data.Text"], device: torch.device, map_items: MapItems
) -> dict[str, float]:
    """Bits per character by how many characters the model has read since it began, in the middle of things."""
    stream = stream_of(documents)
    length = min(POSITIONS[-1][1], len(stream) - 1)
    everywhere = Windows(stream, length, 1, device)
    generator = np.random.default_rng(config.seed)
    items = torch.from_numpy(generator.integers(0, everywhere.size, config.evaluation.starts))

    def nats(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        logits, targets = _predictions(model, batch)
        return {"nats": token_nats(logits, targets), "counted": targets != END}

    found = map_items(_Some(everywhere, items), nats, WINDOWS_AT_ONCE)
    bits = {}
    for first, last in POSITIONS:
        counted = found["counted"][:, first - 1 : last]
        if counted.any():
            bits[f"{first}-{last}"] = float(found["nats"][:, first - 1 : last][counted].double().mean() * BITS)
    return bits


class _Some:
    """Some items of a source."""

    workers = 0

    def __init__(self, source: Windows, items: Tensor):
        self.source, self.items, self.size = source, items, len(items)

    def batch(self, items: Tensor) -> dict[str, Tensor]:
        return self.source.batch(self.items[items])


def complete_fields(
    config: "Config", model: CharLSTM, training_text: str
) -> tuple[str, dict[str, dict[str, float | int | None]]]:
    """The completion of every field at every temperature, as CSV; and what they are worth, by temperature."""
    known, used = set(text.words(training_text)), training_text[-MOST_CHARACTERS:]
    limit = config.evaluation.characters
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("temperature", "seed", "field", "prompt", "completion"))
    judged = {}
    for temperature in config.evaluation.temperatures:
        written = []
        # A seed of its own for each: from the same draws, all completions would be much alike.
        for seed, (name, prompt) in enumerate(FIELDS.items(), config.seed):
            written.append(model.complete(prompt, limit, temperature, seed=seed))
            writer.writerow((temperature, seed, name, prompt, written[-1]))
        whole = [whole_words(*each, limit) for each in zip(FIELDS.values(), written, strict=True)]
        found = [word for words in whole for word in words]
        characters = sum(map(len, written))
        together = "\0".join(written)  # which no training text has
        judged[str(temperature)] = {
            "known_words": sum(word in known for word in found) / len(found) if found else None,
            "distinct_2": text.distinct(found, 2),
            "longest_copied_span": len(text.longest_copied_span(together, used)),
            "copied_share": int(text.copied_characters(together, used, COPIED).sum()) / characters
            if characters
            else None,
            "unmasked_strings": sum(len(pattern.findall(each)) for each in written for pattern in MASKED),
            "characters": characters,
        }
    return table.getvalue(), judged


def whole_words(prompt: str, completion: str, limit: int) -> list[str]:
    """The words of a completion, with what the prompt began and without a word that the limit cut."""
    begun = re.search(r"[^\W\d_]*$", prompt).group()
    if len(completion) >= limit:
        completion = re.sub(r"[^\W\d_]+$", "", completion)
    begun = begun if re.match(r"[^\W\d_]", completion) else ""
    return text.words(begun + completion)


def verdict(gain: float, interval: Sequence[float] | None) -> str:
    """Whether the documents were worth a network, by the interval of the gain on the n-gram in percent."""
    if interval is None or interval[0] <= 0:
        return "not better than an n-gram: add documents"
    return f"better than the n-gram by {gain:.1f} % [{interval[0]:.1f}, {interval[1]:.1f}]"


def _between_ends(tokens: np.ndarray) -> np.ndarray:
    return np.concatenate([[END], tokens, [END]])


def _blocks(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where blocks of 500 characters begin in the documents behind each other, and the document of each block."""
    begins = np.cumsum(lengths) - lengths
    starts = [begin + np.arange(0, length, BLOCK) for begin, length in zip(begins, lengths, strict=True)]
    return np.concatenate(starts), np.repeat(np.arange(len(lengths)), [len(part) for part in starts])


def resamples(count: int, seed: int) -> np.ndarray | None:
    """(resamples, count): how often each of `count` blocks comes when as many are drawn; a single block has none."""
    if count < 2:
        return None
    return np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), RESAMPLES)


def interval(values: np.ndarray, weights: np.ndarray, drawn: np.ndarray | None) -> list[float] | None:
    """95 % of the bootstrap distribution (Efron 1979) of the sum of values over the sum of weights."""
    if drawn is None:
        return None
    return np.quantile(drawn @ values / (drawn @ weights), (0.025, 0.975)).tolist()
