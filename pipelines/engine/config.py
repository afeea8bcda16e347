"""Sections of every workload's config: training, hardware, tracking, data. A workload adds its own."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from common.config import Choice, Section
from common.errors import UserError
from common.machine import cores, keep_freed_memory, launched_on_one_thread, mkl_is_slow
from common.plain import Plain
from pipelines.engine.optim import OPTIMIZERS, SCHEDULES
from pipelines.tracking.trackers import Tracking

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.optim import Optimizer

Decay = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]


class Training(Section):
    """Settings of the training loop."""

    one_of: ClassVar[tuple[str, ...]] = ("steps", "epochs")
    bounds: ClassVar[tuple[str, ...]] = ("most_epochs",)  # set to null, too, by a word for one of `one_of`

    steps: int | None = Field(None, ge=1, description="number of optimizer updates; give this or epochs")
    epochs: float | None = Field(None, gt=0, description="passes over the training data; give this or steps")
    most_epochs: float | None = Field(None, gt=0, description="passes over the data that end training early")
    batch_size: int = Field(64, ge=1, description="examples per update, over all processes")
    micro_batch_size: Count | Literal["auto"] = Field("auto", description="examples of a forward pass; auto: what fits")
    learning_rate: float = Field(1e-3, gt=0, description="peak learning rate, reached after the warm-up")
    optimizer: Annotated[str, Choice(OPTIMIZERS)] = Field("adamw", description="muon: for matrices, adamw for the rest")
    schedule: Annotated[str, Choice(SCHEDULES)] = Field("cosine", description="wsd: constant, linear in the last fifth")
    final_learning_rate: float = Field(0.0, ge=0, le=1, description="share of the peak where a schedule ends")
    warmup_steps: int = Field(0, ge=0, description="updates over which the rate rises linearly to its peak")
    weight_decay: float = Field(0.01, ge=0, description="decoupled, on matrices only; 0 turns AdamW into Adam")
    betas: tuple[Decay, Decay] = Field((0.9, 0.999), description="decay of AdamW's moments; the first is a momentum")
    ema: float | None = Field(None, gt=0, lt=1, description="decay of an average of weights to validate and save")
    clip_norm: float | None = Field(1.0, gt=0, description="largest gradient norm; null: no clipping")
    log_steps: int = Field(10, ge=1, description="updates between records in metrics.jsonl")
    validation_steps: int = Field(500, ge=1, description="updates between validations")
    checkpoint_steps: int = Field(500, ge=1, description="updates between checkpoints")
    keep_checkpoints: int = Field(3, ge=1, description="number of checkpoints kept on disk")
    patience: int | None = Field(None, ge=1, description="validations without improvement before stopping; null: never")
    metric: str | None = Field(
        None, description="metric of the best model, as in val/loss or max:val/accuracy; null: the workload's own"
    )
    hooks: tuple[str, ...] = Field((), description="your own classes, module:Class, that are called during training")

    @model_validator(mode="after")
    def _one_length(self) -> Training:
        if (self.steps is None) == (self.epochs is None):
            given = f"(given steps: {self.steps}, epochs: {self.epochs})"
            raise ValueError(f"give one of training.steps and training.epochs and make the other null {given}")
        return self

    def optimizers(self, model: nn.Module) -> list[Optimizer]:
        """Return the optimizers that together hold every parameter of `model` that trains."""
        return OPTIMIZERS[self.optimizer](model, self.learning_rate, self.weight_decay, self.betas)

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of update `step`, counted from 0, of `steps`."""
        ended = self.most_epochs and steps < (self.steps or 0)  # before training.steps
        warmup = min(self.warmup_steps, steps // 4) if ended else self.warmup_steps
        if step < warmup:
            return self.learning_rate * (step + 1) / warmup
        height = SCHEDULES[self.schedule]((step - warmup) / max(1, steps - warmup))
        return self.learning_rate * (self.final_learning_rate + (1 - self.final_learning_rate) * height)

    def num_steps(self, size: int | None) -> int:
        """Return the number of updates over `size` examples; None: endless, where epochs raise UserError."""
        most = (self.most_epochs or math.inf) * (size or math.inf) / self.batch_size
        if self.steps is not None:
            return math.ceil(min(self.steps, most))
        if size is None or self.epochs is None:
            raise UserError("training.epochs: this workload's data are endless; give training.steps instead")
        return math.ceil(min(self.epochs * size / self.batch_size, most))


class Hardware(Section):
    """Use of the machine. Device, precision and processes are Accelerate's: `accelerate config`."""

    threads: int | None = Field(None, ge=1, description="CPU threads of a process; null: OMP_NUM_THREADS or its cores")
    memory_fraction: float = Field(1.0, gt=0, le=1, description="largest share of GPU memory for this process")
    cudnn_benchmark: bool = Field(True, description="let cuDNN time its kernels; pays with constant shapes")
    tf32: bool = Field(True, description="compute products of float32 in TensorFloat-32 on GPUs that have it")
    onednn: bool = Field(True, description="compute products of float32 by oneDNN on AMD's CPUs with AVX-512")
    compile: bool = Field(False, description="compile the model with torch.compile: a slower start, faster steps")
    stack: bool = Field(True, description="on a GPU, train members, such as coins, in one process if configs allow")
    patience: float = Field(600, gt=60, description="seconds without a sign of life of a process before training ends")
    deterministic: bool = Field(False, description="refuse GPU kernels whose results vary from run to run")
    gpu_log_interval: int = Field(10, ge=0, description="updates between readings of GPU figures; 0: never")
    change_precision: bool = Field(False, description="let --resume continue in another precision, which is recorded")
    gradient_checkpointing: bool = Field(False, description="recompute activations to save memory, if the model can")

    def apply(self, device: torch.device, say: Callable[[str], None]) -> None:
        """Apply the settings before the device computes, as cuBLAS reads its setting once; report ignored settings."""
        import torch

        alone = self.threads is None and device.type == "cpu" and launched_on_one_thread()
        threads = cores() if alone else self.threads
        if threads is not None and threads != torch.get_num_threads():
            torch.set_num_threads(threads)
            say(f"computing on {threads} CPU thread{'s' * (threads > 1)} per process; hardware.threads changes that")
        if device.type == "cuda":
            # Accelerate leaves the first GPU the current one even if ACCELERATE_TORCH_DEVICE names another. Seeds and
            # figures of memory are those of the current one.
            if device.index is not None:
                torch.cuda.set_device(device)
            torch.cuda.set_per_process_memory_fraction(self.memory_fraction)
            torch.backends.cudnn.benchmark = self.cudnn_benchmark and not self.deterministic
            torch.set_float32_matmul_precision("high" if self.tf32 else "highest")
            torch.backends.cudnn.allow_tf32 = self.tf32
        else:
            keep_freed_memory()
            # Allowing bfloat16 sends products to oneDNN, which rounds to it only on processors with AMX.
            products = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
            products.fp32_precision = "bf16" if self.onednn and mkl_is_slow() else "ieee"
            if self.memory_fraction < 1:  # unlike other GPU settings, never on by default
                say("without a CUDA device hardware.memory_fraction has no effect")
        if self.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS demands it for repeatable results
        if torch.are_deterministic_algorithms_enabled() != self.deterministic:  # setting it imports a compiler
            torch.use_deterministic_algorithms(self.deterministic)

    def apply_to(self, model: nn.Module) -> None:
        """Apply the model's settings. Raises UserError for unsupported ones."""
        if self.gradient_checkpointing:
            if not hasattr(model, "gradient_checkpointing"):
                cannot = f"{type(model).__name__} does not support it; set it to false"
                raise UserError(f"hardware.gradient_checkpointing: {cannot}")
            setattr(model, "gradient_checkpointing", True)  # noqa: B010 (modules have no such attribute by their type)
        if self.compile:
            model.compile()


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
        """Return an id of the prepared data that a run learns from; if it changes, the run starts over. None: never."""
        return None

    @property
    def settled(self) -> tuple[str, ...]:
        """Prefixes of the keys that must not change after training."""
        return ("model.", "training.", "seed", *(("data.",) if self.data.settled else ()))
