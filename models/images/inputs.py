"""Inputs of comparators: images to rank, two to compare, or scores of images and people's votes on them.

torch is not imported here, so that inputs are validated, and refused, before it is.
"""

import base64
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, model_validator

from common.config import Section
from common.errors import as_user_error
from models.inputs import Input

ENDINGS = (
    *(".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".avif", ".heic", ".heif"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".pfm"),
    *(".jp2", ".jxl", ".psd", ".svg"),  # images too: not decoded, but reported by name rather than ignored
)
MOST_PIXELS = 50_000_000  # of an image file
MOST_IMAGES, MOST_VOTED = 10_000, 1000


def folded(name: str) -> str:
    """Return an attribute's name casefolded, with letters and digits of all alphabets alone."""
    return re.sub(r"[\W_]", "", name.casefold()) or name


def visible_in(folder: Path) -> list[Path]:
    """Return all paths below a folder, sorted, except hidden ones, such as thumbnails."""
    found = sorted(folder.rglob("*"))
    return [each for each in found if not any(part.startswith(".") for part in each.relative_to(folder).parts)]


def _image(value: object, info: ValidationInfo) -> object:
    """Parse an image's text: a data: URL, else a file's name, or base64 where files are not allowed."""
    if not isinstance(value, str):
        return value
    if value.startswith("data:") or not (info.context or {}).get("files", True):
        with as_user_error("an image is a data: URL or base64 (", ")"):
            text = value.partition(",")[2] if value.startswith("data:") else value
            return base64.b64decode(re.sub(r"[\r\n]", "", text), validate=True)  # MIME ends lines at 76 characters
    return Path(value)


Image = Annotated[
    bytes | Path, BeforeValidator(_image), WithJsonSchema({"type": "string", "description": "a data: URL or base64"})
]


class ImagesInput(Input):
    """Images to rank, two to compare, or scores of images that people vote on."""

    images: tuple[Image, ...] | None = Field(
        None, min_length=1, max_length=MOST_IMAGES, description="images to rank: files, data: URLs or base64"
    )
    first: Image | None = Field(None, description="one of two images to compare")
    second: Image | None = Field(None, description="the other one")
    scores: tuple[Annotated[float, Field(gt=-1e10, lt=1e10)], ...] | None = Field(
        None, min_length=2, max_length=MOST_VOTED, description="scores of images that people vote on, of a ranking"
    )
    errors: tuple[Annotated[float, Field(gt=1e-9, lt=1e10)], ...] | None = Field(None, description="standard errors")
    votes: tuple[tuple[int, int, Literal["First", "Second", "Similar"]], ...] = Field(
        (), description="numbers of two images in `scores`, from 0, and which ranks higher: First, Second or Similar"
    )

    @model_validator(mode="after")
    def _one_question(self) -> "ImagesInput":
        if (count := len(self.scores or ())) != len(self.errors or ()) or (self.votes and not count):
            raise ValueError(f"{count} scores and {len(self.errors or ())} errors: give both for each image voted on")
        for first, second, _ in self.votes:
            if first == second or not (0 <= first < count and 0 <= second < count):
                raise ValueError(f"a vote is about images {first} and {second}; give two from 0 to {count - 1}")
        pair = [each is not None for each in (self.first, self.second)]
        if self.images is None and any(pair) != all(pair):
            given, missing, other = ("first", "second", "b.png") if pair[0] else ("second", "first", "a.png")
            raise ValueError(f"{missing} is missing, to compare {given} with; give it too, as in {missing}={other}")
        if any(pair) != all(pair) or [all(pair), self.images is not None, self.scores is not None].count(True) != 1:
            question = "give images, which are ranked, or first and second, which are compared"
            raise ValueError(f"{question}, or scores and votes")
        return self


class ComparisonSettings(Section):
    """How images are ranked."""

    comparisons: int = Field(32, ge=2, le=1000, description="maximum number of references an image is compared with")
    attribute: str | None = Field(None, description="attribute that a model of several ranks by; null: the first")
