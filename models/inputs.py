"""What models are asked and how: the inputs and the settings of `predict`, a pair of classes for each kind of model.

Commands and servers check what users give against them, and their help and schemas follow from them. torch is not
imported here: words are read, and refused, before it.
"""

from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, FailFast, Field, model_validator

from common.config import Choice, Section
from models.routing.decodes import DECODES, MOST_SAMPLES
from models.routing.problems import MAX_COORDINATE, MOST_CAPACITY, ROUNDINGS

MOST_CUSTOMERS = 5000  # whose distances are held as a matrix, 200 MB
LONGEST_PROMPT, LONGEST_DOCUMENT = 10_000, 1_000_000  # characters
MOST_CANDLES = 1_000_000

Coordinate = Annotated[float, Field(ge=-MAX_COORDINATE, le=MAX_COORDINATE)]
Demand = Annotated[int, Field(ge=0)]
Point = tuple[Coordinate, Coordinate]
Price = Annotated[tuple[float, ...], FailFast(), Field(max_length=MOST_CANDLES)]
Time = Annotated[int, Field(ge=0, lt=2**62)]  # ms since 1970
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class Input(Section):
    """Something to be answered."""

    item: int = Field(
        0, ge=0, lt=2**31, description="number of its random draws: equal inputs with equal items have equal answers"
    )


class RoutingInput(Input):
    """A capacitated vehicle routing problem."""

    name: str | None = Field(None, max_length=200, description="name of the problem, repeated in the answer")
    depot: Point = Field(description="coordinates of the depot, in any unit")
    customers: Annotated[tuple[Point, ...], FailFast()] = Field(
        min_length=1, max_length=MOST_CUSTOMERS, description="coordinates of the customers, in the same unit"
    )
    demands: Annotated[tuple[Annotated[int, Field(ge=0)], ...], FailFast()] = Field(
        description="what each customer asks for, whole numbers"
    )
    capacity: int = Field(ge=1, le=MOST_CAPACITY, description="what a vehicle can carry")
    rounding: Annotated[str, Choice(tuple(ROUNDINGS))] = Field(
        "exact", description="of each distance: exact, round or trunc (cut)"
    )

    @model_validator(mode="after")
    def _fits(self) -> "RoutingInput":
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


class StoryInput(Input):
    """The beginning of a story."""

    prompt: str = Field("", max_length=LONGEST_PROMPT, description="its first words")


class Sampling(Section):
    """The choice of what comes next."""

    top_k: int = Field(0, ge=0, description="likeliest next tokens that are drawn from; 0: all")
    top_p: float = Field(1.0, gt=0, le=1, description="share of the probability that is drawn from")
    seed: Seed = Field(0, description="random seed")
    stop: str | None = Field(None, min_length=1, max_length=1000, description="text before which the answer ends")


class StorySettings(Sampling, defaults={"top_k": 40}):
    """How a story is told."""

    length: int = Field(200, ge=1, le=10_000, description="largest number of tokens after the prompt")
    temperature: float = Field(0.8, ge=0, le=100, description="sampling temperature; 0: the likeliest token")
    arithmetic: Literal["float", "integer"] = Field(
        "float",
        description="float: by the trained weights; integer: as a chip with this model tells it, token by token",
    )

    @model_validator(mode="after")
    def _the_chip_has_it(self) -> "StorySettings":
        if self.arithmetic == "integer" and (
            self.top_p < 1 or not (self.temperature == 0 or 0.05 <= self.temperature <= 10)
        ):
            raise ValueError(
                f"top_p={self.top_p:g} and temperature={self.temperature:g} need arithmetic=float: "
                "the chip's top_p is 1, and its temperature 0 or 0.05 to 10"
            )
        return self


class TextInput(Input):
    """A text to go on with."""

    field: str | None = Field(
        None, max_length=200, description="field of the form; without a prompt, its usual beginning is completed"
    )
    prompt: str = Field("", max_length=LONGEST_PROMPT, description="the text to be completed")
    document: str = Field("", max_length=LONGEST_DOCUMENT, description="the text before it, which is learnt from")


class TextSettings(Sampling):
    """How a text is completed."""

    length: int = Field(200, ge=1, le=100_000, description="largest number of characters after the prompt")
    temperature: float = Field(0.5, ge=0, le=100, description="sampling temperature; 0: the likeliest character")


class Columns(Section):
    """Candles without gaps, a column each, the newest last."""

    time: Annotated[tuple[Time, ...], FailFast()] = Field(
        max_length=MOST_CANDLES, description="when each candle opens, ms since 1970"
    )
    open: Price = Field(description="first price of each candle")
    high: Price = Field(description="highest price")
    low: Price = Field(description="lowest price")
    close: Price = Field(description="last price")
    volume: Price = Field(description="what was traded")


class CandlesInput(Input):
    """The newest candles of a coin."""

    coin: str | None = Field(None, max_length=100, description="name of the coin; null where the model knows only one")
    candles: Columns


def _time(value: Any) -> Any:
    """Refuse a date, as YAML reads 2025-01-16, with the number to give instead."""
    if not isinstance(value, date):
        return value
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    raise ValueError(f"now={value} is a date: give it in ms since 1970, now={moment.timestamp() * 1000:.0f}, or newest")


class SignalSettings(Section):
    """Reading of the probabilities."""

    now: Annotated[Time | Literal["newest"] | None, BeforeValidator(_time)] = Field(
        None,
        description="time of the question, ms since 1970; newest: as the newest candle closes; null: the clock's. "
        "The newest candle must be the last that has closed",
    )
    threshold: float | None = Field(
        None, gt=0, le=1, description="probability from which SHORT or LONG is signalled; null: the likeliest class is"
    )
