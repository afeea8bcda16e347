"""Solving one problem as a user has it: plain lists in any unit in, routes and their length in that unit out."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from models.routing.environment import DEPOT, MOST_CAPACITY, Instances, Routes, routes_of
from models.routing.search import TourBuilder, search


class Solver(TourBuilder, Protocol):
    """A tour builder with parameters, which tell the device it is on."""

    def parameters(self) -> Iterator[nn.Parameter]: ...


def solve(policy: Solver, locs: Any, demand: Any, capacity: int, **settings: Any) -> tuple[Routes, float]:
    """Return routes and their length; the arguments are those of `RoutingPolicy.solve`."""
    locs, demand = _checked(locs, demand, capacity)
    if len(locs) == 1:
        return [], 0.0
    extent = (locs.max(0).values - locs.min(0).values).max().item()
    scaled = (locs - locs.min(0).values) / (extent or 1.0)  # one factor for both axes keeps the shape
    instances = Instances(scaled.float()[None], demand.float()[None], torch.tensor([float(capacity)]))
    device = next(policy.parameters()).device
    actions, _ = search(policy, Instances(*(tensor.to(device) for tensor in instances)), **settings)
    routes = routes_of(actions[0])
    if sorted(node for route in routes for node in route) != list(range(1, len(locs))):
        raise ValueError(
            "the policy leaves customers out, as it does when its weights are not finite numbers; train it again"
        )
    return routes, sum(_length(locs, [DEPOT, *route, DEPOT]) for route in routes)


def _checked(locs: Any, demand: Any, capacity: int) -> tuple[Tensor, Tensor]:
    """Return locations (N, 2) and demands (N,) as float64; raise ValueError if they are not an instance."""
    locs, demand = _numbers(locs, "locs"), _numbers(demand, "demand")
    if locs.ndim != 2 or locs.shape[1] != 2 or not len(locs):
        raise ValueError(f"locs has shape {list(locs.shape)}; it must be (N, 2), the depot first, then N - 1 customers")
    if demand.shape != locs.shape[:1]:
        raise ValueError(
            f"demand has shape {list(demand.shape)}; it must be ({len(locs)},), one number for each of locs"
        )
    most = _numbers(capacity, "capacity")
    if most.ndim or most != most.round() or not 1 <= most <= MOST_CAPACITY:
        raise ValueError(f"capacity is {capacity}; it must be a whole number from 1 to {MOST_CAPACITY}")
    if demand[DEPOT] != 0:
        raise ValueError(f"demand[0] is {demand[DEPOT].item():g}; it is the depot's and must be 0")
    for wrong, must in [
        ((demand < 0) | (demand != demand.round()), "must be a whole number, 0 or more"),
        (demand > most, f"is more than a vehicle's capacity of {most:g}; split the customer into several"),
    ]:
        if wrong.any():
            i = int(wrong.nonzero()[0])
            raise ValueError(f"demand[{i}] is {demand[i].item():g}; it {must}")
    return locs, demand


def _numbers(values: Any, name: str) -> Tensor:
    """Return a finite float64 tensor on the CPU from lists, arrays or tensors."""
    try:
        tensor = torch.as_tensor(values, dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} must be numbers: {error}") from error
    if not tensor.isfinite().all():
        raise ValueError(f"{name} has values that are not finite numbers")
    return tensor


def _length(locs: Tensor, path: Sequence[int]) -> float:
    """Return the length of a path over nodes."""
    steps = locs[list(path)].diff(dim=0)
    return steps.norm(dim=1).sum().item()
