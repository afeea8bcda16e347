"""One optimizer update after another: micro-batches, gradients, agreement between processes, lack of memory."""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator, DistributedType
from accelerate.utils import send_to_device
from torch import Tensor, distributed
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from common import noise
from common.errors import UserError
from common.random import derive_key
from common.stopping import StopRequest
from pipelines.distributed import ranks, sharding
from pipelines.distributed.watch import OwnTime
from pipelines.engine.batches import Order, check_divides, is_out_of_memory, lack_as, smaller, stream
from pipelines.engine.config import BaseConfig
from pipelines.engine.optim import set_rates
from pipelines.engine.stepping import LARGER, Average, HalfMadeError, LackOfMemoryError, NotFiniteError, Stepper
from pipelines.engine.workload import Loss, Task
from pipelines.run.folder import Run
from pipelines.tracking.monitor import Monitor


@dataclass
class Progress:
    """Progress of training; with model, optimizers and task all that resuming needs."""

    step: int = 0  # updates made
    best: float | None = None  # the best validation mean of the workload's metric
    best_step: int = 0
    stale: int = 0  # validations since then
    validated: int = 0  # the step of the last validation
    sums: dict[str, float] = field(default_factory=dict)  # of all ranks' figures since the last record
    micro_batch_size: int = 0  # per process, as found


@dataclass
class _Part:
    flat: Tensor | None = None  # this rank's gradients, to be averaged over all
    count: Tensor | int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)
    waited: float = 0.0  # seconds for data
    failed: BaseException | None = None  # memory ran out


def _lack(error: Exception) -> Exception:
    """Return an out-of-memory error without its traceback, which keeps tensors alive; raise others."""
    if not is_out_of_memory(error):
        raise error
    return error.with_traceback(None)


class Updater:
    """Updates `task.model`. Raises UserError, NotFiniteError, and LackOfMemoryError if `shrink` may help."""

    def __init__(self, task: Task, config: BaseConfig, accelerator: Accelerator, run: Run):
        self.task, self.config, self.training, self.accelerator = task, config, config.training, accelerator
        world = accelerator.num_processes
        check_divides(self.training.batch_size, world, self.training.micro_batch_size)
        self.local_batch_size = self.training.batch_size // world
        self.steps = self.training.num_steps(task.train.size)
        self.order = Order(task.train.size, self.training.batch_size, config.seed)
        self.progress = Progress()
        self.monitor = Monitor(accelerator, run, self.steps, config.hardware.gpu_log_interval)
        # Recomputed activations take their noise from torch's generator, which compiled graphs do not use.
        noise.by_item(task.model, config.hardware.compile and not config.hardware.gradient_checkpointing)
        self.model, self.optimizers = sharding.prepare(accelerator, task.model, self.training.optimizers)
        self.stepper = Stepper(accelerator, self.optimizers)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.average = None if self.training.ema is None else Average(self.parameters, self.training.ema)
        self.split = accelerator.distributed_type == DistributedType.FSDP  # no process holds the whole model
        self.figures: list[dict[str, Tensor | float]] = []  # of this rank's updates since they were last summed up
        self.own, self.stop = OwnTime(accelerator.device, world > 1), StopRequest()

    def choose_micro_batch_size(self) -> None:
        """Take the configured size, or halve the batch until a forward and backward pass fits on all ranks."""
        asked, found = self.training.micro_batch_size, self.progress.micro_batch_size
        if isinstance(asked, int):
            self.progress.micro_batch_size = asked
        elif not found or self.local_batch_size % found:
            self.progress.micro_batch_size = self.local_batch_size
            while self.accelerator.device.type == "cuda":
                try:
                    self._try_micro_batch()
                    break
                except LackOfMemoryError as error:
                    self.shrink(error)
        size, processes = self.progress.micro_batch_size, self.accelerator.num_processes
        each = f"{self.local_batch_size // size} accumulated x {size} at once"
        self.monitor.say(f"batch of {self.training.batch_size}: {processes} process{'es' * (processes > 1)} x {each}")

    def _try_micro_batch(self) -> None:
        failed = None
        try:
            self._pass(self.batches(), _Part(), last=False)
            self.stepper.rehearse()
        except (RuntimeError, MemoryError) as error:
            failed = _lack(error)
        if failed is not None:
            self._catch_up(1)
        noise.end()
        self._zero_grad()
        self._agree(failed)

    def batches(self) -> Iterator[tuple[Tensor, object]]:
        """Yield (items, batch) for every micro-batch of this process from the current step on."""
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        size, steps = self.progress.micro_batch_size, range(self.progress.step, self.steps)
        plan = (part for step in steps for part in torch.split(self.order.items(step, rank, world), size))
        return stream(self.task.train, plan, self.accelerator.device)

    def update(self, batches: Iterator[tuple[Tensor, object]], then: Callable[[], None] = lambda: None) -> int | None:
        """Make one optimizer update, call `then` before gradients are cleared; return the signal of any rank."""
        progress = self.progress
        set_rates(self.optimizers, self.training.rate(progress.step, self.steps))
        try:
            with self.own.measured():
                part = self._accumulate(batches)
            with ranks.waiting():
                stop = self._agree(part.failed)
                if part.flat is not None:  # only now, as DDP would in a pass, which may fail on some rank
                    distributed.all_reduce(part.flat.mul_(1 / self.accelerator.num_processes))
                    gradients = self._gradients()
                    torch._foreach_copy_(gradients, list(_unflatten_dense_tensors(part.flat, gradients)))
                sharding.average_whole(self.accelerator, self.model)
        finally:
            noise.end()
        with self._out_of_memory("clipping"):
            norm = self._normalise(part.count)
        if self.accelerator.device.type == "cpu":  # on a GPU the figures are read when they are summed up
            self._check_finite(progress.step + 1, float(norm), float(part.sums["loss"]))
        stepped = self._step(norm)
        progress.step += 1
        then()
        self._zero_grad()
        # The norm is the same on all ranks: its sum is divided by as many updates as there were on all of them.
        norm = norm if stepped else torch.zeros_like(norm)
        skipped = {} if self.accelerator.scaler is None else {"skipped": int(not stepped)}
        self.figures.append({"grad_norm": norm, "updates": int(stepped), **skipped, "count": part.count, **part.sums})
        self.monitor.count(progress.step, self.training.batch_size, part.waited)
        return stop

    def _accumulate(self, batches: Iterator[tuple[Tensor, object]]) -> _Part:
        part, passes = _Part(), self.local_batch_size // self.progress.micro_batch_size
        if self.stepper.short and self._smaller():
            sharding.passes.done = 0
            part.failed = LackOfMemoryError()
        while passes and part.failed is None:
            try:
                self._pass(batches, part, last=passes == 1)
                passes -= 1
            except (RuntimeError, MemoryError) as error:
                part.failed = _lack(error)
        if part.failed is not None:  # nothing of the pass is kept
            self._catch_up(passes)
        return part

    def _pass(self, batches: Iterator[tuple[Tensor, object]], part: _Part, last: bool) -> None:
        """Add a micro-batch's gradients, and its sums to `part`."""
        sharding.passes.done = 0
        began = time.perf_counter()
        items, batch = next(batches)
        part.waited += time.perf_counter() - began
        # Gradients are exchanged later, unless they are split: no rank has the memory for all of them.
        alone = not self.split and self.accelerator.num_processes > 1
        with self.accelerator.no_sync(self.model) if alone else contextlib.nullcontext():
            loss = self._loss(items, batch)
            self._backward(loss)
        if last and alone:
            part.flat = _flatten_dense_tensors(self._gradients())  # this may lack memory, too
        part.count = part.count + loss.count
        for name, value in (("loss", loss.value), *loss.metrics.items()):
            value = value.detach()
            part.sums[name] = part.sums[name] + value if name in part.sums else value

    def _catch_up(self, passes: int) -> None:
        """Make the `passes` that are left, the first in part, with one example, as other ranks wait in them."""
        if not isinstance(self.model, FSDPModule):
            return
        world = self.accelerator.num_processes
        items = self.order.items(self.progress.step, self.accelerator.process_index, world)[:1]
        sharding.passes.begin_again(self.model)
        with self._out_of_memory("pass with one example"):
            for _ in range(passes):
                batch = send_to_device(self.task.train.batch(items), self.accelerator.device)
                self._backward(self._loss(items, batch))

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self.parameters if p.grad is not None]

    def _normalise(self, count: Tensor | int) -> Tensor:
        """Correct gradients for the true denominator, `count` summed over ranks; clip; return the norm () before."""
        accelerator = self.accelerator
        if not (isinstance(count, int) and count == self.local_batch_size):
            total = accelerator.reduce(torch.as_tensor(count, dtype=torch.float32, device=accelerator.device))
            torch._foreach_mul_(self._gradients(), self.training.batch_size / total)
        if not self.split:  # of sharded gradients Accelerate does it below
            self.stepper.unscale()
        clip = accelerator.clip_grad_norm_ if self.split else torch.nn.utils.clip_grad_norm_
        norm = clip(self.parameters, self.training.clip_norm or math.inf)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def _step(self, norm: Tensor) -> bool:
        step = self.progress.step + 1
        try:
            if stepped := self.stepper.step(norm):
                if (average := self.average) is not None:
                    self.stepper.again(lambda: average.update(step), average.values, {})
            else:
                scale = f"the loss scale is {self.accelerator.scaler.get_scale():g}"
                self.monitor.say(f"step {step}: a gradient overflows in fp16; this update is skipped, and {scale}")
        except HalfMadeError as error:
            raise self._cannot_agree("optimizers' step") from error
        except NotFiniteError as error:
            raise NotFiniteError(f"step {step}: {error}") from error
        return stepped

    def _zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.optimizer.zero_grad()

    def _backward(self, loss: Loss) -> None:
        value = loss.value * (self.accelerator.num_processes / self.training.batch_size)  # DDP averages over ranks
        scaler = self.accelerator.scaler
        (value if scaler is None else scaler.scale(value)).backward()

    def _out_of_memory(self, where: str) -> contextlib.AbstractContextManager[None]:
        """Raise LackOfMemoryError if memory runs out; with other processes, which have gone on, UserError."""
        several = self.accelerator.num_processes > 1
        return lack_as(lambda: self._cannot_agree(where) if several else LackOfMemoryError())

    def _cannot_agree(self, where: str) -> UserError:
        lost = f"out of memory in the {where} of step {self.progress.step + 1}, which cannot be repeated"
        smaller = f"--resume training.micro_batch_size={self._smaller() or 1}"
        return UserError(f"{lost}; continue from the last checkpoint with {smaller}; else {LARGER}")

    def _loss(self, items: Tensor, batch: object) -> Loss:
        noise.begin(self.config.seed, self.progress.step, items, self.accelerator.device)
        if self.accelerator.device.type == "cuda":  # for noise of torch's own: a resumed run draws the same
            torch.cuda.manual_seed(derive_key(self.config.seed, "step", self.progress.step, int(items[0])))
        with self.accelerator.autocast():
            return self.task.loss(self.model, batch)

    def _agree(self, failed: BaseException | None) -> int | None:
        """Share signals and lack of memory over gloo; raise the latter on all ranks, return a signal of any."""
        flags = torch.tensor([int(failed is not None), self.stop.number or 0])
        if self.accelerator.num_processes > 1:
            distributed.all_reduce(flags, distributed.ReduceOp.MAX, ranks.group())
        out_of_memory, stop = flags.tolist()
        if out_of_memory:
            raise LackOfMemoryError from failed
        return stop or None

    def _smaller(self) -> int | None:
        return smaller(self.progress.micro_batch_size, self.local_batch_size)

    def shrink(self, error: BaseException) -> None:
        """Halve the micro-batch after memory ran out; the step is then tried again."""
        self._zero_grad()
        if (size := self._smaller()) is None:
            step = self.progress.step + 1
            raise UserError(f"out of memory at step {step} with one example at a time; {LARGER}") from error
        going_on = f"continuing with {size} (the batch stays {self.training.batch_size})"
        self.monitor.say(f"out of memory with {self.progress.micro_batch_size} examples at once; {going_on}")
        self.progress.micro_batch_size, self.stepper.short = size, False
        torch.cuda.empty_cache()  # which does nothing without a GPU

    def sum_up(self) -> dict[str, float]:
        """Sum all ranks' figures since the last record, reading the device; NotFiniteError for one that is not."""
        progress, figures = self.progress, self.figures
        if figures:
            names, device = list(figures[0]), self.accelerator.device

            def column(name: str) -> Tensor:
                if tensors := [value for entry in figures if isinstance(value := entry[name], Tensor)]:
                    return torch.stack(tensors)
                return torch.tensor([x[name] for x in figures]).to(device, non_blocking=True)

            rows = self.accelerator.reduce(torch.stack([column(name).double() for name in names])).tolist()
            table = dict(zip(names, rows, strict=True))
            first, world = progress.step - len(figures) + 1, self.accelerator.num_processes
            for step, norm, loss in zip(itertools.count(first), table["grad_norm"], table["loss"]):
                self._check_finite(step, norm / world, loss)
            for name, row in table.items():  # one after the other: the sum does not depend on how often this is done
                for value in row:
                    progress.sums[name] = progress.sums.get(name, 0.0) + value
            self.figures = []
        return progress.sums

    def _check_finite(self, step: int, norm: float, loss: float) -> None:
        # With fp16 an infinite gradient is the scaler's to handle; the loss itself must be finite all the same.
        if not math.isfinite(norm if self.accelerator.scaler is None else loss):
            raise NotFiniteError(f"loss or gradient is not finite at step {step} (loss {loss:g}, norm {norm:g})")
