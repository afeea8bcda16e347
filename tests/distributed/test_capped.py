"""A model whose training no single process can hold."""

import os
import shutil

import pytest
import safetensors.torch

from tests import forked
from tests.distributed import capped
from tests.distributed.one_model import CASES

BYTES = 345_556_676  # of the weights
CAP = round(2.95 * BYTES)  # AdamW's moments are twice as large
WORDS = [*CASES["cvrp"].split()[1:], "model.kind=gt", "model.width=512", "model.heads=8", "model.layers=27"]
WORDS += [
    "data.validation_instances=2",
    "training.batch_size=2",
    "training.steps=2",
    "training.validation_steps=2",
    "training.checkpoint_steps=1",
]
WORDS += ["hardware.onednn=false"]  # which does not survive a lack of memory


def train(folder, spread, processes, *words):
    command = [capped.__file__, spread, str(CAP), "--workload", "cvrp", *WORDS, *words]
    return forked.run(command, folder, {**os.environ, "OMP_NUM_THREADS": "1"}, processes)


@pytest.mark.exhaustive
def test_a_model_that_fits_on_no_process_is_trained_saved_resumed_and_exported_by_two(tmp_path):
    alone = train(tmp_path, "ddp", 1, "--name", "alone")
    assert alone.returncode == 2, alone.stderr
    assert "out of memory" in alone.stderr
    assert "accelerate_configs/fsdp.yaml" in alone.stderr
    assert "Traceback" not in alone.stderr

    once = train(tmp_path, "fsdp", 2, "--name", "once")
    assert once.returncode == 0, once.stderr
    runs = tmp_path / "runs/cvrp"
    shutil.copytree(runs / "once", runs / "parts", ignore=shutil.ignore_patterns("step-000002", "model", ".lock"))
    parts = train(tmp_path, "fsdp", 2, "--name", "parts", "--resume")
    assert parts.returncode == 0, parts.stderr
    assert "resumed from runs/cvrp/parts/checkpoints/step-000001" in parts.stderr
    for file in ("model/last/model.safetensors", "model/best/model.safetensors"):
        assert (runs / "once" / file).read_bytes() == (runs / "parts" / file).read_bytes()
    exported = safetensors.torch.load_file(runs / "once/model/last/model.safetensors")
    assert sum(tensor.nbytes for tensor in exported.values()) == BYTES
