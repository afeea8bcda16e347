"""The part of a processor of transformers that comparators use."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from PIL import Image
from torch import Tensor


class Tokenizer(Protocol):
    """A tokenizer of transformers."""

    bos_token: str | None

    def __call__(self, text: str, *, add_special_tokens: bool) -> Mapping[str, list[int]]:
        """Return the tokens of a text as input_ids."""


class Processor(Protocol):
    """A processor of transformers, which makes a model's inputs of texts and images."""

    tokenizer: Tokenizer

    @property
    def chat_template(self) -> str | dict[str, str] | None:
        """The template of a conversation, if there is one."""

    def __call__(
        self, *, text: Sequence[str], images: Sequence[Sequence[Image.Image]], return_tensors: str, **further: bool
    ) -> Mapping[str, Tensor]:
        """Return the inputs by name, for several texts with the images of each."""

    def save_pretrained(self, save_directory: Path) -> object:
        """Write the processor's files."""
