"""Members that train side by side in one process, their losses and gradients computed together.

Each member has a loop in a thread of its own, and so its own averages, clipping, validations, patience and checkpoints.
One thread runs at a time. A loop that asks for a loss waits for all others to ask; the last one computes those of equal
shapes and steps together (vmap over stacked weights), so that a GPU, which waits for launches, launches once for all.
"""

import copy
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.utils._pytree import tree_flatten, tree_map

from common import noise
from common.stopping import StopRequest
from pipelines.engine.batches import is_out_of_memory
from pipelines.engine.workload import Loss, Task

WAIT = 0.2  # seconds between looks at the threads, when the main thread receives signals


@dataclass
class LossRequest:
    """A loss that a member waits for."""

    task: Task
    model: nn.Module
    batch: object
    seed: int  # of the noise at this step
    items: Tensor | None  # of the noise
    loss: Loss | None = None
    error: Exception | None = None

    def inputs(self) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor], object, Tensor | None]:
        """Return the trained, the model's other and the task's tensors, the batch and its items."""
        tensors: dict[str, Tensor] = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        learnt = {name: each for name, each in tensors.items() if each.requires_grad}
        fixed = {name: each for name, each in tensors.items() if not each.requires_grad}
        own = {name: each for name, each in vars(self.task).items() if isinstance(each, Tensor)}
        return learnt, fixed, own, self.batch, self.items

    def kind(self) -> Hashable:
        """Return a key shared by all losses that can be computed together."""
        leaves, form = tree_flatten(self.inputs())
        same = tuple((str(x.dtype), x.shape, x.device) if isinstance(x, Tensor) else (type(x), x) for x in leaves)
        return type(self.task), self.seed, str(form), same


class Stack:
    """Trains members in threads that take turns."""

    def __init__(self) -> None:
        self.turn = threading.Condition()  # its holder runs
        self.streams = sys.stdout, sys.stderr
        self.num_running = 0
        self.asked: list[tuple[LossRequest, Hashable]] = []
        self.most: int | None = None  # losses computed at once, after memory ran out

    def run(self, jobs: Sequence[Callable[[], object]]) -> None:
        """Call all jobs, each in a thread of its own, and wait for them; signals reach all of their loops."""
        self.num_running = len(jobs)
        threads = [threading.Thread(target=self._run, args=(job,), daemon=True) for job in jobs]
        with StopRequest().listening():
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(WAIT)

    def _run(self, job: Callable[[], object]) -> None:
        with self.turn:
            sys.stdout, sys.stderr = self.streams  # not those of the member whose turn it was
            try:
                job()
            finally:
                if sys.stdout is not self.streams[0]:
                    sys.stdout.close()
                sys.stdout, sys.stderr = self.streams
                self.num_running -= 1
                self.turn.notify_all()

    def joined(self, build: Callable[..., Task]) -> Callable[..., Task]:
        """Return a builder of tasks whose losses all members compute together."""

        def built(*args: object) -> Task:
            task = build(*args)
            vars(task)["loss"] = lambda model, batch: self._loss(task, model, batch)
            return task

        return built

    def _loss(self, task: Task, model: nn.Module, batch: object) -> Loss:
        mine = LossRequest(task, model, batch, *noise.begun())
        self.asked.append((mine, mine.kind()))
        while mine.loss is None and mine.error is None:
            if len(self.asked) == self.num_running:
                self._answer()
                self.turn.notify_all()
            else:
                streams = sys.stdout, sys.stderr  # others print elsewhere
                self.turn.wait()
                sys.stdout, sys.stderr = streams
        if mine.error is not None:
            raise mine.error
        assert mine.loss is not None
        return mine.loss

    def _answer(self) -> None:
        groups: dict[Hashable, list[LossRequest]] = {}
        for each, kind in self.asked:
            groups.setdefault(kind, []).append(each)
        self.asked = []
        for group in groups.values():
            while some := group[: self.most]:
                try:
                    compute(some)
                except Exception as error:
                    if is_out_of_memory(error) and len(some) > 1:
                        self.most = len(some) // 2
                        continue
                    for each in some:
                        each.error = error
                del group[: len(some)]


def compute(group: Sequence[LossRequest]) -> None:
    """Compute all losses, with gradients, at once over stacked weights and batches."""
    first = group[0]
    task = copy.copy(first.task)
    del vars(task)["loss"]  # which would ask again

    def loss(
        learnt: dict[str, Tensor], fixed: dict[str, Tensor], own: dict[str, Tensor], batch: object, items: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        vars(task).update(own)

        def model(*args: object, **words: object) -> object:
            return functional_call(first.model, {**learnt, **fixed}, args, words)

        with noise.rows(items):
            found = task.loss(model, batch)  # type: ignore[arg-type] # it is called like a module
        return found.value, {"count": torch.as_tensor(found.count), **found.metrics}

    torch.default_generator.manual_seed(first.seed)  # as at the beginning of this step's noise
    inputs = [each.inputs() for each in group]  # equal for one kind, except for tensors

    def joined(one: object, *others: Any) -> object:
        return torch.stack([x.detach() for x in (one, *others)]) if isinstance(one, Tensor) else one

    stacked = tree_map(joined, *inputs)
    dimensions = tree_map(lambda x: 0 if isinstance(x, Tensor) else None, stacked)
    gradients, (values, figures) = vmap(grad_and_value(loss, has_aux=True), dimensions, randomness="same")(*stacked)
    for number, each in enumerate(group):
        learnt = inputs[number][0]
        value = _Computed.apply(values[number], [gradients[name][number] for name in learnt], *learnt.values())  # type: ignore[no-untyped-call]  # torch has no types for it
        own = {name: figure[number] for name, figure in figures.items()}
        each.loss = Loss(value, own.pop("count"), own)


class _Computed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor], *parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *torch._foreach_mul(ctx.gradients, gradients[0])  # one launch


def write_to(file: TextIO) -> None:
    """Write this thread's output to `file`; the thread's end closes it."""
    sys.stdout = sys.stderr = file
