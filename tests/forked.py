"""Runs commands without their seconds of imports: in children forked from a server that has already imported all.

A forked command behaves as one that `subprocess` starts: it has a process id, a folder, an environment and standard
streams of its own, its script runs as `__main__`, and it ends with the same status. Where a fork may differ from a new
interpreter (see `_can_fork`), and everywhere under TEST_PROCESSES=fresh, the command is a new interpreter.
"""

import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TextIO

SERVER = Path(__file__).with_name("fork_server.py")
# Variables that are read when they are used. Any other may be read by an import: torch and its like read hundreds.
READ_LATE = (
    *("ACCELERATE_USE_CPU", "PYTHONPATH", "PYTEST_CURRENT_TEST", "TORCHELASTIC_RESTART_COUNT"),
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
)
shared: str | None = None  # the address of a server that the workers of a run share
BASE: dict[str, str] = {}  # the environment in which every test begins; known when tests are collected
LONG = 600  # seconds; only what hangs takes longer, however busy the machine is
GRACE = 30  # seconds from SIGTERM to SIGKILL for the other ranks when one has failed, as under torch.distributed.run


def run(
    words: Sequence[str],
    cwd: Path,
    env: Mapping[str, str] | None = None,
    processes: int = 1,
    timeout: float = LONG,
    fresh: bool = False,
) -> subprocess.CompletedProcess:
    """Run `python *words` to its end; several `processes` are the ranks of one group.

    `fresh` asks for new interpreters. Raises subprocess.TimeoutExpired after `timeout` seconds.
    """
    env = _environment(env)
    fork = not fresh and _can_fork(env)
    if processes > 1 and fork:
        return _run_group(words, cwd, env, processes, timeout)
    if processes > 1:
        words = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes), *words]
    process = Process(words, cwd, env, fork)
    return subprocess.CompletedProcess(words, process.finish(timeout), *process.output())


class Process:
    """A running `python *words`, used like a subprocess.Popen whose output goes to files."""

    def __init__(self, words: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None, fork: bool | None = None):
        env = _environment(env)
        self.streams = [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115 (output() closes them)
        if _can_fork(env) if fork is None else fork:
            self._child = Forked(_server()[0], words, cwd, env, self.streams)
        else:
            out, err = self.streams
            files = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
            self._child = subprocess.Popen([sys.executable, *words], cwd=cwd, env=env, **files)
        self.pid, self.poll, self.wait = self._child.pid, self._child.poll, self._child.wait
        self.send_signal = self._child.send_signal

    @property
    def returncode(self) -> int | None:
        return self._child.returncode

    def finish(self, timeout: float = LONG) -> int:
        """Wait for the end; a process that takes longer is killed."""
        try:
            return self.wait(timeout)
        except subprocess.TimeoutExpired as expired:
            self.send_signal(signal.SIGKILL)
            self.wait()
            expired.output, expired.stderr = self.output()
            raise

    def output(self) -> tuple[str, str]:
        """Return what the finished process wrote to stdout and to stderr."""
        texts = []
        for stream in self.streams:
            stream.seek(0)
            texts.append(stream.read())
            stream.close()
        return texts[0], texts[1]


def _run_group(words, cwd, env, processes, timeout) -> subprocess.CompletedProcess:
    """Run ranks as torch.distributed.run does: it keeps their store, and ends the others when one has failed."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    env |= {"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "tests"}
    env |= {"GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "default"}
    env |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"), str(processes))
    ranks: list[Process] = []
    for rank in range(processes):
        numbers = dict.fromkeys(("RANK", "LOCAL_RANK", "ROLE_RANK"), str(rank))
        ranks.append(Process(words, cwd, env | numbers, fork=True))
    expired = not until(lambda: any(rank.poll() for rank in ranks) or all(rank.poll() == 0 for rank in ranks), timeout)
    for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, LONG)):
        for rank in ranks:
            rank.send_signal(number)
        until(lambda: None not in [rank.poll() for rank in ranks], seconds)
    output = map("".join, zip(*(rank.output() for rank in ranks), strict=True))
    if expired:
        raise subprocess.TimeoutExpired(words, timeout, *output)
    return subprocess.CompletedProcess(words, int(any(rank.returncode for rank in ranks)), *output)


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until `condition` holds; returns whether it does within `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(0.01)
    return True


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    """Return the environment of a command: the one given, or this process's with a single thread."""
    return {**os.environ, "OMP_NUM_THREADS": "1"} if env is None else dict(env)


def _can_fork(env: Mapping[str, str]) -> bool:
    """Whether a forked child equals a new interpreter: it does if no variable differs that imports may read."""
    if sys.platform != "linux" or os.environ.get("TEST_PROCESSES") == "fresh":
        return False
    base = _server()[2]
    return all(env.get(name) == base.get(name) for name in env.keys() | base.keys() if name not in READ_LATE)


@cache
def _server() -> tuple[socket.socket, subprocess.Popen | None, Mapping[str, str]]:
    """Start the server of this process, or connect to the shared one.

    Returns a socket to it, its process (None for the shared one), and the environment that its imports read.
    """
    base = {**(BASE or os.environ), "OMP_NUM_THREADS": "1"}
    if shared is not None:
        return connect(shared), None, base
    return *start_server(base | {"PYTHONPATH": str(SERVER.with_name("guard"))}), base


def share(env: Mapping[str, str]) -> tuple[str, Callable[[], None]]:
    """Start a server for several processes; returns its address for `connect`, and a function that ends it."""
    address = f"tests-{os.getpid()}-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(f"\0{address}")
        listening.listen()
        requests, server = start_server(env, listening)

    def end() -> None:
        requests.close()
        server.wait()

    return address, end


def connect(address: str) -> socket.socket:
    """Return a socket to a shared server, which may still be importing."""
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    requests.connect(f"\0{address}")
    return requests


def start_server(
    env: Mapping[str, str], listening: socket.socket | None = None
) -> tuple[socket.socket, subprocess.Popen]:
    """Start a server that imports in `env`, for one client and those of `listening`; returns its socket and process."""
    # Arrow's allocator would start a thread, which forks would lose. Children are guarded one by one.
    env = {**env, "JE_ARROW_MALLOC_CONF": "background_thread:false"}
    env.pop("CHECKOUT_GUARD", None)
    mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sockets = [each.fileno() for each in (its, listening) if each]
    command = [sys.executable, str(SERVER), *map(str, sockets)]
    null = subprocess.DEVNULL
    server = subprocess.Popen(command, env=env, pass_fds=sockets, stdin=null, stdout=null)
    its.close()
    return mine, server


def start() -> tuple[socket.socket, subprocess.Popen | None]:
    """Start the server of this process, unless it runs."""
    return _server()[:2]


def stop() -> None:
    """End the server of this process, if there is one, and its children."""
    if _server.cache_info().currsize:
        requests, server, _ = _server()
        requests.close()
        if server is not None:
            server.wait()
        _server.cache_clear()


class Forked:
    """A child of a server, with the interface of subprocess.Popen except for streams."""

    def __init__(
        self,
        server: socket.socket,
        words: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        streams: Sequence[TextIO],
        session: bool = False,
        passed: Sequence[int] = (),
    ):
        self.args, self.returncode = words, None
        self.status, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = {"words": list(map(str, words)), "cwd": str(cwd), "env": env, "session": session}
        given = [*(stream.fileno() for stream in streams), *passed, its.fileno()]
        try:
            with its:
                socket.send_fds(server, [json.dumps(request | {"passed": len(passed)}).encode()], given)
            self.pid = self._receive()
        except (OSError, RuntimeError):
            self.status.close()
            raise

    def _receive(self) -> int:
        received = self.status.recv(16)
        if not received:
            raise RuntimeError(f"{SERVER} has ended")
        return int(received)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self.status], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self.status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = self._receive()
            self.status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)
