"""What trained models answer, for predict.py and serve.py, and how it is read from files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from common.input_files import Given, Inputs, each_file, lines_of

from .model import WavesInput, WavesSettings


def of_line(text: str) -> Mapping[str, object]:
    """Read a line of numbers with spaces or commas between them."""
    return {"past": text.replace(",", " ").split()}


def read(paths: Sequence[Path]) -> Iterator[Given]:
    """Yield the windows in text files, one in each line."""
    return each_file(paths, (".txt", ".csv"), lambda path: lines_of(path, of_line))


EXAMPLE = [f"past={[number / 20 for number in range(20)]}", "steps=4"]
INPUTS = Inputs(WavesInput, WavesSettings, read, of_line, example=EXAMPLE)
