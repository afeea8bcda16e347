"""Signs of life between ranks, through the store of their group: all others report dead, silent and slow ones."""

import json
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from signal import Signals

import psutil
import torch
from torch.distributed import DistNetworkError, distributed_c10d
from torch.distributed.distributed_c10d import PrefixStore, Store

from common.errors import LostProcessError, Stopped, UserError
from common.stopping import StopRequest
from common.workers import say
from pipelines.distributed import ranks

BEAT = 1.0  # seconds between signs of life
SILENT = 60.0  # seconds without one after which a process is reported
LATE = 20.0  # seconds after a signal in which everything should be saved
SOON = 8.0  # seconds in which the death of another process shows, where a connection to it has broken
GRACE = 30.0  # seconds for this process to end by itself once another has died
SLOW = 1.5  # times the median of the others, above which a process is said to be slow
BROKEN = ("gloo", "NCCL", "peer", "TCPStore", "Broken pipe", "remote process")  # in errors of lost connections


@dataclass(frozen=True)
class Sign:
    """A sign of life."""

    beat: int
    host: str
    place: str  # PID namespace and boot, as containers may share a host name
    pid: int
    at: str
    signal: int | None  # received by this rank itself
    ended: bool  # its training, without an error
    dead: list[int]  # ranks it knows to have died
    waits: bool  # its main thread, for the others


class Watch:
    """Watches the other ranks of a training, and the time since a signal. `at` says what this rank is doing."""

    def __init__(self, stop: StopRequest, at: Callable[[], str], patience: float):
        self.stop, self.at, self.patience = stop, at, patience
        self.rank, self.world = ranks.rank(), ranks.world()
        self.seen: dict[int, tuple[Sign, float]] = {}  # the last sign of each other rank, and when
        self.answered = self.now = time.monotonic()  # when the store last answered, and this rank last looked
        self.asked: float | None = None  # when a signal was first seen
        self.moved: dict[int, tuple[str, float]] = {}  # what each other rank's main thread is doing, and since when
        self.stuck: set[int] = set()  # ranks reported as stuck
        self.lost: dict[int, str] = {}  # rank -> how it was reported
        self.dead: set[int] = set()
        self.ended, self.failed = threading.Event(), False
        self.slow = (0, 0)  # the slowest rank, and in how many records in a row
        self.place = ""
        with suppress(OSError):
            self.place = f"{Path('/proc/self/ns/pid').readlink()} {Path('/proc/sys/kernel/random/boot_id').read_text()}"

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch within the block. An error caused by another rank's loss becomes a LostProcessError."""
        threads = [threading.Thread(target=self._look_around, daemon=True)]
        if self.world > 1:
            store = PrefixStore("watch", distributed_c10d._get_default_store().clone())  # type: ignore[attr-defined]
            store.set_timeout(timedelta(seconds=SILENT))
            store.set(str(self.rank), self._sign(0))
            ranks.gather(None)  # from here on the store has a sign of each
            self._trade(store, 0)
            threads.append(threading.Thread(target=self._exchange, args=(store,), daemon=True))
        for thread in threads:
            thread.start()
        try:
            yield
        except (UserError, Stopped):
            raise
        except Exception as error:
            self.failed = True
            if self.world > 1 and any(word in str(error) for word in BROKEN) and self._has_lost():
                raise LostProcessError from error
            raise
        finally:
            self.ended.set()
            for thread in threads:
                thread.join(2 * BEAT)

    def _has_lost(self) -> bool:
        end = time.monotonic() + SOON
        while not self.lost and time.monotonic() < end:
            time.sleep(BEAT / 10)
        if not self.lost and 0 in self.seen and self._store_is_silent():
            self._name(0, self.seen[0][0], "or its launcher has died", self.now - self.seen[0][1])
        return bool(self.lost)

    def _store_is_silent(self) -> bool:
        return self.now - self.answered > 3 * BEAT

    def _sign(self, beat: int) -> str:
        signal, ended = self.stop.number if self.stop.own else None, self.ended.is_set() and not self.failed
        place = socket.gethostname(), self.place, os.getpid()
        return json.dumps(vars(Sign(beat, *place, self.at(), signal, ended, sorted(self.dead), ranks.waits())))

    def _exchange(self, store: Store) -> None:
        beat, over = 0, False
        while not over:
            over = self.ended.wait(BEAT)
            beat += 1
            try:
                self._trade(store, beat)
            except DistNetworkError:
                return  # the process with the store is gone
            except RuntimeError:
                continue  # it is halted

    def _trade(self, store: Store, beat: int) -> None:
        store.set(str(self.rank), self._sign(beat))
        signs = [Sign(**json.loads(sign)) for sign in store.multi_get([str(rank) for rank in range(self.world)])]
        self.answered = time.monotonic()
        for rank, sign in enumerate(signs):
            if rank != self.rank and (rank not in self.seen or self.seen[rank][0] != sign):
                self.seen[rank] = (sign, self.answered)
                if rank not in self.moved or self.moved[rank][0] != sign.at:
                    self.moved[rank] = sign.at, self.answered
                    self.stuck.discard(rank)
            if self.stop.number is None:
                self.stop.number = sign.signal

    def _look_around(self) -> None:
        while not self.ended.wait(BEAT / 2):
            before, self.now = self.now, time.monotonic()
            if self.now - before > 5 * BEAT:  # this process was halted itself
                self.answered = self.now
                self.seen = {rank: (sign, self.now) for rank, (sign, _) in self.seen.items()}
            self._remind()
            for rank, (sign, when) in list(self.seen.items()):
                if not sign.ended:
                    self._judge(rank, sign, self.now - when)
                    self._judge_progress(rank, sign, self.now - self.moved[rank][1])

    def _remind(self) -> None:
        if self.stop.number is not None and self.asked is None:
            self.asked = self.now
        if self.asked is not None and self.now - self.asked >= LATE and self.rank == 0:
            others = sorted({sign.at for sign, _ in self.seen.values()} - {self.at()})
            where = "; other processes are ".join([self.at(), *others[:1]])
            say(f"{Signals(self.stop.number or 0).name} came {LATE:.0f} s ago; nothing is saved yet: still {where}")
            self.asked = float("inf")

    def _judge(self, rank: int, sign: Sign, age: float) -> None:
        known = {dead for other, _ in self.seen.values() for dead in other.dead}
        if rank in self.lost and rank not in self.dead and age < SILENT:
            del self.lost[rank]
            say(f"process {rank} is back")
        if rank not in self.dead and (rank in known or self._is_gone(sign)):
            self.dead.add(rank)
            self._name(rank, sign, "has died", age)
        elif rank not in self.lost and age > SILENT and (rank == 0 or not self._store_is_silent()):
            self._name(rank, sign, f"has given no sign of life for {age:.0f} s", age)
        if rank in self.lost and age > (GRACE if rank in self.dead else self.patience):
            say(f"error: {self.lost[rank]}; ending (hardware.patience={self.patience:g})")
            os._exit(1)

    def _judge_progress(self, rank: int, sign: Sign, seconds: float) -> None:
        if seconds > SILENT and ranks.waits() and not sign.waits and not self.stuck | self.lost.keys() >= {rank}:
            self.stuck.add(rank)
            say(f"process {rank} on {sign.host} is still {sign.at} after {seconds:.0f} s; this one waits for it")

    def _is_gone(self, sign: Sign) -> bool:
        if (sign.host, sign.place) != (socket.gethostname(), self.place):
            return False
        try:
            return psutil.Process(sign.pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        except psutil.Error as error:
            return isinstance(error, psutil.NoSuchProcess)

    def _name(self, rank: int, sign: Sign, how: str, age: float) -> None:
        self.lost[rank] = f"process {rank} on {sign.host} {how}; last seen {age:.0f} s ago, {sign.at}"
        say(f"{self.lost[rank]}; --resume continues from the last checkpoint")

    def straggler(self, seconds: Sequence[float]) -> str | None:
        """Return a line on the slowest rank, if its `seconds` per update were much longer in two records in a row."""
        slowest = max(range(self.world), key=lambda rank: seconds[rank])
        others = statistics.median(value for rank, value in enumerate(seconds) if rank != slowest)
        slow = int(seconds[slowest] > SLOW * others)
        self.slow = slowest, slow * (1 + self.slow[1] * (self.slow[0] == slowest))
        if self.slow[1] != 2:
            return None
        host = self.seen[slowest][0].host if slowest in self.seen else socket.gethostname()
        return f"all wait for process {slowest} on {host}: {seconds[slowest]:.3g} s an update, others {others:.3g} s"


class OwnTime:
    """Times of this rank's own work in updates; on a GPU those of the device, which the host does not wait for."""

    def __init__(self, device: torch.device, wanted: bool):
        self.on_gpu, self.wanted = device.type == "cuda", wanted
        self.seconds: list[float] = []
        self.events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []  # of a GPU, which are read late

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the block, if times are wanted."""
        if self.wanted and self.on_gpu:
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            yield
            last.record()
            self.events.append((first, last))
        else:
            began = time.perf_counter()
            yield
            self.seconds += [time.perf_counter() - began] * self.wanted

    def mean(self) -> float:
        """Return the mean seconds since the last call."""
        own = [*self.seconds, *(first.elapsed_time(last) / 1000 for first, last in self.events)]
        self.seconds, self.events = [], []
        return statistics.fmean(own) if own else 0.0
