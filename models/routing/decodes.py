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


class Guide(NamedTuple):
    """How S tours of each of B instances are continued; by default, with the likeliest node."""

    uniform: Tensor | None = None  # (B, S, 2 * (N - 1)) numbers in [0, 1), by which nodes are sampled
    first: Tensor | None = None  # (S,) customers that the tours visit first


LIKELIEST = Guide()


class Plan(NamedTuple):
    """Tours to build for every row, one instance under one symmetry."""

    num_tours: int
    guide: Callable[[Tensor, Tensor], Guide]  # row numbers (R,), tour numbers (S,) -> their guide


def greedy(num_customers: int, samples: int, starts: int | None, seed: int) -> Plan:
    """Build one tour, visiting the likeliest node at each step."""
    return Plan(1, lambda rows, tours: LIKELIEST)


def sampling(num_customers: int, samples: int, starts: int | None, seed: int) -> Plan:
    """Draw `samples` tours, each from its own stream of random numbers."""
    from common.random import derive_key, uniform

    key, most_steps = derive_key(seed, "search"), 2 * num_customers

    def guide(rows: Tensor, tours: Tensor) -> Guide:
        streams = rows[:, None] * MOST_SAMPLES + tours
        return Guide(uniform(key, streams.flatten(), most_steps).view(*streams.shape, most_steps))

    return Plan(samples, guide)


def multistart(num_customers: int, samples: int, starts: int | None, seed: int) -> Plan:
    """Build greedy tours that visit customer 1, 2, ... up to `starts` first (POMO, Kwon et al. 2020)."""
    return Plan(starts or min(num_customers, MOST_STARTS), lambda rows, tours: Guide(first=tours + 1))


Strategy = Callable[[int, int, int | None, int], Plan]  # of customers, samples, starts and a seed
DECODES: dict[str, Strategy] = {"greedy": greedy, "sampling": sampling, "multistart": multistart}
