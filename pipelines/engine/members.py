"""Runs of many models: a process trains each, with a run folder of its own, as many at a time as fit.

The process is the same whether its member is alone or one of hundreds, so the weights are too; and what goes wrong
with one member ends that process only. Members are dealt to the ranks in turn; a rank's processes share its device.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from common.errors import MembersFailed, UserError
from common.files import write_json
from pipelines import cli
from pipelines.engine import server
from pipelines.engine.config import BaseConfig
from pipelines.engine.loop import Stopped
from pipelines.engine.monitor import clock
from pipelines.engine.runs import Run
from pipelines.engine.training import train
from pipelines.engine.workload import find

# What a launcher tells its processes about each other; a member's process is on its own.
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GROUP_RANK")
ROOM = 1.2  # a GPU takes one more process if it has this many times the memory that each has taken so far


@dataclass(frozen=True)
class Job:
    """What the members of a run have in common."""

    run: Run
    config: BaseConfig
    folder: Path  # of the prepared data
    resume: bool

    def is_done(self, member: str) -> bool:
        """Whether it was trained to the end under this very config."""
        run = self.run.member(member)
        outcome = run.outcome()
        done = outcome is not None and outcome["state"] == "done" and run.best.is_dir()
        return done and run.config(type(self.config)) == self.config


def choose(asked: str | None, names: Sequence[str]) -> list[str]:
    """Those of `names` that --only asks for, or all. Raises UserError for a name that there is not."""
    if asked is None:
        return list(names)
    if not names:
        raise UserError("--only: this workload trains one model; leave it out")
    unknown = [name for name in asked.split(",") if name not in names]
    if unknown:
        raise UserError(f"--only {asked}: {unknown[0]} is not among the members ({', '.join(names)})")
    return [name for name in names if name in asked.split(",")]


def train_all(job: Job, names: Sequence[str], accelerator: Accelerator) -> None:
    """Train the members in `names`; on --resume those that are not done.

    Raises MembersFailed, after all others are trained, if some could not be, and Stopped after a signal.
    """
    hardware = job.config.hardware
    # One thread each: several at a time then use the cores best, and a number that did not depend on how many there
    # are keeps the weights the same.
    hardware = hardware.model_copy(update={"threads": hardware.threads or 1})
    job = Job(job.run, job.config.model_copy(update={"hardware": hardware}), job.folder, job.resume)
    done = {name for name in names if job.resume and job.is_done(name)}
    rank, world = accelerator.process_index, accelerator.num_processes
    waiting = [name for name in names if name not in done][rank::world]
    accelerator.wait_for_everyone()  # all have seen what is done before anything changes
    for name in waiting:
        job.run.member(name).outcome_file.unlink(missing_ok=True)  # how it ended before counts no more
    accelerator.wait_for_everyone()  # so that an outcome found from here on is of this training
    if done:
        accelerator.print(f"{len(done)} of {len(names)} members are done")
    pool = _Pool(job, accelerator.device, _cores() // hardware.threads)
    number = pool.train(waiting)
    for name in waiting:
        if number and job.run.member(name).outcome() is None:  # it was never begun
            write_json(job.run.member(name).outcome_file, {"state": "stopped", "reason": "it was not begun"})
    # Not by a barrier alone: those give up after minutes, and another rank may train for hours.
    while not all(job.run.member(name).outcome_file.is_file() for name in names):
        time.sleep(0.2)
    accelerator.wait_for_everyone()
    outcomes = {name: job.run.member(name).outcome() for name in names}
    if accelerator.is_main_process:
        write_json(job.run.folder / "members.json", outcomes)
    if number:
        raise Stopped(number, "; members that were being trained are saved")
    failed = {name: outcome["reason"] for name, outcome in outcomes.items() if outcome["state"] != "done"}
    if failed:
        reasons = "\n".join(f"  {name}: {reason}" for name, reason in failed.items())
        raise MembersFailed(f"{len(failed)} of {len(names)} members failed, the others are trained:\n{reasons}")


class _Pool:
    """The processes of one rank."""

    def __init__(self, job: Job, device: torch.device, at_once: int):
        self.job, self.device, self.at_once = job, device, max(1, at_once)
        self.context = server.start()
        self.running: dict[str, Any] = {}
        self.signal: int | None = None
        self.free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None  # before the first process

    def train(self, names: Sequence[str]) -> int | None:
        """Train each; returns the number of a signal that ended it early."""
        waiting, began, ended = list(names), time.perf_counter(), 0
        if waiting:
            _say(f"training {len(waiting)} members, up to {self.at_once} at a time on {self.device}")
            _say(f"what each says: {self.job.run.member('NAME').folder / 'train.log'}")
        with self._signals():
            while self.running or (waiting and not self.signal):
                while waiting and not self.signal and self._has_room():
                    self._start(waiting.pop(0))
                connection.wait([process.sentinel for process in self.running.values()], timeout=1)
                for name in [name for name, process in self.running.items() if process.exitcode is not None]:
                    outcome = self._ended(name)
                    ended += 1
                    took = time.perf_counter() - began
                    left = took / ended * (len(names) - ended)
                    _say(f"{ended}/{len(names)} {name} {_told(outcome)}  left {clock(left)}")
        return self.signal

    def _start(self, name: str) -> None:
        process = self.context.Process(target=_work, args=(self.job, name, str(self.device)), name=name)
        process.start()
        self.running[name] = process

    def _ended(self, name: str) -> dict[str, Any]:
        process, run = self.running.pop(name), self.job.run.member(name)
        process.join()
        outcome = run.outcome()
        if outcome is None:  # it had no time to say anything
            code = process.exitcode
            reason = f"its process was killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
            state = "stopped" if self.signal else "failed"
            outcome = {"state": state, "reason": f"{reason}; see {run.folder / 'train.log'}"}
            write_json(run.outcome_file, outcome)
        return outcome

    def _has_room(self) -> bool:
        if not self.running or self.device.type != "cuda":
            return len(self.running) < self.at_once
        if len(self.running) >= self.at_once:
            return False
        # What a process takes is known once it has trained for a while.
        if not all(self.job.run.member(name).metrics() for name in self.running):
            return False
        free = torch.cuda.mem_get_info(self.device)[0]
        return free > ROOM * (self.free - free) / len(self.running)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Hand SIGTERM and Ctrl-C on; a second Ctrl-C ends all at once."""

        def hand_on(number: int, frame: Any) -> None:
            if self.signal is not None and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.signal = number
            for process in self.running.values():
                process.terminate()

        before = {number: signal.signal(number, hand_on) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            for process in self.running.values():
                process.kill()


def _work(job: Job, member: str, device: str) -> None:
    """A member's process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for name in LAUNCHER:
        os.environ.pop(name, None)
    if device.startswith("cuda"):
        os.environ["ACCELERATE_TORCH_DEVICE"] = device
    run, began = job.run.member(member), time.perf_counter()
    run.folder.mkdir(parents=True, exist_ok=True)
    with (run.folder / "train.log").open("a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    workload = find(run.workload)
    outcome, status = {"state": "failed"}, 0
    try:
        accelerator = cli.make_accelerator(job.config, run)
        facts = {"folder": str(job.folder)}
        progress = train(workload, job.config, job.folder, facts, run, accelerator, job.resume, member)
        outcome = {"state": "done", "select": workload.select, "best": progress.best, "best_step": progress.best_step}
        outcome |= {"step": progress.step}
    except UserError as error:
        outcome, status = {"state": "failed", "reason": str(error)}, 2
    except Stopped as stop:
        outcome, status = {"state": "stopped", "reason": str(stop)}, 128 + stop.number
    except Exception as error:
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}; see {run.folder / 'train.log'}"
        outcome, status = {"state": "failed", "reason": reason}, 1
    write_json(run.outcome_file, {**outcome, "seconds": round(time.perf_counter() - began, 1)})
    print(_told(outcome), flush=True)
    sys.exit(status)


def _end_with_parent() -> None:
    """A process that outlives its run would write into the folder while the run is resumed."""
    connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)


def _told(outcome: dict[str, Any]) -> str:
    if outcome["state"] != "done":
        return f"{outcome['state']}: {outcome['reason']}"
    return f"done: best {outcome['select']} {outcome['best']:.5g} at step {outcome['best_step']} of {outcome['step']}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) // int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
