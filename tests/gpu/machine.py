"""Commands on the machine that is measured, in interpreters that have imported before, ended in time."""

import collections
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TextIO

from tests import forked

ROOT = Path(__file__).resolve().parents[2]
RESERVE = 4  # interpreters that have imported, where none can be forked


class Failed(Exception):
    """A command ended badly, or took too long."""


class Process:
    """A running command, in a session of its own; `out` is a file with what it prints."""

    def __init__(self, child: forked.Forked | subprocess.Popen, out: TextIO):
        self.child, self.out = child, out


class Machine:
    """Runs Python in `folder`, with the packages in `site`; a dry run, on the CPU."""

    def __init__(self, folder: str, site: str, log: Path, dry: bool):
        self.folder, self.log, self.dry = Path(folder), log, dry
        self.ends = 0.0  # when the present part must have ended
        device = {"ACCELERATE_TORCH_DEVICE": "cpu", "OMP_NUM_THREADS": "1"} if dry else {}
        places = os.pathsep.join(filter(None, [site, os.environ.get("PYTHONPATH")]))
        # So asked for GPUs, torch leaves CUDA alone before the fork, after which it could not start.
        late = {"HF_HUB_OFFLINE": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
        self.environment = {**os.environ, **device, **late, "PYTHONPATH": places}
        self._server: Any = None
        self._forks = True
        self._ready = collections.deque[tuple[socket.socket, subprocess.Popen]]()

    def start(self, *words: str, **environment: str) -> Process:
        """Start Python with `words`, as a fork of an interpreter that the first start begins.

        Where an import starts a thread, as libraries for GPUs do, nothing can be forked; interpreters that have
        imported then wait in reserve.
        """
        first = self._forks and self._server is None
        if first:
            self._server = forked.start_server(self.environment)
        env = self.environment | environment
        with self.log.open("a") as log:
            print("$", *words, environment or "", file=log, flush=True)
            out = tempfile.TemporaryFile("w+")  # noqa: SIM115 (finish closes it)
            if self._forks:
                try:
                    return Process(forked.Forked(self._server[0], words, self.folder, env, [out, log], True), out)
                except (OSError, RuntimeError) as error:
                    if not first:
                        raise Failed(f"the interpreter that is forked has ended: {error}") from error
                    print(f"nothing can be forked ({error}): interpreters wait in reserve", flush=True)
                    self.close()
                    self._server, self._forks = None, False
            while len(self._ready) <= RESERVE:
                self._ready.append(self._interpreter())
            mine, child = self._ready.popleft()
            request = {"words": list(words), "cwd": str(self.folder), "env": env}
            with mine:
                socket.send_fds(mine, [json.dumps(request).encode()], [out.fileno(), log.fileno()])
            return Process(child, out)

    def _interpreter(self) -> tuple[socket.socket, subprocess.Popen]:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            command, null = [sys.executable, str(forked.SERVER), str(its.fileno()), "once"], subprocess.DEVNULL
            fds, env = [its.fileno()], self.environment
            child = subprocess.Popen(command, env=env, pass_fds=fds, stdin=null, stdout=null, start_new_session=True)
        return mine, child

    def finish(self, process: Process) -> str:
        """Return what a process prints. Raises Failed."""
        try:
            process.child.wait(max(1.0, self.ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill(process)
            raise Failed(f"it took too long: {self.log.read_text()[-300:]}") from None
        with process.out, self.log.open("a") as log:
            process.out.seek(0)
            output = process.out.read()
            log.write(output)
        if process.child.returncode:
            raise Failed(f"exit status {process.child.returncode}: " + self.log.read_text()[-600:])
        return output

    def kill(self, process: Process) -> None:
        """End a process and all that it started."""
        with contextlib.suppress(ProcessLookupError):  # it has no session yet, or has ended
            os.killpg(process.child.pid, signal.SIGKILL)
        process.child.send_signal(signal.SIGKILL)
        process.child.wait()
        process.out.close()

    def run(self, *words: str, **environment: str) -> str:
        """Run Python with `words` to its end and return what it prints. Raises Failed."""
        return self.finish(self.start(*words, **environment))

    def close(self) -> None:
        """End the interpreters that wait and all that still runs of the one that is forked."""
        for mine, child in self._ready:
            mine.close()
            child.kill()
            child.wait()
        self._ready.clear()
        if self._server is not None:
            requests, server = self._server
            requests.close()
            server.wait()

    def install(self, wheels: Path) -> None:
        """Install wheels where this machine's Python finds them, before the first start. Raises Failed."""
        words = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--upgrade"]
        site = self.environment["PYTHONPATH"].partition(os.pathsep)[0]
        command = [sys.executable, "-m", "pip", "install", *words, "--target", site, *map(str, wheels.glob("*.whl"))]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Failed(done.stderr[-600:])
        shutil.rmtree(Path(site) / "tests", ignore_errors=True)  # a wheel's, which would hide ours

    def device(self) -> str:
        """Return the name of the GPU that torch sees; CPU where it sees none."""
        name = "torch.cuda.get_device_name() if torch.cuda.is_available() else 'CPU'"
        return self.run("-c", f"import torch; print({name})").strip()
