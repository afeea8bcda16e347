"""Model folders from strangers: whatever they hold, `load` refuses them by ValueError or returns a sound model."""

import copy
import json
import random
import resource
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

from models import char_lstm, cnn_lstm, comparator, io, llava_comparator, routing, tiny_transformer
from tests.example_workload import model as waves

SMALL = {"size": 16, "width": 16, "layers": 2}
LLAVA = {**SMALL, "heads": 2, "patch": 4}
MODELS = {
    "gt": (routing, {"kind": "gt", "width": 8, "heads": 2, "layers": 2}),
    "gat": (routing, {"kind": "gat", "width": 8, "heads": 2, "layers": 1}),
    "dgt": (routing, {"kind": "dgt", "width": 8, "heads": 2, "layers": 1}),
    "tiny_transformer": (
        tiny_transformer,
        {"vocabulary": 32, "width": 8, "layers": 2, "heads": 4, "hidden": 16, "context": 6, "tokenizer": {"a": [1]}},
    ),
    "siamese": (comparator, {"kind": "siamese", **SMALL, "references": 3}),
    "texture": (comparator, {"kind": "siamese", **SMALL, "texture": True}),
    "cross": (comparator, {"kind": "cross", **SMALL, "words": 8}),
    "cnn_lstm": (
        cnn_lstm,
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
    "legacy": (cnn_lstm, {"preset": "legacy", "features": ["a"], "lookback": 12}),
    "char_lstm": (char_lstm, {**char_lstm.PRESETS["default"], "width": 8, "embedding": 4, "vocabulary": "abc"}),
    "scalar": (char_lstm, {**char_lstm.PRESETS["legacy"], "width": 8, "vocabulary": "abc"}),
    "llava": (llava_comparator, LLAVA),
    "adapters": (llava_comparator, {**LLAVA, "lora": True}),
    "waves": (waves, {"window": 4, "width": 4}),
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
    model = family.build({**copy.deepcopy(config), **changes})
    io.save(model, folder)
    return model


class Folder:
    """The parts of a saved model, to be changed and written again."""

    def __init__(self, folder: Path):
        self.path = folder
        self.config = json.loads((folder / "config.json").read_text())
        data = (folder / "model.safetensors").read_bytes()
        self.header, self.body = io._split(data)
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
        self.header, self.body = io._split(safetensors.torch.save(stored))

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


def check(folder: Path, case: str) -> float:
    """Fail unless the folder is refused by ValueError or gives a sound model; return the CPU seconds that this took."""
    began = time.process_time()
    try:
        model = io.load(folder)
    except ValueError as error:
        taken, said = time.process_time() - began, str(error)
        assert "\n" not in said, case
        assert "\x1b" not in said, case
        assert len(said) < 3000, case
        assert "allocate" not in said, f"{case}: {said}"
        assert "MemoryError" not in said, f"{case}: {said}"
        return taken
    taken = time.process_time() - began
    for name, tensor in model.state_dict().items():
        assert tensor.isfinite().all(), f"{case}: {name}"
    with torch.no_grad():
        model(**model.example())
    return taken


@pytest.fixture
def little_memory(monkeypatch):
    """Less than 2 GB beyond what the process has already."""
    monkeypatch.setitem(io.FAMILIES, "waves", waves.__file__)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if sys.platform == "linux":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2 * 10**9, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


def fuzz(name: str, folder: Path, count: int) -> None:
    """Check `count` changed folders of one model."""
    folder_of(name, folder)
    sound = Folder(folder)
    sound.write()
    check(folder, "unchanged")  # which also imports what the family needs
    dice = random.Random(name)
    for number in range(count):
        changed = copy.deepcopy(sound)
        change = dice.choice(CHANGES)
        change(changed, dice)
        changed.told_alike = dice.random() < 0.9
        changed.write()
        case = f"{name}, change {number}, {change.__name__}"
        try:
            taken = check(folder, case)
        except Exception as error:
            raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
        if taken > 2:  # once more, without what was imported
            taken = check(folder, case)
        assert taken <= 2, f"{case} took {taken:.1f} s"


HUGE = 10**12


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gt", {"layers": HUGE}),
        ("gt", {"width": 10**9}),
        ("gt", {"width": 2**18, "heads": 1}),
        ("tiny_transformer", {"layers": HUGE}),
        ("tiny_transformer", {"context": 10**9}),
        ("tiny_transformer", {"heads": 10**6, "width": 10**6, "context": 10**5}),
        ("tiny_transformer", {"heads": 0}),
        ("siamese", {"layers": HUGE}),
        ("siamese", {"references": HUGE}),
        ("cross", {"size": 10**9}),
        ("cross", {"words": HUGE}),
        ("legacy", {"lookback": HUGE}),
        ("cnn_lstm", {"width": 10**9}),
        ("cnn_lstm", {"scalers": {"A": {"mean": [0.0], "std": [1.0]}}}),
        ("char_lstm", {"layers": HUGE}),
        ("waves", {"window": HUGE}),
        ("waves", {"width": 10**9}),
    ],
)
def test_a_config_of_absurd_sizes_is_refused_within_a_second(name, changes, tmp_path, little_memory):
    folder_of(name, tmp_path)
    folder = Folder(tmp_path)
    folder.config["config"] |= changes
    folder.write()
    assert check(tmp_path, name) < 1
    with pytest.raises(ValueError, match=r"config\.json: "):
        io.load(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"layers": HUGE}, {"layers": 200, "width": 8192}, {"width": 4096}, {"size": 4096}])
@pytest.mark.parametrize("name", ["llava", "adapters"])
def test_a_llava_of_absurd_sizes_is_refused_at_once(name, changes, tmp_path, little_memory):
    folder_of(name, tmp_path)
    folder = Folder(tmp_path)
    folder.write()
    check(tmp_path, name)  # imports
    folder.config["config"] |= changes
    folder.write()
    assert check(tmp_path, name) < 2
    with pytest.raises(ValueError, match=r"config\.json: "):
        io.load(tmp_path)


@pytest.mark.slow
def test_the_preset_of_7_billion_weights_is_not_built_for_a_few_adapters(tmp_path, little_memory):
    folder_of("adapters", tmp_path)
    folder = Folder(tmp_path)
    folder.config["config"] |= {"preset": "llava-1.5-7b"}
    folder.write()
    with pytest.raises(ValueError, match="describes a larger model than the 24 stored tensors hold"):
        io.load(tmp_path)


@pytest.mark.slow
def test_a_base_that_is_the_model_itself_is_refused(tmp_path, little_memory):
    folder_of("adapters", tmp_path)
    folder = Folder(tmp_path)
    folder.config["config"] |= {"base": str(tmp_path), "pool": False}
    folder.write()
    with pytest.raises(ValueError, match="has a base of its own"):
        io.load(tmp_path)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e5m2])
def test_weights_that_are_not_finite_are_refused_by_name(dtype, bad, tmp_path):
    folder_of("gt", tmp_path)
    folder = Folder(tmp_path)
    tensors = {name: tensor.to(dtype) for name, tensor in folder.tensors.items()}
    tensors["decoder.distance"].fill_(bad)
    folder.tensors = tensors
    folder.write()
    with pytest.raises(ValueError, match=r"model.safetensors: decoder.distance has values that are not finite"):
        io.load(tmp_path)


def test_buffers_that_are_not_finite_are_refused_by_name(tmp_path):
    model = folder_of("siamese", tmp_path)
    model.fitted.fill_(float("nan"))
    io.save(model, tmp_path)
    with pytest.raises(ValueError, match="fitted has values that are not finite"):
        io.load(tmp_path)


def test_one_tensor_of_another_float_type_is_refused(tmp_path):
    folder_of("gt", tmp_path)
    folder = Folder(tmp_path)
    folder.tensors = {**folder.tensors, "decoder.load": folder.tensors["decoder.load"].half()}
    folder.write()
    with pytest.raises(ValueError, match=r"another type decoder.load torch.float16 instead of torch.float32"):
        io.load(tmp_path)


def test_metadata_may_be_null(tmp_path):
    folder_of("gt", tmp_path)
    folder = Folder(tmp_path)
    folder.header = {"__metadata__": None, **folder.header}
    folder.write()
    check(tmp_path, "null")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs /proc")
def test_files_that_cannot_be_read_are_refused(tmp_path):
    folder_of("gt", tmp_path)
    with pytest.raises(ValueError, match="cannot be read"):
        io.load(tmp_path / ("x" * 300))
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors").symlink_to("/dev/zero")
    with pytest.raises(ValueError, match=r"there is no model.safetensors"):
        io.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "key", "value", "type_"),
    [
        ("cnn_lstm", "features", [1, 2], r"tuple\[str, ...\]"),
        ("cnn_lstm", "features", "ab", r"tuple\[str, ...\]"),
        ("cnn_lstm", "scalers", {"A": {"mean": ["x"]}}, r"dict\[str, dict\[str, list\[float\]\]\]"),
        ("cnn_lstm", "about", [], r"dict\[str, typing.Any\]"),
        ("tiny_transformer", "tokenizer", "x", r"dict\[str, typing.Any\]"),
        ("gt", "width", 8.0, "int"),
    ],
)
def test_a_value_within_a_list_or_mapping_is_checked_too(name, key, value, type_):
    family, config = MODELS[name]
    with pytest.raises(ValueError, match=f"config key '{key}' is .*; it must be of type {type_}"):
        family.build({**config, key: value})


def test_a_config_without_a_needed_key_is_refused():
    with pytest.raises(ValueError, match="the config lacks the key 'width'"):
        waves.build({"window": 4})


def test_a_tokenizer_that_is_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="this model's tokenizer cannot be read"):
        _ = folder_of("tiny_transformer", tmp_path).tokenizer


@pytest.mark.parametrize("name", ["gt", "siamese", "char_lstm", "waves"])
def test_a_sound_model_in_a_narrow_type_fits_the_limit(name, tmp_path, little_memory):
    model = folder_of(name, tmp_path)
    io.save(model.bfloat16(), tmp_path)
    assert torch.equal(next(io.load(tmp_path).parameters()), next(model.parameters()))


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("llava", "adapters")])
def test_a_changed_folder_is_refused_or_sound(name, tmp_path, little_memory):
    fuzz(name, tmp_path, 30)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
def test_ten_thousand_changed_folders_are_refused_or_sound(name, tmp_path, little_memory):
    fuzz(name, tmp_path, 720)
