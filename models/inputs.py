"""What models are asked and how: the inputs and the settings of `predict`, a pair of classes for each kind of model.

Commands and servers check what users give against them, and their help and schemas follow from them. torch is not
imported here: words are read, and refused, before it.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from common.config import Section

LONGEST_PROMPT = 10_000  # characters


Seed = Annotated[int, Field(ge=0, lt=2**32)]


class Input(Section):
    """Something to be answered."""

    item: int = Field(
        0, ge=0, lt=2**31, description="number of its random draws: equal inputs with equal items have equal answers"
    )


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
