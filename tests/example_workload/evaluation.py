"""The model on held-out waves, beside the simplest prediction: the last value again."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from matplotlib.figure import Figure
from torch import nn

from pipelines.engine.workload import Evaluation, MapItems
from pipelines.report.plots import svg
from pipelines.run.folder import Run

from .task import load

if TYPE_CHECKING:
    from . import Config


def evaluate(
    config: "Config", models: Mapping[str, nn.Module], folder: Path, device: torch.device, map_items: MapItems
) -> list[Evaluation]:
    """Root mean squared errors, and the predictions of all examples."""
    (model,) = models.values()
    found = map_items(
        load(folder, "held_out", device),
        lambda batch: {"predicted": model(batch["past"]), "last": batch["past"][:, -1], "next": batch["next"]},
    )
    rmse = {name: math.sqrt((found[name] - found["next"]).square().mean()) for name in ("predicted", "last")}
    table = [{"method": "model", "rmse": rmse["predicted"]}, {"method": "last value again", "rmse": rmse["last"]}]
    examples = {name: values.tolist() for name, values in found.items()}
    return [Evaluation("held_out", {"rmse": rmse["predicted"], "n": len(found["next"])}, table, examples)]


def sections(
    config: "Config", models: Mapping[str, nn.Module], evaluations: Sequence[Evaluation], run: Run
) -> list[tuple[str, str]]:
    """A plot of predictions over what came; examples are known right after evaluation only."""
    parts = []
    for evaluation in evaluations:
        if evaluation.examples:
            figure = Figure(figsize=(4, 4), layout="constrained")
            axis = figure.subplots()
            axis.scatter(evaluation.examples["next"], evaluation.examples["predicted"], s=4)
            axis.set(xlabel="next value", ylabel="predicted")
            parts.append(("Predictions", svg(figure)))
    return parts
