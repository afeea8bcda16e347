"""The data of the workload, and what is to be minimised."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasets
import torch
from torch import Tensor, nn

from pipelines.engine.batches import Resident
from pipelines.engine.workload import Loss, Task

from .model import Waves, WavesConfig

if TYPE_CHECKING:
    from . import Config


def prepare(config: "Config", folder: Path) -> Mapping[str, Any]:
    """Write the splits "train" and "held_out" (past, next) as a Hugging Face dataset; return facts about them."""
    data, generator = config.data, torch.Generator().manual_seed(config.data.seed)
    start = torch.rand(data.examples, 1, generator=generator) * 2 * torch.pi
    waves = (start + 0.5 * torch.arange(data.window + 1)).sin()
    waves = waves + data.noise * torch.randn(waves.shape, generator=generator)
    table = datasets.Dataset.from_dict({"past": waves[:, :-1].numpy(), "next": waves[:, -1].numpy()})
    cut = data.examples // 5
    splits = {"held_out": table.select(range(cut)), "train": table.select(range(cut, data.examples))}
    datasets.disable_progress_bars()
    datasets.DatasetDict(splits).save_to_disk(folder)
    return {"examples": {name: len(split) for name, split in splits.items()}}


def load(folder: Path, split: str, device: torch.device) -> Resident:
    """A split as tensors past (N, window) and next (N,) on the device."""
    columns = datasets.load_from_disk(str(folder))[split].with_format("torch")[:]
    return Resident(columns, device)


class WavesTask(Task):
    """Least squares."""

    def __init__(self, config: "Config", folder: Path, device: torch.device):
        self.model = Waves(WavesConfig(config.data.window, config.model.width)).to(device)
        self.train, self.validation = load(folder, "train", device), load(folder, "held_out", device)

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        """Squared errors, summed; the engine divides by their number."""
        return Loss((model(batch["past"]) - batch["next"]).square().sum(), len(batch["next"]))

    def score(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The squared error of each example."""
        return {"squared_error": (model(batch["past"]) - batch["next"]).square()}
