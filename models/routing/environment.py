"""The capacitated vehicle routing problem, with rules on times and lengths or without, as a batched environment.

Shapes, here and in the other files of this package:
    B instances, N nodes (depot first, then N - 1 customers), S tours per instance, T steps, D width, H heads,
    Q queries per instance: S while tours grow, S * T when all steps of finished tours are scored at once.

Observation  the node a tour stands on, the capacity left, and for each node whether it still waits to be served.
Constraints  every customer exactly once; the demands between two visits to the depot sum to at most the capacity;
             no stay at the depot while a customer waits. With rules: service begins within windows, and a route can
             still end within its depot's hours, its length and its duration.
Finish       all customers served and back at the depot; a finished tour stays at the depot at no cost.
Reward       minus the Euclidean length of the tour, of open routes without their ways home; with a matrix, minus the
             sum of its costs.

Demands and loads are whole numbers held in float32, which is exact up to 2**24, so that rounding never decides
whether a customer fits. The validator that checks finished tours shares no code with this file.
"""

from collections.abc import Mapping
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor, nn

DEPOT = 0
RULES = 6  # columns of `Instances.rules`
MEAN_DISTANCE = 0.52  # of two places in the unit square
LONGEST = 10  # largest cost in a matrix that networks read, in medians of its costs
MARGIN = 1e-5  # for rounding to float32, in units of the square, wherever times and lengths meet a limit

Routes = list[list[int]]  # of one tour: the customers between visits to the depot


class Instances(NamedTuple):
    """A batch of problems of one size."""

    locs: Tensor  # (B, N, 2) float32 in the unit square, depot first
    demand: Tensor  # (B, N) float32 whole numbers, 0 at the depot
    capacity: Tensor  # (B,) float32 whole numbers
    # (B, N, RULES) float32, None of a plain CVRP. Times are counted from the opening of the depot, in the unit of
    # distance: when service may begin, must have begun, and how long it takes; at the depot, the hours of routes. Then
    # the limits on the length and the duration of routes, and whether these are open (1), alike at all nodes. No limit
    # is infinity.
    rules: Tensor | None = None
    # (B, N, N) float32 costs of travel from row to column, in any unit; None: the distances between locs.
    matrix: Tensor | None = None

    @property
    def directed(self) -> bool:
        """Whether a reversed route may differ in cost, or be infeasible."""
        return self.rules is not None or self.matrix is not None

    @classmethod
    def of(cls, fields: Mapping[str, Tensor]) -> "Instances":
        """Return the instances of a batch's fields."""
        return cls(fields["locs"], fields["demand"], fields["capacity"], fields.get("rules"), fields.get("matrix"))

    def fields(self) -> dict[str, Tensor]:
        """Return all fields that are not None, as a batch holds them."""
        return {name: tensor for name, tensor in self._asdict().items() if tensor is not None}

    def rows(self, index: Tensor | slice, nodes: int | None = None) -> "Instances":
        """Return the instances `index`, with the first `nodes` of their nodes."""
        rules = None if self.rules is None else self.rules[index, :nodes]
        matrix = None if self.matrix is None else self.matrix[index, :nodes, :nodes]
        return Instances(self.locs[index, :nodes], self.demand[index, :nodes], self.capacity[index], rules, matrix)


class State(NamedTuple):
    """Progress of each instance's tours."""

    node: Tensor  # (B, Q) int64, the node visited last
    load: Tensor  # (B, Q) float32, capacity left
    waiting: Tensor  # (B, N, Q) bool, nodes not visited yet
    clock: "Clock | None" = None  # of each route, with rules


class Clock(NamedTuple):
    """Progress of routes that left as early as possible."""

    free: Tensor  # (B, Q) or (B, N, Q), as all: when service ended
    length: Tensor  # driven
    waited: Tensor  # time spent before windows opened
    movable: Tensor  # by how much later the route may leave; up to `waited`, without delay


def reset(instances: Instances, num_tours: int) -> State:
    """Return the initial state: at the depot with a full vehicle."""
    batch, num_nodes = instances.demand.shape
    device = instances.locs.device
    return State(
        torch.zeros(batch, num_tours, dtype=torch.long, device=device),
        instances.capacity[:, None].repeat(1, num_tours),
        torch.ones(batch, num_nodes, num_tours, dtype=torch.bool, device=device),
        None if instances.rules is None else _clock(instances.rules, instances.demand.new_zeros(batch, num_tours)),
    )


def _clock(rules: Tensor, zero: Tensor) -> Clock:
    """Return the clocks of routes at the depot, in the shape of `zero` (B, Q)."""
    return Clock(zero, zero, zero, rules[:, DEPOT, 1, None].expand_as(zero))


def _after(clock: Clock, away: Tensor, rules: Tensor) -> Clock:
    """Return the clocks after driving `away` and service at nodes with `rules` (..., RULES), which broadcast."""
    opens, closes, service = rules[..., :3].unbind(-1)
    arrival = clock.free + away
    begins = arrival.maximum(opens)
    waited = clock.waited + begins - arrival
    return Clock(begins + service, clock.length + away, waited, clock.movable.minimum(waited + closes - begins))


def clocks(instances: Instances, state: State) -> Clock | None:
    """Return the clocks (B, N, Q) after a visit to each node next; None without rules."""
    if state.clock is None or instances.rules is None:
        return None
    here = instances.locs.gather(1, state.node[..., None].expand(-1, -1, 2))
    away = (instances.locs[:, :, None] - here[:, None]).norm(dim=-1)
    return _after(Clock(*(each[:, None] for each in state.clock)), away, instances.rules[:, :, None])


def feasible(instances: Instances, state: State, after: Clock | None = None) -> Tensor:
    """Return (B, N, Q) bool: the nodes that may be visited next, at least one; with rules, `after` are its `clocks`."""
    # The native decoder, the Triton kernels and the page's routing.js have this rule of their own; tests compare them.
    allowed = state.waiting & (instances.demand[..., None] <= state.load[:, None])
    if after is not None and instances.rules is not None:
        closes, service, longest, limit, opened = instances.rules[:, :, None, 1:].unbind(-1)
        home = (instances.locs - instances.locs[:, :1]).norm(dim=-1)[..., None] * (1 - opened)
        end = after.free + home
        allowed &= after.free - service <= closes - MARGIN
        allowed &= end <= closes[:, :1] - MARGIN
        allowed &= after.length + home <= longest - MARGIN
        allowed &= end - after.waited.minimum(after.movable) <= limit - MARGIN
    allowed[:, DEPOT] = False
    # At the depot the vehicle is full, so if nothing fits there, nothing is left, or nothing that can be served.
    allowed[:, DEPOT] = (state.node != DEPOT) | ~allowed.any(1)
    return allowed


def step(instances: Instances, state: State, action: Tensor) -> State:
    """Return the state after visiting `action` (B, Q)."""
    load = state.load - instances.demand.gather(1, action)
    load = torch.where(action == DEPOT, instances.capacity[:, None], load)
    waiting = state.waiting.scatter(1, action[:, None], False)
    clock = None if state.clock is None else _driven(instances, state.node, state.clock, action)
    return State(action, load, waiting, clock)


def _driven(instances: Instances, node: Tensor, clock: Clock, action: Tensor) -> Clock:
    """Return the clocks (B, Q) after driving from `node` to `action` (B, Q)."""
    assert instances.rules is not None
    here, there = (instances.locs.gather(1, each[..., None].expand(-1, -1, 2)) for each in (node, action))
    rules = instances.rules.gather(1, action[..., None].expand(-1, -1, RULES))
    after, begun = _after(clock, (there - here).norm(dim=-1), rules), _clock(instances.rules, clock.free * 0)
    return Clock(*(torch.where(action == DEPOT, new, old) for new, old in zip(begun, after, strict=True)))


def replay(instances: Instances, actions: Tensor, begin: int = 0) -> State:
    """Return the states before each step of finished tours `actions` (B, S, T), from step `begin` on.

    The queries are Q = S * (T - begin), tour by tour.
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
    clock = None
    if instances.rules is not None:
        passed = [_clock(instances.rules, node.new_zeros(batch, tours, dtype=torch.float32))]
        for here, there in zip(node[..., :-1].unbind(-1), node[..., 1:].unbind(-1), strict=True):
            passed.append(_driven(instances, here, passed[-1], there))
        clock = Clock(*(torch.stack(each[begin:], -1).flatten(1) for each in zip(*passed, strict=True)))
    return State(node[..., begin:].flatten(1), load[..., begin:].flatten(1), waiting.flatten(2), clock)


def route_ends(actions: Tensor, num_nodes: int, both: bool = True) -> Tensor:
    """Return (B, N, S) bool: customers that are first, or with `both` last, on a route of tours `actions` (B, S, T)."""
    after = nn.functional.pad(actions[..., 1:], (0, 1), value=DEPOT)
    before = nn.functional.pad(actions[..., :-1], (1, 0), value=DEPOT)
    ends = torch.zeros(*actions.shape[:2], num_nodes, dtype=torch.bool, device=actions.device)
    ends.scatter_(2, actions, (before == DEPOT) | (after == DEPOT) if both else before == DEPOT)
    ends[..., DEPOT] = False
    return ends.transpose(1, 2)


def distances_of(instances: Instances) -> Tensor:
    """Return the distances (B, N, N) that networks read, from row to column, in the unit of the square.

    Costs of a matrix, whose unit may be another, are scaled to the mean distance between the locations, or to that in
    the square where these are all one place. Huge costs, by which ways are closed, are cut to LONGEST.
    """
    distance: Tensor = (instances.locs[:, :, None] - instances.locs[:, None]).norm(dim=-1)
    if instances.matrix is None:
        return distance
    costs = instances.matrix.flatten(1).sort(1).values
    most = LONGEST * costs[:, costs.shape[1] // 2, None, None]  # by the median
    read = instances.matrix.minimum(most.where(most > 0, torch.inf))
    mean, cost = (each.mean((1, 2), keepdim=True) for each in (distance, read))
    return read * (mean.where(mean > 0, MEAN_DISTANCE) / cost.clamp_min(torch.finfo(cost.dtype).tiny))


def tour_length(instances: Instances, actions: Tensor) -> Tensor:
    """Return lengths (B, S) of tours `actions` (B, S, T) from the depot and back, of open routes without ways back."""
    stops = nn.functional.pad(actions, (1, 1), value=DEPOT)
    if instances.matrix is not None:
        legs = stops[..., :-1] * instances.matrix.shape[1] + stops[..., 1:]
        return instances.matrix.flatten(1).gather(1, legs.flatten(1)).view_as(legs).sum(-1)
    path = instances.locs.gather(1, stops.flatten(1)[..., None].expand(-1, -1, 2)).view(*stops.shape, 2)
    lengths: Tensor = (path[:, :, 1:] - path[:, :, :-1]).norm(dim=-1)
    if instances.rules is not None:
        lengths = lengths * (1 - (stops[..., 1:] == DEPOT) * instances.rules[:, :1, -1:])
    return lengths.sum(-1)


def padded(actions: Tensor, length: int) -> Tensor:
    """Pad (..., T) to (..., length) with the depot."""
    return nn.functional.pad(actions, (0, length - actions.shape[-1]), value=DEPOT)


def actions_of(routes: Routes, length: int) -> Tensor:
    """Return routes as a policy's actions (T,): the depot between them and up to `length`."""
    nodes = [node for route in routes for node in (*route, DEPOT)]
    return padded(torch.tensor(nodes[:length], dtype=torch.long), length)


def routes_of(actions: Tensor) -> Routes:
    """Return the routes of one tour (T,), without empty ones."""
    return [list(route) for visited, route in groupby(actions.tolist(), lambda node: node != DEPOT) if visited]
