"""Memory that a computation would take, found out without making it.

    with planned() as used:           # tensors have shapes and no values
        step()
    used.peak                         # bytes of the tensors that lived together

Within the block torch computes with fake tensors, which rest on its meta device. Values cannot be asked for.
"""

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Live(TorchDispatchMode):
    """Counts the bytes of the tensors that are made, while they live."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return found

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


@contextlib.contextmanager
def planned() -> Iterator[Live]:
    """Compute with shapes alone within the block, and count; tensors from outside must not be used in it."""
    from torch._subclasses.fake_tensor import FakeTensorMode  # imports for a second

    with FakeTensorMode(), Live() as live:
        yield live
