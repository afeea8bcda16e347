"""Progress of training as the user sees it, and the records behind it."""

import itertools
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence

import torch
from accelerate import Accelerator
from tqdm import tqdm

from common.gpu import read_gpu
from common.workers import clock
from pipelines.distributed import ranks
from pipelines.run.folder import Run

WIDTH = 80  # columns of a line


class Monitor:
    """Counts time and examples between records; shows figures in a bar on a terminal, else as lines."""

    def __init__(self, accelerator: Accelerator, run: Run, steps: int, gpu_log_interval: int):
        self.accelerator, self.run, self.steps, self.gpu_log_interval = accelerator, run, steps, gpu_log_interval
        self.bar: tqdm | None = None
        self.gpu: dict[str, float] = {}
        self.began = self.interval_began = time.perf_counter()
        self.first_step, self.examples, self.waited = 0, 0, 0.0

    def start(self, step: int) -> None:
        """Start timing, from `step` on."""
        self.first_step = step
        self.began = self.interval_began = time.perf_counter()
        self.say(f"lines show means since the previous line; all figures go to\n{self.run.metrics_file}")
        if self.accelerator.is_main_process and sys.stderr.isatty():
            form = "{n_fmt}/{total_fmt} {bar:10} {remaining} left  {desc}"
            self.columns = min(WIDTH, shutil.get_terminal_size().columns)
            self.bar = tqdm(total=self.steps, initial=step, bar_format=form, ncols=self.columns)

    def count(self, step: int, examples: int, waited: float) -> None:
        """Count an update of `examples`, of which `waited` seconds were spent waiting for data."""
        self.examples += examples
        self.waited += waited
        if self.gpu_log_interval and step % self.gpu_log_interval == 0 and self.accelerator.is_main_process:
            self.gpu = read_gpu(self.accelerator.device)
        if self.bar is not None:
            self.bar.update()

    def log(self, step: int, values: Mapping[str, float], seconds: Sequence[float] = ()) -> None:
        """Record the means since the last record; `seconds` are those of each rank's own work in an update."""
        now = time.perf_counter()
        elapsed = max(now - self.interval_began, 1e-9)
        rates = {"examples_per_s": round(self.examples / elapsed, 2), "data_wait": round(self.waited / elapsed, 4)}
        entry = {**values, **rates, **self.gpu}
        if self.accelerator.device.type == "cuda":
            entry["gpu/peak_memory_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 3)
            torch.cuda.reset_peak_memory_stats()
        self.interval_began, self.examples, self.waited = now, 0, 0.0
        self._keep(step, entry, {"seconds_by_rank": [round(each, 6) for each in seconds]} if seconds else {})
        figures = [f"{k.removeprefix('train/')} {v:.4g}" for k, v in values.items() if k.startswith("train/")]
        own = [figure for figure in figures if not figure.startswith("grad_norm")]
        own.append(f"{entry['examples_per_s']:.0f} examples/s")
        if entry["data_wait"] >= 0.01:
            own.append(f"waiting for data {entry['data_wait']:.0%}")
        own += [f"{k.removeprefix('gpu/')} {v:.3g}" for k, v in entry.items() if k.startswith("gpu/")]
        own += [figure for figure in figures if figure not in own]
        if self.bar is not None:
            bar = 2 * len(f"{self.steps}/") + 26  # columns before the figures
            self.bar.set_description_str(fitted(own, self.columns - bar))
        else:
            left = (self.steps - step) * (now - self.began) / max(step - self.first_step, 1)
            self.say(fitted([f"step {step}/{self.steps}", f"{clock(left)} left", *own]))

    def validated(self, step: int, values: Mapping[str, float], note: str = "") -> None:
        """Record a validation."""
        self._keep(step, values)
        line = f"step {step}/{self.steps}  " + "  ".join(f"{k} {v:.5g}" for k, v in values.items()) + note
        self.say("\n".join(textwrap.wrap(line, WIDTH, subsequent_indent=" " * 6)))
        # Validation is not training: it must not lower the next interval's examples/s.
        self.interval_began, self.examples, self.waited = time.perf_counter(), 0, 0.0

    def say(self, line: str) -> None:
        """Print a line for the user, above the bar if there is one."""
        if not self.accelerator.is_main_process:
            return
        if self.bar is not None:
            self.bar.write(line, file=sys.stderr)
        else:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the progress bar."""
        if self.bar is not None:
            self.bar.close()

    def _keep(self, step: int, values: Mapping[str, float], more: Mapping[str, object] = {}) -> None:
        entry = {"time": round(time.time(), 3), **values}
        ranks.on_main(lambda: self.run.record({"step": step, **entry, **more}))
        self.accelerator.log(entry, step=step)


def fitted(parts: Sequence[str], width: int = WIDTH) -> str:
    """Return as many of the first parts as `width` columns hold, two spaces apart."""
    lines = list(itertools.accumulate(parts, "{}  {}".format))
    return max((line for line in lines if len(line) <= width), key=len, default=lines[0])
