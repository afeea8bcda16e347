"""The task of training a comparator: both orders of every pair, and a loss that is right for unselected pairs."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.random import derive_key
from models import ranking
from models.comparator.cross import DictionaryCross
from models.comparator.interface import AT_ONCE
from models.ranking import SWAPPED
from pipelines.engine.workload import Loss, MapItems, Task
from pipelines.workloads.lmol import data, memory, pairs
from pipelines.workloads.lmol.batches import Pairs
from pipelines.workloads.lmol.gate import check_trains
from pipelines.workloads.lmol.model import explained, make_model

if TYPE_CHECKING:
    from pipelines.workloads.lmol import Config

SCORED = 100  # validation images by which standard errors are calibrated


class ComparisonTask(Task):
    """Task of answering comparisons.

    The model learns the answers' frequencies among unselected pairs, though each is a third of the training pairs.
    """

    def __init__(self, config: "Config", folder: Path, device: torch.device):
        self.config, self.comparisons = config, data.load(folder)
        began = time.perf_counter()
        self.model = make_model(config, self.comparisons).to(device)
        parts = {name: torch.as_tensor(self.comparisons.pairs[name]).long() for name in ("train", "validation")}
        parts["validation"] = parts["validation"][: config.training.validation_pairs]
        # Test images are kept off the device and out of the dictionary.
        used = torch.cat([rows[:, :2].flatten() for rows in parts.values()]).unique()
        workers = config.data.workers
        stored = data.Images(self.comparisons.images, used.numpy(), workers)
        images = stored if workers else in_parts(stored.__getitem__, len(used), device)
        for rows in parts.values():
            rows[:, :2] = torch.searchsorted(used, rows[:, :2].contiguous())
        if isinstance(self.model, DictionaryCross):
            with explained():
                shown = used[parts["train"][:, :2].unique()]
                self.model.learn_dictionary(data.Images(self.comparisons.images, shown.numpy()), config.seed)
        # With workers, the encodings may be too large for the device just as the images are.
        home = torch.device("cpu") if workers else device
        encoded = None
        if self.model.frozen:
            encoded = in_parts(lambda items: self.model.encode_all(stored[items]), len(used), home)
        moved = {"shift": config.shift, "turn": config.texture, "key": derive_key(config.seed, "lmol", "moves")}
        self.train = Pairs(images, parts["train"], encoded, **moved, workers=workers)
        self.validation = Pairs(images, parts["validation"], encoded, workers=workers)
        self.prior = self._prior(parts["train"][:, 2]).to(device)
        self.notes = self._notes(len(used), time.perf_counter() - began)
        if config.model.lora:
            self.model.rate_factors = dict.fromkeys(self.model.projectors, config.training.projector_rate)
        if config.hardware.gradient_checkpointing and hasattr(self.model, "gradient_checkpointing"):
            self.model.gradient_checkpointing = True  # before the gate, whose trial steps have to fit in memory too
        self.notes += memory.note(self, device)
        self.notes.append(check_trains(self.model, self))

    def _prior(self, labels: Tensor) -> Tensor:
        """Return logarithms (3,) of the answers' frequencies among `labels` over those among all pairs.

        All pairs are those of all training images. First and Second are the same answer in the two orders, so a
        difference of their counts among the labels is chance and is averaged out.
        """
        found = self.comparisons
        natural = pairs.natural_shares(found.scores[found.parts["train"]], found.theta)
        counts = torch.bincount(labels, minlength=3) + 1.0  # no logarithm of zero
        counts[:2] = counts[:2].mean()
        return (counts / counts.sum()).log() - torch.as_tensor(natural, dtype=torch.float32).log()

    def _notes(self, images: int, seconds: float) -> list[str]:
        found = self.comparisons
        notes = [
            f"{found.attribute} of {found.facts.get('source', self.config.data.source)}: {self.train.size:,} pairs to "
            f"train on, {self.validation.size:,} to validate on, of {images:,} images; similar up to a difference "
            f"of {found.theta * found.unit:g}"
        ]
        if self.train.encoded is not None:
            size = self.train.encoded.numel() * self.train.encoded.element_size()
            notes.append(f"features of {images:,} images: {size / 2**20:.0f} MiB, computed once, in {seconds:.1f} s")
        return notes

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        """Return cross-entropy, the mean over both orders, plus the weighted divergence between them; sums over pairs.

        The logits are adjusted to the frequencies of the training pairs inside the loss only (Menon et al. 2021), so
        that the model's own logits are right for unselected pairs.
        """
        one, other = logits_of_orders(model, batch)
        nats = cross_entropy(one + self.prior, other + self.prior, batch["label"])
        difference = one.log_softmax(-1) - other.log_softmax(-1)
        divergence = ((one.softmax(-1) - other.softmax(-1)) * difference).sum(-1) / 2
        right = (one.softmax(-1) + other.softmax(-1)).argmax(-1) == batch["label"]
        value = nats + self.config.training.consistency * divergence
        metrics = {"nats": nats.sum(), "divergence": divergence.sum(), "accuracy": right.float().sum()}
        return Loss(value.sum(), len(nats), metrics)

    def score(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return, per pair, cross-entropy in nats, accuracy of the mean over both orders, and agreement of both."""
        one, other = logits_of_orders(model, batch)
        return {
            "loss": cross_entropy(one, other, batch["label"]),
            "accuracy": ((one.softmax(-1) + other.softmax(-1)).argmax(-1) == batch["label"]).float(),
            "swap_consistency": (one.argmax(-1) == other.argmax(-1)).float(),
        }

    @torch.no_grad()
    def refit(self, map_items: MapItems) -> Mapping[str, float]:
        """Fit the scale that turns answers into scores, and measure on validation images how wrong the scores are.

        The model keeps the scale and the factor by which standard errors are too small.
        """
        found, model = self.comparisons, self.model
        if not len(found.references):
            return {}
        rows = torch.as_tensor(found.parts["validation"])
        rows = rows[torch.linspace(0, len(rows) - 1, min(SCORED, len(rows))).long()]
        images = data.Images(found.images, rows.numpy())[torch.arange(len(rows))]
        model.standard_error_factor.fill_(1.0)
        comparisons = self.config.evaluation.comparisons
        model.fit_scale(comparisons, self.config.seed)
        scores, errors = model.score(images, comparisons)
        known = torch.from_numpy(found.scores)[rows] * float(found.unit)
        factor = ranking.calibrated(errors, scores, known)
        model.standard_error_factor.fill_(factor)
        return {"val/standard_error_factor": factor, "val/mae": float((scores - known).abs().mean())}


def in_parts(function: Callable[[Tensor], Tensor], count: int, home: torch.device) -> Tensor:
    """Return function(items) (N, ...) of all items below `count`, computed a part at a time, on the device `home`."""
    whole = None
    for items in torch.arange(count).split(AT_ONCE):
        part = function(items).to(home)
        whole = part.new_empty(count, *part.shape[1:]) if whole is None else whole
        whole[items] = part
    return whole


def logits_of_orders(model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return logits (b, 3) of the pairs in the order given, and swapped, both in terms of the order given."""
    first, second = batch["first"], batch["second"]
    both = torch.cat([first, second]), torch.cat([second, first])
    logits = model(batch.get("images"), *both, encoded=batch.get("encoded"), numbers=batch["numbers"])
    one, other = logits.float().chunk(2)
    # An index by a list would be copied to the device, which waits for it.
    return one, torch.stack([other[:, answer] for answer in SWAPPED], -1)


def cross_entropy(one: Tensor, other: Tensor, label: Tensor) -> Tensor:
    """Return nats (b,), the mean over both orders."""
    return (F.cross_entropy(one, label, reduction="none") + F.cross_entropy(other, label, reduction="none")) / 2
