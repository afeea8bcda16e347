"""Model folders from strangers: whatever they hold, `load` refuses them by ValueError or returns a sound model."""

import copy
import random
import resource
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

from models import io
from tests.example_workload import model as waves
from tests.models.hostile import CHANGES, MODELS, Folder, folder_of
from tests.processor import within


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
    monkeypatch.setitem(io.FAMILIES, "waves", waves.__name__)
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
        assert within(taken, 2), f"{case} took {taken:.1f} s"


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
        ("tiny_transformer", {"memory": [2**16] * 4, "width": 4096}),
        ("tiny_transformer", {"counts": 2**18}),
        ("tiny_transformer", {"counts": 10**9}),
        ("siamese", {"layers": HUGE}),
        ("siamese", {"references": HUGE}),
        ("cnn_lstm", {"width": 10**9}),
        ("cnn_lstm", {"scalers": {"A": {"mean": [0.0], "std": [1.0]}}}),
        ("char_lstm", {"layers": HUGE}),
        ("char_mixture", {"rows": HUGE}),
        ("char_mixture", {"entries": 10**9}),
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
@pytest.mark.parametrize("name", ["vlm", "adapters"])
def test_a_vlm_of_absurd_sizes_is_refused_at_once(name, changes, tmp_path, little_memory):
    folder_of(name, tmp_path)
    folder = Folder(tmp_path)
    folder.write()
    check(tmp_path, name)  # imports
    folder.config["config"] |= changes
    folder.write()
    assert within(check(tmp_path, name), 2)
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


@pytest.mark.parametrize("place", ["first", "last"])
def test_one_tensor_of_another_float_type_is_refused(tmp_path, monkeypatch, place):
    folder_of("gt", tmp_path)
    folder = Folder(tmp_path)
    folder.tensors = {**folder.tensors, "decoder.load": folder.tensors["decoder.load"].half()}
    folder.write()
    load = safetensors.torch.load  # lists tensors in an order of its own, another one in each process

    def listed(data):
        return dict(sorted(load(data).items(), key=lambda item: (item[0] == "decoder.load") == (place == "last")))

    monkeypatch.setattr(safetensors.torch, "load", listed)
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
        ("cnn_lstm", "about", [], r"dict\[str, .*\]"),
        ("tiny_transformer", "tokenizer", "x", r"dict\[str, .*\]"),
        ("gt", "width", 8.0, "int"),
    ],
)
def test_a_value_within_a_list_or_mapping_is_checked_too(name, key, value, type_):
    family, config = MODELS[name]
    with pytest.raises(ValueError, match=f"config key '{key}' is .*; it must be of type {type_}"):
        io.builder_of(family)({**config, key: value})


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


@pytest.mark.parametrize("count", [8, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("vlm", "adapters")])
def test_a_changed_folder_is_refused_or_sound(name, tmp_path, little_memory, count):
    fuzz(name, tmp_path, count)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
def test_ten_thousand_changed_folders_are_refused_or_sound(name, tmp_path, little_memory):
    fuzz(name, tmp_path, 720)
