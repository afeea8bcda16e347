"""Checkpoints that are complete or absent, verified before they are trusted, and resume exactly.

A checkpoint is a folder step-000500/ with model.safetensors, average.safetensors where weights are averaged,
optimizer.pt and task.pt (tensors and plain values, read with weights_only), progress.json, and manifest.json with the
SHA-256 of each. It does not depend on the number of processes that wrote it.
"""

import io
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from accelerate import Accelerator, DistributedType
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from common.averaging import Average
from common.errors import UserError
from common.files import digests, fault, folder_at_once, write_json

NAME = re.compile(r"step-\d{6,}")
MANIFEST, AVERAGE = "manifest.json", "average.safetensors"
FILES = ("model.safetensors", "optimizer.pt", "task.pt", "progress.json")  # of every checkpoint

OPTIONS = StateDictOptions(full_state_dict=True, cpu_offload=True, strict=True)


def save(
    folder: Path,
    accelerator: Accelerator,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    average: Average | None,
    task: Mapping[str, Any],
    progress: Mapping[str, Any],
    keep: int,
) -> None:
    """Write folder/step-NNNNNN, then delete all but the newest `keep`. Call it on all ranks."""
    weights, moments = get_state_dict(model, list(optimizers), options=OPTIONS)
    averaged = None
    if average is not None:
        with average.in_place():  # as bytes: on a CPU a state is no copy
            averaged = _tensor_bytes(get_model_state_dict(model, options=OPTIONS))
    if accelerator.scaler is not None:
        progress = {**progress, "scaler": accelerator.scaler.state_dict()}
    if accelerator.is_main_process:
        name = f"step-{progress['step']:06d}"
        with folder_at_once(folder / name) as temporary:
            (temporary / "model.safetensors").write_bytes(_tensor_bytes(weights))
            if averaged is not None:
                (temporary / AVERAGE).write_bytes(averaged)
            (temporary / "optimizer.pt").write_bytes(_torch_bytes(moments))
            (temporary / "task.pt").write_bytes(_torch_bytes(dict(task)))
            write_json(temporary / "progress.json", dict(progress))
            write_json(temporary / MANIFEST, digests(temporary))
        for path in found(folder)[keep:]:
            shutil.rmtree(path)
    accelerator.wait_for_everyone()


def _tensor_bytes(weights: Mapping[str, Any]) -> bytes:
    # Tied weights share memory, which safetensors refuses: each name is written as a tensor of its own.
    return safetensors.torch.save({key: value.clone() for key, value in weights.items()})


def _torch_bytes(value: Any) -> bytes:
    """Serialise with torch.save. The caller writes the bytes: the library reports a full disk in errors of its own."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def found(folder: Path) -> list[Path]:
    """Return the checkpoints in `folder`, newest first."""
    names = [path for path in folder.glob("step-*") if NAME.fullmatch(path.name)]
    return sorted(names, key=lambda path: int(path.name.removeprefix("step-")), reverse=True)


def newest_sound(folder: Path, warn: Callable[[str], None]) -> Path | None:
    """Return the newest checkpoint whose files match its manifest; report each damaged one through `warn`."""
    paths = found(folder)
    for path in paths:
        reason = fault(path, MANIFEST, {*FILES, *(weights.name for weights in path.glob("*.safetensors"))})
        if reason is None:
            return path
        warn(f"checkpoint {path} is refused: {reason}")
    if paths:
        raise UserError(f"no sound checkpoint in {folder}: delete the run folder and start again, or restore a backup")
    return None


def load(
    path: Path,
    accelerator: Accelerator,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    average: Average | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Restore model, optimizers and averaged weights from a verified checkpoint; return (task state, progress)."""
    if average is not None:
        with average.in_place():  # so that what is loaded ends up in the average
            _load_weights(path / AVERAGE, accelerator, model)
    _load_weights(path / "model.safetensors", accelerator, model)
    moments = torch.load(path / "optimizer.pt", weights_only=True)
    set_optimizer_state_dict(model, list(optimizers), moments, options=OPTIONS)
    progress = json.loads((path / "progress.json").read_text())
    scaler = progress.pop("scaler", None)
    if scaler and accelerator.scaler is not None:
        accelerator.scaler.load_state_dict(scaler)
    return torch.load(path / "task.pt", weights_only=True, map_location=accelerator.device), progress


def _load_weights(path: Path, accelerator: Accelerator, model: nn.Module) -> None:
    weights: dict[str, Any] = safetensors.torch.load_file(path)
    if accelerator.distributed_type == DistributedType.FSDP:
        set_model_state_dict(model, weights, options=OPTIONS)
    else:  # the model itself knows which of its weights are not saved, as they are those of a base
        accelerator.unwrap_model(model).load_state_dict(weights)
