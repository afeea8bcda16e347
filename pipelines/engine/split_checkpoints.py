"""Checkpoints of sharded training: each process writes its share, on a disk that all see; any number of them reads."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, distributed, nn
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from common.disk import files
from common.errors import UserError
from pipelines.distributed import ranks
from pipelines.engine.stepping import Average

SHARES = "shares"
AT_ONCE = 2**26  # bytes of whole tensors whose shares are written to one file: it is made in memory


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


def write(folder: Path, state: Mapping[str, Tensor], rest: Callable[[Path, Mapping[str, str]], None]) -> None:
    """Write `folder`, whole or not at all, on all ranks; `rest` adds other files on one, given the shares' digests."""
    with ExitStack() as stack, files.explained(folder):
        temporary = ranks.on_main(lambda: stack.enter_context(files.folder_at_once(folder)))
        ends = itertools.accumulate(x.numel() * x.element_size() for x in state.values())
        numbers = {name: 1 + end // AT_ONCE for name, end in zip(state, ends, strict=True)}  # of files
        writer = HuggingFaceStorageWriter(str(temporary / SHARES), numbers, save_distributed=True)
        _done(lambda: save(dict(state), storage_writer=writer, process_group=_group()))
        mine = temporary.rglob(f"shard-{ranks.rank() + 1:05d}-*")
        own = {path.relative_to(temporary).as_posix(): files.sha256(path) for path in mine}
        found = {name: digest for part in ranks.gather(own) for name, digest in part.items()}

        def finish() -> None:
            if away := [name for name in found if not (temporary / name).is_file()]:
                need = "checkpoints of split models need a runs folder on a disk that all machines share"
                raise UserError(f"{temporary / away[0]} is not on the first machine's disk: {need}")
            rest(temporary, found)
            stack.close()

        ranks.on_main(finish)


def read(folder: Path, trained: Trained) -> None:
    """Read all tensors of training in place, each process what it holds of them."""
    state, reader = trained.tensors(), HuggingFaceStorageReader(str(folder / SHARES))
    _done(lambda: load(state, storage_reader=reader, process_group=_group()))


def _done(work: Callable[[], object]) -> None:

    def unwrapped() -> None:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # of one process
                work()
        except CheckpointException as error:
            raise next(iter(error.failures.values()))[0] from error

    ranks.agree(unwrapped)


def _group() -> distributed.ProcessGroup | None:
    return ranks.group() if ranks.world() > 1 else None
