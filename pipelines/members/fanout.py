"""Runs of many models: each member is an ordinary run, trained in a process of its own, as many at a time as fit.

A member's weights do not depend on the others, and its failure ends its own process only. On a GPU, members whose
config `stacks` share a process (see `stack`) and differ from lone ones by rounding. Members are dealt to the ranks in
turn. torch is imported late, in parallel with the imports of the processes' server.
"""

from __future__ import annotations

import functools
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, TextIO

from common import workers
from common.disk.files import digests, explained, remove, write_json
from common.errors import MembersFailedError, Stopped, UserError
from common.machine import cores
from common.plain import Plain
from common.stopping import StopRequest
from pipelines.distributed import ranks
from pipelines.engine.config import BaseConfig
from pipelines.engine.workload import Workload
from pipelines.members import processes
from pipelines.run.folder import Run

if TYPE_CHECKING:
    import torch
    from accelerate import Accelerator


Outcome = Mapping[str, Plain]  # of a training: its state and, if it is not done, the reason
FAILED: Outcome = {"state": "failed", "reason": "its training ended without an outcome"}
STACKING = ("cuda",)  # devices whose time goes to kernel launches, so that stacking pays
MOST_STACKED = 32  # members of a process
ROOM = 1.2  # a GPU takes one more process if it has this many times the memory that each has taken so far


@dataclass(frozen=True)
class Job:
    """The members of a run, with their shared data."""

    run: Run
    configs: Mapping[str, BaseConfig]
    folder: Path  # of the prepared data
    manifest: Mapping[str, Plain]  # of these
    resume: bool
    find: Callable[[], Workload]  # importable by name, as it is called in the members' processes

    def is_trained(self, member: str) -> bool:
        """Return whether the member's training on these data is done, and its models are sound."""
        run = self.run.member(member)
        outcome = run.outcome()
        written, found = outcome.get("models"), digests(run.best.parent)  # to which an evaluation adds files
        sound = outcome.get("state") == "done" and isinstance(written, Mapping) and written.items() <= found.items()
        return sound and run.learnt_from(self.configs[member].content(self.manifest))

    def is_done(self, member: str) -> bool:
        """Return whether the member is trained, and with this config."""
        config = self.configs[member]
        return self.is_trained(member) and self.run.member(member).config(type(config)) == config


def train_all(job: Job, names: Sequence[str], accelerator: Accelerator, begin: Callable[[], None]) -> None:
    """Call `begin`, then train all `names` not done. Raises UserError first, MembersFailedError last, or Stopped."""
    # One thread each uses the cores best, and a fixed number keeps the weights the same.
    job = replace(job, configs={name: of_one_thread(config) for name, config in job.configs.items()})

    def chosen() -> list[str]:
        waiting = [name for name in names if not (job.resume and job.is_done(name))]
        for name in filter(job.is_trained, waiting if job.resume else ()):
            job.run.member(name).check_goes_on()
        begin()
        for name in waiting:
            remove(job.run.member(name).outcome_file)
        for name in set(names) - set(waiting):
            with job.run.member(name).held():
                pass  # removes leftovers of a process killed at its very end
        return waiting

    waiting = ranks.on_main(chosen)
    # The provenance holds the time of this start: an older copy does not do.
    ranks.check_seen(job.run.provenance_file, "train some of the members on each of them, by itself, with --only")
    if len(waiting) < len(names):
        accelerator.print(f"{len(names) - len(waiting)} of {len(names)} members are done")

    if len(job.configs) == accelerator.num_processes == 1:
        for name in waiting:
            with _noted(job.run.member(name)):
                _fit(job, name, job.find)
        return
    mine = waiting[accelerator.process_index :: accelerator.num_processes]
    # The ranks wait for each other here, as long as it takes.
    numbers = ranks.gather(ranks.agree(lambda: Pool(job, accelerator.device, accelerator.mixed_precision).train(mine)))
    if number := next((each for each in numbers if each), None):
        raise Stopped(number, "; members that were being trained are saved")
    outcomes = ranks.on_main(lambda: {name: job.run.member(name).outcome() for name in names})
    if failed := {name: outcome["reason"] for name, outcome in outcomes.items() if outcome["state"] != "done"}:
        reasons = "\n".join(f"  {name}: {reason}" for name, reason in failed.items())
        raise MembersFailedError(f"{len(failed)} of {len(names)} members failed, the others are trained:\n{reasons}")


def of_one_thread(config: BaseConfig) -> BaseConfig:
    """Return the config with one thread, unless it names a number."""
    hardware = config.hardware.model_copy(update={"threads": config.hardware.threads or 1})
    return config.model_copy(update={"hardware": hardware})


class Pool:
    """Processes of one rank; each is known by its first member."""

    def __init__(self, job: Job, device: torch.device, precision: str = "no"):
        self.job, self.device, self.precision = job, device, precision
        self.at_once = max(1, cores() // max(config.hardware.threads or 1 for config in job.configs.values()))
        self.context = workers.start_server(processes.TRAINING)
        self.running: dict[str, BaseProcess] = {}
        self.members: dict[str, list[str]] = {}  # of each process, those that have not ended
        self.began: dict[str, float] = {}  # when each process was started, on the records' clock
        self.stop = StopRequest()
        self.free = processes.free_on_gpu(device)  # before the first process

    def train(self, names: Sequence[str]) -> int | None:
        """Train each member; return the number of the signal that stopped it early, or None."""
        waiting, began, ended = self.parts(names), time.perf_counter(), 0
        if waiting:
            work = f"{len(names)} member{'s' * (len(names) > 1)} in {len(waiting)} process{'es' * (len(waiting) > 1)}"
            workers.say(f"training {work}, up to {self.at_once} at a time on {self.device}")
            workers.say(f"their logs: {self.job.run.member('NAME').folder / 'train.log'}")
        try:
            with self.stop.listening(then=self.end_all):
                while self.running or (waiting and not self.stop.number):
                    while waiting and not self.stop.number and self.has_room():
                        self.start(waiting.pop(0))
                    connection.wait([process.sentinel for process in self.running.values()], timeout=1)
                    for name, outcome in self._ended():
                        ended += 1
                        left = (time.perf_counter() - began) / ended * (len(names) - ended)
                        workers.say(f"{ended}/{len(names)} {name} {_described(outcome)}  left {workers.clock(left)}")
        finally:
            for process in self.running.values():
                process.kill()
        return self.stop.number

    def end_all(self) -> None:
        """Ask all processes to save and end."""
        for process in self.running.values():
            process.terminate()

    def parts(self, names: Sequence[str]) -> list[list[str]]:
        """Divide members over processes."""
        stacked = []
        for name in names if self.device.type in STACKING and self.precision != "fp16" else ():  # one loss scale each
            config, hardware = self.job.configs[name], self.job.configs[name].hardware
            alone = hardware.compile, hardware.gradient_checkpointing, config.tracking.log_with, config.training.hooks
            stacked += [name] * (config.stacks and hardware.stack and not any(alone))
        parts = [stacked[first : first + MOST_STACKED] for first in range(0, len(stacked), MOST_STACKED)]
        return parts + [[name] for name in names if name not in stacked]

    def start(self, names: list[str]) -> None:
        """Start a process that trains these members."""
        process = self.context.Process(target=work, args=(self.job, list(names), str(self.device)), name=names[0])
        process.start()
        self.running[names[0]], self.began[names[0]], self.members[names[0]] = process, time.time(), names
        if self.stop.number:  # the signal came while it was being started
            process.terminate()

    def _ended(self) -> Iterator[tuple[str, Outcome]]:
        for first, process in list(self.running.items()):
            over, names = process.exitcode is not None, self.members[first]
            if over:
                process.join()
                del self.running[first]
            for name in [name for name in names if over or self.job.run.member(name).outcome()]:
                names.remove(name)
                yield name, self._outcome(name, process)

    def _outcome(self, name: str, process: BaseProcess) -> Outcome:
        run = self.job.run.member(name)
        if not (outcome := run.outcome()):  # it had no time to write any
            code = process.exitcode or 0
            reason = f"its process was killed by {Signals(-code).name}" if code < 0 else f"exit status {code}"
            state = "stopped" if self.stop.number else "failed"
            outcome = {"state": state, "reason": f"{reason}; see {run.folder / 'train.log'}"}
            write_json(run.outcome_file, outcome)
        return outcome

    def has_room(self) -> bool:
        """Return whether cores and memory allow one more process."""
        if not self.running or len(self.running) >= self.at_once or self.free is None:
            return len(self.running) < self.at_once
        # What a process takes is known once it has trained for a while. A resumed run has records of an earlier one.
        last = {first: (self.members.get(first) or [first])[-1] for first in self.running}  # of those still training
        records = {first: self.job.run.member(name).metrics() for first, name in last.items()}
        known = sum(bool(found) and found[-1]["time"] >= self.began[name] for name, found in records.items())
        if not known:
            return False
        free = processes.free_on_gpu(self.device) or 0
        return bool(free > ROOM * (self.free - free) / known * (1 + len(self.running) - known))  # some may still grow


def work(job: Job, members: Sequence[str], device: str) -> None:
    """Train members side by side, or one alone, in a process of their own."""
    processes.stand_alone(device)
    if len(members) == 1:
        sys.exit(train_one(job, members[0], job.find, _write_to))
    train_stacked(job, members)


def train_stacked(job: Job, members: Sequence[str]) -> None:
    """Train members side by side in this process."""
    from pipelines.members import stack

    together = stack.Stack()

    def find() -> Workload:
        workload = job.find()
        return replace(workload, task=together.joined(workload.task))

    together.run([functools.partial(train_one, job, member, find, stack.write_to) for member in members])


def train_one(job: Job, member: str, find: Callable[[], Workload], write_to: Callable[[TextIO], None]) -> int:
    """Train one member, record the outcome, and return an exit status."""
    run, outcome = job.run.member(member), FAILED
    log = run.folder / "train.log"
    try:
        with _noted(run, f"; see {log}"):
            with explained(log):
                log.parent.mkdir(parents=True, exist_ok=True)
                write_to(log.open("a", buffering=1))
            _fit(job, member, find)
        status, outcome = 0, run.outcome()
    except Exception as error:
        status = 128 + error.number if isinstance(error, Stopped) else 2 if isinstance(error, UserError) else 1
        if status == 1:
            traceback.print_exc()
        outcome = _failure(error, f"; see {log}")
    print(_described(outcome), flush=True)
    return status


def _fit(job: Job, member: str, find: Callable[[], Workload]) -> None:
    from pipelines.engine.training import make_accelerator, train

    run, config = job.run.member(member), job.configs[member]
    workload = find()
    accelerator = make_accelerator(config, run)
    known = {key: job.manifest[key] for key in ("data", "source", "inputs") if key in job.manifest}
    facts = {**known, "folder": str(job.folder), "content": config.content(job.manifest)}
    with run.held():
        train(workload, config, job.folder, facts, run, accelerator, job.resume)


@contextmanager
def _noted(run: Run, see: str = "") -> Iterator[None]:
    """Record the outcome of training within the block, and its seconds."""
    began, failed = time.perf_counter(), None
    try:
        yield
    except Exception as error:
        failed = error
    outcome = _failure(failed, see) if failed else run.outcome() or FAILED
    try:
        write_json(run.outcome_file, {**outcome, "seconds": round(time.perf_counter() - began, 1)})
    except UserError as error:
        if failed is None:
            raise
        workers.say(f"error: {error}")  # beside the one that came first
    if failed:
        raise failed


def _failure(error: Exception, see: str = "") -> Outcome:
    if isinstance(error, UserError | Stopped):
        return {"state": "stopped" if isinstance(error, Stopped) else "failed", "reason": str(error)}
    return {"state": "failed", "reason": f"{type(error).__name__}: {error}{see}"}


def _write_to(file: TextIO) -> None:
    with file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _described(outcome: Outcome) -> str:
    if outcome["state"] != "done":
        return f"{outcome['state']}: {outcome['reason']}"
    return f"done: best {outcome['select']} {outcome['best']:.5g} at step {outcome['best_step']} of {outcome['step']}"
