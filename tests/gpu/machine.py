"""Commands on the machine that is measured: forks of one interpreter that has imported for all, ended in time."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TextIO

from tests import forked

ROOT = Path(__file__).resolve().parents[2]


class Failed(Exception):
    """A command ended badly, or took too long."""


class Process(forked.Forked):
    """A running command, in a session of its own; `out` is a file with what it prints."""

    def __init__(self, *arguments: Any, out: TextIO, err: TextIO):
        super().__init__(*arguments, [out, err], session=True)
        self.out = out


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

    def start(self, *words: str, **environment: str) -> Process:
        """Start Python with `words`, as a fork of an interpreter that the first start begins."""
        if self._server is None:
            self._server = forked.start_server(self.environment)
        with self.log.open("a") as log:
            print("$", *words, environment or "", file=log, flush=True)
            out = tempfile.TemporaryFile("w+")  # noqa: SIM115 (finish closes it)
            try:
                return Process(self._server[0], words, self.folder, self.environment | environment, out=out, err=log)
            except (OSError, RuntimeError) as error:
                raise Failed(f"the interpreter that is forked has ended: {error}") from error

    def finish(self, process: Process) -> str:
        """Return what a process prints. Raises Failed."""
        try:
            process.wait(max(1.0, self.ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill(process)
            raise Failed(f"it took too long: {self.log.read_text()[-300:]}") from None
        with process.out, self.log.open("a") as log:
            process.out.seek(0)
            output = process.out.read()
            log.write(output)
        if process.returncode:
            raise Failed(f"exit status {process.returncode}: " + self.log.read_text()[-600:])
        return output

    def kill(self, process: Process) -> None:
        """End a process and all that it started."""
        with contextlib.suppress(ProcessLookupError):  # it has no session yet, or has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.out.close()

    def run(self, *words: str, **environment: str) -> str:
        """Run Python with `words` to its end and return what it prints. Raises Failed."""
        return self.finish(self.start(*words, **environment))

    def close(self) -> None:
        """End the interpreter that is forked, and all that still runs."""
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
