"""Parts of the routing policy as native code on all cores of a CPU: tours, their gradients, a local search, annealing.

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.routing.decoder import Cache, PointerDecoder
from models.routing.environment import DEPOT, Instances

SOURCES = ("decoder.cpp", "gradients.cpp", "local_search.cpp", "ruin.cpp")
HEADERS = ("common.h", "decoder.h", "tours.h")
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


def scores(decoder: PointerDecoder, instances: Instances) -> bool:
    """Return whether `log_prob` and `rollout` can stand in for torch: they compute in float32 only."""
    return decodes(decoder, instances) and not torch.is_autocast_enabled("cpu")


def build(
    decoder: PointerDecoder,
    cache: Cache,
    instances: Instances,
    num_tours: int,
    uniform: Tensor | None = None,
    first: Tensor | None = None,
    log_prob: Tensor | None = None,
) -> Tensor:
    """Return what `RoutingPolicy.build` does, in float32: the same tours up to rounding.

    `log_prob` (B, S) float32 takes the log-probabilities of tours that are drawn, less a step that is given. Raises
    ValueError for a customer whose demand no vehicle can carry: no step would be left to take.
    """
    batch, nodes = instances.demand.shape
    actions = torch.full((batch, num_tours, 2 * (nodes - 1)), DEPOT)
    first = None if first is None else first.contiguous()
    uniform = None if uniform is None else uniform[..., : actions.shape[2]].float().contiguous()
    learnt = [*cache[:4], decoder.load, decoder.distance]
    longest = _decode("build_tours", decoder.heads, learnt, cache, instances, actions, first, uniform, log_prob)
    return actions[..., :longest]


def rollout(
    decoder: PointerDecoder,
    cache: Cache,
    instances: Instances,
    num_tours: int,
    uniform: Tensor,
    first: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what `build` does, and the log-probabilities (B, S) as `log_prob` does, at no further cost."""
    known = torch.empty(len(instances.demand), num_tours)
    actions = build(decoder, cache, instances, num_tours, uniform, first, known)
    return actions, log_prob(decoder, cache, instances, actions, forced=first is not None, known=known)


def log_prob(
    decoder: PointerDecoder,
    cache: Cache,
    instances: Instances,
    actions: Tensor,
    ends: Tensor | None = None,
    forced: bool = False,
    known: Tensor | None = None,
) -> Tensor:
    """Return what `RoutingPolicy.log_prob` does, in float32 and differentiable once; `known` (B, S) where it is known.

    A tour with a step that is not feasible has minus infinity. Raises ValueError as `build` does.
    """
    learnt = [tensor.float() for tensor in (*cache[:4], decoder.load, decoder.distance)]
    tours = [actions.contiguous(), int(forced), None if ends is None else ends.contiguous()]
    found: Tensor = _LogProb.apply(*learnt, (decoder.heads, cache, instances), tours, known)  # type: ignore[no-untyped-call]
    return found


class _LogProb(torch.autograd.Function):
    """Log-probabilities (B, S) of tours, as a function of what of the decoder is learnt."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        *learnt, ctx.given, ctx.tours, known = arguments
        ctx.save_for_backward(*learnt)
        if isinstance(known, Tensor):
            return known
        heads, cache, instances = ctx.given
        log_prob = torch.empty(ctx.tours[0].shape[:2])
        _decode("score_tours", heads, learnt, cache, instances, *ctx.tours, log_prob, *[None] * 7)
        return log_prob

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        heads, cache, instances = ctx.given
        learnt = ctx.saved_tensors
        found = [torch.empty(tensor.shape) for tensor in learnt[:4]]
        load, distance = torch.empty(len(upstream), len(learnt[4])), torch.empty(len(upstream))
        outputs = (None, upstream.contiguous(), *found, load, distance)
        _decode("score_tours", heads, learnt, cache, instances, *ctx.tours, *outputs)
        return *found, load.sum(0)[:, None], distance.sum(), None, None, None


def _decode(
    function: str,
    heads: int,
    learnt: Sequence[Tensor],
    cache: Cache,
    instances: Instances,
    actions: Tensor,
    *others: Tensor | int | None,
) -> int:
    """Call `build_tours` or `score_tours` and return what it does."""
    if not (instances.demand <= instances.capacity[:, None]).all():
        raise ValueError("the demand of a customer is above the capacity; split the customer into several")
    (batch, width, nodes), (tours, steps) = cache.query.shape, actions.shape[1:]
    tensors = (*learnt[:4], cache.distance, learnt[4], instances.demand, instances.capacity)
    *states, demand, capacity = (tensor.detach().float().contiguous() for tensor in tensors)
    called = getattr(_library(), function)(
        *map(ctypes.c_int, (torch.get_num_threads(), batch, nodes, width, heads, tours, steps)),
        *map(_pointer, states),
        ctypes.c_float(learnt[5].item()),
        *map(_pointer, (demand, capacity, actions)),
        *(ctypes.c_int(other) if isinstance(other, int) else _pointer(other) for other in others),
    )
    return int(called)


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
