"""Decoding strategies: which tours a search lets a policy build.

A new strategy is a function here and its entry in DECODES; configs take their choices from that table, before torch is
imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

MOST_STARTS = 200  # unless more are asked for: the time of all starts grows with the cube of the customers
MOST_SAMPLES = 2**20  # per instance and symmetry: further samples would share the noise of another instance


class Request(NamedTuple):
    """Settings of a search that a strategy may use."""

    num_customers: int
    samples: int
    starts: int | None
    seed: int


class Guidance(NamedTuple):
    """Arguments of `build` that make the tours of one row differ."""

    uniform: Tensor | None = None  # (R, S, T) numbers in [0, 1) that decide which nodes are sampled
    first: Tensor | None = None  # (S,) customers that the tours visit first


class Plan(NamedTuple):
    """Tours that a strategy builds for every row; a row is one instance under one symmetry."""

    num_tours: int
    guide: Callable[[Tensor, Tensor], Guidance]  # called with row numbers (R,) and tour numbers (S,)
    learns_after: int | None = None  # tours from which the policy learns about their row before it builds more


def greedy(request: Request) -> Plan:
    """Build one tour and always visit the likeliest node next."""
    return Plan(1, lambda rows, tours: Guidance())


def sampling(request: Request) -> Plan:
    """Build `samples` tours by drawing nodes; each tour has a stream of random numbers of its own."""
    from common.random import derive_key, uniform

    key, most_steps = derive_key(request.seed, "search"), 2 * request.num_customers

    def guide(rows: Tensor, tours: Tensor) -> Guidance:
        streams = rows[:, None] * MOST_SAMPLES + tours
        noise = uniform(key, streams.flatten(), most_steps)
        return Guidance(uniform=noise.view(*streams.shape, most_steps))

    return Plan(request.samples, guide)


def multistart(request: Request) -> Plan:
    """Build greedy tours that visit customer 1, 2, ... up to `starts` first (POMO, Kwon et al. 2020)."""
    num_tours = request.starts or min(request.num_customers, MOST_STARTS)
    return Plan(num_tours, lambda rows, tours: Guidance(first=tours + 1))


def adaptive(request: Request) -> Plan:
    """Draw tours by rounds of one from each customer, and learn from each about the instance (Hottung et al. 2022)."""
    drawn, starts = sampling(request), min(request.num_customers, MOST_STARTS)

    def guide(rows: Tensor, tours: Tensor) -> Guidance:
        return drawn.guide(rows, tours)._replace(first=tours % starts + 1)

    return Plan(request.samples, guide, learns_after=starts)


SAMPLED = ("sampling", "adaptive")  # strategies that build `samples` tours
DECODES: dict[str, Callable[[Request], Plan]] = {
    "greedy": greedy,
    "sampling": sampling,
    "multistart": multistart,
    "adaptive": adaptive,
}
