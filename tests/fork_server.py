"""The server of tests/forked.py: imports what commands need, then forks a child for each.

    python tests/fork_server.py SOCKET [once]

SOCKET is the number of an inherited socket. A request on it is a JSON object with `words`, `cwd`, `env` and
perhaps `session`, for a session of its own, and three file descriptors: the child's stdout, its stderr, and a socket
for its process id and later its status. The server and
all its children end when the other side closes SOCKET. With `once` it forks nothing and runs the first request itself,
which has the two streams only: that also works where imports start threads.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import random
import runpy
import select
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("common", "exporters", "models", "pipelines")
LATE = ("torch._dynamo",)  # a slow import that Accelerate leaves until it is used


def main() -> None:
    standard_path = sys.path[1:]
    sys.path[0] = str(ROOT)
    gc.disable()  # hardly anything of what imports make is garbage
    preload()
    once = sys.argv[2:] == ["once"]
    if not once and (threads := len(os.listdir("/proc/self/task")) - 1):
        sys.exit(f"fork_server: imports have started {threads} threads, which forks would lose; TEST_PROCESSES=fresh")
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest and the children
    gc.collect()
    gc.freeze()  # what children do not visit they share
    gc.enable()
    clients = socket.socket(fileno=int(sys.argv[1]))
    request = receive(clients) if once else serve(clients)
    signal.signal(signal.SIGINT, interrupt)
    leave(lambda: execute(request, standard_path))


def preload() -> None:
    """Import all modules of the project, and with them the libraries that they import."""
    for package in PACKAGES:
        for module in pkgutil.walk_packages([str(ROOT / package)], f"{package}."):
            if not module.name.endswith("__main__"):
                with contextlib.suppress(Exception):  # the command that needs it will show the error
                    importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)


def serve(clients: socket.socket) -> dict[str, Any]:
    """Fork a child for each request. Returns in the children only, with their request."""
    running: dict[int, tuple[int, socket.socket]] = {}  # pidfd -> process id, status socket
    while True:
        for ready in select.select([clients, *running], [], [])[0]:
            if ready in running:
                pid, status = running.pop(ready)
                os.close(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with contextlib.suppress(OSError):  # nobody waits for it any more
                    status.send(b"%d" % code)
                status.close()
                continue
            message, streams, _, _ = socket.recv_fds(clients, 1 << 20, 3)
            if not message:
                for pid, _ in running.values():
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                clients.close()
                for pidfd, (_, status) in running.items():
                    os.close(pidfd)
                    status.close()
                for number, stream in enumerate(streams):
                    if number < 2:
                        os.dup2(stream, number + 1)
                    os.close(stream)
                return json.loads(message)
            status = socket.socket(fileno=streams.pop())
            running[os.pidfd_open(pid)] = (pid, status)
            status.send(b"%d" % pid)
            for stream in streams:
                os.close(stream)


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
    os.environ.clear()
    os.environ.update(request["env"])
    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    words = request["words"]
    first = os.getcwd() if words[0] in ("-m", "-c") else os.path.dirname(os.path.abspath(words[0]))
    sys.path[:] = [first, *places, *standard_path]
    reseed()
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(words[1], {"__name__": "__main__"})
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


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
