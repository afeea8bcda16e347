"""Inputs and settings of models of stories: a beginning, and how to continue it. torch is not imported here."""

from typing import Literal

from pydantic import Field, model_validator

from models.inputs import LONGEST_PROMPT, Input, Sampling


class StoryInput(Input):
    """The beginning of a story."""

    prompt: str = Field("", max_length=LONGEST_PROMPT, description="its first words")


class StorySettings(Sampling, defaults={"top_k": 40}):
    """How a story is continued."""

    length: int = Field(200, ge=1, le=10_000, description="largest number of tokens after the prompt")
    temperature: float = Field(0.6, ge=0, le=100, description="sampling temperature; 0: the likeliest token")
    arithmetic: Literal["float", "integer"] = Field(
        "float", description="float: by the trained weights; integer: by the chip's arithmetic, with exactly its tokens"
    )

    @model_validator(mode="after")
    def _the_chip_has_it(self) -> "StorySettings":
        reached = self.temperature == 0 or 0.05 <= self.temperature <= 10
        if self.arithmetic == "integer" and (self.top_p < 1 or not reached):
            given = f"top_p={self.top_p:g} and temperature={self.temperature:g} need arithmetic=float"
            raise ValueError(f"{given}: the chip's top_p is 1, and its temperature 0 or 0.05 to 10")
        return self
