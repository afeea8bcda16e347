"""The model's answers about images of the data: each image encoded once, the work spread over all processes."""

import time
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from models.images.comparator.interface import Comparator
from pipelines.engine.batches import Resident
from pipelines.engine.workload import MapItems
from pipelines.workloads.lmol import data
from pipelines.workloads.lmol.judging.baselines import Answer

IMAGES_AT_ONCE = 64
PAIRS_AT_ONCE = 512
Known = tuple[Tensor, float] | None  # features, seconds per image


class ModelAnswers:
    """Answers of a comparator about the images of `source`, which the constructor encodes unless they are `known`."""

    def __init__(
        self, model: Comparator, source: data.Images, device: torch.device, map_items: MapItems, known: Known = None
    ):
        self.model, self.device, self.map_items = model, device, map_items
        self.comparisons, self.seconds, self.passes = 0, 0.0, 0.0
        if not known:
            began = time.perf_counter()
            shown = map_items(source, lambda each: {"": model.encode(each["image"].to(device))}, IMAGES_AT_ONCE)
            known = shown[""], (time.perf_counter() - began) / source.size
        features, self.encode_seconds = known
        # If the images do not fit on the device, their encodings may not fit either.
        self.features = features if source.workers else features.to(device)
        self.row = torch.full((len(source.images),), -1)
        self.row[source.rows] = torch.arange(source.size)
        one = source[torch.zeros(1, dtype=torch.long)].to(device)
        self.grey = torch.full_like(one, round(np.mean([source.images[row].mean() for row in source.rows])))

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return probabilities (P, 3) float64 for numbers of images (P,), (P,), in the order given."""
        began = time.perf_counter()
        source = Resident({"first": self.row[first], "second": self.row[second]}, self.device)
        logits = self.map_items(source, self._compare, PAIRS_AT_ONCE)["logits"]
        self.comparisons += len(first)
        self.seconds += time.perf_counter() - began
        return logits.double().softmax(dim=1).numpy()

    def scores(self, numbers: np.ndarray, budget: int, compared: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return scores (N,) and standard errors (N,) of images (N,), from comparisons alone if `compared`.

        Sets `passes`, the passes per image after encoding: its comparisons, or one if its level was asked.
        """
        encoded = self.features[self.row[numbers].to(self.features.device)].to(self.device)
        self.model.compared = 0
        scores, errors = self.model.score_encoded(encoded, budget, compared)
        self.passes = max(1.0, self.model.compared / len(numbers))
        return scores.numpy(), errors.numpy()

    def _compare(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        # A comparator may do work for each encoding that it gets, so it gets only those of the pairs.
        rows, (first, second) = torch.stack([batch["first"], batch["second"]]).unique(return_inverse=True)
        features = self.features[rows.to(self.features.device)].to(self.device)
        return {"logits": self.model.compare_encoded(features, first, second).float()}

    def blank(self) -> Answer:
        """Return a function that answers every pair as the model answers two plain grey images."""
        nothing = torch.zeros(1, dtype=torch.long, device=self.device)
        with torch.no_grad():
            logits = self.model.compare_encoded(self.model.encode(self.grey), nothing, nothing)
        answer = logits.double().softmax(dim=1).cpu().numpy()
        return lambda first, _: np.tile(answer, (len(first), 1))

    def cost(self) -> dict[str, float]:
        """Return the number of comparisons, and the wall-clock time of one and of encoding an image."""
        each = {"comparison_ms": 1000 * self.seconds / self.comparisons, "encode_ms": 1000 * self.encode_seconds}
        return {"comparisons": self.comparisons, **each}
