"""Solving users' problems: plain lists in any unit in, routes and their length in that unit out.

A solver in layers: start tours, of the policy and of classical heuristics; a local search of the best; ruin and
recreate for the rest of the time.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from common.config import checked
from common.errors import UserError, as_user_error
from common.random import derive_key, random_bits
from common.workers import batched
from models.routing import fleet, native
from models.routing.decodes import DECODES
from models.routing.environment import DEPOT, Instances, Routes, actions_of, routes_of
from models.routing.inputs import RoutingInput, RoutingSettings, SearchSettings, problem_of
from models.routing.problems import Plan, Problem, cost_of, distances, to_instances, unreadable
from models.routing.search import SYMMETRIES, TourBuilder, best_built

AT_ONCE = 256  # problems given to one search
OMITTED = "the policy leaves customers out, as it does when its weights are not finite numbers; train it again"
MOST_SCORES = 2e8  # (tour, node, node) triples of an answer; a network takes some seconds for them on a core
STARTS = 8  # tours that a policy builds for a problem beyond the plain CVRP; the best is improved
MOST_DISTANCES = 2**25  # held at once by a local search, 8 bytes each


class Division(NamedTuple):
    """How the time for a problem is divided; fitted by tests/peers/division.py."""

    customers: int  # up to which it holds
    kinds: tuple[str, ...]  # of start tours in the mix, beside the policy's
    group: int  # start tours of which the best is improved
    share: float  # of the time until ruin and recreate begins
    starts: int  # tours of the policy, where it builds some; the best is improved


BEYOND, MOST_BEYOND = 10, 30_000  # milliseconds a customer, and at most, for problems beyond the plain CVRP by default
PATIENCE = 0.5  # milliseconds per customer from which a mix includes tours of the policy,
MIXED = 35  # and customers up to which it does; above, the other start tours make more of the time
DIVISIONS = (
    Division(35, ("savings", "nearest", "random"), 1, 0.85, 20),
    Division(75, ("savings",), 4, 0.6, 12),
    Division(150, ("savings",), 4, 0.5, 8),
    Division(400, ("savings",), 2, 0.3, 1),
    Division(10**9, ("savings",), 4, 0.1, 0),
)


class Asked(NamedTuple):
    """A problem and the number of its random stream."""

    problem: Problem
    item: int = 0
    initial: Routes | None = None  # routes to begin with


def mended(problem: Problem, routes: Sequence[Sequence[int]]) -> Routes:
    """Repair routes into a solution: customers who are missing, too many or too late get routes of their own."""
    found: Routes = []
    waiting = set(range(1, problem.customers + 1))
    for route in routes:
        left, kept = problem.capacity, list[int]()
        for node in route:
            fits = node in waiting and problem.demand[node] <= left
            if fits and (problem.plain or fleet.keeps(problem, [*kept, node])):
                left -= int(problem.demand[node])
                waiting.remove(node)
                kept.append(node)
        found += [kept] * bool(kept)
    return found + [[node] for node in sorted(waiting)]


def default_milliseconds(problem: Problem) -> int:
    """Return the default time of the search for a problem."""
    usual = problem.customers if problem.plain else min(BEYOND * problem.customers, MOST_BEYOND)
    return 0 if native.unavailable() else usual


def start_of(policy: TourBuilder, asked: Asked, settings: RoutingSettings) -> Routes | None:
    """Return initial routes for a problem beyond the plain CVRP: those given, else the policy's if settings ask for it.

    Raises ValueError for `starts_from` policy where that cannot read the problem, for starts of a plain CVRP, and for a
    plan without further search that needs more vehicles than there are.
    """
    problem, alone = asked.problem, settings.milliseconds == 0
    if asked.initial is None and settings.starts_from not in ("mix", "policy"):
        raise ValueError(f"starts_from is {settings.starts_from}, which only a plain CVRP knows; give starts_from=mix")
    if asked.initial is not None or not (alone or settings.starts_from == "policy"):
        return asked.initial
    if reason := unreadable(problem, policy.config):
        if settings.starts_from == "policy":
            raise ValueError(f"starts_from is policy, which does not read {reason}; give starts_from=mix")
        return None
    instances = to_instances([problem], next(policy.parameters()).device, policy.config)
    few = None if alone or settings.decode != "multistart" else min(STARTS, problem.customers)
    chosen = settings.model_copy(update={"milliseconds": 0, "starts": settings.starts or few})
    items = torch.tensor([asked.item])
    routes = mended(problem, routes_of(best_tours(policy, [problem], instances, items, chosen, settings.seed)[0]))
    if alone and not all(fleet.keeps(problem, route) for route in routes):
        return None  # a customer whom no route can serve: ruin and recreate says which
    if alone and (available := problem.vehicles[0].available) is not None and len(routes) > available:
        needs = f"the policy's plan needs {len(routes)} vehicles"
        raise ValueError(f"{needs}, but there are {available}; give milliseconds for a search")
    return routes


def plan_from(policy: TourBuilder, asked: Asked, settings: RoutingSettings, crew: int = 1) -> Plan:
    """Return the plan of a problem beyond the plain CVRP: `start_of`, improved by ruin and recreate on `crew` threads.

    The settings' time is for both, at least half of it for ruin and recreate; without time the plan is the policy's, or
    the first one that ruin and recreate builds.
    """
    given, begun = settings.milliseconds, time.thread_time()
    seconds = (default_milliseconds(asked.problem) if given is None else given) / 1000
    routes = start_of(policy, asked, settings)
    start = None if routes is None else Plan(routes, [0] * len(routes))
    if start and not seconds and asked.initial is None:
        return start
    left = max(seconds - (time.thread_time() - begun), seconds / 2)
    (seed,) = random_bits(derive_key(settings.seed, "cvrp", "fleet"), torch.tensor([asked.item]), 1)[0].tolist()
    return fleet.plan(asked.problem, rounds=not seconds, seconds=left, seed=seed, start=start, crew=crew)


def answer_all(policy: TourBuilder, asked: Sequence[Asked], settings: RoutingSettings) -> list[dict[str, object]]:
    """Return `fleet.answer` to each problem beyond the plain CVRP, by a thread each, or several if problems are few."""
    crew = max(1, torch.get_num_threads() // max(1, len(asked)))

    def answered(each: Asked) -> dict[str, object]:
        try:
            return fleet.answer(each.problem, plan_from(policy, each, settings, crew))
        except ValueError as error:  # of this problem; others are answered
            return {"error": str(error)}

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return list(pool.map(answered, asked))


def found_by(policy: TourBuilder, asked: Asked, settings: RoutingSettings) -> str:
    """Name what finds an answer: the policy, a search from its tours, or a search without it."""
    problem, size, time = asked.problem, asked.problem.customers, 0 if native.unavailable() else settings.milliseconds
    takes = takes_policy(size, size if time is None else time, settings.starts_from, settings.starts)
    if not problem.plain:
        takes = (time == 0 or settings.starts_from == "policy") and not unreadable(problem, policy.config)
    if asked.initial is not None or not takes:
        return "search without a policy" if time != 0 or not problem.plain else "the routes given"
    return "policy" if time == 0 else "policy, then search"


def solve_all(policy: TourBuilder, asked: Sequence[Asked], settings: RoutingSettings) -> list[tuple[Routes, float]]:
    """Return routes and their cost for each problem.

    Raises ValueError for time without native code, and for a policy whose weights are not finite.
    """
    if reason := native.unavailable():
        if settings.milliseconds:
            lacking = f"this machine has no native code: {reason}"
            raise ValueError(f"milliseconds is {settings.milliseconds:g}, but {lacking}; set it to 0")
        settings = settings.model_copy(update={"milliseconds": 0})
    device = next(policy.parameters()).device
    alike: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for place, each in enumerate(asked):
        alike[each.problem.customers, each.initial is None].append(place)
    found: dict[int, tuple[Routes, float]] = {}
    for places in alike.values():
        for rows in batched(places, at_once(asked[places[0]].problem)):
            chosen = [asked[place] for place in rows]
            problems = [each.problem for each in chosen]
            instances = to_instances(problems, device, policy.config)
            items = torch.tensor([each.item for each in chosen])
            plans = [mended(each.problem, each.initial) for each in chosen if each.initial is not None]
            crew = max(1, torch.get_num_threads() // len(rows))
            tours = best_tours(policy, problems, instances, items, settings, settings.seed, plans, crew)
            for place, problem, tour in zip(rows, problems, tours, strict=True):
                routes = routes_of(tour)
                found[place] = routes, cost_of(problem, routes)
    return [found[place] for place in range(len(asked))]


def check_work(customers: int, settings: SearchSettings, most_scores: float = MOST_SCORES) -> None:
    """Raise UserError for more starts than customers, and for tours that a policy would build for minutes."""
    if settings.starts is not None and settings.starts > customers:
        raise UserError(f"starts is {settings.starts}, but there are only {customers} customers")
    plan = DECODES[settings.decode](customers, settings.samples, settings.starts, 0)
    tours = plan.num_tours * (SYMMETRIES if settings.augment else 1)
    alone = settings.milliseconds == 0 or settings.starts_from == "policy" or settings.starts or native.unavailable()
    if alone and tours * customers**2 > most_scores:
        long = f"{tours:,} tours of a policy for {customers:,} customers would take long"
        raise UserError(f"{long}; give starts=1 augment=false, or milliseconds and no starts")


def at_once(problem: Problem) -> int:
    """Return how many problems of this size to search together."""
    return max(1, min(AT_ONCE, MOST_DISTANCES // (problem.customers + 1) ** 2))


def best_tours(
    policy: TourBuilder,
    problems: Sequence[Problem],
    instances: Instances,
    items: Tensor,
    settings: SearchSettings,
    seed: int,
    plans: Sequence[Routes] = (),
    crew: int = 1,
) -> Tensor:
    """Return tours (B, T) of the problems, found by each of `crew` threads in the time of the settings.

    `plans` are tours of the problems to begin with, in place of the policy's. Without time the tours are the policy's,
    or the plans. `instances` are the B problems as the policy takes them, `items` (B,) the numbers of their random
    streams.
    """
    began, customers, starts = time.process_time(), problems[0].customers, settings.starts
    milliseconds = customers if settings.milliseconds is None else settings.milliseconds
    tours = None
    if plans:
        tours = torch.stack([actions_of(plan, 2 * customers) for plan in plans])
    elif takes_policy(customers, milliseconds, settings.starts_from, starts):
        if milliseconds and starts is None and settings.decode == "multistart":
            starts = min(max(1, division_of(customers).starts), customers)
        tours, _ = best_built(policy, instances, settings.model_copy(update={"starts": starts}), seed, items)
        each_once = torch.arange(1 - customers, 1 + customers, device=tours.device).clamp_min(DEPOT)
        if instances.rules is None and (tours.sort(-1).values != each_once).any():
            raise UserError(OMITTED)
    if not milliseconds:
        assert tours is not None
        return tours
    return searched(problems, items, seed, milliseconds / 1000, settings.starts_from, tours, began=began, crew=crew)


def takes_policy(customers: int, milliseconds: float, starts_from: str, starts: int | None) -> bool:
    """Return whether the policy builds start tours: if asked to, or in a mix if there is time enough."""
    worth = bool(starts) or (customers <= MIXED and milliseconds >= PATIENCE * customers)
    return not milliseconds or starts_from == "policy" or (starts_from == "mix" and worth)


def searched(
    problems: Sequence[Problem],
    items: Tensor,
    seed: int,
    seconds: float,
    starts_from: str = "mix",
    tours: Tensor | None = None,
    share: float | None = None,
    began: float | None = None,
    crew: int = 1,
) -> Tensor:
    """Return tours (B, T) of native searches in the problems' own metric, in `seconds` of CPU time for each.

    They start from `tours` (B, T) and those of `starts_from`; `share` overrides the division of the time, which counts
    from `began` on the process's clock. Each of `crew` threads has this time for a problem.
    """
    began = time.process_time() if began is None else began
    division, measured = division_of(problems[0].customers), _measured(problems)
    kinds = division.kinds if starts_from == "mix" else () if starts_from == "policy" else (starts_from,)
    if measured.places is None and "sweep" in kinds and len(kinds) == 1:
        raise UserError("starts_from is sweep, but the problem has distances and no places; give starts_from=mix")
    return native.solve(
        measured,
        random_bits(derive_key(seed, "cvrp", "searches"), items.cpu(), 1)[:, 0],
        max(0.0, seconds - (time.process_time() - began) / len(problems)),
        kinds,
        group=division.group,
        share=division.share if share is None else share,
        tours=None if tours is None else tours[:, None].cpu(),
        crew=crew,
    )


def division_of(customers: int) -> Division:
    """Return the division of the time for problems of a size."""
    return next(each for each in DIVISIONS if customers <= each.customers)


def _measured(problems: Sequence[Problem]) -> native.Measured:
    """Return the problems as native code takes them: with places where these define all distances, else matrices."""
    demand = torch.from_numpy(np.stack([problem.demand for problem in problems])).double()
    capacity = torch.tensor([problem.capacity for problem in problems], dtype=torch.float64)
    rounding = problems[0].rounding
    if all(each.metric == "EUC_2D" and each.rounding == rounding and each.matrix is None for each in problems):
        places = torch.from_numpy(np.stack([problem.locs for problem in problems]))
        return native.Measured(demand, capacity, None, places, rounding)
    return native.Measured(demand, capacity, torch.from_numpy(np.stack([distances(problem) for problem in problems])))


def given_problem(locs: object, demand: object, capacity: object) -> Problem:
    """Return locations (N, 2) and demands (N,) as a problem; raise ValueError if they are not one."""
    with as_user_error("locs and demand must be numbers, the depot first: ", of=(TypeError, ValueError, RuntimeError)):
        given = [torch.as_tensor(each, dtype=torch.float64, device="cpu") for each in (locs, demand, capacity)]
        (depot, *places), (own, *demands), most = (each.tolist() for each in given)
    if own != 0:
        raise ValueError(f"demand[0] is {own:g}; it is the depot's and must be 0")
    if not places and not demands:
        return Problem("", np.array([depot]), np.zeros(1, np.int64), 1, "exact")
    fields = {"depot": depot, "customers": places, "demands": demands, "capacity": most}
    return problem_of(checked(RoutingInput, fields, "locs, demand and capacity"))
