"""Decoding strategies: which tours a search asks a policy to build.

A new strategy is a function here and its entry in DECODES, from which configs take their choices. torch is imported
only when needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

MOST_STARTS = 200  # by default: the time for all starts grows with the cube of the customers
MOST_SAMPLES = 2**20  # per instance and symmetry: further samples would reuse the noise of another instance


class Request(NamedTuple):
    """Settings of a search that a strategy may use."""

    num_customers: int
    samples: int
    starts: int | None
    seed: int


class Guidance(NamedTuple):
    """Arguments of `build` by which the tours of one row differ."""

    uniform: Tensor | None = None  # (R, S, T) numbers in [0, 1) by which nodes are sampled
    first: Tensor | None = None  # (S,) customers that the tours visit first


class Plan(NamedTuple):
    """Tours to build for every row, one instance under one symmetry."""

    num_tours: int
    guide: Callable[[Tensor, Tensor], Guidance]  # called with row numbers (R,) and tour numbers (S,)
    learns_after: int | None = None  # tours per round, after which the policy adapts to the row; None: it never does


def greedy(request: Request) -> Plan:
    """Build one tour, visiting the likeliest node at each step."""
    return Plan(1, lambda rows, tours: Guidance())


def sampling(request: Request) -> Plan:
    """Draw `samples` tours, each from its own stream of random numbers."""
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
    """Draw tours in rounds of one per first customer, adapting to the instance after each (Hottung et al. 2022)."""
    drawn, starts = sampling(request), min(request.num_customers, MOST_STARTS)

    def guide(rows: Tensor, tours: Tensor) -> Guidance:
        return drawn.guide(rows, tours)._replace(first=tours % starts + 1)

    return Plan(request.samples, guide, learns_after=starts)


SAMPLED = ("sampling", "adaptive")  # strategies with `samples` tours
DECODES: dict[str, Callable[[Request], Plan]] = {
    "greedy": greedy,
    "sampling": sampling,
    "multistart": multistart,
    "adaptive": adaptive,
}
