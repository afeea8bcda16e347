"""One training gives one model, however it is spread over processes, whole or sharded, and micro-batches."""

import json
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch
from accelerate import DistributedType
from torch import nn
from torch.distributed.checkpoint import HuggingFaceStorageReader, load
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy

from common.errors import UserError
from exporters import to_safetensors
from pipelines.distributed import sharding
from tests import vlms
from tests.distributed.one_model import CASES, TWIN, drift, run


def hold(found, first=1e-6, late=1e-5):
    """Assert that gradients are one up to `first`, and curves, after some updates up to `late`."""
    for setting, apart in found.items():
        if setting != TWIN:
            assert apart["gradient"] <= first, (setting, apart)
            assert apart["early"] <= 1e-5, (setting, apart)
            assert apart["curve"] <= late, (setting, apart)


@pytest.mark.parametrize(
    ("steps", "micro"), [(2, ["auto"]), pytest.param(5, ["auto", "4"], marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_split_weights_train_the_model_of_one_process(tmp_path, steps, micro):
    """In cvrp with scalars, which cannot be split, and layers that are gathered one at a time."""
    hold(drift(tmp_path, "cvrp", steps, spreads=[("ddp", 1), ("fsdp", 2)], micro=micro))


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES)
def test_every_workload_follows_one_curve(tmp_path, case):
    # Where actions are sampled, a rounding may change one, and what follows is another course as good as the first.
    sampled = case.startswith("cvrp")
    found = drift(tmp_path, case, 10 if sampled else 50)
    # Advantages are small differences of costs.
    hold(found, first=max(1e-6, 2 * found[TWIN]["gradient"]) if sampled else 1e-6)


def shares(folder):
    """Return the tensors that processes have written their shares of."""
    reader = HuggingFaceStorageReader(str(folder))
    found = {
        name: torch.empty(each.size, dtype=each.properties.dtype)
        for name, each in reader.read_metadata().state_dict_metadata.items()
    }
    load(found, storage_reader=HuggingFaceStorageReader(str(folder)))
    return found


def checkpoint(folder, name):
    """Return {what it is for, and name: tensor} of a run's checkpoint after six updates, whole or in shares."""
    path = folder / "runs/cvrp" / name / "checkpoints/step-000006"
    if (path / "shares").is_dir():
        found = shares(path / "shares")
        return {key: value for key, value in found.items() if not key.startswith("average")}
    optimizer = torch.load(path / "optimizer.pt", weights_only=True)
    states = optimizer["state"].items()
    found = {f"optimizer.{name}.{key}": value for name, state in states for key, value in state.items()}
    stored = safetensors.torch.load_file(path / "model.safetensors")
    return {**{f"model.{key}": value for key, value in stored.items()}, **found}


def curve(folder, name, workload="cvrp"):
    lines = (folder / "runs" / workload / name / "metrics.jsonl").read_text().splitlines()
    entries = map(json.loads, lines)
    return {(entry["step"], key): value for entry in entries for key, value in entry.items() if "/" in key}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")  # there is one process
@pytest.mark.parametrize(
    ("before", "after"),
    [(("fsdp", 2), ("ddp", 1)), (("ddp", 1), ("fsdp", 2)), (("fsdp", 2), ("ddp", 2)), (("ddp", 2), ("fsdp", 2))],
)
def test_a_checkpoint_is_the_same_and_resumes_wherever_it_was_written(tmp_path, before, after):
    """Weights are averaged, and the model has the averages while it is validated and no longer."""
    words = ["training.ema=0.9", "training.validation_steps=3", "training.checkpoint_steps=6"]
    words += ["training.schedule=constant", "training.baseline=rollout", "training.challenge_instances=100"]
    run(tmp_path, "cvrp", "ddp", 1, {"whole": ["training.steps=12"]}, *words)
    run(tmp_path, "cvrp", *before, {"parts": ["training.steps=6"]}, *words)
    one, other = checkpoint(tmp_path, "whole"), checkpoint(tmp_path, "parts")
    assert one.keys() == other.keys()
    for key, value in one.items():
        torch.testing.assert_close(other[key], value, rtol=1e-4, atol=1e-6, msg=lambda text, key=key: f"{key}: {text}")
    run(tmp_path, "cvrp", *after, {"parts": ["training.steps=12", "--resume"]}, *words)
    assert curve(tmp_path, "parts") == pytest.approx(curve(tmp_path, "whole"), rel=1e-4, abs=1e-5)
    for which in ("best", "last"):
        files = [tmp_path / "runs/cvrp" / name / "model" / which / "model.safetensors" for name in ("whole", "parts")]
        one, other = map(safetensors.torch.load_file, files)
        assert list(one) == list(other)
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's
def test_adapters_on_split_weights_are_validated_resumed_and_exported_as_on_one_process(tmp_path):
    """A base of the hub, whose features go into several layers of its language model."""
    base = vlms.save("qwen3_vl", tmp_path / "base")
    words = [f"model.base={base}", "model.width=null", "model.layers=null", "model.heads=null", "data.size=16"]
    words += ["training.validation_steps=2", "training.checkpoint_steps=2", "training.schedule=constant"]
    case = "vlm, adapters"
    run(tmp_path, case, "ddp", 1, {"whole": ["training.steps=4"]}, *words)
    run(tmp_path, case, "fsdp", 2, {"parts": ["training.steps=2"]}, *words)
    run(tmp_path, case, "fsdp", 2, {"parts": ["training.steps=4", "--resume"]}, *words)
    runs = [tmp_path / "runs/lmol" / name for name in ("whole", "parts")]
    one, other = (curve(tmp_path, path.name, "lmol") for path in runs)
    assert {key for _, key in one} >= {"train/loss", "val/loss", "val/mae"}
    assert other == pytest.approx(one, rel=1e-5, abs=1e-5)
    for which in ("best", "last"):
        one, other = (safetensors.torch.load_file(path / "model" / which / "model.safetensors") for path in runs)
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)
    for path in runs:
        to_safetensors.export(path, path / "model/last", path / "exported", merged=True)
    one, other = (safetensors.torch.load_file(path / "exported/merged/model.safetensors") for path in runs)
    torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_stories_that_go_on_from_a_model_are_as_on_one_process(tmp_path):
    """A memory and counts, which are no weights, are taken over and fitted on split weights."""
    sizes = ["model.width=16", "model.heads=2", "model.layers=2", "model.hidden=16", "model.context=12"]
    sizes += ["model.memory=[64]", "model.counts=256", "model.vocabulary=160"]
    own = ["model.base=runs/tinystories/base", "training.validation_steps=2", "training.checkpoint_steps=2"]
    own += ["training.schedule=constant"]
    case, base = "tinystories", ["training.steps=2", *sizes]
    run(tmp_path, case, "ddp", 1, {"base": base, "whole": ["training.steps=4", *own]})
    run(tmp_path, case, "fsdp", 2, {"parts": ["training.steps=2", *own]})
    run(tmp_path, case, "fsdp", 2, {"parts": ["training.steps=4", "--resume", *own]})
    runs = [tmp_path / "runs/tinystories" / name for name in ("whole", "parts")]
    one, other = (curve(tmp_path, path.name, case) for path in runs)
    assert {key for _, key in one} >= {"train/loss", "val/bits_per_character"}
    assert other == pytest.approx(one, rel=1e-5, abs=1e-5)
    for path in runs:
        to_safetensors.export(path, path / "model/last", path / "exported")
    for folder in ("model/best", "model/last", "exported"):
        one, other = (safetensors.torch.load_file(path / folder / "model.safetensors") for path in runs)
        for found in (one, other):  # no attention depends on keys' biases: their gradients are rounding alone
            for name in [name for name in found if name.endswith("qkv.bias")]:
                found[name] = found[name].reshape(3, -1)[[0, 2]]
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)


class Accelerator(SimpleNamespace):
    """An accelerator that was launched to shard, by default as fsdp.yaml says."""

    distributed_type = DistributedType.FSDP

    def __init__(self, **changes):
        settings = {"fsdp_version": 2, "cpu_ram_efficient_loading": False, "activation_checkpointing": False}
        plugin = {**settings, "auto_wrap_policy": transformer_auto_wrap_policy, **changes}
        super().__init__(state=SimpleNamespace(fsdp_plugin=SimpleNamespace(**plugin)))


@pytest.mark.parametrize(
    ("changes", "given", "instead"),
    [
        ({"fsdp_version": 1}, "fsdp_version: 1", "fsdp_version: 2"),
        ({"auto_wrap_policy": size_based_auto_wrap_policy}, "SIZE_BASED_WRAP", "TRANSFORMER_BASED_WRAP"),
        ({"cpu_ram_efficient_loading": True}, "loading: true", "loading: false"),
        ({"activation_checkpointing": True}, "checkpointing: true", "hardware.gradient_checkpointing=true"),
    ],
)
def test_settings_that_would_fail_are_refused_with_what_to_write(changes, given, instead):
    with pytest.raises(UserError, match=f"{given}.*{instead}"):
        sharding.prepare(Accelerator(**changes), nn.Linear(2, 2), lambda _: [])


def test_muon_is_refused_where_matrices_are_split():
    model = nn.Linear(2, 2, bias=False)
    muon = torch.optim.Muon(model.parameters())
    with pytest.raises(UserError, match=r"optimizer=muon needs whole matrices.*optimizer=adamw.*ddp\.yaml"):
        sharding.prepare(Accelerator(), model, lambda _: [muon])
