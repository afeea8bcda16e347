"""The server of tests/forked.py: imports what commands need, then forks a child for each.

    python tests/fork_server.py SOCKET [once|LISTENING]

SOCKET is the number of an inherited socket. A request on it is a JSON object with `words`, `cwd`, `env`, perhaps
`session`, for a session of its own, and perhaps `passed`, and file descriptors: the child's stdout, its stderr, its
stdin unless that is to be empty, as many as `passed` says that it keeps, and a socket for its process id and later its
status. The server and all its children end when the other side closes SOCKET. LISTENING is the number of an inherited
socket, too, which takes further clients: each has requests of its own, and its children end when it closes its
connection. Such a client is a command that starts workers. With `once` the server forks nothing and runs the first
request itself, which has the two streams only: that also works where imports start threads.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import random
import re
import runpy
import select
import signal
import socket
import sys
import threading
import types
import warnings
import weakref
from multiprocessing import forkserver, process, util
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
GUARD = ROOT / "tests/guard/sitecustomize.py"
PACKAGES = ("common", "exporters", "models", "pipelines")
LATE = ("torch._dynamo", "tests.forked")  # a slow import that Accelerate leaves until it is used, and `fork_workers`'s
OFTEN = (  # two seconds in each command with a tower, adapters or an export, which import them when they are used
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.image_processing_auto",
    "transformers.models.auto.processing_auto",
    "peft",
    "onnxscript",
)
WORKERS = re.compile(r"(?<=^from multiprocessing\.forkserver import main; main\()\d+, \d+")


def main() -> None:
    standard_path = sys.path[1:]
    sys.path[0] = str(ROOT)
    gc.disable()  # hardly anything of what imports make is garbage
    once = sys.argv[2:] == ["once"]
    preload(*() if once else OFTEN)
    if not once and (threads := len(os.listdir("/proc/self/task")) - 1):
        sys.exit(f"fork_server: imports have started {threads} threads, which forks would lose; TEST_PROCESSES=fresh")
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest and the children
    gc.collect()
    gc.freeze()  # what children do not visit they share
    gc.enable()
    for finalizer in [*weakref.finalize._registry]:  # of what imports have made: half of the time of a short child
        finalizer.atexit = False
    clients = socket.socket(fileno=int(sys.argv[1]))
    listening = socket.socket(fileno=int(sys.argv[2])) if sys.argv[2:] and not once else None
    request = receive(clients) if once else serve(clients, listening)
    signal.signal(signal.SIGINT, interrupt)
    leave(lambda: execute(request, standard_path))


def preload(*further: str) -> None:
    """Import all modules of the project, and with them the libraries that they import, and `further` ones.

    One that warns is left out, so that the worker whose tests import it, too, fails as it does without a server.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for package in PACKAGES:
            for module in pkgutil.walk_packages([str(ROOT / package)], f"{package}."):
                if not module.name.endswith("__main__"):
                    with contextlib.suppress(Exception):  # the command that needs it will show the error
                        importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    for name in further:
        with contextlib.suppress(ImportError):  # on a machine for GPU figures some are missing
            importlib.import_module(name)


def serve(first: socket.socket, listening: socket.socket | None) -> dict[str, Any]:
    """Fork a child for each request. Returns in the children only, with their request."""
    clients = {first}
    running: dict[int, Child] = {}  # by pidfd
    while True:
        for ready in select.select([*clients, *running, *filter(None, [listening])], [], [])[0]:
            if ready is listening:
                clients.add(listening.accept()[0])
            elif ready in running:
                running.pop(ready).end(ready)
            elif not (request := receive_from(ready)):
                for pidfd in [pidfd for pidfd, child in running.items() if ready in (first, child.client)]:
                    os.kill(running[pidfd].pid, signal.SIGKILL)
                    running.pop(pidfd).end(pidfd)
                clients.remove(ready)
                ready.close()
                if ready is first:
                    os._exit(0)
            else:
                message, streams = request
                pid = os.fork()
                if pid == 0:
                    address = listening.getsockname()[1:].decode() if listening else None
                    for each in filter(None, [listening, *clients]):
                        each.close()
                    for pidfd, child in running.items():
                        os.close(pidfd)
                        child.status.close()
                    request = json.loads(message) | {"address": address}
                    last = len(streams) - 1 - request.get("passed", 0)
                    request["passed"] = streams[last:-1]
                    for number, stream in enumerate(streams[:last]):
                        os.dup2(stream, (1, 2, 0)[number])
                    for stream in (*streams[:last], streams[-1]):
                        os.close(stream)
                    return request
                child = Child(pid, socket.socket(fileno=streams.pop()), ready)
                running[os.pidfd_open(pid)] = child
                with contextlib.suppress(OSError):  # as below
                    child.status.send(b"%d" % pid)
                for stream in streams:
                    os.close(stream)


class Child(NamedTuple):
    """A forked process, the socket that tells its status, and the client that has asked for it."""

    pid: int
    status: socket.socket
    client: socket.socket

    def end(self, pidfd: int) -> None:
        """Wait for it, tell its status and close what belongs to it."""
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with contextlib.suppress(OSError):  # nobody waits for it any more
            self.status.send(b"%d" % code)
        self.status.close()


def receive_from(client: socket.socket) -> tuple[bytes, list[int]] | None:
    """Return the next request of a client and its file descriptors; None if it has closed its connection."""
    try:
        message, streams, _, _ = socket.recv_fds(client, 1 << 20, 6)
    except ConnectionResetError:
        return None
    return (message, list(streams)) if message else None


def receive(clients: socket.socket) -> dict[str, Any]:
    """Return the one request there will be, its streams in place; ends the process where there is none."""
    message, streams, _, _ = socket.recv_fds(clients, 1 << 20, 2)
    if not message:
        os._exit(0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number + 1)
        os.close(stream)
    return json.loads(message)


def execute(request: dict[str, Any], standard_path: list[str]) -> None:
    """Run the request's command in this process as if it were a new interpreter."""
    if request.get("session"):
        os.setsid()
    os.chdir(request["cwd"])
    process.ORIGINAL_DIR = os.getcwd()  # where multiprocessing looks for a relative script
    os.environ.clear()
    os.environ.update(request["env"])
    if "CHECKOUT_GUARD" in os.environ:
        runpy.run_path(str(GUARD))  # as a new interpreter does
    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    words = request["words"]
    if request.get("passed"):  # it serves a command's workers, by descriptors that have other numbers here
        words[1] = WORKERS.sub("{}, {}".format(*request["passed"]), words[1])
    if request.get("address") and not request.get("session"):
        fork_workers(request["address"])
    first = os.getcwd() if words[0] in ("-m", "-c") else os.path.dirname(os.path.abspath(words[0]))
    sys.path[:] = [first, *places, *standard_path]
    reseed()
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(words[1], sys.modules["__main__"].__dict__)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def fork_workers(address: str) -> None:
    """Make the server from which multiprocessing forks a command's workers a fork too, whose imports are done.

    Like a new interpreter, it starts in the state in which a command begins, and shares the command's process group.
    """
    from tests.forked import Forked, connect

    spawn, ensure = util.spawnv_passfds, forkserver.ensure_running
    own, lock, started, kept = forkserver._forkserver, threading.Lock(), [], []

    def spawned(path, args, passed):
        if not WORKERS.search(args[-1]):
            return spawn(path, args, passed)
        streams = (sys.__stdout__, sys.__stderr__)
        kept.append(connect(address))  # which ends what it has asked for when this process ends
        started.append(Forked(kept[-1], args[-2:], os.getcwd(), dict(os.environ), streams, passed=passed))
        return started[-1].pid

    def ensured():
        with lock:
            if started and started[-1].poll() is not None:
                own._forkserver_pid = None
            if own._forkserver_pid is None:  # it is no child of this process, which could be waited for
                ensure()

    util.spawnv_passfds = spawned
    own.ensure_running = forkserver.ensure_running = ensured


def reseed() -> None:
    """Seed anew what a new interpreter would seed by chance, so that no two children draw the same."""
    import numpy
    import torch
    from datasets import fingerprint

    for generator in (random, numpy.random, torch.default_generator, fingerprint.fingerprint_rng):
        generator.seed()


def leave(main) -> None:
    """Call `main` and end as the interpreter does, but for taking all objects apart: that copies the shared memory."""
    status = 0
    try:
        main()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if not isinstance(stop.code, int | None):
            print(stop.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    main()
