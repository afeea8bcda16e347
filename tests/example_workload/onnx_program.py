"""The model as an ONNX program, for `python -m exporters onnx RUN`; found here, beside model.py."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import torch

from exporters.onnx import Artifact, Program

from .model import Waves


def describe(model: Waves) -> Artifact:
    """Return the program, with an example that uses it."""
    window = model.config.window

    def fresh(number: int) -> list[torch.Tensor]:
        return [torch.randn(2 + number % 7, window, generator=torch.Generator().manual_seed(number))]

    def check(example: ModuleType) -> Mapping[str, object]:
        (past,) = fresh(0)[:1]
        apart = max(abs(example.predict(row) - float(model(row[None]))) for row in past)
        if apart > 1e-4:
            raise RuntimeError(f"the example is {apart} from the model")
        return {"largest_difference": apart}

    program = Program("waves", model, {"past": {0: "batch"}}, ["next"], fresh)
    return Artifact([program], Path(__file__).with_name("onnx_example.py").read_bytes(), check)
