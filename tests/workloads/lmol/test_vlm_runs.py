"""Bases of the hub through the commands: trained, stopped and resumed, exported with adapters merged in."""

import json

import pytest

from tests import stages, vlms
from tests.stages import stage

FEW = [
    "--workload",
    "lmol",
    "data.size=16",
    "data.train_pairs=20",
    "data.evaluation_pairs=12",
    "evaluation.comparisons=4",
]
FEW += ["training.batch_size=4", "training.validation_steps=2", "training.checkpoint_steps=2"]
FEW += ["training.schedule=constant", "training.validation_pairs=8", "training.projector_rate=0.1"]


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "qwen2_5_vl" else pytest.mark.exhaustive)
        for name in vlms.FAMILIES
    ],
)
def test_a_base_of_each_family_is_trained_resumed_exported_and_merged(tmp_path, family):
    vlms.save(family, tmp_path / "base")
    words = [*FEW, "model.kind=vlm", "model.lora=true", "model.base=base"]
    for name, commands in {
        "whole": [[*words, "training.steps=4"]],
        "parts": [[*words, "training.steps=2"], ["--workload", "lmol", "--resume", "training.steps=4"]],
    }.items():
        for command in commands:
            done = stage(tmp_path, "train.py", *command, "--name", name)
            assert done.returncode == 0, done.stderr
        assert "8 to validate on" in done.stdout
    runs = [tmp_path / "runs/lmol" / name for name in ("whole", "parts")]
    one, other = ((run / "model/last/model.safetensors").read_bytes() for run in runs)
    assert one == other
    assert len(one) < (tmp_path / "base/model.safetensors").stat().st_size
    done = stages.export("safetensors", "runs/lmol/parts", "--merged", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((runs[1] / "exports/safetensors/manifest.json").read_text())
    assert manifest["maximum_absolute_difference"]["merged_output"] < 1e-4
    assert {"merged/model.safetensors", "adapter/adapter_model.safetensors"} <= manifest["files"].keys()
