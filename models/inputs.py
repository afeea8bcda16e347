"""Inputs and settings of `predict`, a pair of classes for each kind of model.

Commands and servers validate users' inputs by them, and derive help and schemas from them. torch is not imported here,
so that inputs are validated, and refused, before it is.
"""

from typing import Annotated

from pydantic import Field

from common.config import Section

LONGEST_PROMPT = 10_000  # characters

Stop = Annotated[str, Field(min_length=1, max_length=1000)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


class Input(Section):
    """One input of `predict`."""

    item: int = Field(0, ge=0, lt=2**31, description="number of its random draws: those of equal items are equal")


class Sampling(Section):
    """How the next token is chosen."""

    top_k: int = Field(0, ge=0, description="likeliest next tokens that are drawn from; 0: all")
    top_p: float = Field(1.0, gt=0, le=1, description="share of the probability that is drawn from")
    seed: Seed = Field(0, description="random seed")
    stop: Stop | tuple[Stop, ...] | None = Field(None, description="text, or texts, before which the answer ends")

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts before which the answer ends."""
        return (self.stop,) if isinstance(self.stop, str) else self.stop or ()
