"""A device in Python, for machines without a GPU: its tensors claim to be elsewhere, but compute on the CPU.

    python tests/emulated_device.py WAITS.json pipelines/train.py --workload cvrp ...

runs a script on the device "emulated". As on a GPU, an operation on tensors of two devices raises RuntimeError.
Everything that would make the host wait for a GPU is counted: a value that is read (item, tolist, cpu, a condition), a
shape that depends on values (nonzero, unique, an index by a mask), and a copy from or to the host that is not
non_blocking. Native code stands in for Triton's kernels. WAITS.json lists [what, the lines of the project that led
there, innermost first, how often].
"""

import collections
import functools
import json
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "emulated"
ROOT = Path(__file__).resolve().parents[1]
aten = torch.ops.aten
COPIES = (aten.copy_.default, aten._to_copy.default)
INDEXED = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default)
READS = (aten._local_scalar_dense.default, aten.equal.default)
SHAPED_BY_VALUES = (
    *(aten.nonzero.default, aten._unique2.default, aten.unique_dim.default, aten.unique_consecutive.default),
    *(aten.masked_select.default, aten.bincount.default, aten.repeat_interleave.Tensor),
)
LIBRARIES: list[torch.library.Library] = []  # kernels stay as long as these
# CUDA's kernels for these add up in varying order: torch.use_deterministic_algorithms refuses them.
VARYING = (
    *(aten.histc, aten.put_, aten._adaptive_avg_pool2d_backward, aten.adaptive_max_pool2d_backward),
    *(aten.upsample_bilinear2d_backward, aten.upsample_bicubic2d_backward, aten.reflection_pad2d_backward),
    *(aten.grid_sampler_2d_backward, aten.nll_loss2d_forward),
)
WAITS: collections.Counter[tuple[str, tuple[str, ...]]] = collections.Counter()
# What a device computes: every operation on its tensors but views and those that only allocate.
OPERATIONS: collections.Counter[str] = collections.Counter()
ALLOCATING = ("empty", "new_empty", "_unsafe_view", "_local_scalar_dense")


class EmulatedTensor(torch.Tensor):
    """A tensor of the device; `values` are its data, on the CPU."""

    values: torch.Tensor

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> "EmulatedTensor":
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=torch.device(NAME, 0),
        )
        tensor.values = values
        return tensor

    def __repr__(self) -> str:
        return f"EmulatedTensor({self.values})"

    def tolist(self) -> Any:
        count("tolist")
        return self.values.tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError(f"can't convert {NAME}:0 device type tensor to numpy")

    __array__ = numpy

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return execute(function, args, kwargs or {})


class EmulatedDevice(TorchDispatchMode):
    """Context in which tensors can be made on the device."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return execute(function, args, kwargs or {})


def install() -> None:
    """Make the device known to torch, once in a process."""
    _setup_privateuseone_for_python_backend(NAME)
    torch.accelerator.synchronize = lambda *_: None  # operations have ended when they return
    getattr(torch, NAME).get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]

    # So that norms of gradients and the like run over whole lists, as on CUDA.
    torch.utils._foreach_utils._foreach_supported_types.append(EmulatedTensor)

    whole = torch._VF.lstm

    def lstm(*args: Any) -> Any:
        mine = any(isinstance(x, EmulatedTensor) for x in tree_iter(args))
        if mine and not torch.is_grad_enabled():  # one kernel on CUDA; only for gradients is it taken apart
            OPERATIONS["aten.lstm"] += 1
            return tree_map(
                EmulatedTensor, whole(*tree_map(lambda x: x.values if isinstance(x, EmulatedTensor) else x, args))
            )
        with enable_python_dispatcher():
            return torch.ops.aten.lstm(*args)

    torch._VF.lstm = lstm
    # torch.tensor calls these to move numbers to a device, and hides its calls from modes and classes.
    kernels = torch.library.Library("aten", "IMPL", "PrivateUse1")
    kernels.impl("empty_strided", lambda *sizes, dtype, **_: EmulatedTensor(torch.empty_strided(*sizes, dtype=dtype)))
    kernels.impl("_copy_from", copy_from)
    LIBRARIES.append(kernels)


def copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    count("copy to the device")
    target.values.copy_(source)
    return target


def execute(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the CPU and return tensors of the device where CUDA would."""
    leaves = list(tree_iter((args, kwargs)))
    mine = [x for x in leaves if isinstance(x, EmulatedTensor)]
    asked = kwargs.get("device")
    if not mine and (asked is None or torch.device(asked).type != NAME):
        return function(*args, **kwargs)
    here = bool(mine) if asked is None else torch.device(asked).type == NAME
    if function in COPIES:
        copied = args[1] if function is aten.copy_.default else args[0]
        here = isinstance(args[0], EmulatedTensor) if function is aten.copy_.default else here
        if isinstance(copied, EmulatedTensor) != here and not waits_not(args, kwargs, here):
            count("copy to the device" if here else "copy to the host")
    elif mine:
        check_places(function, args, leaves)
    if asked is not None:
        kwargs = {**kwargs, "device": torch.device("cpu"), "pin_memory": False}
    if launches(function):
        OPERATIONS[str(function)] += 1
    known = {id(tensor.values): tensor for tensor in mine}
    found = function(*tree_map(values_of, args), **tree_map(values_of, kwargs))
    changed = [tensor for tensor in mine if tensor.shape != tensor.values.shape]
    assert not changed, f"{function} changes a tensor's shape in place, which is not emulated"

    def placed(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return known[id(x)] if id(x) in known else EmulatedTensor(x)

    return tree_map(placed, found) if here else found


@functools.cache
def launches(function: Any) -> bool:
    """Return whether an operation computes anything: views and allocations do not."""
    is_view = any(found.alias_info and not found.alias_info.is_write for found in function._schema.returns)
    return not is_view and not str(function).removeprefix("aten.").startswith(ALLOCATING)


def values_of(x: Any) -> Any:
    return x.values if isinstance(x, EmulatedTensor) else x


def waits_not(args: Any, kwargs: dict[str, Any], to_device: bool) -> bool:
    """Return whether CUDA does a copy without the host waiting; never one to the host, whose memory is not pinned."""
    return to_device and bool(kwargs.get("non_blocking", args[2] if len(args) > 2 else False))


def check_places(function: Any, args: Any, leaves: list[Any]) -> None:
    """Raise for tensors of two devices among all `leaves` of an operation where CUDA would; count its reads."""
    varies = function.overloadpacket in VARYING or (function is aten.cumsum.default and args[0].is_floating_point())
    if varies and torch.are_deterministic_algorithms_enabled():
        raise RuntimeError(f"{function} does not have a deterministic implementation")
    foreign = [x for x in leaves if type(x) in (torch.Tensor, torch.nn.Parameter)]
    if function in READS:
        count(str(function))
    if function in SHAPED_BY_VALUES:
        count(str(function))
    if function in INDEXED:
        if any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1]):
            count(f"{function} by a mask")
        if any(x is not None and not isinstance(x, EmulatedTensor) for x in args[1]):
            count("copy of an index to the device")
        foreign = [x for x in foreign if not any(x is index for index in args[1])]
    scalars = torch.Tag.pointwise in function.tags or "foreach" in str(function) or function in INDEXED
    if function is aten.where.self and foreign:
        count("copy of a number to the device")
    if any(x.dim() or not scalars for x in foreign):
        raise RuntimeError(f"Expected all tensors to be on the same device: {function}, {NAME}:0 and cpu")


def count(what: str) -> None:
    """Count a wait of the host."""
    WAITS[what, tuple(project_lines())] += 1


def project_lines() -> Iterator[str]:
    """Yield "path:line function" of each frame of the project on the stack, innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        if path := project_path(frame.f_code.co_filename):
            yield f"{path}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back


@functools.cache
def project_path(file: str) -> str:
    """Return a file's path in the project; an empty text for one of a library, and for this one."""
    path = Path(file)
    is_ours = path.is_relative_to(ROOT) and ".venv" not in path.parts and path != Path(__file__)
    return str(path.relative_to(ROOT)) if is_ours else ""


def main() -> None:
    from tests.gpu import kernels_on_cpu

    report, script = Path(sys.argv[1]).resolve(), sys.argv[2]
    sys.argv = sys.argv[2:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    os.environ["ACCELERATE_TORCH_DEVICE"] = f"{NAME}:0"
    install()
    kernels_on_cpu.install()
    try:
        with EmulatedDevice():
            runpy.run_path(script, run_name="__main__")
    finally:
        report.write_text(json.dumps([[what, lines, number] for (what, lines), number in WAITS.most_common()]))


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    from tests import emulated_device  # so that a script that imports this module shares its counters

    emulated_device.main()
