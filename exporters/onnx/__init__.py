"""Models as tensor programs, with the files that their use needs.

A module of this folder describes the family of models that it is named after: `describe(model) -> Artifact` raises
ValueError for a model that cannot be exported. `exporters/to_onnx.py` writes artifacts and proves them equal.
"""

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from torch import Tensor, nn

from common.packages import neighbour
from models import io

OWN = "onnx_program"  # the module with `describe` beside that of a family of the user's own
SHARED = {"char_mixture": "char_lstm", "pooled_experts": "cnn_lstm"}  # families that another one's module describes
FRESH = 100  # inputs on which a program is compared with the original
TOLERANCE = 1e-4  # largest difference of an output, a probability or its logarithm that counts as rounding

AModel = TypeVar("AModel", bound=nn.Module)
Axes = Mapping[int, str]  # number of an axis -> its name, for the axes whose sizes may vary


class Part(nn.Module, Generic[AModel]):
    """A part of a model, from tensors to tensors."""

    def __init__(self, model: AModel):
        super().__init__()
        self.model = model


@dataclass(frozen=True)
class Program:
    """One ONNX file: a module from tensors to tensors."""

    name: str  # of the file, without .onnx
    module: nn.Module
    inputs: Mapping[str, Axes]  # in the order of the module's arguments
    outputs: Sequence[str]
    fresh: Callable[[int], Sequence[Tensor]]  # number -> inputs, of sizes that vary with it


@dataclass(frozen=True)
class Artifact:
    """The part of an export that depends on the family."""

    programs: Sequence[Program]
    example: bytes  # a script that uses the programs, without this project
    files: Mapping[str, bytes] = field(default_factory=dict)  # that the example reads, by name


def describe(model: io.Model) -> Artifact:
    """Return the artifact of a model in eval mode. Raises ValueError for one that cannot be exported."""
    own = neighbour(type(model).__module__, OWN)
    name = f"{__name__}.{SHARED.get(model.family, model.family)}"
    if own is None and importlib.util.find_spec(name) is None:
        files = {path.stem for path in Path(__file__).parent.glob("*.py")} - {"__init__", "examples"}
        known = sorted({*files, *SHARED})
        unknown = f"the family {model.family!r} has no tensor programs; the families {', '.join(known)} have"
        way = f"write {OWN}.py with describe(model) beside the model's module, or export safetensors"
        raise ValueError(f"{unknown}; {way}")
    artifact: Artifact = (own or importlib.import_module(name)).describe(model)
    return artifact
