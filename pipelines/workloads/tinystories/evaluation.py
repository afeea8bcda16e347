"""Evaluation on the held-out stories: network and chip beside baselines that need no network, and stories told."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from common import kneser_ney, text
from common.errors import UserError
from common.statistics import interval_around, ratio_half_width
from common.text import MOST_CHARACTERS, ppmd_baseline, xz_rows
from models.stories import rp2040
from models.stories.inputs import StoryInput, StorySettings
from models.stories.integer_transformer import IntegerTransformer
from models.stories.ngram_counts import sequences
from models.stories.quantization import quantize
from models.stories.tiny_transformer import TinyTransformer
from models.stories.tokens import END, UNKNOWN
from pipelines.engine.workload import Evaluation, MapItems
from pipelines.workloads.tinystories import data
from pipelines.workloads.tinystories.config import Config
from pipelines.workloads.tinystories.story_quality import Listener, row
from pipelines.workloads.tinystories.task import Windows, text_only, unseen

WINDOWS_AT_ONCE = 16
# Units at the end of the training text that n-grams are fitted to; each takes some 100 bytes per order.
MOST_COUNTED = {"tokens": 5_000_000, "characters": 2_000_000}
OTHER = 0  # a character that the training text does not have


@dataclass(frozen=True)
class HeldOut:
    """The held-out stories (n)."""

    characters: np.ndarray  # (n,) of each
    tokens: np.ndarray  # (N,) a stream of all
    numbers: np.ndarray  # (N,) story of each token


def evaluate(
    config: Config, models: Mapping[str, TinyTransformer], folder: Path, device: torch.device, map_items: MapItems
) -> list[Evaluation]:
    """Evaluate on the stories that neither trained the model nor picked the best one."""
    (model,) = models.values()
    began = time.perf_counter()
    if data.tokenizer(folder) != model.config.tokenizer:
        changed = "the source or the embedded generator has changed since"
        way = "restore the old source and delete that folder, or train under another --name"
        raise UserError(f"the model was trained on other tokens than those in {folder}: {changed}; {way}")
    tokens, training = data.tokens(folder, "held_out"), data.tokens(folder, "train")
    texts, facts = data.stories(folder, "held_out"), data.facts(folder)
    stories = HeldOut(np.array([len(story) for story in texts]), tokens, data.numbers(tokens))
    training_text = data.ending(folder, "train", MOST_CHARACTERS)
    windows = unseen(folder, "held_out", config.sequence(model.config.context), device)
    settings, name, after = config.evaluation, config.model.preset, ""
    by_token = _token_nats(model, training[-MOST_COUNTED["tokens"] :], stories)
    by_character = _character_nats(training_text[-MOST_COUNTED["characters"] :], texts)
    ppmd, bits = ppmd_baseline(training_text, ["\n" + story for story in texts])
    networks: dict[str, TinyTransformer | IntegerTransformer] = {"float": model, "int8": quantize(model)}
    network = {name: _network_nats(each, windows, stories.numbers, map_items) for name, each in networks.items()}
    nats = {**network, **by_token, **by_character, ppmd: bits / text.BITS_PER_NAT}
    read = (("tokens", len(training), by_token), ("characters", len(training_text), by_character))
    cut = {
        name: f" on the last {MOST_COUNTED[units]:,} training {units}"
        for units, size, names in read
        if size > MOST_COUNTED[units]
        for name in names
    }
    if base := config.model.base:
        name, after = f"from {Path(base).name}", f", after the text of {base}, which n-grams have not seen"
        as_it_is = data.load_base(base).to(device)
        nats[f"{base}, as it is"] = _network_nats(as_it_is, windows, stories.numbers, map_items)
    prompts = [settings.prompts[i % len(settings.prompts)] for i in range(settings.samples)]
    samples, _ = _tell(config, model, prompts, settings.sample_tokens)
    examples = {"story": list(range(len(texts))), "characters": stories.characters.tolist()}
    examples |= {f"nats_{name}": found.tolist() for name, found in nats.items()}
    return [
        Evaluation(
            split="held_out",
            summary={
                **_figures(nats, stories),
                "longest_copied_span": len(text.longest_copied_span("\0".join(samples), training_text)),
                "listened": _listened(config, model, texts, Listener(training_text)),
                "trained_on": f"{facts['source']}, {facts['train']['characters']:,} characters{after}",
                "preset": name,
                "parameters": sum(p.numel() for p in model.parameters()),
                "sram_bytes": rp2040.sram_bytes(model.config),
                "estimated_tokens_per_s": rp2040.CLOCK_HZ / rp2040.cycles_per_token(model.config),
                "seconds": time.perf_counter() - began,
            },
            table=[*_rows(nats, stories, name, cut), *xz_rows(training_text, "\n".join(texts), MOST_CHARACTERS)],
            examples=examples,
            files={"held_out.samples.txt": "\n\n".join(samples) + "\n"},
        )
    ]


def _network_nats(
    model: TinyTransformer | IntegerTransformer, windows: Windows, numbers: np.ndarray, map_items: MapItems
) -> np.ndarray:
    """Return the nats (n,) of each story's text under a network in floats or integers; each token is predicted once."""

    def nats(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        tokens, stories = batch["tokens"], batch["stories"]
        with torch.autocast(tokens.device.type, enabled=False):  # whatever precision it was trained in
            if isinstance(model, IntegerTransformer):
                found = model.logits(tokens.cpu().numpy(), stories.cpu().numpy()) * model.nats
                logits = torch.from_numpy(found).to(tokens.device, torch.float32)
            else:
                logits = model(tokens, stories)
            return {"nats": text.token_nats(logits, batch["targets"]), "counted": text_only(batch)}

    found = map_items(windows, nats, WINDOWS_AT_ONCE)
    counted = found["counted"].numpy()
    # Target j of window i is token i stride + j + 1 of the stream.
    places = (np.arange(windows.size)[:, None] * windows.stride + np.arange(windows.length) + 1)[counted]
    return np.bincount(numbers[places], weights=found["nats"].numpy()[counted], minlength=numbers[-1] + 1)


def _token_nats(model: TinyTransformer, tokens: np.ndarray, stories: HeldOut) -> dict[str, np.ndarray]:
    """Return the nats (n,) of each story's text under n-grams that were fitted to a stream of training tokens."""
    training, wanted = sequences(tokens, data.numbers(tokens)), sequences(stories.tokens, stories.numbers)
    found = kneser_ney.baselines(training, wanted, model.config.vocabulary)
    # Without the end marker.
    return {name: np.array([each[:-1].sum() for each in nats]) for name, nats in found.items()}


def _character_nats(training: str, stories: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the nats (n,) of each story under n-grams of characters; a line end precedes each story."""
    alphabet = {character: number for number, character in enumerate(sorted(set(training) | {"\n"}), OTHER + 1)}

    def numbered(text: str) -> np.ndarray:
        return np.array([alphabet.get(character, OTHER) for character in "\n" + text])

    found = kneser_ney.baselines([numbered(training)], [numbered(story) for story in stories], len(alphabet) + 1)
    return {name.replace(",", " of characters,", 1): np.array([*map(np.sum, own)]) for name, own in found.items()}


def _bits(nats: np.ndarray, stories: HeldOut) -> float:
    return float(nats.sum()) / math.log(2) / int(stories.characters.sum())


def _rows(
    nats: Mapping[str, np.ndarray], stories: HeldOut, preset: str, cut: Mapping[str, str]
) -> list[dict[str, object]]:
    """Return a table row for each predictor; `cut` says which part of the training text n-grams were fitted to."""
    labels = {"float": f"{preset}, float32", "int8": f"{preset}, int8 as on the chip"}
    return [
        {
            "predictor": labels.get(name) or name + cut.get(name, ""),
            "bits/character": _bits(found, stories),
            "± 95 %": ratio_half_width(found * text.BITS_PER_NAT, stories.characters),
            "nats/token": float(found.sum()) / int((stories.tokens != END).sum()),
        }
        for name, found in nats.items()
    ]


def _figures(nats: Mapping[str, np.ndarray], stories: HeldOut) -> dict[str, object]:
    """Return the summary's figures of prediction, its gains on the strongest baselines, and the size of the text."""
    bits, num_tokens = {name: _bits(found, stories) for name, found in nats.items()}, int((stories.tokens != END).sum())
    others = sorted((name for name in nats if name not in ("float", "int8")), key=lambda name: bits[name])
    strongest, frozen = others[0], next(name for name in others if not name.endswith("adapting"))
    network = {"bits_per_character": bits["float"], "nats_per_token": float(nats["float"].sum()) / num_tokens}
    integers = {"int8_bits_per_character": bits["int8"], "int8_cost_percent": 100 * (bits["int8"] / bits["float"] - 1)}
    rivals = {"strongest_baseline": strongest, **_gain(nats, stories, strongest, "gain")}
    rivals |= {"strongest_frozen": frozen, **_gain(nats, stories, frozen, "frozen_gain")}
    sizes = {"n": len(stories.characters), "tokens": num_tokens, "characters": int(stories.characters.sum())}
    return {**network, **integers, **rivals, **sizes, "unknown_bytes": int((stories.tokens == UNKNOWN).sum())}


def _gain(nats: Mapping[str, np.ndarray], stories: HeldOut, rival: str, name: str) -> dict[str, object]:
    """Return, as `name`, the bits per character that the int8 model saves over a rival, and their interval."""
    saved = nats[rival] - nats["int8"]
    gain, half = _bits(saved, stories), ratio_half_width(saved * text.BITS_PER_NAT, stories.characters)
    return {name: gain, f"{name}_interval": interval_around(gain, half)}


def _listened(
    config: Config, model: TinyTransformer, stories: Sequence[str], listener: Listener
) -> list[dict[str, object]]:
    """Return rows for stories told from held-out beginnings with a hero and for those themselves, cut alike; or []."""
    settings, found = config.evaluation, [(story, listener.beginning(story)) for story in stories]
    if not (begun := [(story, begin) for story, begin in found if begin is not None][: settings.heard]):
        return []
    most = settings.heard_tokens
    told, ends = _tell(config, model, [begin for _, begin in begun], most)
    rest = [model.encoded(story[len(begin) :]) for story, begin in begun]
    real = [begin + model.tokenizer.decode(ids[:most]) for ids, (_, begin) in zip(rest, begun, strict=True)]
    label = f"told, {most} tokens at temperature {settings.temperature:g}, top_k {settings.top_k}"
    return [
        row(label, list(map(listener.heard, told)), ends),
        row("real, held out", list(map(listener.heard, real)), [len(ids) < most for ids in rest]),
    ]


def _tell(config: Config, model: TinyTransformer, beginnings: Sequence[str], most: int) -> tuple[list[str], list[bool]]:
    """Tell a story from each beginning in at most `most` tokens; return beginning and story, and whether it ended."""
    settings = config.evaluation
    how = StorySettings(length=most, temperature=settings.temperature, top_k=settings.top_k, seed=config.seed)
    found = model.answers([StoryInput.model_construct(prompt=begin, item=i) for i, begin in enumerate(beginnings)], how)
    told = [f"{begin}{answer['text']}" for begin, answer in zip(beginnings, found, strict=True)]
    return told, [answer["finish"] == "stop" for answer in found]
