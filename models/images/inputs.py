"""What comparators are asked: images to rank, or two to compare.

torch is not imported here: what users give is read, and refused, before it.
"""

import base64
import binascii
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, model_validator

from common.config import Section
from models.inputs import Input

MOST_IMAGES = 10_000


def _image(value: object, info: ValidationInfo) -> object:
    """Read text that stands for an image: a data: URL, else a file's name, or base64 where files are not allowed."""
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

    comparisons: int = Field(32, ge=2, le=1000, description="maximum number of references an image is compared with")
