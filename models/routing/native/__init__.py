"""Parts of the routing policy as native code on all cores of a CPU: the decoding loop, a local search and annealing.

They are compiled on first use, by the compiler that builds extensions of torch (CXX, else c++), for the processor that
they then run on, and kept beside those extensions (TORCH_EXTENSIONS_DIR, else the cache of the user). Without a
compiler `unavailable` says why; tours are then built by torch, and there is no local search.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from models.routing.decoder import Cache, PointerDecoder
from models.routing.environment import DEPOT, Instances

SOURCES = ("decoder.cpp", "local_search.cpp", "ruin.cpp")
HEADERS = ("common.h", "tours.h")
FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-pthread")
NEIGHBOURS = 20  # with which the local search tries the moves of a customer (Vidal 2022)
SECONDS = 300  # after which a compiler is given up; it takes five


@functools.cache
def unavailable() -> str | None:
    """Return why there is no native code on this machine, or None where there is; compile it if that is to be done."""
    try:
        _library()
    except (OSError, subprocess.SubprocessError, RuntimeError, ValueError) as error:
        said = getattr(error, "stderr", None) or str(error)
        return " ".join(said.split())[:300]
    return None


@functools.cache
def _library() -> ctypes.CDLL:
    """Return the compiled library.

    Raises OSError or SubprocessError where it cannot be made, ValueError for an odd CXX, RuntimeError without a home.
    """
    here = Path(__file__).parent
    compiler = os.environ.get("CXX") or "c++"
    about = hashlib.sha256(repr((compiler, FLAGS, platform.machine(), _processor())).encode())
    for name in (*HEADERS, *SOURCES):
        about.update((here / name).read_bytes())
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or "~/.cache/torch_extensions").expanduser()
    path = folder / f"routing-{about.hexdigest()[:16]}.so"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            made = Path(temporary) / path.name
            command = [*shlex.split(compiler), *FLAGS, "-o", str(made), *(str(here / name) for name in SOURCES)]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
            made.replace(path)  # as a whole: another process may be doing the same
    return ctypes.CDLL(str(path))


def _processor() -> str:
    """Return what the processor can do, since code for one may not run on another that shares the cache."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def decodes(decoder: PointerDecoder, instances: Instances) -> bool:
    """Return whether `build` can stand in for the loop in Python."""
    on_cpu = instances.locs.device.type == "cpu"
    return on_cpu and decoder.dynamic is None and not unavailable()


def build(
    decoder: PointerDecoder,
    cache: Cache,
    instances: Instances,
    num_tours: int,
    uniform: Tensor | None = None,
    first: Tensor | None = None,
) -> Tensor:
    """Return what `RoutingPolicy.build` does, in float32: the same tours up to rounding.

    Raises ValueError for a customer whose demand no vehicle can carry: no step would be left to take.
    """
    if not (instances.demand <= instances.capacity[:, None]).all():
        raise ValueError("the demand of a customer is above the capacity; split the customer into several")
    batch, nodes = instances.demand.shape
    steps = 2 * (nodes - 1)
    actions = torch.full((batch, num_tours, steps), DEPOT)
    tensors = [*cache, decoder.load, instances.demand, instances.capacity]
    query, key, value, pointer, distance, load, demand, capacity = (t.detach().float().contiguous() for t in tensors)
    first = None if first is None else first.contiguous()
    uniform = None if uniform is None else uniform[..., :steps].float().contiguous()
    longest = _library().build_tours(
        *map(ctypes.c_int, (torch.get_num_threads(), batch, nodes, query.shape[1], decoder.heads, num_tours, steps)),
        *map(_pointer, (query, key, value, pointer, distance, load)),
        ctypes.c_float(decoder.distance.item()),
        *map(_pointer, (demand, capacity, first, uniform, actions)),
    )
    return actions[..., :longest]


def _contiguous(*tensors: Tensor | None) -> list[Tensor | None]:
    """Return the tensors as native code reads them; copies among them last as long as the list that holds them."""
    return [None if tensor is None else tensor.contiguous() for tensor in tensors]


def _pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def improve(
    distance: Tensor, demand: Tensor, capacity: Tensor, seeds: Tensor, num_tours: int, tours: Tensor | None = None
) -> Tensor:
    """Return the best tour (B, T) int64 of a local search from each of `num_tours` tours, for symmetric distances.

    The searches begin with `tours` (B, S, T) int64, the depot between routes and after the last, or with random ones,
    drawn by `seeds` (B,) int64 as the order of moves is. distance (B, N, N), demand (B, N) and capacity (B,) are
    float64; T is 2 (N - 1). None of the tours given is shorter than the one returned.
    """
    batch, nodes = demand.shape
    best = torch.full((batch, 2 * (nodes - 1)), DEPOT)
    arguments = _contiguous(distance, demand, capacity, tours, seeds, best)
    _library().improve_tours(
        *map(ctypes.c_int, (torch.get_num_threads(), batch, nodes, num_tours, NEIGHBOURS)),
        *map(_pointer, arguments),
    )
    return best


def ruin_and_recreate(
    distance: Tensor,
    demand: Tensor,
    capacity: Tensor,
    seeds: Tensor,
    tours: Tensor | None = None,
    *,
    rounds: int = 0,
    seconds: float = 0.0,
) -> Tensor:
    """Return the best tour (B, T) int64 of annealing from `tours` (B, T) int64, or from random ones drawn by `seeds`.

    Each round removes some customers and inserts them again (SISRs, Christiaens and Vanden Berghe 2020). Tours are a
    function of the arguments if `rounds` are given; `seconds` are of CPU time, for each problem. The others are those
    of `improve`, and no tour is longer than the one given.
    """
    if (rounds > 0) == (seconds > 0):
        raise ValueError(f"rounds is {rounds} and seconds {seconds}; give one of them")
    batch, nodes = demand.shape
    best = torch.full((batch, 2 * (nodes - 1)), DEPOT)
    arguments = _contiguous(distance, demand, capacity, tours, seeds, best)
    _library().ruin_and_recreate_tours(
        *map(ctypes.c_int, (torch.get_num_threads(), batch, nodes)),
        ctypes.c_int64(rounds),
        ctypes.c_double(seconds),
        *map(_pointer, arguments),
    )
    return best
