"""Inputs of routing policies, problems, and the settings of their search for tours. torch is not imported here."""

from dataclasses import replace
from typing import Annotated, Self

import numpy as np
from pydantic import BeforeValidator, FailFast, Field, model_validator

from common.config import Choice, Section
from models.inputs import Input, Seed
from models.routing import problems
from models.routing.decodes import DECODES, MOST_SAMPLES
from models.routing.edge_weight_types import great_circle, in_a_plane, local_plane
from models.routing.problems import MAX_COORDINATE, MOST_CAPACITY, MOST_CUSTOMERS, ROUNDINGS, Problem, Vehicles

_NUMBER = BeforeValidator(lambda value: str(value).lower() if isinstance(value, bool) else value)  # true would be 1
Coordinate = Annotated[float, Field(ge=-MAX_COORDINATE, le=MAX_COORDINATE), _NUMBER]
Whole = Annotated[int, _NUMBER]
Demand = Annotated[Whole, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0, le=MAX_COORDINATE)]
Amount = Annotated[NotNegative, _NUMBER]
MOST_ASKED = 10_000  # customers of an input
# Sources of start tours; "mix" is the best combination for a size.
STARTS_FROM = ("mix", "policy", "savings", "sweep", "nearest", "random")
OF_CUSTOMERS = ("demands", "windows", "service_times", "prizes")
Point = tuple[Coordinate, Coordinate]
Window = tuple[Amount, Amount]
Matrix = tuple[tuple[NotNegative, ...], ...]  # a million of them are checked in Rust alone


class VehiclesInput(Section):
    """Vehicles of one kind."""

    capacity: Whole = Field(ge=1, le=MOST_CAPACITY, description="capacity of each")
    count: int | None = Field(None, ge=1, le=MOST_CUSTOMERS, description="number of vehicles; null: enough")
    depot: int = Field(0, ge=0, description="depot at which they begin and end: 0 is depot, 1 the first of depots")
    fixed_cost: Amount = Field(0, description="cost of using one")
    cost_per_distance: Amount = Field(1, description="cost of a unit of distance")
    max_length: Amount | None = Field(None, description="largest length of a route")
    max_duration: Amount | None = Field(None, description="largest duration of a route, with waiting and service")


class RoutingInput(Input):
    """A vehicle routing problem; all fields but the first six are for more than capacities."""

    name: str | None = Field(None, max_length=200, description="name of the problem, repeated in the answer")
    depot: Point = Field(description="coordinates of the depot, in any unit")
    degrees: bool = Field(
        False, description="coordinates are longitude and latitude in degrees; the cost is in kilometres on the sphere"
    )
    customers: Annotated[tuple[Point, ...], FailFast()] = Field(
        min_length=1, max_length=MOST_ASKED, description="coordinates of the customers, in the same unit"
    )
    demands: Annotated[tuple[Demand, ...], FailFast()] = Field(description="demand of each customer, whole numbers")
    capacity: Whole = Field(ge=1, le=MOST_CAPACITY, description="capacity of a vehicle")
    rounding: Annotated[str, Choice(tuple(ROUNDINGS))] = Field(
        "exact", description="of each distance: exact, round, trunc (cut) or dimacs (cut to one decimal)"
    )
    distances: Matrix | None = Field(
        None, description="from row to column, instead of those between coordinates: the depot, customers, depots"
    )
    durations: Matrix | None = Field(None, description="times of travel, laid out alike; null: by speed")
    speed: float | None = Field(
        None, gt=0, le=MAX_COORDINATE, description="units of distance in 60 of time, as km/h with minutes; null: 60"
    )
    windows: tuple[Window, ...] | None = Field(None, description="when service may begin at each customer")
    hours: Window | None = Field(None, description="when routes may begin and must have ended, in the unit of windows")
    service_times: tuple[Amount, ...] | None = Field(
        None, description="service time at each customer; a single number: at all of them"
    )
    num_vehicles: int | None = Field(None, ge=1, le=MOST_CUSTOMERS, description="number of vehicles; null: enough")
    max_length: Amount | None = Field(None, description="largest length of a route")
    max_duration: Amount | None = Field(None, description="largest duration of a route, with waiting and service")
    vehicles: tuple[VehiclesInput, ...] = Field(
        (), description="several kinds, in place of capacity, num_vehicles, max_length and max_duration"
    )
    depots: tuple[Point, ...] = Field((), description="coordinates of further depots")
    depot_hours: tuple[Window, ...] = Field((), description="hours of each further depot; without them, as hours")
    open_routes: bool = Field(False, description="routes end at their last customer")
    prizes: tuple[Amount | None, ...] | None = Field(
        None, description="cost of leaving each customer out; null: it must be served"
    )
    initial: tuple[tuple[int, ...], ...] | None = Field(
        None,
        description="routes to begin with, customers numbered from 1; those who are missing or too many for a vehicle "
        "get routes of their own",
    )

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, given: object) -> object:
        """Fill in coordinates for a matrix, a capacity for several kinds of vehicles, and service times from one."""
        if not isinstance(given, dict):
            return given
        one, demands = given.get("service_times"), given.get("demands")
        if isinstance(one, int | float) and isinstance(demands, list | tuple):
            given = {**given, "service_times": [one] * len(demands)}
        if isinstance(vehicles := given.get("vehicles"), list | tuple):
            capacities = [each.get("capacity") for each in vehicles if isinstance(each, dict)]
            most = max((each for each in capacities if isinstance(each, int | float)), default=None)
            given = given if most is None else {**given, "capacity": most}
        if (matrix := given.get("distances")) is not None and "customers" not in given:
            try:
                square = np.array(matrix, float)
                depot, *places = in_a_plane((square + square.T) / 2).tolist()
            except (TypeError, ValueError) as error:
                raise ValueError("distances must be a square of numbers, a row for each node") from error
            last = len(demands) if isinstance(demands, list | tuple) else None  # further depots come behind
            given = {**given, "depot": depot, "customers": places[:last]}
        return given

    @model_validator(mode="after")
    def _fits(self) -> "RoutingInput":
        if self.degrees:
            if len(self.customers) > MOST_CUSTOMERS:
                raise ValueError(f"distances on the sphere are held for at most {MOST_CUSTOMERS} customers")
            for who, (longitude, latitude) in enumerate((*self.depots, self.depot, *self.customers), -len(self.depots)):
                if not (abs(longitude) <= 180 and abs(latitude) <= 90):
                    at = f"{f'customer {who}' if who > 0 else 'a depot'} is at ({longitude:g}, {latitude:g})"
                    pair = "longitude (-180 to 180) and latitude (-90 to 90), in this order"
                    raise ValueError(f"{at}, which is no {pair}; with degrees=false coordinates lie in a plane")
        nodes = 1 + len(self.customers) + len(self.depots)
        for name, rows, count in (
            *((name, getattr(self, name), len(self.customers)) for name in OF_CUSTOMERS),
            *((name, getattr(self, name), nodes) for name in ("distances", "durations")),
            ("depot_hours", self.depot_hours or None, len(self.depots)),
        ):
            if rows is not None and (len(rows) != count or (count == nodes and any(len(row) != nodes for row in rows))):
                raise ValueError(f"{name} must have {count} rows{f' of {nodes} numbers' * (count == nodes)}")
        for name in ("num_vehicles", "max_length", "max_duration", "speed"):
            other = "durations" if name == "speed" else "vehicles"
            if (most := getattr(self, name)) is not None and getattr(self, other):
                raise ValueError(f"{name} is {most:g}, but {other} say their own; give it there or leave it out")
        for node, (opens, closes) in enumerate([] if (spans := _windows_of(self)) is None else spans):
            if opens > closes:
                whose = f"customer {node}" if 0 < node <= len(self.customers) else "a depot"
                raise ValueError(f"{whose} opens at {opens:g} and closes at {closes:g}; correct one of them")
        if far := [each.depot for each in self.vehicles if each.depot > len(self.depots)]:
            raise ValueError(f"vehicles are at depot {far[0]}, but depots has only {len(self.depots)}; add it there")
        if wrong := [node for route in self.initial or () for node in route if not 0 < node <= len(self.customers)]:
            raise ValueError(f"initial names customer {wrong[0]}; there are 1 to {len(self.customers)}")
        if (large := max(self.demands)) > self.capacity:
            asks = f"customer {self.demands.index(large) + 1} asks for {large}"
            raise ValueError(f"{asks}, more than the capacity of {self.capacity}; split the customer into several")
        return self


def problem_of(given: RoutingInput) -> Problem:
    """Return the problem of an input."""
    locs, matrix = np.array([given.depot, *given.customers, *given.depots], float), None
    if given.degrees:
        locs, matrix = local_plane(locs), great_circle(locs[:, None], locs)
    if given.distances is not None:
        matrix = np.array(given.distances, float)
    further = [0.0] * len(given.depots)
    prizes = [np.inf if each is None else each for each in given.prizes or ()]
    found = Problem(
        given.name or "",
        locs,
        np.array([0, *given.demands, *further], np.int64),
        given.capacity,
        given.rounding,
        matrix=matrix,
        services=None if given.service_times is None else np.array([0, *given.service_times, *further]),
        durations=None if given.durations is None else np.array(given.durations, float),
        windows=_windows_of(given),
        fleet=_fleet_of(given),
        depots=1 + len(further),
        open_routes=given.open_routes,
        prizes=None if given.prizes is None else np.array([np.inf, *prizes, *further]),
    )
    return found if given.speed is None else replace(found, durations=problems.distances(found) * 60 / given.speed)


def _windows_of(given: RoutingInput) -> np.ndarray | None:
    """Return the windows (N, 2) of the depot, customers and further depots; None where nothing opens or closes."""
    if not (given.windows or given.hours or given.depot_hours):
        return None
    always, hours = (0, np.inf), given.hours or (0, np.inf)
    further = given.depot_hours or [hours] * len(given.depots)
    return np.array([hours, *(given.windows or [always] * len(given.customers)), *further], float)


def _fleet_of(given: RoutingInput) -> tuple[Vehicles, ...]:
    """Return the kinds of vehicles; none where only the capacity is limited."""
    limits = {name: getattr(given, name) for name in ("capacity", "max_length", "max_duration")}
    at_each = [VehiclesInput(**limits, count=given.num_vehicles, depot=at) for at in range(1 + len(given.depots))]
    found = []
    for kind in given.vehicles or at_each:
        *others, length, duration = kind.model_dump().values()
        found.append(Vehicles(*others, *(np.inf if most is None else most for most in (length, duration))))
    return () if found == [Vehicles(given.capacity)] else tuple(found)


class SearchSettings(Section):
    """The search for tours: how the policy builds them, and how they are improved."""

    decode: Annotated[str, Choice(DECODES)] = Field("multistart", description="how the policy builds tours")
    samples: int = Field(128, ge=1, le=MOST_SAMPLES, description="tours per problem with decode=sampling")
    starts: int | None = Field(
        None,
        ge=1,
        description="tours of the policy with decode=multistart; null: the best number for the size, or without time "
        "one per customer, at most 200",
    )
    augment: bool = Field(False, description="build the policy's tours in the 8 symmetries of the square")
    milliseconds: float | None = Field(
        None,
        ge=0,
        le=3_600_000,
        description="CPU time of each thread for a problem, in native code; null: as many as it has customers, but for "
        "answers (not evaluations) beyond the plain CVRP ten times as many, at most 30,000; 0: the policy's tours, or "
        "one plan where it reads no such problem",
    )
    starts_from: Annotated[str, Choice(STARTS_FROM)] = Field(
        "mix",
        description="start tours: policy, savings, sweep, nearest, random, or mix: the best combination for the size",
    )

    @model_validator(mode="after")
    def _starts_are_used(self) -> Self:
        if self.starts is not None and self.decode != "multistart":
            raise ValueError(f"starts={self.starts} needs decode=multistart (given {self.decode})")
        return self


class RoutingSettings(SearchSettings):
    """The search for tours, with its random numbers."""

    seed: Seed = Field(0, description="random seed of samples and of the searches")
