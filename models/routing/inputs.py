"""What routing policies are asked: problems, and settings of the search for tours. torch is not imported here."""

from typing import Annotated

from pydantic import FailFast, Field, model_validator

from common.config import Choice, Section
from models.inputs import Input, Seed
from models.routing.decodes import DECODES, MOST_SAMPLES
from models.routing.problems import MAX_COORDINATE, MOST_CAPACITY, MOST_CUSTOMERS, ROUNDINGS

Coordinate = Annotated[float, Field(ge=-MAX_COORDINATE, le=MAX_COORDINATE)]
Demand = Annotated[int, Field(ge=0)]
Point = tuple[Coordinate, Coordinate]


class RoutingInput(Input):
    """A capacitated vehicle routing problem."""

    name: str | None = Field(None, max_length=200, description="name of the problem, repeated in the answer")
    depot: Point = Field(description="coordinates of the depot, in any unit")
    degrees: bool = Field(
        False, description="coordinates are longitude and latitude in degrees; the cost is in kilometres on the sphere"
    )
    customers: Annotated[tuple[Point, ...], FailFast()] = Field(
        min_length=1, max_length=MOST_CUSTOMERS, description="coordinates of the customers, in the same unit"
    )
    demands: Annotated[tuple[Demand, ...], FailFast()] = Field(description="what each customer asks for, whole numbers")
    capacity: int = Field(ge=1, le=MOST_CAPACITY, description="what a vehicle can carry")
    rounding: Annotated[str, Choice(tuple(ROUNDINGS))] = Field(
        "exact", description="of each distance: exact, round or trunc (cut)"
    )

    @model_validator(mode="after")
    def _fits(self) -> "RoutingInput":
        if self.degrees:
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
        large = max(self.demands)
        if large > self.capacity:
            raise ValueError(
                f"customer {self.demands.index(large) + 1} asks for {large}, more than the capacity of "
                f"{self.capacity}; split the customer into several"
            )
        return self


class RoutingSettings(Section):
    """The search for tours."""

    decode: Annotated[str, Choice(DECODES)] = Field("multistart", description="strategy that builds the tours")
    samples: int = Field(128, ge=1, le=MOST_SAMPLES, description="tours per problem with decode=sampling")
    starts: int | None = Field(
        None, ge=1, description="tours per problem with decode=multistart; null: one per customer, at most 200"
    )
    augment: bool = Field(True, description="solve each problem in the 8 symmetries of the square")
    local_search: int | None = Field(
        None,
        ge=0,
        le=1000,
        description="best tours from which a local search goes on, in native code; null: 4, or none without such code",
    )
    ruin_rounds: int = Field(
        0,
        ge=0,
        le=10**7,
        description="rounds of ruin and recreate that go on from the best tour, in native code; 0: none",
    )
    seed: Seed = Field(0, description="random seed of samples and of the searches")

    @model_validator(mode="after")
    def _starts_are_used(self) -> "RoutingSettings":
        if self.starts is not None and self.decode != "multistart":
            raise ValueError(f"starts={self.starts} needs decode=multistart (given {self.decode})")
        return self
