"""Beginnings of stories for a trained model to continue: the lines of text files."""

from common.input_files import Inputs, each_file, lines_of, prompt
from models.stories.inputs import StoryInput, StorySettings

INPUTS = Inputs(
    input=StoryInput,
    settings=StorySettings,
    read=lambda paths: each_file(paths, [".txt"], lambda path: lines_of(path, prompt)),
    line=prompt,
    served={"length": 1000},
    about=lambda models: {"prompt": models[0].beginning},
    at_once=lambda settings: 4 if settings.arithmetic == "integer" else 64,  # in integers one after the other
)
