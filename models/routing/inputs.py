"""What routing policies are asked: problems, and settings of the search for tours. torch is not imported here."""

from typing import Annotated

from pydantic import FailFast, Field, model_validator

from common.config import Choice, Section
from models.inputs import Input, Seed
from models.routing.decodes import DECODES, MOST_SAMPLES
from models.routing.problems import MAX_COORDINATE, MOST_CAPACITY, MOST_CUSTOMERS, ROUNDINGS

Coordinate = Annotated[float, Field(ge=-MAX_COORDINATE, le=MAX_COORDINATE)]
Demand = Annotated[int, Field(ge=0)]
Distance = Annotated[float, Field(ge=0, le=MAX_COORDINATE)]
MOST_ASKED = 10_000  # customers of an input
# What start tours are made from, beside "mix", which is what serves best for a size.
STARTS_FROM = ("mix", "policy", "savings", "sweep", "nearest", "random")
Point = tuple[Coordinate, Coordinate]


class RoutingInput(Input):
    """A capacitated vehicle routing problem."""

    name: str | None = Field(None, max_length=200, description="name of the problem, repeated in the answer")
    depot: Point = Field(description="coordinates of the depot, in any unit")
    degrees: bool = Field(
        False, description="coordinates are longitude and latitude in degrees; the cost is in kilometres on the sphere"
    )
    customers: Annotated[tuple[Point, ...], FailFast()] = Field(
        min_length=1, max_length=MOST_ASKED, description="coordinates of the customers, in the same unit"
    )
    demands: Annotated[tuple[Demand, ...], FailFast()] = Field(description="what each customer asks for, whole numbers")
    capacity: int = Field(ge=1, le=MOST_CAPACITY, description="what a vehicle can carry")
    rounding: Annotated[str, Choice(tuple(ROUNDINGS))] = Field(
        "exact", description="of each distance: exact, round or trunc (cut)"
    )
    distances: tuple[tuple[Distance, ...], ...] | None = Field(
        None, description="symmetric distances between all places, the depot first; null: those of the coordinates"
    )
    initial: tuple[tuple[int, ...], ...] | None = Field(
        None,
        description="routes to begin with, customers numbered from 1; those who are missing or too many for a vehicle "
        "get routes of their own",
    )

    @model_validator(mode="after")
    def _fits(self) -> "RoutingInput":
        if self.degrees:
            if len(self.customers) > MOST_CUSTOMERS:
                raise ValueError(f"distances on the sphere are held for at most {MOST_CUSTOMERS} customers")
            for who, (longitude, latitude) in enumerate((self.depot, *self.customers)):
                if not (abs(longitude) <= 180 and abs(latitude) <= 90):
                    raise ValueError(
                        f"{f'customer {who}' if who else 'the depot'} is at ({longitude:g}, {latitude:g}), which is no "
                        "longitude (-180 to 180) and latitude (-90 to 90), in this order; with degrees=false "
                        "coordinates lie in a plane"
                    )
        if len(self.demands) != len(self.customers):
            raise ValueError(
                f"there are {len(self.customers)} customers but {len(self.demands)} demands; give one for each customer"
            )
        if self.distances is not None:
            size = len(self.customers) + 1
            if {len(self.distances), *map(len, self.distances)} != {size}:
                raise ValueError(f"distances must be {size} rows of {size} numbers, for the depot and the customers")
            if self.distances != tuple(zip(*self.distances, strict=True)):
                raise ValueError("distances must be the same there and back")
        if wrong := [node for route in self.initial or () for node in route if not 0 < node <= len(self.customers)]:
            raise ValueError(f"initial names customer {wrong[0]}; there are 1 to {len(self.customers)}")
        large = max(self.demands)
        if large > self.capacity:
            raise ValueError(
                f"customer {self.demands.index(large) + 1} asks for {large}, more than the capacity of "
                f"{self.capacity}; split the customer into several"
            )
        return self


class RoutingSettings(Section):
    """The search for tours: the policy's, and what goes on from them."""

    decode: Annotated[str, Choice(DECODES)] = Field(
        "multistart", description="strategy by which the policy builds tours"
    )
    samples: int = Field(128, ge=1, le=MOST_SAMPLES, description="tours per problem with decode=sampling")
    starts: int | None = Field(
        None,
        ge=1,
        description="tours of the policy with decode=multistart; null: as serves best for the size, without time "
        "one per customer, at most 200",
    )
    augment: bool = Field(False, description="build the policy's tours in the 8 symmetries of the square")
    milliseconds: float | None = Field(
        None,
        ge=0,
        le=3_600_000,
        description="CPU time of one thread for each problem, in native code; null: as many as it has customers; 0: "
        "the policy's tours alone",
    )
    starts_from: Annotated[str, Choice(STARTS_FROM)] = Field(
        "mix",
        description="start tours: policy, savings, sweep, nearest, random, or mix: those that serve best for the size",
    )
    seed: Seed = Field(0, description="random seed of samples and of the searches")

    @model_validator(mode="after")
    def _starts_are_used(self) -> "RoutingSettings":
        if self.starts is not None and self.decode != "multistart":
            raise ValueError(f"starts={self.starts} needs decode=multistart (given {self.decode})")
        return self
