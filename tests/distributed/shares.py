"""What each GPU holds of lmol's LLaVA-1.5-7B when it is split as fsdp.yaml says: a dry run without weights or GPUs.

    python tests/distributed/shares.py          # a table for 1, 2, 4 and 8 GPUs

The model is made without weights, as training makes it, and FSDP2 splits it over pretended ranks. Bytes are those of
weights, gradients and AdamW's two moments; `gathered` is the largest part that is whole at once while training.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from accelerate import DistributedType
from accelerate.state import AcceleratorState
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from models.images import vlm_comparator
from pipelines.distributed import deferred
from pipelines.distributed.deferred import Recorder

WORLDS = (1, 2, 4, 8)
MOMENTS = 2  # of AdamW, in the weights' own type
FIELDS = {"size": 336, "channels": 3, "attribute": "sharpness", "theta": 1, "unit": 1.0, "references": 0}


def held(world: int, whole: bool, preset: str = "llava-1.5-7b") -> dict[str, int]:
    """Return the bytes that rank 0 of `world` holds, by what they are for; `whole`: as if adapters and base trained."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    known, advance = dict(AcceleratorState._shared_state), Recorder.advance
    AcceleratorState._shared_state["distributed_type"] = DistributedType.FSDP
    Recorder.advance = lambda *_: None  # it would draw seven billion numbers
    try:
        fields = {**FIELDS, "preset": preset, "lora": True}
        model = deferred.made(lambda: vlm_comparator.build(fields), torch.device("cpu"))
        assert all(parameter.is_meta for parameter in model.parameters()), "nothing was drawn"
        layers = [module for module in model.modules() if type(module).__name__ in model._no_split_modules]
        mesh = init_device_mesh("cpu", (world,))
        for part in (*layers, model):
            fully_shard(part, mesh=mesh)
        parts = [module for module in model.modules() if isinstance(module, FSDPModule)]
        found = {"weights": 0, "gradients": 0, "moments": 0, "gathered": 0}
        for parameter in model.parameters():
            assert isinstance(parameter, DTensor)
            size = parameter.to_local().numel() * parameter.element_size()
            found["weights"] += size
            if whole or parameter.requires_grad:
                found["gradients"] += size
                found["moments"] += MOMENTS * size
        inner = {id(p) for part in parts if part is not model for p in part.parameters()}
        for part in parts:
            own_weights = [p for p in part.parameters() if part is not model or id(p) not in inner]
            found["gathered"] = max(found["gathered"], sum(p.numel() * p.element_size() for p in own_weights))
        return found
    finally:
        Recorder.advance = advance
        AcceleratorState._shared_state.clear()
        AcceleratorState._shared_state.update(known)
        distributed.destroy_process_group()


def table() -> None:
    """Print a row for each number of GPUs, with and without adapters."""
    print("| GPUs | trained | weights | gradients | AdamW | all | gathered at most |\n|---|---|---|---|---|---|---|")
    for whole in (False, True):
        for world in WORLDS:
            found = held(world, whole)
            kept = [found[name] for name in ("weights", "gradients", "moments")]
            cells = [f"{size / 1e9:.2f} GB" for size in (*kept, sum(kept), found["gathered"])]
            print("| " + " | ".join([str(world), "all" if whole else "adapters", *cells]) + " |", flush=True)


if __name__ == "__main__":
    table()
