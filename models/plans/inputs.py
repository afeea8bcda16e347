"""Inputs of models of plans: text to continue, and settings for that."""

from typing import Annotated

from pydantic import AfterValidator, Field

from models.inputs import LONGEST_PROMPT, Input, Sampling
from models.plans.characters import normalise

Normal = Annotated[str, AfterValidator(lambda text: normalise(text)[0])]
LONGEST_DOCUMENT = 1_000_000  # characters


class TextInput(Input):
    """Text to continue."""

    field: str | None = Field(
        None, max_length=200, description="field of the form; without a prompt, its usual beginning is continued"
    )
    prompt: Normal = Field("", max_length=LONGEST_PROMPT, description="text to continue")
    document: Normal = Field("", max_length=LONGEST_DOCUMENT, description="text before it, which a mixture learns from")


class TextSettings(Sampling):
    """Settings for continuing text."""

    length: int = Field(200, ge=1, le=100_000, description="largest number of characters after the prompt")
    temperature: float = Field(0.5, ge=0, le=100, description="sampling temperature; 0: the likeliest character")
    logprobs: int | None = Field(
        None, ge=0, le=20, description="likeliest characters to return at each place with log-probabilities; null: none"
    )
