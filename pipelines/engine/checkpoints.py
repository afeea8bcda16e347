"""Checkpoints: complete or absent, verified before use, and exact to resume from.

A checkpoint is a folder step-000500/ with model.safetensors, average.safetensors where weights are averaged,
optimizer.pt and task.pt (read with weights_only), progress.json, best/ with the best model so far, and manifest.json
with the SHA-256 of each. Only the main process reads and writes it, except for shares of sharded training
(`split_checkpoints`). Any number of processes, sharded or not, can continue from either.
"""

import io
import json
import re
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
import torch
from accelerate import Accelerator, DistributedType
from accelerate.utils import send_to_device
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict as states
from torch.utils._pytree import tree_map_only

from common import safetensors_bytes
from common.disk import files
from common.errors import UserError
from pipelines.distributed import ranks
from pipelines.engine import split_checkpoints
from pipelines.engine.split_checkpoints import Trained
from pipelines.engine.update import Progress

NAME = re.compile(r"step-\d{6,}")
MANIFEST, AVERAGE, BEST = "manifest.json", "average.safetensors", "best"
FILES = ("model.safetensors", "optimizer.pt", "task.pt", "progress.json")  # of every checkpoint
BACKLOG = 2  # pieces of work that wait or run: each may hold a copy of a model

State = TypeVar("State")
CPU = torch.device("cpu")
OPTIONS = states.StateDictOptions(full_state_dict=True, cpu_offload=True, strict=True)


class Background(ThreadPoolExecutor):
    """A thread that works in order; leaving its `with` block waits for it. After a failure it does nothing more."""

    def __init__(self) -> None:
        super().__init__(1, "background")
        self._pending: deque[Future[None]] = deque()
        self._failed = False

    def start(self, work: Callable[[], None]) -> None:
        """Queue `work`."""
        self._pending.append(self.submit(self._do, work))

    def _do(self, work: Callable[[], None]) -> None:
        if not self._failed:
            self._failed = True  # unless `work` returns
            work()
            self._failed = False

    def wait(self, most: int = 0) -> None:
        """Wait until at most `most` pieces of work are left. Raises the first error of any."""
        while len(self._pending) > most or (self._pending and self._pending[0].done()):
            self._pending.popleft().result()


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint's content copied to host memory, so that training continues while it is written.

    Of sharded training it is this process's share, which all processes write. Where memory has no room for a copy, it
    is the share itself, and training waits until it is written.
    """

    step: int
    weights: Mapping[str, Tensor]  # by name; in sharded training all tensors of training
    averaged: Mapping[str, Tensor] | None
    moments: Mapping[str, object] | None  # of the optimizers; None in sharded training
    task: Mapping[str, object]
    progress: Mapping[str, object]
    copied: bool = True

    def write(self, folder: Path, keep: int, best: Path) -> None:
        """Write folder/step-NNNNNN with a copy of `best`; keep only the newest `keep` checkpoints."""
        path = folder_of(folder, self.step)
        if self.moments is None:
            split_checkpoints.write(path, self.weights, lambda at, known: self._finish(at, best, known))
            ranks.on_main(lambda: prune(folder, keep, self.step))
            return
        with files.folder_at_once(path) as temporary:
            tensors = {"model.safetensors": self.weights, AVERAGE: self.averaged}
            known = dict[str, str]()
            for name, values in tensors.items():
                if values is not None:
                    known[name] = files.write_hashed(temporary / name, safetensors_bytes.pieces(values))
            _write_values(temporary / "optimizer.pt", self.moments)
            self._finish(temporary, best, known)
        prune(folder, keep, self.step)

    def _finish(self, folder: Path, best: Path, known: Mapping[str, str]) -> None:
        """Write all other files, the manifest last; `known` are digests of files written before."""
        _write_values(folder / "task.pt", self.task)
        if self.progress["best"] is not None and best.is_dir():
            (folder / BEST).mkdir()
            for file in sorted(path for path in best.glob("[!.]*") if path.is_file()):  # evaluations have folders
                shutil.copyfile(file, folder / BEST / file.name)
        # A metric's sum may be NaN.
        files.write_text(folder / "progress.json", json.dumps(self.progress, indent=1))
        files.write_json(folder / MANIFEST, files.digests(folder, known))


def take(trained: Trained, task: Mapping[str, object], progress: Progress) -> Snapshot:
    """Copy the state of training. Call it on all ranks; only the main process gets all of it, or each its share."""
    accelerator, averaged, own = trained.accelerator, None, _copied(dict(task), CPU)
    plain = asdict(progress) | ({} if accelerator.scaler is None else {"scaler": accelerator.scaler.state_dict()})
    if accelerator.distributed_type == DistributedType.FSDP:
        tensors, copied = split_checkpoints.staged(trained.tensors(), accelerator.device)
        return Snapshot(progress.step, tensors, None, None, own, plain, copied)
    if trained.average is not None:
        with trained.average.in_place():
            averaged, _ = weights_of(accelerator, trained.model)
    found = states.get_state_dict(trained.model, list(trained.optimizers), options=OPTIONS)
    weights, moments = (_copied(part, accelerator.device) for part in found)
    return Snapshot(progress.step, weights, averaged, moments, own, plain)  # type: ignore[arg-type]


def weights_of(accelerator: Accelerator, model: nn.Module, roomy: bool = True) -> tuple[Mapping[str, Tensor], bool]:
    """Copy weights to host memory, on the main process; sharded ones are `staged` if `roomy`. Call it on all ranks."""
    if accelerator.distributed_type == DistributedType.FSDP:
        own: dict[str, Tensor] = states.get_model_state_dict(model)  # type: ignore[assignment]
        return split_checkpoints.staged(own, accelerator.device) if roomy else (own, False)
    whole: dict[str, Tensor] = states.get_model_state_dict(model, options=OPTIONS)  # type: ignore[assignment]
    return _copied(whole, accelerator.device), True


def _copied(state: State, device: torch.device) -> State:
    """Copy the tensors that training would change: those of a GPU are copies already, except scalars."""
    return tree_map_only(Tensor, lambda x: x.clone() if device.type == "cpu" or x.ndim == 0 else x, state)  # type: ignore[no-any-return]


def folder_of(folder: Path, step: int) -> Path:
    """Return the path of the checkpoint after `step` updates."""
    return folder / f"step-{step:06d}"


def prune(folder: Path, keep: int, step: int) -> None:
    """Delete all but the newest `keep` checkpoints up to `step`; later ones are damaged and will be remade."""
    kept = [path for path in found(folder) if _step(path) <= step][:keep]
    for path in found(folder):
        if path not in kept:
            files.remove_folder(path)


def _write_values(path: Path, values: object) -> None:
    with path.open("wb", files.AT_ONCE) as file:
        try:
            torch.save(values, file)
        except RuntimeError as error:  # torch hides errors of the disk behind its own
            raise error.__context__ or error from None


def found(folder: Path) -> list[Path]:
    """Return the checkpoints in `folder`, newest first."""
    return sorted((path for path in folder.glob("step-*") if NAME.fullmatch(path.name)), key=_step, reverse=True)


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def newest_sound(folder: Path, warn: Callable[[str], None]) -> Path | None:
    """Return the newest checkpoint whose files match its manifest; report each damaged one through `warn`."""
    paths = found(folder)
    for path in paths:
        stored = {file.relative_to(path).as_posix() for file in path.rglob("*.safetensors")}
        needed = FILES[2:] if (path / split_checkpoints.SHARES).is_dir() else FILES
        if (reason := files.fault(path, MANIFEST, {*needed, *stored})) is None:
            return path
        warn(f"checkpoint {path} is refused: {reason}")
    if paths:
        raise UserError(f"no sound checkpoint in {folder}: delete the run folder and start again, or restore a backup")
    return None


def load(path: Path, trained: Trained) -> tuple[dict[str, object], Progress]:
    """Restore model, optimizers and averaged weights from a verified checkpoint; return (task state, progress)."""
    accelerator, model = trained.accelerator, trained.model
    if ranks.on_main((path / split_checkpoints.SHARES).is_dir):
        split_checkpoints.read(path, trained)
    else:
        if trained.average is not None:
            with trained.average.in_place():  # so that the loaded weights end up in the average
                _load_weights(path / AVERAGE, accelerator, model)
        _load_weights(path / "model.safetensors", accelerator, model)
        moments = _from_torch_bytes(ranks.read(path / "optimizer.pt"))
        states.set_optimizer_state_dict(model, list(trained.optimizers), moments, options=OPTIONS)
    progress = json.loads(ranks.read(path / "progress.json"))
    if (scaler := progress.pop("scaler", None)) and accelerator.scaler is not None:
        accelerator.scaler.load_state_dict(scaler)
    task = _from_torch_bytes(ranks.read(path / "task.pt"))
    # Older checkpoints, without `validated`, were written after their validation.
    return send_to_device(task, accelerator.device), Progress(**{"validated": progress["step"], **progress})


def _load_weights(path: Path, accelerator: Accelerator, model: nn.Module) -> None:
    # In one order on all ranks: safetensors' own changes from process to process, and tensors are split one by one.
    weights = dict(sorted(safetensors.torch.load(ranks.read(path)).items()))
    own = accelerator.unwrap_model(model)
    weights = getattr(own, "renewed", dict)(weights)  # of an older checkpoint
    if accelerator.distributed_type == DistributedType.FSDP:
        states.set_model_state_dict(model, {**weights}, options=OPTIONS)
    else:  # the model itself leaves out the weights of a base, which are not saved
        own.load_state_dict(weights)


def _from_torch_bytes(data: bytes) -> dict[str, Any]:
    # To the CPU first: torch.load does not know "cpu:0", the device of several processes on a CPU.
    return dict(torch.load(io.BytesIO(data), weights_only=True, map_location="cpu"))


def restore_best(path: Path, best: Path) -> bool:
    """Make `best` the checkpoint's best model; return whether it differed or was missing."""
    differing = [name for name, _ in files.digests(path / BEST).items() - files.digests(best).items()]
    with files.explained(best):
        for name in differing:
            best.mkdir(parents=True, exist_ok=True)
            files.write_whole(best / name, (path / BEST / name).read_bytes())
    return bool(differing)
