"""Checkpoints of sharded training: each process writes its share to a shared disk; any number can read them."""

import itertools
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, distributed, nn
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.checkpoint._hf_utils import CUSTOM_METADATA_KEY, SAVED_OFFSETS_KEY
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.futures import Future

from common import safetensors_bytes
from common.disk import files
from common.errors import UserError
from pipelines.distributed import ranks
from pipelines.engine.batches import lack_as
from pipelines.engine.stepping import Average, LackOfMemoryError

SHARES = "shares"
AT_ONCE = 2**26  # bytes of a file; a reader maps all of it
ALIGNED = 64  # bytes


@dataclass(frozen=True)
class Trained:
    """What a checkpoint holds beside the task's state and the progress."""

    accelerator: Accelerator
    model: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]
    average: Average | None

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors of training by name, not copied."""
        weights, moments = states.get_state_dict(self.model, list(self.optimizers))
        named = {f"model.{name}": value for name, value in weights.items()}
        found = moments["state"]
        assert isinstance(found, dict), "{name: {key: value}}, as it is not flat"
        for name, values in found.items():
            assert isinstance(values, dict), "as above"
            named |= {f"optimizer.{name}.{key}": value for key, value in values.items()}
        if self.average is not None:
            named |= {f"average.{number}": value for number, value in enumerate(self.average.values)}
        return {name: value for name, value in named.items() if isinstance(value, Tensor)}


def staged(tensors: Mapping[str, Tensor], device: torch.device) -> tuple[Mapping[str, Tensor], bool]:
    """Return this process's share of `tensors`, and whether it is a copy in host memory: only if all ranks have room.

    Call it in the main threads of all ranks. Copies belong to the background thread: they are gathered over
    gloo group 1.
    """
    mesh = DeviceMesh.from_group(ranks.hosts(1), "cpu") if ranks.world() > 1 else None
    own = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors.values()]
    sizes = [math.ceil(part.nbytes / ALIGNED) * ALIGNED for part in own]
    memory = None
    with suppress(LackOfMemoryError), lack_as(LackOfMemoryError):  # at once: a lack of it shows before any is used
        memory = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=device.type == "cuda")
    if not all(ranks.gather(memory is not None)) or memory is None:
        return tensors, False
    found = dict[str, Tensor]()
    for (name, tensor), part, place in zip(tensors.items(), own, memory.split(sizes), strict=True):
        copy = place[: part.nbytes].view(part.dtype).view(part.shape).copy_(part, non_blocking=True)
        if isinstance(tensor, DTensor) and mesh is not None:
            copy = DTensor.from_local(copy, mesh, tensor.placements, shape=tensor.shape, stride=tensor.stride())
        found[name] = copy
    if device.type == "cuda":
        torch.cuda.synchronize()
    return found, True


class _Writer(HuggingFaceStorageWriter):
    """Writes this process's share without copies; the library would make two while holding the GIL."""

    digests: Mapping[str, str] = {}  # of the files, by name

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the tensors that `plan` assigns to this process."""
        parts: dict[str, Tensor] = {item.index.fqn: planner.resolve_data(item) for item in plan.items}  # type: ignore[misc]
        places = {item.index.fqn: {SAVED_OFFSETS_KEY: item.tensor_data.chunk.offsets} for item in plan.items}  # type: ignore[union-attr]
        ends = itertools.accumulate(part.nbytes for part in parts.values())
        written = {}
        for number, group in itertools.groupby(zip(parts, ends, strict=True), lambda pair: pair[1] // AT_ONCE):
            names = [name for name, _ in group]
            header = {CUSTOM_METADATA_KEY: json.dumps({name: places[name] for name in names})}
            file = f"shard-{ranks.rank() + 1:05d}-{number + 1:05d}.safetensors"
            pieces = safetensors_bytes.pieces({name: parts[name] for name in names}, header)
            written[f"{SHARES}/{file}"] = files.write_hashed(Path(self.path) / file, pieces)
        self.digests = written
        done: Future[list[WriteResult]] = Future()
        done.set_result([])
        return done


def write(folder: Path, state: Mapping[str, Tensor], rest: Callable[[Path, Mapping[str, str]], None]) -> None:
    """Write `folder`, whole or not at all, on all ranks; on the main one `rest` adds files, given shares' digests."""
    with ExitStack() as stack:
        temporary = ranks.on_main(lambda: stack.enter_context(files.folder_at_once(folder)))
        writer = _Writer(str(temporary / SHARES), save_distributed=True)
        _done(lambda group: save(dict(state), storage_writer=writer, process_group=group), folder)
        found = {name: digest for part in ranks.gather(writer.digests) for name, digest in part.items()}

        def finish() -> None:
            if away := [name for name in found if not (temporary / name).is_file()]:
                need = "checkpoints of split models need a runs folder on a disk that all machines share"
                raise UserError(f"{temporary / away[0]} is not on the first machine's disk: {need}")
            rest(temporary, found)
            stack.close()

        ranks.on_main(finish)


def read(folder: Path, trained: Trained) -> None:
    """Read all tensors of training in place, each process its share."""
    state, reader = trained.tensors(), HuggingFaceStorageReader(str(folder / SHARES))
    _done(lambda group: load(state, storage_reader=reader, process_group=group))


def _done(work: Callable[[distributed.ProcessGroup | None], object], written: Path | None = None) -> None:
    def unwrapped() -> None:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # of one process
                work(ranks.group() if ranks.world() > 1 else None)
        except CheckpointException as error:
            with files.explained(written) if written else nullcontext():
                raise next(iter(error.failures.values()))[0] from error

    ranks.agree(unwrapped)
