"""Trainings whose results must not depend on how they are spread: over processes, whole or sharded, in micro-batches.

    python tests/engine/one_model.py ddp '{"NAME": ["training.micro_batch_size=4"]}' --workload W WORDS

Each named setting is a training in runs/W/NAME, which also keeps the gradient of its first update. `fsdp` instead of
`ddp` launches as `accelerate launch --config_file accelerate_configs/fsdp.yaml` does, but on CPUs.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import yaml
from accelerate import DistributedType, PartialState
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from pipelines import cli, workloads
from pipelines.engine import training

CONFIG = Path(__file__).resolve().parents[2] / "accelerate_configs/fsdp.yaml"


def shard() -> None:
    """Set what `accelerate launch` sets for fsdp.yaml, and let Accelerate shard on a CPU too."""
    settings = yaml.safe_load(CONFIG.read_text())["fsdp_config"]
    os.environ |= {key.upper(): str(value) for key, value in settings.items()} | {"ACCELERATE_USE_FSDP": "true"}
    PartialState(cpu=True)
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU  # from which it goes on to FSDP


def main(spread: str, settings: dict[str, list[str]], words: list[str]) -> None:
    os.environ["ACCELERATE_USE_CPU"] = "true"
    if spread == "fsdp":
        shard()
    gradients: dict[torch.optim.Optimizer, torch.Tensor] = {}  # the first of each optimizer

    def keep(optimizer, args, kwargs):
        if optimizer not in gradients:
            parts = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            parts = [part.full_tensor() if isinstance(part, DTensor) else part for part in parts]
            gradients[optimizer] = torch.cat([part.flatten() for part in parts])

    register_optimizer_step_pre_hook(keep)
    for name, more in settings.items():
        args = cli.parse(None, resume=True, argv=[*words, *more, "--name", name])
        workload, run = workloads.find(args.workload), cli.run_of(args)
        config = cli.training_config(args, workload, run)
        accelerator = cli.make_accelerator(config, run)
        accelerator.end_training = lambda: None  # another training follows
        folder, manifest = cli.prepare_first(args, workload, config, accelerator)
        training.train(workload, config, folder, manifest, run, accelerator, args.resume)
        if accelerator.is_main_process:
            torch.save(gradients.popitem()[1], run.folder / "gradient.pt")  # before it are those of trial steps
        gradients.clear()


if __name__ == "__main__":
    cli.run_main(lambda: main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]))
