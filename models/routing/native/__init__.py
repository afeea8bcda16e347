"""Native code of the routing policy for all cores of a CPU: tours, their gradients, and searches for shorter ones.

It is compiled on first use for this processor, by the compiler of torch's extensions (CXX, else c++), and kept beside
them (TORCH_EXTENSIONS_DIR, else the user's cache). Without a compiler `unavailable` says why; then torch builds the
tours, and there is no local search.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from common.machine import cpus
from models.routing.decoder import Decoding, log_prob_by
from models.routing.environment import DEPOT, Instances

SOURCES = ("decoder.cpp", "gradients.cpp", "fleet.cpp", "solve.cpp")
FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-pthread")
SECONDS = 300  # a compiler may take; it needs some 25


@functools.cache
def unavailable() -> str | None:
    """Return why this machine has no native code, or None if it has; compiles on the first call."""
    try:
        library()
    except (OSError, subprocess.SubprocessError, RuntimeError, ValueError) as error:
        return " ".join((getattr(error, "stderr", None) or str(error)).split())[:300]
    return None


@functools.cache
def library() -> ctypes.CDLL:
    """Return the compiled library.

    Raises OSError or SubprocessError where it cannot be made, ValueError for an odd CXX, RuntimeError without a home.
    """
    here = Path(__file__).parent
    compiler = os.environ.get("CXX") or "c++"
    about = hashlib.sha256(repr((compiler, FLAGS, platform.machine(), _processor())).encode())
    for source in sorted([*here.glob("*.h"), *here.glob("*.cpp")]):
        about.update(source.read_bytes())
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or "~/.cache/torch_extensions").expanduser()
    path = folder / f"routing-{about.hexdigest()[:16]}.so"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            made = Path(temporary) / path.name
            command = [*shlex.split(compiler), *FLAGS, "-o", str(made), *(str(here / name) for name in SOURCES)]
            if shutil.which(command[0]):
                print(f"compiling native code, once: half a minute or more; it is kept in {folder}", file=sys.stderr)
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
            made.replace(path)  # as a whole: another process may be doing the same
    return ctypes.CDLL(str(path))


def _processor() -> str:
    """Return the processor's features: machines of other processors may share the cache."""
    return next((line for line in cpus().splitlines() if line.startswith(("flags", "Features"))), platform.processor())


def decodes(instances: Instances) -> bool:
    """Return whether `build` can replace the loop in Python."""
    return instances.locs.device.type == "cpu" and not unavailable()


def scores(instances: Instances) -> bool:
    """Return whether `log_prob`, which computes in float32 only, can replace torch."""
    return decodes(instances) and not torch.is_autocast_enabled("cpu")


def build(
    decoding: Decoding, num_tours: int, uniform: Tensor | None = None, first: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute `RoutingPolicy.build` in float32: the same tours up to rounding.

    Returns the log-probabilities (B, S) float32 of sampled tours, too, without a forced first step. Raises ValueError
    for a customer whose demand no vehicle can carry, which would leave no step to take.
    """
    batch, nodes = decoding.instances.demand.shape
    actions, log_prob = torch.full((batch, num_tours, 2 * (nodes - 1)), DEPOT), torch.empty(batch, num_tours)
    first = None if first is None else first.contiguous()
    uniform = None if uniform is None else uniform[..., : actions.shape[2]].float().contiguous()
    given = (decoding.decoder.heads, decoding.learnt, decoding.fixed, actions)
    return actions[..., : _decode("build_tours", *given, first, uniform, log_prob)], log_prob


def log_prob(
    decoding: Decoding, actions: Tensor, ends: Tensor | None = None, forced: bool = False, known: Tensor | None = None
) -> Tensor:
    """Compute `RoutingPolicy.log_prob` in float32, differentiable once; or return `known` (B, S) if that is given.

    A tour with an infeasible step has minus infinity. Raises ValueError as `build` does.
    """
    learnt, heads = [tensor.float() for tensor in decoding.learnt], decoding.decoder.heads
    actions, ends = actions.contiguous(), None if ends is None else ends.contiguous()

    def score(learnt: Sequence[Tensor], upstream: Tensor | None) -> Tensor | tuple[Tensor, ...]:
        given = (heads, learnt, decoding.fixed, actions, int(forced), ends)
        if upstream is None:
            log_prob = torch.empty(actions.shape[:2])
            _decode("score_tours", *given, log_prob, *[None] * 8)
            return log_prob
        found = [torch.empty(tensor.shape) for tensor in learnt[:4]]
        shared = [torch.empty(len(upstream), *tensor.shape) for tensor in learnt[4:]]
        _decode("score_tours", *given, None, upstream, *found, *(shared if learnt[6:] else [*shared, None]))
        return *found, *(tensor.sum(0) for tensor in shared)

    return log_prob_by(score, learnt, known)


def _decode(
    function: str, heads: int, learnt: Sequence[Tensor], fixed: Sequence[Tensor], *others: Tensor | int | None
) -> int:
    """Call `build_tours` or `score_tours` and return its result; `others` begin with the actions (B, S, T)."""
    if not (fixed[1] <= fixed[2][:, None]).all():
        raise ValueError("the demand of a customer is above the capacity; split the customer into several")
    assert isinstance(others[0], Tensor)
    (batch, width, nodes), (tours, steps) = learnt[0].shape, others[0].shape[1:]
    given = [[tensor.detach().float().contiguous() for tensor in each] for each in (learnt, fixed)]
    called = getattr(library(), function)(
        *(torch.get_num_threads(), batch, nodes, width, heads, tours, steps, learnt[4].numel() // width),
        *(_pointer(each) for row, count in zip(given, (7, 5), strict=True) for each in [*row, None, None][:count]),
        *(other if isinstance(other, int) else _pointer(other) for other in others),
    )
    return int(called)


def _pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


ROUNDINGS = ("exact", "round", "trunc", "dimacs")  # in the order of tours.h
KINDS = {"savings": 1, "sweep": 2, "nearest": 4, "random": 8}  # of start tours, as in solve.cpp


class Measured(NamedTuple):
    """B problems of N nodes, the depot first: distances (B, N, N), or places (B, N, 2) in a plane and a rounding."""

    demand: Tensor  # (B, N) float64, as all others
    capacity: Tensor  # (B,)
    distance: Tensor | None  # symmetric
    places: Tensor | None = None
    rounding: str = "exact"


class _Call(ctypes.Structure):
    """The arguments that all searches share, as in solve.cpp."""

    _fields_: ClassVar = [
        *((name, ctypes.c_int) for name in ("threads", "batch", "nodes", "rounding", "count")),
        *((name, ctypes.c_void_p) for name in ("distance", "places", "demand", "capacity", "given", "seeds", "best")),
    ]


def _search(
    function: str, problems: Measured, seeds: Tensor, count: int, tours: Tensor | None, *words: object
) -> Tensor:
    batch, nodes = problems.demand.shape
    best = torch.full((batch, 2 * (nodes - 1)), DEPOT)
    given = (problems.distance, problems.places, problems.demand, problems.capacity, tours, seeds, best)
    arguments = [None if each is None else each.contiguous() for each in given]  # kept: some may be copies
    rounding = ROUNDINGS.index(problems.rounding)
    call = _Call(torch.get_num_threads(), batch, nodes, rounding, count, *(_pointer(each) for each in arguments))
    getattr(library(), function)(ctypes.byref(call), *words)
    return best


def solve(
    problems: Measured,
    seeds: Tensor,
    seconds: float,
    kinds: Iterable[str],
    *,
    group: int = 1,
    share: float = 1.0,
    tours: Tensor | None = None,
    crew: int = 1,
) -> Tensor:
    """Return the best tour (B, T) int64 that `seconds` of CPU time of `crew` threads each find; T is 2 (N - 1).

    A local search improves `tours` (B, S, T) int64 and the best of each `group` of start tours, of `kinds` in turn,
    until a `share` of the time is spent; ruin and recreate then improves the shortest. At least one search is made; no
    tour is longer than those given. `seeds` (B,) int64 determine the start tours and all other random numbers.
    """
    chosen = sum(KINDS[kind] for kind in kinds)
    if (not chosen and tours is None) or (chosen == KINDS["sweep"] and problems.places is None):
        raise ValueError("there is nothing to start from: a sweep needs places in a plane")
    words = chosen, group, ctypes.c_double(share), ctypes.c_double(seconds), crew
    return _search("solve_tours", problems, seeds, 0 if tours is None else tours.shape[1], tours, *words)
