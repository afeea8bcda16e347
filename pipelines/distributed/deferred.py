"""Models made without their weights, for sharded training: each process computes its share of them later.

The model's own code is recorded on the meta device, with the state of random numbers. Replaying a weight's
operations yields the same bits as building the model whole, with one weight in memory at a time.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from accelerate import DistributedType
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from common.machine import return_large_tensors

ATTRIBUTE = "deferred"  # of a model without its weights: their Recorder

AModel = TypeVar("AModel", bound=nn.Module)


class _Place:
    """Storage and layout of a tensor without memory, not the tensor: modules cannot convert one in use."""

    def __init__(self, tensor: Tensor):
        self.storage, self.number = tensor.untyped_storage(), int(tensor.untyped_storage()._cdata)
        self.form = tensor.shape, tensor.stride(), tensor.storage_offset()


@dataclass(frozen=True)
class _Call:
    function: Callable[..., object]
    args: tuple[object, ...]  # with a _Place for each tensor without memory
    kwargs: dict[str, object]
    made: list[_Place]
    reads: set[int]
    writes: set[int]
    generator: torch.Generator
    state: Tensor | None  # of the generator, for random numbers


class Recorder(TorchDispatchMode):
    """Within the block, new tensors have no memory, and operations on them are recorded."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[_Call] = []
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.left: dict[str, Tensor] = {}  # name -> weight still to fill in, recorded or loaded

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> object:
        """Compute an operation on tensors with memory; record one on others."""
        kwargs, places = dict(kwargs or {}), func._schema.arguments
        given = _tensors((args, kwargs))
        written = [place.alias_info is not None and place.alias_info.is_write for place in places]
        changed = _tensors([x for x, is_written in zip(args, written, strict=False) if is_written])
        on_cpu = str(kwargs.get("device") or "cpu") == "cpu"
        makes = not given and on_cpu and any(place.name == "device" for place in places)
        if not (makes or any(_is_fake(x) for x in given)) or not all(map(_is_fake, changed)):
            return func(*self.valued(args), **self.valued(kwargs))
        generator = kwargs.get("generator") or torch.default_generator
        assert isinstance(generator, torch.Generator), "as the operation asks for"
        random = torch.Tag.nondeterministic_seeded in func.tags
        state = generator.get_state() if random else None
        try:
            with self.fake:
                found = func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            return func(*self.valued(args), **self.valued(kwargs))
        if random:
            self.advance(func, args, kwargs)
        self.fake.fake_tensor_converter.meta_converter.tensor_memo.clear()  # weak references count, too (see _Place)
        made = [_Place(x) for x in _tensors(found)]
        reads, writes = ({_Place(x).number for x in part if _is_fake(x)} for part in (given, changed))
        args, kwargs = tree_map_only(Tensor, lambda x: _Place(x) if _is_fake(x) else x, (args, kwargs))
        writes |= {place.number for place in made}
        self.calls.append(_Call(func, args, kwargs, made, reads, writes, generator, state))
        return found

    def advance(self, func: Any, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """Draw and discard an operation's random numbers, to advance the generator."""
        func(*tree_map_only(Tensor, lambda x: torch.empty_strided(x.shape, x.stride(), dtype=x.dtype), args), **kwargs)

    def valued(self, tree: Any) -> Any:
        """Return `tree` with its recorded tensors computed."""
        return tree_map_only(Tensor, lambda x: self.value(x) if _is_fake(x) else x, tree)

    @torch.no_grad()
    def value(self, tensor: Tensor) -> Tensor:
        """Compute a recorded tensor. The generator's state does not change."""
        asked = _Place(tensor)
        needed, calls = {asked.number}, list[_Call]()
        for call in reversed(self.calls):
            if call.writes & needed:
                calls.append(call)
                needed |= call.reads
        memory: dict[int, Tensor] = {}

        def real(place: _Place) -> Tensor:
            return memory[place.number].as_strided(*place.form)

        for call in reversed(calls):
            args, kwargs = tree_map_only(_Place, real, (call.args, call.kwargs))
            before = call.generator.get_state()
            if call.state is not None:
                call.generator.set_state(call.state)
            found = call.function(*args, **kwargs)
            call.generator.set_state(before)
            for place, value in zip(call.made, _tensors(found), strict=True):
                memory.setdefault(place.number, value)
        return real(asked)


def _tensors(tree: object) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def _is_fake(tensor: Tensor) -> bool:
    return isinstance(tensor, FakeTensor)


def made(make: Callable[[], AModel], device: torch.device, whole: bool = False) -> AModel:
    """Return a new model on `device`; in sharded training, unless `whole`, its weights are on meta until `fill`."""
    if whole or AcceleratorState._shared_state.get("distributed_type") != DistributedType.FSDP:
        return make().to(device)
    return_large_tensors()
    # peft copies modules, and torch looks for memory first.
    warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
    with Recorder() as recorder:
        model = make()
    recorder.left = {name: weight for name, weight in model.named_parameters() if _is_fake(weight) and weight.ndim}
    known: dict[Tensor, Tensor] = {}  # tied weights stay tied
    for module in list(model.modules()):
        for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            if tensor not in known:
                known[tensor] = _with_memory(recorder, tensor, device)
            setattr(module, name, known[tensor])
    setattr(model, ATTRIBUTE, recorder)
    return model


def _with_memory(recorder: Recorder, tensor: Tensor, device: torch.device) -> Tensor:
    if not isinstance(tensor, nn.Parameter):
        return (recorder.value(tensor) if _is_fake(tensor) else tensor).to(device)
    deferred = _is_fake(tensor) and tensor.ndim
    kept = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return nn.Parameter(kept if deferred else recorder.valued(tensor.data).to(device), tensor.requires_grad)


def move(model: nn.Module, device: torch.device) -> None:
    """Move a model to `device`, except weights that `made` left on meta."""
    model._apply(lambda x: x if x.is_meta else x.to(device))


@contextlib.contextmanager
def lent(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Within the block, give modules whose weights `made` left on meta their whole weights at their first call."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    taken: list[tuple[nn.Module, str, nn.Parameter]] = []

    def give(module: nn.Module, inputs: object) -> None:
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter.is_meta:
                recorder = model.__dict__[ATTRIBUTE]
                taken.append((module, name, parameter))
                value = recorder.value(recorder.left[names[parameter]]).to(device)
                module._parameters[name] = nn.Parameter(value, requires_grad=False)

    with register_module_forward_pre_hook(give):
        yield
    for module, name, parameter in taken:
        module._parameters[name] = parameter


@torch.no_grad()
def fill(model: nn.Module, device: torch.device) -> None:
    """Compute this process's share of the weights that `made` left on meta."""
    if not isinstance(recorder := model.__dict__.pop(ATTRIBUTE, None), Recorder):
        return
    model._apply(lambda x: torch.empty_like(x, device=device) if x.is_meta else x)
    for name, weight in model.named_parameters():
        if name in recorder.left:
            whole = recorder.valued(recorder.left[name])
            assert isinstance(weight, DTensor), "all but scalars is split"
            size, start = compute_local_shape_and_global_offset(weight.shape, weight.device_mesh, weight.placements)
            for axis, (begin, length) in enumerate(zip(start, size, strict=True)):
                whole = whole.narrow(axis, begin, length)
            weight.to_local().copy_(whole)
