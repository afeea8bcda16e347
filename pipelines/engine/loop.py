"""The one training loop. It knows steps, losses and checkpoints; it knows no workload."""

import contextlib
import json
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DistributedType
from torch import Tensor, nn

from common.errors import UserError
from common.files import explained
from common.random import derive_key
from models import io
from pipelines.engine import checkpoints
from pipelines.engine.batch_size import is_out_of_memory, smaller
from pipelines.engine.batches import Order, check_divides, stream
from pipelines.engine.config import BaseConfig, Training
from pipelines.engine.monitor import Monitor
from pipelines.engine.runs import Run
from pipelines.engine.workload import Loss, MapItems, Scores, Source, Task

PLAIN = (DistributedType.NO, DistributedType.MULTI_GPU, DistributedType.MULTI_CPU)


@dataclass
class Progress:
    """Where training stands; with model, optimizer and task this is everything that resuming needs."""

    step: int = 0  # updates made
    best: float | None = None  # the selected metric's best validation mean
    best_step: int = 0
    stale: int = 0  # validations since then
    sums: dict[str, float] = field(default_factory=dict)  # of all ranks' figures since the last record
    micro_batch_size: int = 0  # per process, as found


class Stopped(Exception):
    """A signal asked training to stop; everything is saved."""

    def __init__(self, number: int, where: str):
        super().__init__(f"stopped by {signal.Signals(number).name}{where}; go on with --resume")
        self.number = number


def total_steps(training: Training, size: int | None) -> int:
    """Number of updates: given, or from epochs over `size` examples."""
    if training.steps is not None:
        return training.steps
    if size is None:
        raise UserError("training.epochs: this workload's data are endless; give training.steps instead")
    return math.ceil(training.epochs * size / training.batch_size)


def learning_rate(training: Training, step: int, steps: int) -> float:
    """The rate of update `step`, counted from 0, of `steps`."""
    if step < training.warmup_steps:
        return training.learning_rate * (step + 1) / training.warmup_steps
    if training.schedule == "constant":
        return training.learning_rate
    done = (step - training.warmup_steps) / max(1, steps - training.warmup_steps)
    floor = training.final_learning_rate
    return training.learning_rate * (floor + (1 - floor) * (1 + math.cos(math.pi * done)) / 2)


def make_optimizer(model: nn.Module, training: Training) -> torch.optim.AdamW:
    """AdamW over what is to be trained; weight decay on matrices, not on biases, gains and scalars."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": training.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=training.learning_rate, betas=training.betas, fused=True)


def evaluator(accelerator: Accelerator, default_batch_size: int = 64) -> MapItems:
    """The function that scores every item of a source over the accelerator's processes."""

    @torch.no_grad()
    def evaluate(source: Source, score: Callable[[Any], Mapping[str, Tensor]], batch_size: int | None = None) -> Scores:
        world = accelerator.num_processes
        local = min(batch_size or default_batch_size, math.ceil(source.size / world))
        starts = range(0, source.size, local * world)
        # Every rank gets equally many items, so the last round is filled up with item 0 and cut after gathering.
        mine = torch.arange(local) + local * accelerator.process_index
        plan = ((start + mine).masked_fill(start + mine >= source.size, 0) for start in starts)
        chunks: dict[str, list[Tensor]] = {}
        for _, batch in stream(source, plan, accelerator.device):
            with accelerator.autocast():
                scores = score(batch)
            for name, values in scores.items():
                chunks.setdefault(name, []).append(accelerator.gather(values.to(accelerator.device)).cpu())
        return {name: torch.cat(values)[: source.size] for name, values in chunks.items()}

    return evaluate


class Loop:
    """Trains `task.model`; writes metrics, checkpoints, model/best by the metric `select`, and model/last.

    Raises UserError for what the user can mend: at once for settings that do not fit, later for a loss that is not
    finite, no memory, no disk. Raises Stopped after SIGTERM or Ctrl-C. The last good checkpoint stays in the folder.
    """

    def __init__(
        self,
        task: Task,
        config: BaseConfig,
        accelerator: Accelerator,
        run: Run,
        select: str,
        maximise: bool = False,
    ):
        self.task, self.config, self.training = task, config, config.training
        self.accelerator, self.run, self.select, self.maximise = accelerator, run, select, maximise
        world = accelerator.num_processes
        check_divides(self.training.batch_size, world, self.training.micro_batch_size)
        self.local_batch_size = self.training.batch_size // world
        self.steps = total_steps(self.training, task.train.size)
        self.order = Order(task.train.size, self.training.batch_size, config.seed)
        self.progress = Progress()
        self.monitor = Monitor(accelerator, run, self.steps, config.hardware.gpu_log_interval)
        self.model, self.optimizer = accelerator.prepare(task.model, make_optimizer(task.model, self.training))
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.figures: list[dict[str, Tensor | float]] = []  # of this rank's updates since they were last summed up
        self.signal: int | None = None

    def fit(self, resume: bool = False) -> Progress:
        """Train to the last step, from the newest sound checkpoint if it is to `resume`."""
        if resume:
            self._restore()
        progress = self.progress
        if progress.step >= self.steps:
            self.monitor.say(f"nothing to do: {progress.step} of {self.steps} steps are done; raise training.steps")
            return progress
        self.choose_micro_batch_size()
        self.model.train()
        with self._signals():
            self.monitor.start(progress.step)
            batches = self.batches()
            while progress.step < self.steps and not self._patience_is_over():
                try:
                    stop = self.update(batches)
                except _OutOfMemory as error:
                    self._shrink(error)
                    batches = self.batches()
                    continue
                self._after_update(stop)
        self.monitor.close()
        if self._patience_is_over():
            self.monitor.say(f"stopped early: {progress.stale} validations without a better {self.select}")
        self.accelerator.wait_for_everyone()
        return progress

    def _restore(self) -> None:
        self._check_same_model()
        path = checkpoints.newest_sound(self.run.checkpoints, self.monitor.say)
        if path is None:
            self.monitor.say(f"no checkpoint in {self.run.checkpoints} yet: starting from step 0")
        else:
            state, progress = checkpoints.load(path, self.accelerator, self.model, self.optimizer.optimizer)
            self.task.load_state_dict(state)
            self.progress = Progress(**progress)
            self.monitor.say(f"resumed from {path}")
        # All ranks have read the folder before one of them changes it.
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            self.run.rewind(self.progress.step)

    def _check_same_model(self) -> None:
        """Refuse a model whose config, its vocabulary say, has become another one with the data it is made from."""
        path = self.run.last / io.CONFIG
        if not path.is_file():
            return
        stored, now = (json.loads(text) for text in (path.read_text(), json.dumps(asdict(self.task.model.config))))
        if stored["config"] != now:
            changed = [key for key in now if stored["config"].get(key) != now[key]]
            raise UserError(
                f"{self.run.folder} was trained with another {', '.join(changed)} than the data and code here give; "
                "bring the old ones back, or start another run with --name"
            )

    def choose_micro_batch_size(self) -> None:
        """Take the given size, or try a forward and backward pass and halve until it fits on all ranks."""
        asked, found = self.training.micro_batch_size, self.progress.micro_batch_size
        if asked != "auto":
            self.progress.micro_batch_size = asked
        elif not found or self.local_batch_size % found:
            self.progress.micro_batch_size = self.local_batch_size
            while self.accelerator.device.type == "cuda":
                try:
                    self._try_micro_batch()
                    break
                except _OutOfMemory as error:
                    self._shrink(error)
        size = self.progress.micro_batch_size
        self.monitor.say(
            f"batch {self.training.batch_size} = {self.accelerator.num_processes} process(es) x "
            f"{self.local_batch_size // size} accumulated x {size} at once"
        )

    def _try_micro_batch(self) -> None:
        failed = None
        try:
            items, batch = next(self.batches())
            with self._alone():
                self._backward(self._loss(items, batch))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            failed = error
        self.optimizer.zero_grad()
        self._agree(failed)

    def batches(self) -> Iterator[tuple[Tensor, Any]]:
        """(items, batch) of every micro-batch of this process from the present step on."""
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        size = self.progress.micro_batch_size

        def plan() -> Iterator[Tensor]:
            for step in range(self.progress.step, self.steps):
                yield from self.order.items(step, rank, world).split(size)

        return stream(self.task.train, plan(), self.accelerator.device)

    def update(self, batches: Iterator[tuple[Tensor, Any]]) -> int | None:
        """One optimizer update; returns the number of a signal that came on any rank.

        Losses are sums. They are divided by the global batch size on the way back, and where the true denominator
        differs (tokens) the gradient is corrected once before clipping.
        """
        accelerator, progress, batch_size = self.accelerator, self.progress, self.training.batch_size
        rate = learning_rate(self.training, progress.step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        sums: dict[str, Tensor] = {}
        counts: Tensor | int = 0
        waited = 0.0
        loss, failed = None, None
        for remaining in reversed(range(self.local_batch_size // progress.micro_batch_size)):
            try:
                began = time.perf_counter()
                items, batch = next(batches)
                waited += time.perf_counter() - began
                with self._alone():
                    loss = self._loss(items, batch)
                    if remaining:
                        self._backward(loss)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                failed = error
                break
            counts = counts + loss.count
            for name, value in (("loss", loss.value), *loss.metrics.items()):
                value = value.detach()
                sums[name] = sums[name] + value if name in sums else value
        stop = self._agree(failed)
        self._synchronising_backward(loss)
        if not (isinstance(counts, int) and counts == self.local_batch_size):
            total = accelerator.reduce(torch.as_tensor(counts, dtype=torch.float32, device=accelerator.device))
            torch._foreach_mul_([p.grad for p in self.parameters if p.grad is not None], batch_size / total)
        limit = math.inf if self.training.clip_norm is None else self.training.clip_norm
        # Where there is neither a scaler nor a sharded gradient, Accelerate's wrappers add nothing but half a
        # millisecond a step: they look for optional packages on disk.
        plain = accelerator.scaler is None and accelerator.distributed_type in PLAIN
        clip = torch.nn.utils.clip_grad_norm_ if plain else accelerator.clip_grad_norm_
        norm = float(clip(self.parameters, limit))
        self._check_finite(norm, sums["loss"])
        (self.optimizer.optimizer if plain else self.optimizer).step()
        self.optimizer.optimizer.zero_grad()
        progress.step += 1
        # The norm is the same on all ranks: its sum is divided by as many updates as there were on all of them.
        self.figures.append({"grad_norm": norm, "updates": 1, "count": counts, **sums})
        self.monitor.count(progress.step, batch_size, waited)
        return stop

    def _alone(self) -> contextlib.AbstractContextManager:
        """Within it no gradient is exchanged."""
        return self.accelerator.no_sync(self.model) if self.accelerator.num_processes > 1 else contextlib.nullcontext()

    def _backward(self, loss: Loss) -> None:
        # DistributedDataParallel averages over ranks, hence their number.
        self.accelerator.backward(loss.value * (self.accelerator.num_processes / self.training.batch_size))

    def _synchronising_backward(self, loss: Loss) -> None:
        """The last backward pass of an update.

        Only now is the model told that it synchronises: a forward pass that announces it and then runs out of memory
        would leave DistributedDataParallel waiting for gradients in the next one.
        """
        try:
            if self.accelerator.num_processes == 1:
                return self._backward(loss)
            with self.accelerator.trigger_sync_in_backward(self.model):
                return self._backward(loss)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if self.accelerator.num_processes > 1:
                size = smaller(self.progress.micro_batch_size, self.local_batch_size) or 1
                raise UserError(
                    f"out of memory in the backward pass of step {self.progress.step + 1}, where processes cannot "
                    f"agree to retry; start another run with training.micro_batch_size={size}"
                ) from error
            raise _OutOfMemory from error

    def _loss(self, items: Tensor, batch: Any) -> Loss:
        # Dropout and the like are a function of the step and the micro-batch's first item, so a resumed run draws the
        # same numbers. Not by torch.manual_seed: it walks every kind of device there is, a millisecond each time.
        seed = derive_key(self.config.seed, "step", self.progress.step, int(items[0]))
        torch.default_generator.manual_seed(seed)
        if self.accelerator.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        if self.accelerator.mixed_precision == "no":
            return self.task.loss(self.model, batch)
        with self.accelerator.autocast():
            return self.task.loss(self.model, batch)

    def _agree(self, failed: BaseException | None) -> int | None:
        """Raise _OutOfMemory on all ranks if memory ran out on one; else the signal that reached any of them.

        It is the last moment to say so: after it, ranks wait for each other's gradients.
        """
        if self.accelerator.num_processes == 1:
            if failed is not None:
                raise _OutOfMemory from failed
            return self.signal
        flags = torch.tensor([float(failed is not None), float(self.signal or 0)], device=self.accelerator.device)
        out_of_memory, stop = self.accelerator.gather(flags[None]).max(0).values.tolist()
        if out_of_memory:
            raise _OutOfMemory from failed
        return int(stop) or None

    def _shrink(self, error: BaseException) -> None:
        """Halve the micro-batch after memory ran out; the step is then tried again."""
        size = smaller(self.progress.micro_batch_size, self.local_batch_size)
        self.optimizer.zero_grad()
        if size is None:
            raise UserError(
                f"out of memory at step {self.progress.step + 1} with one example at a time; choose a smaller model, "
                "hardware.gradient_checkpointing=true, or a larger hardware.memory_fraction"
            ) from error
        self.monitor.say(
            f"out of memory with {self.progress.micro_batch_size} examples at once; going on with {size} "
            f"(the batch stays {self.training.batch_size})"
        )
        self.progress.micro_batch_size = size
        if self.accelerator.device.type == "cuda":
            torch.cuda.empty_cache()

    def _check_finite(self, norm: float, loss: Tensor) -> None:
        # With fp16 an infinite gradient is the scaler's to handle; the loss itself must be finite all the same.
        if math.isfinite(norm if self.accelerator.scaler is None else float(loss)):
            return
        sound = checkpoints.found(self.run.checkpoints)
        kept = f"the last good checkpoint is {sound[0]}" if sound else "there is no checkpoint yet"
        raise UserError(
            f"loss or gradient is not finite at step {self.progress.step + 1} (loss {float(loss):g}, gradient norm "
            f"{norm:g}); no update was made and {kept}. Try a lower training.learning_rate or more "
            "training.warmup_steps under another --name"
        )

    def _total(self) -> dict[str, float]:
        """The interval's sums over all ranks so far; reading the device and the other ranks is put off until here."""
        if self.figures:
            names = list(self.figures[0])
            device = self.accelerator.device
            columns = [[torch.as_tensor(entry[name], device=device) for entry in self.figures] for name in names]
            total = self.accelerator.reduce(torch.stack([torch.stack(column).double().sum() for column in columns]))
            for name, value in zip(names, total.tolist(), strict=True):
                self.progress.sums[name] = self.progress.sums.get(name, 0.0) + value
            self.figures = []
        return self.progress.sums

    def _after_update(self, stop: int | None) -> None:
        progress, training = self.progress, self.training
        step, finished = progress.step, progress.step == self.steps
        if step % training.log_steps == 0 or finished:
            self._log()
        if step % training.validation_steps == 0 or finished:
            self._validate()
        if step % training.checkpoint_steps == 0 or finished or stop or self._patience_is_over():
            self._save()
        if stop:
            self.monitor.close()
            raise Stopped(stop, f" after step {step}")

    def _log(self) -> None:
        total = dict(self._total())
        count, updates = total.pop("count"), total.pop("updates")
        norm = total.pop("grad_norm") / updates
        values = {f"train/{name}": value / count for name, value in total.items()}
        rate = self.optimizer.param_groups[0]["lr"]
        self.monitor.log(self.progress.step, {**values, "train/grad_norm": norm, "learning_rate": rate})
        self.progress.sums = {}

    def _validate(self) -> None:
        progress = self.progress
        evaluate = evaluator(self.accelerator, progress.micro_batch_size)
        self.model.eval()
        scores = evaluate(self.task.validation, lambda batch: self.task.score(self.model, batch))
        count = scores.pop("count", None)
        total = self.task.validation.size if count is None else float(count.double().sum())
        values = {f"val/{name}": float(score.double().sum()) / total for name, score in scores.items()}
        extra = self.task.after_validation(evaluate)
        self.model.train()
        value = values[self.select]
        better = progress.best is None or (value > progress.best if self.maximise else value < progress.best)
        if better:
            progress.best, progress.best_step, progress.stale = value, progress.step, 0
            self._keep_model(self.run.best)
        else:
            progress.stale += 1
        self.monitor.validated(progress.step, {**values, **extra}, "  (best so far)" if better else "")

    def _patience_is_over(self) -> bool:
        return self.training.patience is not None and self.progress.stale >= self.training.patience

    def _save(self) -> None:
        self._total()
        checkpoints.save(
            self.run.checkpoints,
            self.accelerator,
            self.model,
            self.optimizer.optimizer,
            self.task.state_dict(),
            asdict(self.progress),
            self.training.keep_checkpoints,
        )
        self._keep_model(self.run.last)

    def _keep_model(self, folder: Path) -> None:
        # Sharded weights have to be put together, by all ranks; otherwise the model itself has them.
        sharded = self.accelerator.distributed_type == DistributedType.FSDP
        state = self.accelerator.get_state_dict(self.model) if sharded else None
        if self.accelerator.is_main_process:
            with explained(folder):
                io.save(self.task.model, folder, state=state)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Let SIGTERM and Ctrl-C finish the update at hand; a second Ctrl-C stops at once."""

        def remember(number: int, frame: Any) -> None:
            if self.signal is not None and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.signal = number

        before = {number: signal.signal(number, remember) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _OutOfMemory(Exception):
    """Memory ran out on one rank; all of them know."""
