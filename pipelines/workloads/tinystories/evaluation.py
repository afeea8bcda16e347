"""How well the held-out stories are predicted, beside what anyone could have without a network, and what is told."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from common import text
from models import rp2040
from models.integer_transformer import IntegerTransformer, quantize
from models.tiny_transformer import END, UNKNOWN, TinyTransformer
from pipelines.engine.workload import Evaluation, MapItems
from pipelines.workloads.tinystories import data
from pipelines.workloads.tinystories.task import Windows, held_out, text_only, token_nats

if TYPE_CHECKING:
    from pipelines.workloads.tinystories import Config

Z95 = 1.96  # two-sided 95 % of the normal distribution
WINDOWS_AT_ONCE = 16
MOST_CHARACTERS = 100_000_000  # of training text for xz, whose dictionary is limited, and for copied spans
BITS = 1 / math.log(2)  # in a nat


def evaluate(
    config: "Config", models: Mapping[str, TinyTransformer], folder: Path, device: torch.device, map_items: MapItems
) -> list[Evaluation]:
    """The one split that no update has seen; it picked the best model, so its figures are a little too good."""
    (model,) = models.values()
    began = time.perf_counter()
    data.check_tokenizer(folder, model.config.tokenizer)
    settings, sizes = config.evaluation, model.config
    tokens, number = data.tokens(folder, "held_out")
    stories = data.stories(folder, "held_out")
    characters = np.array([len(story) for story in stories])
    windows = held_out(folder, config.sequence, device)
    integers = quantize(model)

    # Nats of each story's text, by predictor.
    nats = {
        "float": _by_story(windows, number, map_items, lambda batch: _float_logits(model, batch)),
        "int8": _by_story(windows, number, map_items, lambda batch: _integer_logits(integers, batch)),
    }
    sequences = _sequences(*data.tokens(folder, "train"))
    for order in sorted({1, 2, settings.ngram}):
        counts = text.NGram(order, sizes.vocabulary).fit(sequences)
        nats[f"{order}-gram"] = np.array([each[:-1].sum() for each in counts.nats(_sequences(tokens, number))])
    training_text = "\n".join(data.stories(folder, "train"))
    cut = f" on its last {MOST_CHARACTERS:,} characters" if len(training_text) > MOST_CHARACTERS else ""
    used = training_text[-MOST_CHARACTERS:]
    xz = text.xz_bits_per_character(used, "\n".join(stories))

    labels = {
        "float": f"{config.model.preset}, float32",
        "int8": f"{config.model.preset}, int8 as on the chip",
        "1-gram": "unigram (Witten-Bell)",
        "2-gram": "bigram (Witten-Bell)",
    }
    num_tokens = int((tokens != END).sum())
    table = [
        {
            "predictor": labels.get(name, f"{name} (Witten-Bell)"),
            "bits/character": text.bits_per_character(float(found.sum()), int(characters.sum())),
            "± 95 %": _half_width(found * BITS, characters),
            "nats/token": float(found.sum()) / num_tokens,
        }
        for name, found in nats.items()
    ]
    table += [
        {"predictor": f"xz -9e, {how}{cut if how != 'alone' else ''}", "bits/character": bits}
        for how, bits in xz.items()
    ]
    bits = {name: text.bits_per_character(float(found.sum()), int(characters.sum())) for name, found in nats.items()}
    ngram = f"{settings.ngram}-gram"
    gain = bits[ngram] - bits["int8"]
    half = _half_width((nats[ngram] - nats["int8"]) * BITS, characters)
    told = _tell(config, model)
    known = set(text.words(training_text))
    shares = [share for story in told if (share := text.known_word_share(story, known)) is not None]
    spans = [text.longest_copied_span(story, used) for story in told]
    facts = data.facts(folder)
    summary = {
        "bits_per_character": bits["float"],
        "nats_per_token": float(nats["float"].sum()) / num_tokens,
        "int8_bits_per_character": bits["int8"],
        "int8_cost_percent": 100 * (bits["int8"] / bits["float"] - 1),
        f"gain_on_{ngram}": gain,
        f"gain_on_{ngram}_interval": None if half is None else [gain - half, gain + half],
        "verdict": _verdict(gain, half, ngram),
        "n": len(stories),
        "tokens": num_tokens,
        "characters": int(characters.sum()),
        "unknown_bytes": int((tokens == UNKNOWN).sum()),
        "known_words": float(np.mean(shares)) if shares else None,
        "longest_copied_span": max(map(len, spans), default=0),
        "trained_on": f"{facts['source']}, {facts['train']['characters']:,} characters",
        "preset": config.model.preset,
        "parameters": sum(p.numel() for p in model.parameters()),
        "sram_bytes": rp2040.sram_bytes(sizes),
        "estimated_tokens_per_s": rp2040.tokens_per_second(sizes),
        "seconds": time.perf_counter() - began,
    }
    return [
        Evaluation(
            split="held_out",
            summary=summary,
            table=table,
            examples={
                "story": list(range(len(stories))),
                "characters": characters.tolist(),
                **{f"nats_{name}": found.tolist() for name, found in nats.items()},
            },
            files={"held_out.samples.txt": "\n\n".join(told) + "\n"},
        )
    ]


def _by_story(
    windows: Windows, number: np.ndarray, map_items: MapItems, logits: Callable[[Mapping[str, Tensor]], Tensor]
) -> np.ndarray:
    """(stories,) nats of each story's text, every token predicted once."""

    def nats(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        return {"nats": token_nats(logits(batch), batch["targets"]), "counted": text_only(batch)}

    found = map_items(windows, nats, WINDOWS_AT_ONCE)
    counted = found["counted"].numpy()
    # Target j of window i is token i stride + j + 1 of the stream.
    places = (np.arange(windows.size)[:, None] * windows.stride + np.arange(windows.length) + 1)[counted]
    return np.bincount(number[places], weights=found["nats"].numpy()[counted], minlength=number[-1] + 1)


def _float_logits(model: TinyTransformer, batch: Mapping[str, Tensor]) -> Tensor:
    with torch.autocast(batch["tokens"].device.type, enabled=False):  # whatever precision it was trained in
        return model(batch["tokens"], batch["stories"])


def _integer_logits(model: IntegerTransformer, batch: Mapping[str, Tensor]) -> Tensor:
    logits = model.logits(batch["tokens"].cpu().numpy(), batch["stories"].cpu().numpy()) * model.nats
    return torch.from_numpy(logits).to(batch["tokens"].device, torch.float32)


def _sequences(tokens: np.ndarray, number: np.ndarray) -> list[np.ndarray]:
    """The stream cut into its stories, each from its start marker to its end marker."""
    return np.split(tokens, np.flatnonzero(np.diff(number)) + 1)


def _half_width(bits: np.ndarray, characters: np.ndarray) -> float | None:
    """Of the 95 % interval of a ratio of sums over stories; a single story has none."""
    if len(bits) < 2:
        return None
    residual = bits - bits.sum() / characters.sum() * characters
    return float(Z95 * residual.std(ddof=1) * math.sqrt(len(bits)) / characters.sum())


def _verdict(gain: float, half: float | None, ngram: str) -> str:
    if half is not None and gain - half > 0:
        return f"int8 model better than the {ngram} by {gain:.3f} bits/character"
    if half is not None and gain + half < 0:
        return f"not better than the {ngram}: {-gain:.3f} bits/character worse"
    return f"no clear difference from the {ngram}"


def _tell(config: "Config", model: TinyTransformer) -> list[str]:
    """Stories at fixed seeds; the prompts are taken in turn."""
    settings = config.evaluation
    prompts = [settings.prompts[i % len(settings.prompts)] for i in range(settings.samples)]
    return model.complete(
        prompts, settings.sample_tokens, temperature=settings.temperature, top_k=settings.top_k, seed=config.seed
    )
