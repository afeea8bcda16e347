"""Limits on what building a model may take, so that a config from a stranger costs no more than its weights can hold.

While a `Limit` is active, the size of each tensor is computed before torch allocates it.
"""

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

# Tensors made in all, in bytes per byte of stored weights: those in bfloat16 are built in float32, tied ones twice, and
# drawing them takes further ones. A base that is built from its config is stored by its few adapters alone.
TIMES, BASE_TIMES = 16, 1024
FREE_BYTES, BASE_FREE_BYTES = 2**26, 2**28  # for what is not stored
FREE_CALLS, CALLS = 2000, 100  # of torch's operations, and for each stored tensor

META = torch.device("meta")

_active: ContextVar["Limit | None"] = ContextVar("limit", default=None)


class Limit(TorchDispatchMode):
    """Raises ValueError before more is allocated than a model with these `stored` tensors can need."""

    def __init__(self, stored: Sequence[Tensor], times: int = TIMES, free_bytes: int = FREE_BYTES):
        TorchDispatchMode.__init__(self)
        self.stored, self.paused = stored, False
        self.bytes_left = free_bytes + times * sum(tensor.nbytes for tensor in stored)
        self.calls_left = FREE_CALLS + CALLS * len(stored)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch's wrapper takes 4 s to import, and nothing is compiled here

    def __enter__(self) -> "Limit":
        self._before = _active.set(self)
        TorchDispatchMode.__enter__(self)
        return self

    def __exit__(self, *error: object) -> None:
        TorchDispatchMode.__exit__(self, *error)
        _active.reset(self._before)

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if not self.paused:
            self.calls_left -= 1
            self.bytes_left -= _new_bytes(func, args, kwargs)
            if self.calls_left < 0 or self.bytes_left < 0:
                raise ValueError(f"the config describes a larger model than the {len(self.stored)} stored tensors hold")
        return func(*args, **kwargs)


@contextlib.contextmanager
def paused() -> Iterator["Limit | None"]:
    """Lift the limit, and yield it, while files of the user's own are read, such as a pretrained base."""
    if (limit := _active.get()) is None:
        yield None
        return
    before, limit.paused = limit.paused, True
    try:
        yield limit
    finally:
        limit.paused = before


@contextlib.contextmanager
def for_built_base() -> Iterator[None]:
    """Set a wider limit for a base that is built from the config and not stored."""
    with paused() as limit, Limit(limit.stored, BASE_TIMES, BASE_FREE_BYTES) if limit else contextlib.nullcontext():
        yield


def _new_bytes(func: OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> int:
    """Return the bytes that a call allocates for its results; 0 where they share the memory of its arguments."""
    schema = func._schema
    names = (argument.name for argument in schema.arguments)
    given: dict[str, Any] = {**dict(zip(names, args, strict=False)), **kwargs}
    if all(result.alias_info is not None for result in schema.returns) or given.get("device") == META:
        return 0
    tensors = [value for value in tree_leaves(given) if isinstance(value, Tensor)]
    if (count := _count(func, given, tensors)) is None:
        return _on_meta(func, args, kwargs)
    types = [given.get("dtype") or torch.get_default_dtype(), *(tensor.dtype for tensor in tensors)]
    return count * max(dtype.itemsize for dtype in types)


def _count(func: OpOverload, given: Mapping[str, Any], tensors: Sequence[Tensor]) -> int | None:
    """Count the numbers in a common call's result; None for others. The meta device can take seconds to import."""
    name = func._schema.name.removeprefix("aten::")
    if "size" in given:
        return int(math.prod(given["size"]))
    if torch.Tag.pointwise in func.tags and tensors:
        sides = itertools.zip_longest(*(reversed(tensor.shape) for tensor in tensors), fillvalue=1)  # broadcast
        return math.prod(max(side) for side in sides)
    if name in ("stack", "cat") or name.endswith("_like"):
        return sum(tensor.numel() for tensor in tensors)
    if name in ("linspace", "logspace"):
        return int(given["steps"])
    if name == "arange":
        return math.ceil(float((given["end"] - given.get("start", 0)) / given.get("step", 1)))
    return None


def _on_meta(func: OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> int:
    """Return the bytes of a call's results by torch's meta device, which has shapes and no memory."""

    def moved(value: object) -> object:
        if not isinstance(value, Tensor) or value.layout != torch.strided:
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=META)

    kwargs = {**tree_map(moved, kwargs), **({"device": META} if "device" in kwargs else {})}
    kwargs.pop("generator", None)  # of another device
    try:
        results = func(*tree_map(moved, args), **kwargs)
    except (NotImplementedError, RuntimeError):  # the result depends on values, or the call is wrong and will say so
        return 0
    return sum(result.nbytes for result in tree_leaves(results) if isinstance(result, Tensor))
