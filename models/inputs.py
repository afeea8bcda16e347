"""What models are asked and how: the inputs and the settings of `predict`, a pair of classes for each kind of model.

Commands and servers check what users give against them, and their help and schemas follow from them. torch is not
imported here: words are read, and refused, before it.
"""

import base64
import binascii
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, model_validator

from common.config import Section

LONGEST_PROMPT = 10_000  # characters
MOST_IMAGES = 10_000
NO_FILES = {"files": False}  # as context of a validation: texts are what images hold, never the names of files

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




def _image(value: Any, info: ValidationInfo) -> Any:
    """Read an image's text: a data: URL, or else the name of a file, or base64 where no files are to be read."""
    if not isinstance(value, str):
        return value
    if value.startswith("data:") or not (info.context or {}).get("files", True):
        try:
            return base64.b64decode(value.partition(",")[2] if value.startswith("data:") else value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"an image is a data: URL or base64 ({error})") from error
    return Path(value)


Image = Annotated[
    bytes | Path, BeforeValidator(_image), WithJsonSchema({"type": "string", "description": "a data: URL or base64"})
]


class ImagesInput(Input):
    """Images to rank, or two to compare."""

    images: tuple[Image, ...] | None = Field(
        None, min_length=1, max_length=MOST_IMAGES, description="images to rank: files, data: URLs or base64"
    )
    first: Image | None = Field(None, description="one of two images to compare")
    second: Image | None = Field(None, description="the other one")

    @model_validator(mode="after")
    def _one_question(self) -> "ImagesInput":
        pair = [each is not None for each in (self.first, self.second)]
        if self.images is None and any(pair) != all(pair):
            given, missing, other = ("first", "second", "b.png") if pair[0] else ("second", "first", "a.png")
            raise ValueError(f"{missing} is missing, to compare {given} with; give it too, as in {missing}={other}")
        if any(pair) != all(pair) or all(pair) == (self.images is not None):
            raise ValueError("give images, which are ranked, or first and second, which are compared")
        return self


class ComparisonSettings(Section):
    """The work that goes into a ranking."""

    comparisons: int = Field(32, ge=2, le=1000, description="largest number of references an image is compared with")
