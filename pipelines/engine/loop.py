"""The training loop. It knows steps, losses and checkpoints; it knows no workload."""

import contextlib
import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor

from common.config.mistakes import nearest
from common.disk.files import digests, explained, read_json
from common.errors import Stopped, UserError
from models import io
from pipelines.distributed import ranks, sharding
from pipelines.distributed.watch import Watch
from pipelines.engine import checkpoints, hooks
from pipelines.engine.batches import mapper
from pipelines.engine.checkpoints import BACKLOG, Background
from pipelines.engine.config import BaseConfig
from pipelines.engine.hooks import Hook, Moment
from pipelines.engine.split_checkpoints import Trained
from pipelines.engine.stepping import LackOfMemoryError, NotFiniteError
from pipelines.engine.update import Progress, Updater
from pipelines.engine.workload import Metric, Task
from pipelines.run.folder import Run


class Loop:
    """Trains `task.model`; writes metrics, checkpoints, model/best and model/last. Errors leave the last checkpoint."""

    def __init__(self, task: Task, config: BaseConfig, accelerator: Accelerator, run: Run, metric: Metric):
        self.task, self.config, self.training = task, config, config.training
        self.accelerator, self.run, self.metric = accelerator, run, metric.chosen(config.training.metric)
        self.hooks = [hooks.load(word) for word in config.training.hooks]
        self.updater = Updater(task, config, accelerator, run)
        self.writer = Background()  # of models and checkpoints, on the main process or of shares
        self.model, self.monitor, self.steps = self.updater.model, self.updater.monitor, self.updater.steps
        self.roomy = True  # memory has held copies of all that was saved
        self.backlog = 0 if self.updater.split else BACKLOG - 1  # pieces of work that a further copy may join
        self.doing, self.saved = "training", -1  # the latter the step of the last checkpoint
        self.watch = Watch(
            self.updater.stop, lambda: f"{self.doing} after step {self.progress.step}", config.hardware.patience
        )
        self.refitted: tuple[int, Mapping[str, float]] = (-1, {})  # the step of the last refit, and what it returned

    @property
    def progress(self) -> Progress:
        """The progress of training."""
        return self.updater.progress

    def fit(self, resume: bool = False) -> Progress:
        """Train to the last step, with `resume` from the newest sound checkpoint."""
        mended = resume and self._restore()
        updater, progress = self.updater, self.progress
        if self._is_over() and not self._validation_is_due():
            if not mended:
                self.monitor.say(self._why_over())
            return progress
        updater.choose_micro_batch_size()
        self.model.train()
        try:
            with updater.stop.listening(), self.watch.watching(), self.writer:
                self.monitor.start(progress.step)
                self._train()
        finally:
            self._call(lambda hook, now: hook.on_end(now))
        self.monitor.close()
        if self._patience_is_over():
            self.monitor.say(self._why_over())
        self.accelerator.wait_for_everyone()
        return progress

    def _train(self) -> None:
        try:
            self._validate_if_due()  # if the last process ended in a validation
            batches = self.updater.batches()
            while not self._is_over():
                try:
                    stop = self.updater.update(batches, lambda: self._call(lambda hook, now: hook.on_update(now)))
                except LackOfMemoryError as error:
                    self.updater.shrink(error)
                    batches = self.updater.batches()
                    continue
                self._after_update(stop)
        except NotFiniteError as error:
            self._settle()
            sound = checkpoints.found(self.run.checkpoints)
            kept = f"the last good checkpoint is {sound[0]}" if sound else "there is no checkpoint yet"
            advice = "Try a lower training.learning_rate or more training.warmup_steps under another --name"
            raise UserError(f"{error}; no update from there on is kept, and {kept}. {advice}") from error
        except Stopped:
            self._settle()
            self.monitor.close()
            raise
        self._settle()

    @contextlib.contextmanager
    def _doing(self, what: str) -> Iterator[None]:
        before, self.doing = self.doing, what
        try:
            yield
        finally:
            self.doing = before

    def _call(self, call: Callable[[Hook, Moment], None]) -> None:
        if self.hooks:
            now = self._moment()
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                for hook in self.hooks:
                    call(hook, now)

    def _moment(self) -> Moment:
        return Moment(self.run, self.config, self.progress.step, self.steps, self.task.model, self.accelerator)

    def _settle(self, most: int = 0) -> None:
        with self._doing("writing"):
            (ranks.agree if self.updater.split else ranks.on_main)(lambda: self.writer.wait(most))

    def _is_over(self) -> bool:
        return self.progress.step >= self.steps or self._patience_is_over()

    def _why_over(self) -> str:
        if self._patience_is_over():
            return f"stopped early: {self.progress.stale} validations without a better {self.metric.name}"
        asked = self.config.training
        key = "epochs" if asked.steps is None else "steps" if self.steps == asked.steps else "most_epochs"
        return f"nothing to do: {self.progress.step} of {self.steps} steps are done; raise training.{key}"

    def _restore(self) -> bool:
        path = ranks.on_main(lambda: checkpoints.newest_sound(self.run.checkpoints, self.monitor.say))
        if path is None:
            self.monitor.say(f"no checkpoint in {self.run.checkpoints} yet: starting from step 0")
        else:
            state, self.updater.progress = checkpoints.load(path, self._trained())
            self.task.load_state_dict(state)
            self.monitor.say(f"resumed from {path}")
            self.saved = self.progress.step
        progress = self.progress
        ranks.on_main(lambda: self.run.rewind(progress.step, progress.validated))
        ranks.on_main(lambda: checkpoints.prune(self.run.checkpoints, self.training.keep_checkpoints, progress.step))
        return path is not None and self._mend_models(path)

    def _mend_models(self, path: Path) -> bool:
        best, last, before = self.run.best, self.run.last, ranks.on_main(lambda: digests(self.run.last))
        with self._averaged():
            self._keep_model(last)
        self._settle()

        def restored() -> list[str]:
            lines = [f"{last} was not the model of {path}: rewritten"] * (digests(last) != before)
            if self.progress.best is None:
                return lines
            name = f"the best model so far, of step {self.progress.best_step},"
            if checkpoints.restore_best(path, best):
                lines.append(f"{best} was not {name} and is restored from {path}")
            elif not best.is_dir():
                lines.append(f"{name} is lost, in {best} and in {path}; the next better one replaces it")
            return lines

        lines = ranks.on_main(restored)
        for line in lines:
            self.monitor.say(line)
        return bool(lines)

    def check_same_model(self) -> None:
        """Raise UserError if the run was trained with a model of another config."""
        known = read_json(self.run.last / io.CONFIG, dict).get("config")
        if not isinstance(known, dict):
            return  # missing or damaged: it will be rewritten
        config = self.task.model.config
        now = json.loads(json.dumps(asdict(config)))
        stored = {field.name: field.default for field in fields(config)} | known  # of keys newer than the run
        if stored != now:
            changed = ", ".join(key for key in now | stored if stored.get(key) != now.get(key))
            what = f"{self.run.folder} was trained with another {changed} than the data and code here give"
            raise UserError(f"{what}; restore the old ones, or start another run with --name")

    def _after_update(self, stop: int | None) -> None:
        progress, training = self.progress, self.training
        step, finished = progress.step, progress.step == self.steps
        if step % training.log_steps == 0 or finished:
            self._log()
        try:
            if self._validation_is_due() and not stop:
                self._refit()
        except Stopped as stopped:
            stop = stopped.number
        finally:
            # Before the validation: one that fails, or takes longer than a stopped process has left, costs no training.
            first = self._validation_is_due() and not progress.validated  # in which a mistyped metric is found
            if step % training.checkpoint_steps == 0 or finished or stop or first:
                self.save()
        if stop:
            raise Stopped(stop, f" after step {step}")
        self._validate_if_due()

    def _validation_is_due(self) -> bool:
        step = self.progress.step
        return self.progress.validated < step and (step % self.training.validation_steps == 0 or step == self.steps)

    def _validate_if_due(self) -> None:
        if not self._validation_is_due():
            return
        try:
            with self._doing("validating"):
                self._validate()
        except Stopped as stopped:
            if self.saved != self.progress.step:
                self.save()
            raise Stopped(stopped.number, f" after step {self.progress.step}") from None
        if self._is_over():
            self.save()

    def _log(self) -> None:
        total = dict(self.updater.sum_up())
        count, updates = total.pop("count"), total.pop("updates")
        norm = total.pop("grad_norm") / updates if updates else math.nan
        skipped = total.pop("skipped", 0) / self.accelerator.num_processes
        values = {f"train/{name}": value / count for name, value in total.items()}
        values |= {"train/skipped": skipped} if self.accelerator.scaler is not None else {}
        rate = self.updater.optimizers[0].param_groups[0]["lr"]
        seconds = ranks.gather(self.updater.own.mean()) if ranks.world() > 1 else []
        self.monitor.log(self.progress.step, {**values, "train/grad_norm": norm, "learning_rate": rate}, seconds)
        self.progress.sums = {}
        if seconds and (line := self.watch.straggler(seconds)):
            self.monitor.say(line)

    def _refit(self) -> None:
        progress = self.progress
        if self.refitted[0] == progress.step:
            return  # once per step
        self.updater.sum_up()  # raises for losses that are not finite
        self.model.eval()
        with self._doing("fitting"), self._averaged(), sharding.gathered(self.model):
            self.refitted = progress.step, self.task.refit(mapper(self.accelerator, progress.micro_batch_size))
        self.model.train()

    def _validate(self) -> None:
        progress = self.progress
        self._refit()
        map_items = mapper(self.accelerator, progress.micro_batch_size)
        self.model.eval()
        with self._averaged():
            with sharding.gathered(self.model):
                scores = map_items(self.task.validation, lambda batch: self.task.score(self.model, batch))
                extra = {**self.refitted[1], **self.task.after_validation(map_items)}
            count = scores.pop("count", None)
            total = len(next(iter(scores.values()))) if count is None else float(count.double().sum())
            values = {f"val/{name}": float(score.double().sum()) / total for name, score in scores.items()}
            values |= extra
            if (name := self.metric.name) not in values:
                hint = f"did you mean {near[0]}? It" if (near := nearest(name, values)) else "it"
                mend = f"{', '.join(values)}; continue with --resume training.metric=..."
                raise UserError(f"training.metric: validation gives no {name}; {hint} gives {mend}")
            value = values[name]
            finite = math.isfinite(value)
            better = finite and self.metric.better(value, progress.best)
            progress.validated = progress.step
            if better:
                progress.best, progress.best_step, progress.stale = value, progress.step, 0
                self._settle(self.backlog)
                self._keep_model(self.run.best)
            else:
                progress.stale += 1
        self.model.train()
        note = "  (best so far)" if better else "" if finite else f"  ({name} is not a number: not the best)"
        self.monitor.validated(progress.step, values, note)
        self._call(lambda hook, now: hook.on_validation(now, {**values}))

    def _averaged(self) -> contextlib.AbstractContextManager[None]:
        average = self.updater.average
        return contextlib.nullcontext() if average is None else average.in_place()

    def _patience_is_over(self) -> bool:
        return self.progress.stale >= (self.training.patience or math.inf)

    def save(self) -> None:
        """Copy the state for a checkpoint and model/last, written while training continues."""
        self.updater.sum_up()
        self._settle(self.backlog)
        if self.accelerator.is_main_process:
            self.writer.start(self.run.sync_metrics)  # the checkpoint relies on it
        state, progress = self.task.state_dict(), self.progress
        folder, kept, best = self.run.checkpoints, self.training.keep_checkpoints, self.run.best
        snapshot = checkpoints.take(self._trained(), state, progress)
        self._write(lambda: snapshot.write(folder, kept, best), snapshot.copied)
        self.roomy = self.roomy and snapshot.copied  # else training beside a copy of the weights may lack the memory
        if not self.updater.split:
            self._write(lambda: self._write_model(self.run.last, snapshot.averaged or snapshot.weights))
        else:
            with self._averaged():
                self._keep_model(self.run.last)
        self.saved = self.progress.step
        now, path = self._moment(), checkpoints.folder_of(folder, progress.step)
        for hook in self.hooks if self.accelerator.is_main_process else ():
            self.writer.start(functools.partial(hook.on_save, now, path))

    def _write(self, work: Callable[[], None], copied: bool = True) -> None:
        """Do `work` in the background, on the ranks that take part; at once if it does not use a copy."""
        if not copied:
            self._settle()
            work()
        elif self.updater.split or self.accelerator.is_main_process:
            self.writer.start(work)

    def _write_model(self, folder: Path, weights: Mapping[str, Tensor]) -> None:
        def write() -> None:
            with explained(folder):
                io.save(self.task.model, folder, state=weights, write=ranks.is_main())

        ranks.agree(write) if self.updater.split else write()

    def _trained(self) -> Trained:
        return Trained(self.accelerator, self.model, self.updater.stepper.optimizers, self.updater.average)

    def _keep_model(self, folder: Path) -> None:
        """Save the weights, copied if possible, in the background; sharded ones are gathered one by one."""
        weights, copied = checkpoints.weights_of(self.accelerator, self.model, self.roomy)
        self._write(lambda: self._write_model(folder, weights), copied)
