"""Retraining while a model answers: train.py and evaluate.py in child processes, then a comparison.

A killed training continues with --resume at the next start; one that outlived its parent is waited for. A new
model takes over if it answers and its log loss on the newest moments, which neither model learnt from, is not worse.
"""

import math
import os
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import numpy as np

from common import config as configs
from common.disk.files import remove_folder, write_text
from common.disk.lock import is_held
from common.errors import UserError
from pipelines.answers.trained import Trained
from pipelines.following.loop import Follower, say
from pipelines.run.folder import Run

SCRIPTS = Path(__file__).resolve().parents[1]
MOST_FAILURES = 3  # killed trainings, or failed comparisons, after which a new model is given up
NEWEST = 300  # moments of each series that old and new model are compared on
AT_ONCE = 16  # answers of each model in a step
BLOCK = 10  # neighbouring moments that count as one, as their outcomes overlap
WORSE = 1.645  # standard errors: an equally good model is rejected once in 20
ROUNDING = 1e-4  # of the log loss: less than this is no difference between models
KEPT = 3  # models: the one that answers, and those to fall back to
PATIENCE = 60.0  # seconds in which a training saves and ends


class Refits:
    """Trainings of one run, each into a run of its own, one at a time."""

    def __init__(self, follower: Follower, workload: str, run: Run, folder: Path, hours: float):
        self.follower, self.workload, self.run, self.folder, self.hours = follower, workload, run, folder, hours
        self.child: subprocess.Popen[bytes] | None = None
        self.evaluated, self.kills, self.vain = False, 0, 0  # of the training under way; failed comparisons
        self.judging: Generator[None, None, tuple[Trained | None, str]] | None = None

    def step(self) -> None:
        """Start a training that is due, or advance the one under way; takes no longer than a few answers."""
        state, now = self.follower.state, self.follower.clock()
        if not state.refit:
            if not 0 <= now - state.tried < self.hours * 3_600_000:
                # At the first start the run's own model counts as fresh.
                name = f"{self.run.name}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime(now / 1000))}"
                self.follower.save(refit=name if state.tried else None, tried=now)
        elif self.judging:
            self._judge(state.refit)
        elif self.child is None:
            if not self.vain:
                self._start(state.refit)
            elif {*self.follower.feed.series} - {*self.follower.failing}:  # a look has read something since
                self.judging = self._compared(state.refit)
        elif (status := self.child.poll()) is not None:
            self.child = None
            if status == 2 and is_held(self._of(state.refit).lock_file):
                return  # wait for a training whose parent was killed
            if status in (0, 1) and not self.evaluated:  # 1: a series could not be trained, perhaps as before
                self.evaluated = True
                self._run("evaluate.py", state.refit)
            elif status == 0:
                self.judging = self._compared(state.refit)
            elif not 0 < status < 128 and self.kills < MOST_FAILURES:
                self.kills += 1
            else:
                self._reject(f"its training ended with status {status}; see {self.folder / 'refit.log'}")

    def end(self) -> None:
        """Stop the training under way, which saves first."""
        if self.child:
            self.child.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.child.wait(PATIENCE)
            self.child.kill()

    def _start(self, name: str) -> None:
        run, file = self._of(name), self.folder / "refit.yaml"
        if not is_held(run.lock_file):  # by a training whose parent was killed
            say(f"training {name}")
            self.follower.feed.save()
            write_text(file, configs.dump(self.follower.feed.config))
            self.evaluated = False
            self._run("train.py", name, "--config", str(file), *["--resume"] * run.started())

    def _run(self, script: str, name: str, *words: str) -> None:
        command = [sys.executable, str(SCRIPTS / script), "--workload", self.workload, "--name", name, *words]
        with (self.folder / "refit.log").open("ab") as log:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        os.setpriority(os.PRIO_PROCESS, self.child.pid, 10)  # answers go first

    def _judge(self, name: str) -> None:
        assert self.judging is not None
        try:
            next(self.judging)
        except StopIteration as passed:
            model, why = passed.value
            if model:
                self.follower.model, models = model, (name, *self.follower.state.models)
                self._done(models[:KEPT], {}, models[KEPT:])
                say(f"{name} answers from now on: {why}")
            elif self.vain < MOST_FAILURES:  # until a look reads something
                self.judging, self.vain = None, self.vain + 1
                self.follower.failing = dict.fromkeys(self.follower.feed.series, (1, 0.0)) | self.follower.failing
            else:
                self._reject(f"no series could be read for a comparison, repeatedly: {why}")
        except (UserError, OSError) as error:
            self._reject(str(error))

    def _reject(self, reason: str) -> None:
        state = self.follower.state
        self._done(state.models, state.drift, [state.refit] if state.refit else [])
        say(f"the new model is rejected, {state.models[0]} continues: {reason}")

    def _done(self, models: Sequence[str], drift: object, former: Sequence[str]) -> None:
        """Finish a training; remove the runs in `former`, except the user's own."""
        self.judging, self.kills, self.vain = None, 0, 0
        self.follower.save(models=tuple(models), drift=drift, refit=None)
        for run in (self._of(name) for name in former if name != self.run.name):
            if run.folder.exists():
                remove_folder(run.folder)

    def _of(self, name: str) -> Run:
        return Run(self.run.workload, name, self.run.package)

    def _compared(self, name: str) -> Generator[None, None, tuple[Trained | None, str]]:
        """Return the new model, None if no series can be read, and why; yields every few answers.

        A series that cannot be read just now is left out. Raises UserError if the model fails.
        """
        feed, state, now = self.follower.feed, self.follower.state, self.follower.clock()
        old, new, gains = self.follower.model, self.follower.load(name), dict[int, list[float]]()
        left = [each for each in feed.series if each in state.answered]
        for series in tuple(left):
            newest = state.answered[series]  # up to which candles are at hand, even if the exchange fails just now
            try:
                feed.fit(new.models)
                moments = list(feed.new(series, newest - NEWEST * feed.step, min(newest + feed.step, now)))
            except Exception as error:  # as in a look: whatever a file or an exchange does
                left.remove(series)
                say(f"{series} is left out of the comparison: {error or type(error).__name__}")
                if not left:
                    return None, f"{series}: {error or type(error).__name__}"
                continue
            known = dict(moment.outcome for moment in moments if moment.outcome)
            judged = [moment for moment in moments if moment.time in known]
            for start in range(0, len(judged), AT_ONCE):
                yield
                part = judged[start : start + AT_ONCE]
                asked = [old.read(moment.input) for moment in part]
                answers = (model.together(asked, feed.settings) for model in (old, new))
                for moment, *both in zip(part, *answers, strict=True):
                    one, other = (cast("Mapping[str, float]", each.get("probabilities", {})) for each in both)
                    if one and not other:
                        raise UserError(f"it does not answer {series}, as {state.models[0]} does")
                    if one:
                        before, after = (max(each[known[moment.time]], 1e-9) for each in (one, other))
                        gains.setdefault(moment.time, []).append(math.log(after / before))
        means = np.array([np.mean(gains[moment]) for moment in sorted(gains)])
        blocks = means[: len(means) // BLOCK * BLOCK].reshape(-1, BLOCK).mean(1)
        gain = float(means.mean()) if len(means) else 0.0  # in log loss
        why = f"its log loss is {abs(gain):.4f} {'lower' if gain >= 0 else 'higher'} on the newest {len(means)} moments"
        if len(blocks) > 1 and gain < -max(WORSE * blocks.std(ddof=1) / len(blocks) ** 0.5, ROUNDING):
            raise UserError(why)
        return new, why
