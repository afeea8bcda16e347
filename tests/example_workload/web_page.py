"""The model as a page that computes in the browser, for `python -m exporters web RUN`; found here, beside model.py."""

from pathlib import Path

import safetensors.torch
import torch

from exporters.web.packing import Packed

from .model import Waves


def pack(model: Waves, run: Path) -> Packed:
    """Return what the page carries, with an answer of PyTorch's that it compares with its own."""
    past = [round(float(x), 3) for x in torch.linspace(-1, 1, model.config.window)]
    answer = next(model.predict([{"past": past}], steps=3))
    return Packed(
        heading="Continue a wave",
        said="The next value of a wave from the values before it.",
        panel="",
        kernels=["tensors.js", Path(__file__).with_name("waves.js")],
        config={"window": model.config.window},
        about={"past": past},
        files={"model.safetensors": safetensors.torch.save(model.state_dict())},
        expected=[{"method": "predict", "arguments": [{"past": past}, {"steps": 3}], "output": answer}],
        further_panels=["waves"],
    )
