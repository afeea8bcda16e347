"""A model whose training no single process can hold."""

import os
import re
import shutil

import pytest
import safetensors.torch

from tests import forked
from tests.distributed import capped
from tests.distributed.one_model import CASES

FEW = ["training.batch_size=2", "training.steps=2", "training.validation_steps=2", "training.checkpoint_steps=1"]
FEW += ["hardware.onednn=false"]  # which does not survive a lack of memory
WORDS = {
    "cvrp": [*CASES["cvrp"].split(), "model.kind=gt", "model.width=512", "model.heads=8", "model.layers=27"],
    "lmol": [*CASES["vlm"].split(), "model.width=512", "model.heads=8", "model.layers=20"],
}
WORDS["cvrp"] += ["data.validation_instances=2"]
WORDS["lmol"] += ["data.train_pairs=4", "data.evaluation_pairs=4", "evaluation.comparisons=2", "data.size=8"]
BYTES = {"cvrp": 345_556_676, "lmol": 380_597_336}  # of what is saved
CAP = 2.95  # times these; AdamW's moments are twice as large
EVALUATED = 1.8  # times these, of which the mapped file is one
LITTLE = ["evaluation.milliseconds=0", "evaluation.reference=[]", "evaluation.decode=greedy"]


def train(folder, workload, spread, processes, *words):
    command = [capped.__file__, spread, str(round(CAP * BYTES[workload])), "--workload", *WORDS[workload], *FEW, *words]
    return forked.run(command, folder, {**os.environ, "OMP_NUM_THREADS": "1"}, processes)


@pytest.mark.exhaustive
@pytest.mark.parametrize("workload", WORDS)
def test_a_model_that_fits_on_no_process_is_trained_saved_resumed_and_exported_by_two(tmp_path, workload):
    alone = train(tmp_path, workload, "ddp", 1, "--name", "alone")
    assert alone.returncode == 2, alone.stderr
    assert "out of memory" in alone.stderr
    assert "accelerate_configs/fsdp.yaml" in alone.stderr
    assert "Traceback" not in alone.stderr

    once = train(tmp_path, workload, "fsdp", 2, "--name", "once")
    assert once.returncode == 0, once.stderr
    runs = tmp_path / "runs" / workload
    shutil.copytree(runs / "once", runs / "parts", ignore=shutil.ignore_patterns("step-000002", "model", ".lock"))
    parts = train(tmp_path, workload, "fsdp", 2, "--name", "parts", "--resume")
    assert parts.returncode == 0, parts.stderr
    assert f"resumed from runs/{workload}/parts/checkpoints/step-000001" in parts.stderr
    for file in ("model/last/model.safetensors", "model/best/model.safetensors"):
        assert (runs / "once" / file).read_bytes() == (runs / "parts" / file).read_bytes()
    exported = safetensors.torch.load_file(runs / "once/model/last/model.safetensors")
    assert sum(tensor.nbytes for tensor in exported.values()) == BYTES[workload]


@pytest.mark.exhaustive
def test_a_model_is_evaluated_by_two_processes_that_have_no_room_for_a_copy_of_it_beside_its_file(tmp_path):
    run = train(tmp_path, "cvrp", "fsdp", 2, "--name", "once", "training.steps=1")
    assert run.returncode == 0, run.stderr
    size = str(round(EVALUATED * BYTES["cvrp"]))
    command = [capped.__file__, "fsdp", size, "evaluate", "--workload", "cvrp", "--name", "once", *LITTLE]
    done = forked.run(command, tmp_path, {**os.environ, "OMP_NUM_THREADS": "1"}, 2)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^[1-9]\d* of \d+ weights are split$", done.stdout, re.MULTILINE)
