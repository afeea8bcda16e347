"""Where the time and the memory of training steps go: a trace to look at, and a table by module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from accelerate import Accelerator
from torch import nn
from torch._C._autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from common.disk.files import explained
from common.gpu import GIB
from pipelines.engine.config import BaseConfig
from pipelines.engine.update import Updater
from pipelines.engine.workload import Task
from pipelines.run.folder import Run

STEPS, WARM_UP = 3, 2
ROWS = 10
MARK = "module: "


def traced(task: Task, config: BaseConfig, accelerator: Accelerator, run: Run, path: Path) -> str:
    """Profile a few updates, write a trace that Perfetto opens, and return a table of ten lines.

    A module's time is that of its forward passes less its submodules', on a GPU of its kernels; its memory is what
    they allocate and keep for the backward pass.
    """
    training = config.training.model_copy(update={"steps": WARM_UP + STEPS, "epochs": None})
    updater = Updater(task, config.model_copy(update={"training": training}), accelerator, run)
    updater.choose_micro_batch_size()
    updater.model.train()
    batches = updater.batches()
    for _ in range(WARM_UP):
        updater.update(batches)
    cuda = accelerator.device.type == "cuda"
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with _marked(task.model), profile(activities=kinds, profile_memory=True) as profiler:
        for _ in range(STEPS):
            with record_function(f"{MARK}(step)"):
                updater.update(batches)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(path))
    return _table(list(profiler.events()), cuda)


@contextmanager
def _marked(model: nn.Module) -> Iterator[None]:
    """Put the forward pass of each module into the trace, by its name and class, within the block."""
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            label = f"{MARK}{name or '(model)'} ({type(module).__name__})"
            open_now: list[record_function] = []

            def enter(
                module: nn.Module, given: object, label: str = label, marks: list[record_function] = open_now
            ) -> None:
                marks.append(record_function(label))
                marks[-1].__enter__()

            def leave(
                module: nn.Module, given: object, output: object, marks: list[record_function] = open_now
            ) -> None:
                marks.pop().__exit__(None, None, None)

            for handle in (module.register_forward_pre_hook(enter), module.register_forward_hook(leave)):
                hooks.callback(handle.remove)
        yield


def _table(events: list[FunctionEvent], cuda: bool) -> str:
    """Return the ten entries that take most of a step, and the step's whole time and memory."""
    seconds: dict[str, float] = defaultdict(float)
    memory: dict[str, float] = defaultdict(float)
    for event in events:
        label = _label(event)
        if label is None or event.device_type != DeviceType.CPU:  # the trace repeats marks among a GPU's events
            continue
        time = (event.device_time_total if cuda else event.cpu_time_total) / 1e6
        allocated = event.device_memory_usage if cuda else event.cpu_memory_usage
        seconds[label] += time
        memory[label] += allocated
        above = _above(event)
        if above is not None:
            seconds[above] -= time
            memory[above] -= allocated
    whole = sum(seconds.values())
    lines = [f"{'of a step of ' + format(1000 * whole / STEPS, '.4g') + ' ms':52} {'ms':>8} {'share':>6} {'MiB':>8}"]
    for label in sorted(seconds, key=lambda label: -seconds[label])[:ROWS]:
        share, mib = seconds[label] / whole, memory[label] / STEPS / GIB * 1024
        lines.append(f"{label[:52]:52} {1000 * seconds[label] / STEPS:8.2f} {share:6.1%} {mib:8.1f}")
    return "\n".join(lines)


def _label(event: FunctionEvent) -> str | None:
    """Return the row an event belongs to; None for an operation within one."""
    name = event.name
    if name.startswith(MARK):
        label = name.removeprefix(MARK)
        return "(everything else)" if label == "(step)" else label
    if name.startswith("Optimizer.step"):
        return "(optimizer)"
    if name.startswith("autograd::engine::evaluate_function"):
        return "(backward pass)"
    return None


def _above(event: FunctionEvent) -> str | None:
    """Return the row that the event is a part of."""
    parent = event.cpu_parent
    while parent is not None and (label := _label(parent)) is None:
        parent = parent.cpu_parent
    return None if parent is None else label
