"""Beginnings of stories for a trained model to go on with: the lines of text files."""

from collections.abc import Mapping

from common.input_files import Inputs, each_file, lines_of
from models.stories.inputs import StoryInput, StorySettings


def line(text: str) -> Mapping[str, str]:
    """Return a line as the beginning of a story."""
    return {"prompt": text}


INPUTS = Inputs(
    input=StoryInput,
    settings=StorySettings,
    read=lambda paths: each_file(paths, [".txt"], lambda path: lines_of(path, line)),
    line=line,
    served={"length": 1000},
    at_once=lambda settings: 4 if settings.arithmetic == "integer" else 64,  # in integers one after the other
)
