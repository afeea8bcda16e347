"""Export a tiny transformer to a Raspberry Pi Pico: model and vocabulary in integers, and a UF2 file.

exporters/rp2040/FORMAT.md defines the files.
"""

import json
from collections.abc import Mapping
from math import sqrt
from pathlib import Path

import numpy as np
import torch

from exporters import export_folder
from exporters.cards import identity
from exporters.rp2040 import layout, settings, uf2
from models import io
from models.stories import rp2040
from models.stories.config import TinyTransformerConfig
from models.stories.integer_transformer import IntegerTransformer, Sampler
from models.stories.quantization import quantize
from models.stories.tiny_transformer import TinyTransformer
from models.stories.tokens import END

FOLDER = Path(__file__).parent / "rp2040"
RUNTIME, RUNTIME_RP2350 = FOLDER / "runtime.bin", FOLDER / "runtime_rp2350.bin"
UF2 = "story.uf2"
NUM_TOKENS = 64  # of the expected story
SEEDS = range(1, 5)  # of the stories on which the quantisation is measured, besides the model's example


def export(run: Path, model_folder: Path, out: Path, format: str = "uf2", board: str = "both") -> str:
    """Quantise the model, write the files and, at last, the manifest.

    Both boards' UF2 blocks follow one another. With the format `c` the folder also gets the library `story` in C.
    """
    if not isinstance(model := io.load(model_folder), TinyTransformer):
        only = "only a tiny_transformer runs on the RP2040: give a run of the tinystories workload"
        raise ValueError(f"{model_folder} holds a model of the family {model.family!r}; {only}")
    rp2040.check(model.config)
    chips = {"pico": (RUNTIME, uf2.FAMILY), "pico2": (RUNTIME_RP2350, uf2.FAMILY_RP2350)}
    chosen = [chip for name, chip in chips.items() if board in (name, "both")]
    integers = quantize(model)
    vocabulary = layout.pack_vocabulary(model.config.tokenizer)
    if (num_tokens := model.tokenizer.get_vocab_size()) != model.config.vocabulary:
        differing = f"the tokenizer has {num_tokens} tokens, the model {model.config.vocabulary}"
        raise ValueError(f"{model_folder}: {differing}; train again")
    packed = layout.pack_model(integers, vocabulary)
    suffix = f"{model.config.vocabulary}p"
    names = {"model": f"model_{suffix}.bin", "vocabulary": f"vocab_{suffix}.bin"}
    own = settings.of_run(run)
    files = {
        names["model"]: packed,
        names["vocabulary"]: vocabulary,
        f"config_{suffix}.json": (json.dumps(_described(model.config, names), indent=2) + "\n").encode(),
        UF2: b"".join(
            uf2.join(runtime.read_bytes(), own.pack(), packed, vocabulary, model.config.flash_megabytes, family)
            for runtime, family in chosen
        ),
    }
    if format == "c":
        written = layout.library_files(packed, vocabulary, rp2040.arena_bytes(model.config), model.config.layers, own)
        files |= {f"story/{name}": data for name, data in written.items()}
    export_folder.begin(out, files, model_folder)
    error = logit_error(model, integers)
    sram, prompt = rp2040.sram_bytes(model.config), model.beginning
    ids = model.encoded(prompt)
    tokens = list(integers.decode(ids, NUM_TOKENS))
    text = model.tokenizer.decode(ids + tokens)
    facts = {
        **identity("rp2040", run, model_folder, model),
        "flash_bytes": len(files[UF2]) // len(chosen) // uf2.BLOCK * settings.PAGE,
        "sram_bytes": sram,  # without the stack of half a kilobyte, which has memory banks of its own
        "quantization": error,
        # What a device has to answer to a fixed prompt.
        "expected": {"prompt": prompt, "prompt_tokens": ids, "tokens": tokens, "text": text},
    }
    size = export_folder.finish(out, tuple(files), facts)
    return (
        f"{out}: {facts['num_parameters']:,} parameters, {size:,} bytes, {sram:,} bytes of SRAM; integer logits are "
        f"{error['root_mean_square']:.2g} nats from the float ones, and all tokens are those of the reference"
    )


def logit_error(model: TinyTransformer, integers: IntegerTransformer) -> dict[str, float]:
    """Differences between integer and float logits in nats, on the model's example and on stories of its own."""
    stories = (integers.decode([], 2 * model.config.context, Sampler(integers, 256, seed=seed)) for seed in SEEDS)
    rows = [model.example()["tokens"], *(torch.tensor([[END, *story]]) for story in stories)]
    with torch.no_grad():
        differences = [(integers.logits(row.numpy()) * integers.nats - model(row).numpy()).ravel() for row in rows]
    difference = np.concatenate(differences)
    return {
        # With four digits, as the last ones of float logits depend on the machine.
        "largest": float(f"{abs(difference).max():.4g}"),
        "root_mean_square": float(f"{sqrt((difference**2).mean()):.4g}"),
        "num_logits": difference.size,
    }


def _described(config: TinyTransformerConfig, names: Mapping[str, str]) -> dict[str, object]:
    """The content of config_{V}p.json, for people and tools."""
    sizes = {name: getattr(config, name) for name in (*rp2040.FORMAT_LIMITS, "memory", "counts")}
    version = 3 if config.counts else 2 if config.memory else 1
    return {"format": "exporters/rp2040/FORMAT.md", "version": version, **sizes, "files": {**names, "uf2": UF2}}
