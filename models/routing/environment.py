"""The capacitated vehicle routing problem as a batched environment.

Shapes, here and in the other files of this package:
    B instances, N nodes (depot first, then N - 1 customers), S tours per instance, T steps, D width, H heads,
    Q queries per instance: S while tours grow, S * T when all steps of finished tours are scored at once.

Observation  the node a tour stands on, the capacity left, and for each node whether it still waits to be served.
Constraints  every customer exactly once; the demands between two visits to the depot sum to at most the capacity;
             no stay at the depot while a customer waits.
Finish       all customers served and back at the depot; a finished tour stays at the depot at no cost.
Reward       minus the Euclidean length of the closed tour.

Demands and loads are whole numbers held in float32, which is exact up to 2**24, so that rounding never decides
whether a customer fits. The validator that checks finished tours shares no code with this file.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

DEPOT = 0

Routes = list[list[int]]  # of one tour: the customers between visits to the depot


class Instances(NamedTuple):
    """A batch of problems of one size."""

    locs: Tensor  # (B, N, 2) float32 in the unit square, depot first
    demand: Tensor  # (B, N) float32 whole numbers, 0 at the depot
    capacity: Tensor  # (B,) float32 whole numbers


class State(NamedTuple):
    """Progress of each instance's tours."""

    node: Tensor  # (B, Q) int64, the node visited last
    load: Tensor  # (B, Q) float32, capacity left
    waiting: Tensor  # (B, N, Q) bool, nodes not visited yet


def reset(instances: Instances, num_tours: int) -> State:
    """Return the initial state: at the depot with a full vehicle."""
    batch, num_nodes = instances.demand.shape
    device = instances.locs.device
    return State(
        torch.zeros(batch, num_tours, dtype=torch.long, device=device),
        instances.capacity[:, None].repeat(1, num_tours),
        torch.ones(batch, num_nodes, num_tours, dtype=torch.bool, device=device),
    )


def feasible(instances: Instances, state: State) -> Tensor:
    """Return (B, N, Q) bool: the nodes that may be visited next, at least one."""
    # The native decoder, the Triton kernels and the page's routing.js have this rule of their own; tests compare them.
    allowed = state.waiting & (instances.demand[..., None] <= state.load[:, None])
    allowed[:, DEPOT] = False
    # At the depot the vehicle is full, so if nothing fits there, nothing is left: the tour is finished.
    allowed[:, DEPOT] = (state.node != DEPOT) | ~allowed.any(1)
    return allowed


def step(instances: Instances, state: State, action: Tensor) -> State:
    """Return the state after visiting `action` (B, Q)."""
    load = state.load - instances.demand.gather(1, action)
    load = torch.where(action == DEPOT, instances.capacity[:, None], load)
    return State(action, load, state.waiting.scatter(1, action[:, None], False))


def finished(state: State) -> Tensor:
    """Return () bool: whether all customers of all tours are served."""
    return ~state.waiting[:, DEPOT + 1 :].any()


def replay(instances: Instances, actions: Tensor, begin: int = 0) -> State:
    """Return the states before each step of finished tours `actions` (B, S, T), from step `begin` on.

    The queries are Q = S * (T - begin), the steps of one tour beside each other.
    """
    batch, tours, steps = actions.shape
    num_nodes = instances.demand.shape[1]
    node = torch.cat([torch.zeros_like(actions[..., :1]), actions[..., :-1]], -1)
    # A product in float64 is exact over a whole tour; a GPU's cumsum would depend on the order of threads.
    until = torch.ones(steps, steps, dtype=torch.float64, device=actions.device).triu()
    served = instances.demand.double()[:, None].expand(-1, tours, -1).gather(2, node) @ until
    unloaded = torch.where(node == DEPOT, served, 0.0).cummax(-1).values
    load = (instances.capacity[:, None, None] - (served - unloaded)).float()
    count = torch.arange(steps, device=actions.device)
    when = torch.zeros(batch, tours, num_nodes, dtype=torch.long, device=actions.device)
    when = when.scatter_(2, actions, count.expand_as(actions)).transpose(1, 2)
    waiting = when[..., None] >= count[begin:]
    return State(node[..., begin:].flatten(1), load[..., begin:].flatten(1), waiting.flatten(2))


def route_ends(actions: Tensor, num_nodes: int) -> Tensor:
    """Return (B, N, S) bool: the customers that are first or last on a route of the tours `actions` (B, S, T)."""
    after = nn.functional.pad(actions[..., 1:], (0, 1), value=DEPOT)
    before = nn.functional.pad(actions[..., :-1], (1, 0), value=DEPOT)
    ends = torch.zeros(*actions.shape[:2], num_nodes, dtype=torch.bool, device=actions.device)
    ends.scatter_(2, actions, (before == DEPOT) | (after == DEPOT))
    ends[..., DEPOT] = False
    return ends.transpose(1, 2)


def tour_length(locs: Tensor, actions: Tensor) -> Tensor:
    """Return the lengths (B, S) of the closed tours `actions` (B, S, T), which start and end at the depot."""
    batch, tours, steps = actions.shape
    index = actions.reshape(batch, tours * steps, 1).expand(-1, -1, 2)
    path = locs.gather(1, index).view(batch, tours, steps, 2)
    depot = locs[:, None, :1].expand(-1, tours, -1, -1)
    path = torch.cat([depot, path, depot], 2)
    lengths: Tensor = (path[:, :, 1:] - path[:, :, :-1]).norm(dim=-1)
    return lengths.sum(-1)


def routes_of(actions: Tensor) -> Routes:
    """Return the routes of one tour (T,), without empty ones."""
    routes: Routes = [[]]
    for node in actions.tolist():
        if node == DEPOT:
            routes.append([])
        else:
            routes[-1].append(node)
    return [route for route in routes if route]
