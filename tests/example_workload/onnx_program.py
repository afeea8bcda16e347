"""The model as an ONNX program, for `python -m exporters onnx RUN`; found here, beside model.py."""

from pathlib import Path

import torch

from exporters.onnx import Artifact, Program

from .model import Waves


def describe(model: Waves) -> Artifact:
    """Return the program, with an example that uses it."""
    window = model.config.window

    def fresh(number: int) -> list[torch.Tensor]:
        return [torch.randn(2 + number % 7, window, generator=torch.Generator().manual_seed(number))]

    program = Program("waves", model, {"past": {0: "batch"}}, ["next"], fresh)
    return Artifact([program], Path(__file__).with_name("onnx_example.py").read_bytes())
