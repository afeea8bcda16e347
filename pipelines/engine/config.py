"""Sections of every workload's config: training, hardware, tracking, data. A workload adds its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from common.config import Choice, Section
from common.errors import UserError
from common.hardware import Hardware
from common.plain import Plain
from pipelines.engine.optim import OPTIMIZERS, SCHEDULES
from pipelines.tracking.trackers import Tracking

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


class Training(Section):
    """Settings of the training loop."""

    one_of: ClassVar[tuple[str, ...]] = ("steps", "epochs")

    steps: int | None = Field(None, ge=1, description="number of optimizer updates; give this or epochs")
    epochs: float | None = Field(None, gt=0, description="passes over the training data; give this or steps")
    batch_size: int = Field(64, ge=1, description="examples per update, over all processes")
    micro_batch_size: int | Literal["auto"] = Field("auto", description="examples of a forward pass; auto: what fits")
    learning_rate: float = Field(1e-3, gt=0, description="peak learning rate, reached after the warm-up")
    optimizer: Annotated[str, Choice(OPTIMIZERS)] = Field("adamw", description="muon: for matrices, adamw for the rest")
    schedule: Annotated[str, Choice(SCHEDULES)] = Field("cosine", description="wsd: constant, linear in the last fifth")
    final_learning_rate: float = Field(0.0, ge=0, le=1, description="share of the peak where a schedule ends")
    warmup_steps: int = Field(0, ge=0, description="updates over which the rate rises linearly to its peak")
    weight_decay: float = Field(0.01, ge=0, description="decoupled, on matrices only; 0 turns AdamW into Adam")
    betas: tuple[float, float] = Field((0.9, 0.999), description="decay of AdamW's moments; the first is a momentum")
    ema: float | None = Field(None, gt=0, lt=1, description="decay of an average of weights to validate and save")
    clip_norm: float | None = Field(1.0, gt=0, description="largest gradient norm; null: no clipping")
    log_steps: int = Field(10, ge=1, description="updates between records in metrics.jsonl")
    validation_steps: int = Field(500, ge=1, description="updates between validations")
    checkpoint_steps: int = Field(500, ge=1, description="updates between checkpoints")
    keep_checkpoints: int = Field(3, ge=1, description="number of checkpoints kept on disk")
    patience: int | None = Field(None, ge=1, description="validations without improvement before stopping; null: never")
    metric: str | None = Field(
        None, description="what picks the best model, as in val/loss or max:val/accuracy; null: the workload's own"
    )
    hooks: tuple[str, ...] = Field((), description="your own classes, module:Class, that are called during training")

    @model_validator(mode="after")
    def _one_length(self) -> Training:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError(
                f"give one of training.steps and training.epochs and make the other null "
                f"(given steps: {self.steps}, epochs: {self.epochs})"
            )
        if isinstance(self.micro_batch_size, int) and self.micro_batch_size < 1:
            raise ValueError(f"training.micro_batch_size must be 1 or more, or auto (given {self.micro_batch_size})")
        return self

    def optimizers(self, model: nn.Module) -> list[Optimizer]:
        """Return the optimizers that together hold every parameter of `model` that trains."""
        return OPTIMIZERS[self.optimizer](model, self.learning_rate, self.weight_decay, self.betas)

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of update `step`, counted from 0, of `steps`."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, steps - self.warmup_steps)
        height, floor = SCHEDULES[self.schedule](done), self.final_learning_rate
        return self.learning_rate * (floor + (1 - floor) * height)

    def num_steps(self, size: int | None) -> int:
        """Return the number of updates over `size` examples; None: endless, where epochs raise UserError."""
        if self.steps is not None:
            return self.steps
        if size is None or self.epochs is None:
            raise UserError("training.epochs: this workload's data are endless; give training.steps instead")
        return math.ceil(self.epochs * size / self.batch_size)


class DataSection(Section):
    """Data of a workload. All values but the loader decide what `prepare` writes."""

    layout: ClassVar[int] = 1  # raise it when `prepare` writes other files, so that older data are not read
    settled: ClassVar[bool] = True  # whether later stages must keep the data, without which the model means nothing
    renews: ClassVar[bool] = False  # whether `prepare(config, folder, earlier)` reuses earlier data after changes

    def inputs(self) -> Sequence[Path]:
        """Return the user's files that `prepare` reads, as far as they exist."""
        return ()


class LoadedData(DataSection):
    """Data of a workload whose examples may not fit on the device."""

    loader: Literal["resident", "stream"] = Field("resident", description="resident: on the device; stream: by workers")

    @property
    def workers(self) -> int:
        """Number of processes that load batches ahead."""
        return 2 if self.loader == "stream" else 0


class BaseConfig(Section):
    """Base of every workload's config; a workload adds `data`, `model` and `evaluation`."""

    seed: int = Field(0, ge=0, description="seed of everything random in training")
    training: Training = Training(steps=1000)
    hardware: Hardware = Hardware()
    tracking: Tracking = Tracking()
    data: DataSection = DataSection()

    @property
    def trains(self) -> bool:
        """True if the config names a model with weights; a method without weights is only evaluated."""
        return True

    @property
    def stacks(self) -> bool:
        """True if members' losses differ in tensors alone, have no noise but `common.noise`, and suit vmap."""
        return False

    def content(self, manifest: Mapping[str, Plain]) -> object:
        """Return which of the prepared data a run learns from, which begins anew if it differs; None: it never does."""
        return None

    @property
    def settled(self) -> tuple[str, ...]:
        """Prefixes of the keys that must not change after training."""
        return ("model.", "training.", "seed", *(("data.",) if self.data.settled else ()))
