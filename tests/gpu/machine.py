"""Commands on the machine that is measured: each in a process group of its own, and ended when its time is over."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Failed(Exception):
    """A command ended badly, or took too long."""


class Machine:
    """Runs Python in `folder`, with the packages in `site`; a dry run, on the CPU."""

    def __init__(self, folder: str, site: str, log: Path, dry: bool):
        self.folder, self.log, self.dry = Path(folder), log, dry
        self.ends = 0.0  # when the present part must have ended
        device = {"ACCELERATE_TORCH_DEVICE": "cpu", "OMP_NUM_THREADS": "1"} if dry else {}
        places = os.pathsep.join(filter(None, [site, os.environ.get("PYTHONPATH")]))
        self.environment = {**os.environ, **device, "PYTHONPATH": places, "HF_HUB_OFFLINE": "1"}

    def start(self, *words: str, **environment: str) -> subprocess.Popen:
        """Start Python with `words`."""
        with self.log.open("a") as log:
            print("$", *words, environment or "", file=log, flush=True)
            return subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                env=self.environment | environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def finish(self, process: subprocess.Popen) -> str:
        """Return what a process prints. Raises Failed."""
        try:
            output, _ = process.communicate(timeout=max(1.0, self.ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill(process)
            raise Failed(f"it took too long: {self.log.read_text()[-300:]}") from None
        with self.log.open("a") as log:
            log.write(output)
        if process.returncode:
            raise Failed(f"exit status {process.returncode}: " + self.log.read_text()[-600:])
        return output

    def kill(self, process: subprocess.Popen) -> None:
        """End a process and all that it started."""
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def run(self, *words: str, **environment: str) -> str:
        """Run Python with `words` to its end and return what it prints. Raises Failed."""
        return self.finish(self.start(*words, **environment))

    def install(self, wheels: Path) -> None:
        """Install wheels where this machine's Python finds them. Raises Failed."""
        words = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--upgrade"]
        site = self.environment["PYTHONPATH"].partition(os.pathsep)[0]
        self.run("-m", "pip", "install", *words, "--target", site, *map(str, wheels.glob("*.whl")))

    def device(self) -> str:
        """Return the name of the GPU that torch sees; CPU where it sees none."""
        name = "torch.cuda.get_device_name() if torch.cuda.is_available() else 'CPU'"
        return self.run("-c", f"import torch; print({name})").strip()
