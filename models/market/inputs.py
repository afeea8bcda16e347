"""Inputs and settings of `predict` for classifiers of the next move."""

from datetime import UTC, date, datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, FailFast, Field

from common.config import Section
from models.inputs import Input

CLASSES = ("SHORT", "NO_TRADE", "LONG")  # of the next move
MOST_CANDLES = 1_000_000
Price = Annotated[tuple[float, ...], FailFast(), Field(max_length=MOST_CANDLES)]
Time = Annotated[int, Field(ge=0, lt=2**62)]  # ms since 1970


class Columns(Section):
    """Candles without gaps, a column each, the newest last."""

    time: Annotated[tuple[Time, ...], FailFast()] = Field(
        max_length=MOST_CANDLES, description="when each candle opens, ms since 1970"
    )
    open: Price = Field(description="first price of each candle")
    high: Price = Field(description="highest price")
    low: Price = Field(description="lowest price")
    close: Price = Field(description="last price")
    volume: Price = Field(description="amount traded")


class CandlesInput(Input):
    """The newest candles of a coin."""

    coin: str | None = Field(None, max_length=100, description="name of the coin; null where the model knows only one")
    candles: Columns
    context: dict[str, Columns] = Field(
        {}, max_length=100, description="candles of other coins that the model needs, by name"
    )


def _time(value: object) -> object:
    """Refuse a date, which YAML makes of 2025-01-16, and name the number to give instead."""
    if not isinstance(value, date):
        return value
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    raise ValueError(f"now={value} is a date: give it in ms since 1970, now={moment.timestamp() * 1000:.0f}, or newest")


class SignalSettings(Section):
    """How probabilities become a signal."""

    now: Annotated[Time | Literal["newest"] | None, BeforeValidator(_time)] = Field(
        None,
        description="current time, ms since 1970; newest: when the newest candle closes; null: the clock's. "
        "The newest candle must be the last closed one",
    )
    threshold: float | None = Field(
        None, gt=0, le=1, description="probability from which SHORT or LONG is signalled; null: the evaluation's rule"
    )
