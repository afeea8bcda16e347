"""Sharded training (FSDP2): weights are gathered for each pass, or by layer if the model has `_no_split_modules`."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from accelerate import Accelerator, DistributedType
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from torch import Tensor, nn
from torch.distributed import Work
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

from common.errors import UserError
from common.machine import return_large_tensors
from pipelines.distributed import deferred


def prepare(
    accelerator: Accelerator, model: nn.Module, make: Callable[[nn.Module], Sequence[torch.optim.Optimizer]]
) -> tuple[nn.Module, list[AcceleratedOptimizer]]:
    """Return the prepared model and its optimizers, from `make`. Raises UserError where results would differ."""
    if accelerator.distributed_type != DistributedType.FSDP:
        model, *wrapped = accelerator.prepare(model, *make(model))
        return model, wrapped
    return_large_tensors()  # memory is scarce: gathered layers would fragment it
    plugin = accelerator.state.fsdp_plugin
    _check(plugin, make(model))
    # Weights are gathered and gradients averaged in the type they are stored in, outputs stay what they are, and
    # autocast picks the operations that compute in 16 bits: as with one process. Accelerate would round them all.
    plugin.mixed_precision_policy = MixedPrecisionPolicy()
    # A scalar cannot be split: each process keeps it whole, and `average_whole` sees to its gradient.
    plugin.ignored_modules = [nn.ParameterList(p for p in model.parameters() if p.ndim == 0)]
    # The loop changes no output in place.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    model = fsdp2_prepare_model(accelerator, model)
    accelerator._models.append(model)  # as `accelerator.prepare` does, which finds optimizers' weights by their memory
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_custom_all_gather(_Gather())
            module.set_custom_reduce_scatter(_Scatter())
    deferred.fill(model, accelerator.device)
    return model, [accelerator.prepare_optimizer(optimizer, device_placement=False) for optimizer in make(model)]


@torch.no_grad()
def load(accelerator: Accelerator, build: Callable[[], nn.Module], stored: Mapping[str, Tensor]) -> nn.Module | None:
    """Return the model of `build` in eval mode, each process with its share of the weights `stored` in a file.

    Weights outside layers stay gathered: ranks may call any method, equally often. None: it must be loaded whole.
    """
    with torch.random.fork_rng(devices=[]):
        model = deferred.made(build, accelerator.device)
    if getattr(model, "evaluated_whole", hasattr(model, "load_beside")) or not getattr(model, "_no_split_modules", ()):
        return None
    first = {id(x): (name, x.shape, x.dtype) for name, x in reversed(model.state_dict(keep_vars=True).items())}
    if set(first.values()) != {(name, x.shape, x.dtype) for name, x in stored.items()}:  # to be converted, or refused
        return None
    left = model.__dict__[deferred.ATTRIBUTE].left
    left |= {name: stored[name] for name in left.keys() & stored.keys()}
    model.load_state_dict({name: x for name, x in stored.items() if name not in left}, strict=False)
    split: Any = prepare(accelerator, model.eval().requires_grad_(False), lambda _: [])[0]
    split._get_fsdp_state()._lazy_init()  # a layer that is called before would take itself for the root
    split.unshard()
    return split  # type: ignore[no-any-return]


def _check(plugin: FullyShardedDataParallelPlugin, optimizers: Sequence[torch.optim.Optimizer]) -> None:
    by_size = plugin.auto_wrap_policy is size_based_auto_wrap_policy
    checkpointing = "false, with hardware.gradient_checkpointing=true on the command line,"
    for key, given, wrong, instead in (
        ("fsdp_version", "1", plugin.fsdp_version != 2, "2"),
        # It picks modules by size, and gathers their weights only when they are called as a whole.
        ("fsdp_auto_wrap_policy", "SIZE_BASED_WRAP", by_size, "TRANSFORMER_BASED_WRAP"),
        ("fsdp_cpu_ram_efficient_loading", "true", plugin.cpu_ram_efficient_loading, "false"),
        # Recomputed activations would have other noise.
        ("fsdp_activation_checkpointing", "true", plugin.activation_checkpointing, checkpointing),
    ):
        if wrong:
            mended = f"write {key}: {instead} into the file that accelerate launch reads"
            raise UserError(f"{key}: {given} does not work here: {mended}, as in accelerate_configs/fsdp.yaml")
    if any(isinstance(optimizer, torch.optim.Muon) for optimizer in optimizers):
        instead = "use training.optimizer=adamw, or launch with accelerate_configs/ddp.yaml"
        raise UserError(f"training.optimizer=muon needs whole matrices, which FSDP splits; {instead}")


class _Passes:
    """Counts this rank's collectives (`done`) in a forward and backward pass; a repeated pass skips these."""

    done, left_out = 0, 0

    def begin_again(self, model: FSDPModule) -> None:
        """After an aborted pass, let the next one, on any data, make only the collectives that it lacked.

        All passes of a model make the same ones, so no other rank is kept waiting. The result is useless.
        """
        model.reset_iter_state()
        self.left_out = self.done

    def takes_part(self) -> bool:
        """Count a collective; return whether to make it."""
        if self.left_out:
            self.left_out -= 1
            return False
        self.done += 1
        return True


passes = _Passes()


class _Gather(DefaultAllGather):
    def __call__(self, output_tensor: Tensor, *given: Any, **words: Any) -> Work | None:
        return super().__call__(output_tensor, *given, **words) if passes.takes_part() else None


class _Scatter(DefaultReduceScatter):
    def __call__(self, *given: Any, **words: Any) -> Work:
        return super().__call__(*given, **words) if passes.takes_part() else None  # type: ignore[return-value]


def average_whole(accelerator: Accelerator, model: nn.Module) -> None:
    """Average the gradients of parameters that are not split; FSDP has averaged all others."""
    if not isinstance(model, FSDPModule):
        return
    if gradients := [p.grad for p in model.parameters() if p.ndim == 0 and p.grad is not None]:
        torch._foreach_copy_(gradients, list(accelerator.reduce(torch.stack(gradients), "mean").unbind()))


@contextlib.contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Keep weights outside layers gathered in the block: ranks may call any method, equally often, and change none."""
    if not isinstance(model, FSDPModule):
        yield
        return
    model.set_reshard_after_forward(False, recurse=False)
    model.unshard()
    try:
        yield
    finally:
        model.reshard()
