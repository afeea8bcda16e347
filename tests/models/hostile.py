"""Models of all families, small, and changes to their folders as somebody who means harm would make them."""

import copy
import json
import random
from pathlib import Path

import numpy as np
import safetensors.torch
import torch

from common import safetensors_bytes
from models import io
from models.plans import chains, char_lstm, char_mixture
from tests.example_workload import model as waves

for known in io.FAMILIES:
    io.builder_of(known)  # imported before a test limits memory or time

SMALL = {"size": 16, "width": 16, "layers": 2}
VLM = {**SMALL, "heads": 2, "patch": 4}
TOKENS = np.arange(60) ** 2 % 9  # of which a mixture's counts are
COUNTED = chains.contexts(TOKENS, chains.classes_of([""] * 6 + list("abc \n")))[1:, : chains.STORED]
COUNTS = chains.count(COUNTED, TOKENS[1:], chains.counted(COUNTED, TOKENS[1:]))
MODELS = {
    "gt": ("routing", {"kind": "gt", "width": 8, "heads": 2, "layers": 2}),
    "gat": ("routing", {"kind": "gat", "width": 8, "heads": 2, "layers": 1}),
    "dgt": ("routing", {"kind": "dgt", "width": 8, "heads": 2, "layers": 1}),
    "tiny_transformer": (
        "tiny_transformer",
        {
            "vocabulary": 32,
            "width": 8,
            "layers": 2,
            "heads": 4,
            "hidden": 16,
            "context": 6,
            "counts": 40,
            "tokenizer": {"a": [1]},
        },
    ),
    "siamese": ("comparator", {"kind": "siamese", **SMALL, "references": 3}),
    "texture": ("comparator", {"kind": "siamese", **SMALL, "texture": True}),
    "scorer": ("comparator", {"kind": "scorer", **SMALL}),
    "cnn_lstm": (
        "cnn_lstm",
        {
            "preset": "default",
            "features": ["a", "b"],
            "lookback": 12,
            "width": 8,
            "coins": ["A", "B"],
            "scalers": {"A": {"mean": [0.0, 1.0], "std": [1.0, 2.0]}},
            "timeframe_ms": 60000,
            "about": {"split": [1, 2]},
        },
    ),
    "pooled_experts": (
        "pooled_experts",
        {
            "features": ["log_return_1", "volatility_50"],
            "lookback": 12,
            "width": 8,
            "rounds": 2,
            "nodes": 5,
            "coins": ["A", "B"],
            "scalers": {"A": {"mean": [0.0, 1.0], "std": [1.0, 2.0]}},
        },
    ),
    "char_lstm": ("char_lstm", {**char_lstm.PRESETS["default"], "width": 8, "embedding": 4, "vocabulary": "abc"}),
    "char_mixture": (
        "char_mixture",
        {
            **char_lstm.PRESETS["default"],
            "width": 8,
            "embedding": 4,
            "vocabulary": "abc \n",
            "rows": len(COUNTS.keys),
            "entries": len(COUNTS.tokens),
            "documents": {"a": 7, "b": 3},
        },
    ),
    "vlm": ("vlm_comparator", VLM),
    "adapters": ("vlm_comparator", {**VLM, "lora": True}),
    "waves": (waves.Waves.family, {"window": 4, "width": 4}),
}
VALUES = (
    *(0, -1, 1, 2, 3, 5, 16, 10**3, 10**5, 10**9, 10**12, 2**31, 2**62, 2**63, 2**64, -(2**63), 10**400),
    *(0.5, -0.5, 1e-300, 1e300, float("nan"), float("inf"), -float("inf"), True, False, None, "", "x", "8"),
    *(
        "x" * 10**5,
        "\ud800",
        "\0",
        "../..",
        ".",
        "/",
        "x" * 300 + "/",
        "gat",
        "cross",
        "legacy",
        "\x1b[2J\n",
        "llava-1.5-7b",
    ),
    *(
        [],
        {},
        [[]],
        [1, 2],
        ["a"],
        {"a": 1},
        [1] * 10**5,
        [{}] * 100,
        {str(i): i for i in range(1000)},
        [[["a"] * 9] * 9],
    ),
)
TYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "C64", "U64", "F4", "X")


def folder_of(name: str, folder: Path, **changes) -> io.Model:
    """Save one of MODELS into a folder."""
    family, config = MODELS[name]
    torch.manual_seed(0)
    model = io.builder_of(family)({**copy.deepcopy(config), **changes})
    if isinstance(model, char_mixture.CharMixture):
        model.count(COUNTS)
    io.save(model, folder)
    return model


class Folder:
    """The parts of a saved model, to be changed and written again."""

    def __init__(self, folder: Path):
        self.path = folder
        self.config = json.loads((folder / "config.json").read_text())
        data = (folder / "model.safetensors").read_bytes()
        self.header, self.body = safetensors_bytes.split(data)
        del self.header["__metadata__"]
        self.text: str | None = None  # of config.json, where it is no longer what json writes
        self.weights: bytes | None = None
        self.told_alike = True  # the weights' header has the changed config, too

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        return safetensors.torch.load(self.packed())

    @tensors.setter
    def tensors(self, tensors: dict[str, torch.Tensor]) -> None:
        stored = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
        self.header, self.body = safetensors_bytes.split(safetensors.torch.save(stored))

    def packed(self, metadata: dict[str, str] | None = None) -> bytes:
        header = {**({"__metadata__": metadata} if metadata else {}), **self.header}
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + self.body

    def write(self) -> None:
        config = json.dumps(self.config) if self.text is None else self.text
        (self.path / "config.json").write_text(config)
        metadata = None if self.told_alike else {"model": "{}"}
        (self.path / "model.safetensors").write_bytes(self.packed(metadata) if self.weights is None else self.weights)


def places(tree, found=None):
    """All (container, key) pairs of a tree."""
    found = [] if found is None else found
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        found.append((tree, key))
        if isinstance(value, dict | list):
            places(value, found)
    return found


def change_value(folder: Folder, dice: random.Random) -> None:
    tree, key = dice.choice(places(folder.config["config"]))
    tree[key] = copy.deepcopy(dice.choice(VALUES))


def change_two_values(folder: Folder, dice: random.Random) -> None:
    change_value(folder, dice)
    if places(folder.config["config"]):
        change_value(folder, dice)


def change_key(folder: Folder, dice: random.Random) -> None:
    config = folder.config["config"]
    key = dice.choice(list(config))
    value = config.pop(key) if dice.random() < 0.7 else config[key]
    if dice.random() < 0.7:
        config[dice.choice(["", "x", "layers", "base", "lora", "pool", "kind", "x" * 10**5, "\x1b[2J", key + "s"])] = (
            value
        )


def change_outside(folder: Folder, dice: random.Random) -> None:
    if dice.random() < 0.5:
        folder.config = copy.deepcopy(dice.choice(VALUES))
    else:
        folder.config[dice.choice(["family", "config", "more"])] = dice.choice([*VALUES, *io.FAMILIES])


def change_text(folder: Folder, dice: random.Random) -> None:
    text = json.dumps(folder.config)
    nested = dice.choice([10, 70, 900, 3000, 100_000])
    folder.text = dice.choice(
        [
            text[: dice.randrange(len(text))],
            text.replace("1", dice.choice(["1e999", "NaN", "1" * 5000, "-Infinity", "1.0", "01"]), 1),
            text[:-1] + ', "x": ' + "[" * nested + "]" * nested + "}",
            text[:-2] + ', "about": ' + '{"a":' * nested + "1" + "}" * nested + "}}",
            "[" * nested,
            text[:-2] + ', "x": [' + "{}," * 10**5 + "{}]}}",
        ]
    )


def change_numbers(folder: Folder, dice: random.Random) -> None:
    tensors = folder.tensors
    name = dice.choice(list(tensors))
    if tensors[name].numel() and tensors[name].is_floating_point():
        bad = dice.choice([float("nan"), float("inf"), -float("inf")])
        tensors[name].view(-1)[dice.randrange(tensors[name].numel())] = bad
    folder.tensors = tensors


def change_tensors(folder: Folder, dice: random.Random) -> None:
    tensors = folder.tensors
    one, other = dice.choice(list(tensors)), dice.choice(list(tensors))
    match dice.randrange(6):
        case 0:
            tensors[one], tensors[other] = tensors[other], tensors[one]
        case 1:
            del tensors[one]
        case 2:
            tensors[dice.choice(["", "x", "x" * 10**5, "\x1b[2J\n", one + ".x"])] = tensors[one]
        case 3:
            tensors[one] = tensors[one].to(dice.choice([torch.float16, torch.float64, torch.int64, torch.bool]))
        case 4:
            tensors[one] = tensors[one][None]
        case 5:
            tensors |= {f"x{i}": torch.zeros(0) for i in range(3000)}
    folder.tensors = tensors


def change_header(folder: Folder, dice: random.Random) -> None:
    entry = folder.header[dice.choice(list(folder.header))]
    match dice.randrange(4):
        case 0:
            entry["dtype"] = dice.choice(TYPES)
        case 1:
            entry["shape"] = dice.choice(
                [*([0, size] for size in (2**31, 2**62, 2**63, 2**64)), [10**9] * 9, [-1], [[]]]
            )
            entry["data_offsets"] = dice.choice([entry["data_offsets"], [0, 0]])
        case 2:
            entry[dice.choice(["shape", "dtype", "data_offsets", "x"])] = dice.choice(VALUES)
        case 3:
            entry["data_offsets"] = [dice.choice([0, 4, 2**40, -1]), dice.choice([0, 4, 2**40, 2**64])]


def change_bytes(folder: Folder, dice: random.Random) -> None:
    data = bytearray(folder.packed())
    for _ in range(dice.randrange(4)):
        data[dice.randrange(min(len(data), dice.choice([8, 200, len(data)])))] = dice.randrange(256)
    folder.weights = bytes(data[: dice.choice([len(data), len(data), dice.randrange(len(data))])])


CHANGES = (
    *(change_value, change_value, change_value, change_two_values, change_key, change_outside, change_text),
    *(change_numbers, change_tensors, change_header, change_bytes),
)
