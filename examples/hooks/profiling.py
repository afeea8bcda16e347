"""A trace of steps 10 to 20 for chrome://tracing or https://ui.perfetto.dev.

accelerate launch pipelines/train.py --workload cvrp training.hooks=[examples.hooks.profiling:Profile]
"""

from torch.profiler import profile

from pipelines.engine.hooks import Hook, Moment


class Profile(Hook):
    """Writes trace.json into the run's folder, as the main process sees these steps."""

    first, last = 10, 20

    def __init__(self) -> None:
        self.profiler: profile | None = None

    def on_update(self, now: Moment) -> None:
        """Begin before the first of the steps; end after the last."""
        if now.step == self.first - 1 and now.accelerator.is_main_process:
            self.profiler = profile()
            self.profiler.start()
        elif now.step == self.last:
            self.on_end(now)

    def on_end(self, now: Moment) -> None:
        """Write what was seen, also of a training that ends earlier."""
        if self.profiler is not None:
            self.profiler.stop()
            self.profiler.export_chrome_trace(str(now.run.folder / "trace.json"))
            self.profiler = None
