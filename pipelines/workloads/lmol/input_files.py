"""Images for a trained model to rank: those of each folder, and all files named, in a ranking each."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from common.errors import UserError
from common.input_files import Given, Inputs, files_in
from common.plain import Plain
from models.images.inputs import ENDINGS, ComparisonSettings, ImagesInput

if TYPE_CHECKING:
    from models.images.comparator.interface import Comparator


def read(paths: Sequence[Path]) -> Iterator[Given]:
    """Yield one ranking of all files named, and one of each folder."""
    if files := [path for path in paths if not path.is_dir()]:
        yield Given(" ".join(map(str, files)), {"images": list(map(str, files))})
    for folder in (path for path in paths if path.is_dir()):
        try:
            yield Given(str(folder), {"images": list(map(str, files_in(folder, ENDINGS)))})
        except (UserError, OSError) as error:
            yield Given(str(folder), None, str(error))


def about(models: "Sequence[Comparator]") -> dict[str, Plain]:
    """Return the attributes, whether the embedded digits (the only grey images) were learnt, and that votes count."""
    views = list(models[0].views)  # the first is the default
    return {"attribute": views[0], "attributes": views, "digits": models[0].config.channels == 1, "votes": True}


INPUTS = Inputs(
    input=ImagesInput,
    settings=ComparisonSettings,
    read=read,
    served={"images": 64, "comparisons": 256, "scores": 500, "votes": 2000},
    at_once=8,
    about=about,
)
