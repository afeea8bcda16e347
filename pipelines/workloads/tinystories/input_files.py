"""Beginnings of stories for a trained model to go on with: the lines of text files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from common.input_files import Given, Inputs, each_file, lines_of
from models.stories.inputs import StoryInput, StorySettings


def read(paths: Sequence[Path]) -> Iterator[Given]:
    """Yield the lines of text files, and of the text files in folders."""
    return each_file(paths, [".txt"], lambda path: lines_of(path, line))


def line(text: str) -> Mapping[str, str]:
    """Return a line as the beginning of a story."""
    return {"prompt": text}


def together(settings: StorySettings) -> int:
    """Return how many stories are told together; in integers they are told one after the other."""
    return 4 if settings.arithmetic == "integer" else 64


INPUTS = Inputs(
    input=StoryInput, settings=StorySettings, read=read, line=line, served={"length": 1000}, at_once=together
)
