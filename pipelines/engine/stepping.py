"""The end of an update: the step of all optimizers, with fp16's scaler, retried if memory runs out, and averages."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from torch import Tensor, nn

from pipelines.engine.batches import is_out_of_memory

LARGER = (  # advice where one example at a time does not fit
    "choose a smaller model, split it over GPUs by accelerate launch --config_file accelerate_configs/fsdp.yaml, or "
    "--resume with hardware.gradient_checkpointing=true or a larger hardware.memory_fraction"
)


class NotFiniteError(Exception):
    """A loss or gradient is not finite; the message has the step."""


class LackOfMemoryError(Exception):
    """Memory ran out on one rank; all ranks raise it."""


class HalfMadeError(Exception):
    """Memory ran out in a step that cannot be repeated."""


class Stepper:
    """Steps all optimizers or none. Accelerate's wrappers would each update the scaler, and unscale gradients again."""

    def __init__(self, accelerator: Accelerator, wrapped: Sequence[AcceleratedOptimizer]):
        self.accelerator, self.scaler = accelerator, accelerator.scaler
        self.optimizers = [each.optimizer for each in wrapped]
        self.short = False  # memory ran out in a step, which succeeded when repeated
        self.unscaled = False  # the present gradients

    def rehearse(self) -> None:
        """Make a step that changes nothing, to allocate the optimizers' state as zeros."""
        for optimizer in self.optimizers:
            if optimizer.state:
                continue  # of a resumed run
            try:
                for group in optimizer.param_groups:
                    group["lr"] = 0.0
                    torch._foreach_zero_([p.grad for p in group["params"] if p.grad is not None])
                optimizer.step()
                torch._foreach_zero_(_tensors_of(optimizer))
            except BaseException:
                optimizer.state.clear()
                raise

    def unscale(self) -> None:
        """Divide the gradients by the loss scale."""
        if self.scaler is not None:
            if self.unscaled:  # memory ran out after that, and the update is repeated
                self.scaler.update(self.scaler.get_scale())
            self.unscaled = True
            for optimizer in self.optimizers:
                self.scaler.unscale_(optimizer)

    def step(self, norm: Tensor) -> bool:
        """Step unless fp16's gradients overflow; return whether it did. Raises NotFiniteError and HalfMadeError."""
        if self.scaler is not None:
            scale, finite = self.scaler.get_scale(), math.isfinite(float(norm))
            self.scaler.update()
            self.unscaled = False
            if not finite and (scale < 1 or self.scaler.get_scale() >= scale):
                raise NotFiniteError(f"gradient norm {norm:g} is not finite at loss scale {scale:g}")
            if not finite:
                return False
        for optimizer in self.optimizers:
            tensors = [p for group in optimizer.param_groups for p in group["params"]] + _tensors_of(optimizer)
            self.again(optimizer.step, tensors, optimizer.state)
        return True

    def again(self, change: Callable[[], object], tensors: Sequence[Tensor], state: dict[Tensor, object]) -> None:
        """Call `change`; repeat once if memory ran out before it changed any of `tensors`, else raise HalfMadeError."""
        before, known = [tensor._version for tensor in tensors], set(state)
        for last in (False, True):
            try:
                change()
                return
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if last or before != [tensor._version for tensor in tensors]:
                    raise HalfMadeError from error
            for parameter in set(state) - known:  # its state may be incomplete
                del state[parameter]
            self.short = True
            torch.cuda.empty_cache()  # outside the handler, which keeps tensors alive


def _tensors_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]


class Average:
    """Exponential moving average of parameters (Polyak and Juditsky 1992), whose decay is 0.1 at first."""

    def __init__(self, parameters: Sequence[nn.Parameter], decay: float):
        self.parameters, self.decay = list(parameters), decay
        self.values: list[Tensor] = [p.detach().clone() for p in self.parameters]

    def update(self, step: int) -> None:
        """Move towards the parameters after update `step`, counted from 1."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.values, [p.detach() for p in self.parameters], 1 - decay)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the averaged weights within the block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for parameter, value in zip(self.parameters, self.values, strict=True):
            kept = parameter.detach().clone()
            parameter.detach().copy_(value)
            value.copy_(kept)
