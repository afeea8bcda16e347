"""The task of training a comparator: both orders of every pair, and a loss that is right for unselected pairs."""

import math
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from common.random import derive_key
from models.images.comparator.scorer import Scorer
from models.images.comparator.siamese import Siamese, TowerSiamese
from models.images.ranking import SIMILAR, SWAPPED, Davidson
from models.images.vision_tower import Tower
from models.images.vlm_comparator.levels import LevelComparator
from models.images.vlm_comparator.model import VlmComparator
from pipelines.distributed import deferred
from pipelines.engine.workload import Loss, MapItems, Task
from pipelines.workloads.lmol import data, features
from pipelines.workloads.lmol.config import Config
from pipelines.workloads.lmol.features import in_parts
from pipelines.workloads.lmol.model import make_model
from pipelines.workloads.lmol.pairs import PARTS
from pipelines.workloads.lmol.sources.tables import EMBEDDED
from pipelines.workloads.lmol.training.batches import Pairs
from pipelines.workloads.lmol.training.checks import check_trains

NAMED = 10  # unusable images that are listed before training
SCORED = 200  # validation images that measure the reliability of scores


class ComparisonTask(Task):
    """Learns from pairs, a third per answer, to answer with the frequencies of unselected pairs."""

    def __init__(self, config: Config, folder: Path, device: torch.device):
        numbers = range(len(config.data.attributes)) if len(config.data.attributes) > 1 else [None]
        self.config, self.sets = config, [data.load(folder, config.data.fold, number) for number in numbers]
        self.comparisons, self.folder = self.sets[0], folder
        began = time.perf_counter()
        based = bool(config.model.base)  # a base is read whole
        self.model = deferred.made(lambda: make_model(config, *self.sets), device, whole=based)
        parts = {  # first, second, label and, if there are several, the attribute's number
            name: torch.cat([functional.pad(pairs, (0, len(self.sets) > 1), value=n) for n, pairs in enumerate(each)])
            for name, end in (("train", None), ("validation", config.training.validation_pairs))
            for each in [[torch.as_tensor(own.pairs[name][:end]).long() for own in self.sets]]
        }
        # Test images are kept off the device.
        used = torch.cat([rows[:, :2].flatten() for rows in parts.values()]).unique()
        workers = config.data.workers
        stored = data.Images(self.comparisons.images, used.numpy(), workers)
        images = stored if workers else in_parts(stored.__getitem__, len(used), device)
        for rows in parts.values():
            rows[:, :2] = torch.searchsorted(used, rows[:, :2].contiguous())
        # With workers, the encodings may be too large for the device just as the images are.
        home = torch.device("cpu") if workers else device
        self.used, self.stored, self.home, self.device = used, stored, home, device
        encoded = self._encoded() if self.model.frozen else None
        targets = [likely for own in self.sets if (likely := self._likely(own)) is not None]
        known = None
        self.scorers = [each for each in self.model.views.values() if isinstance(each, Scorer | LevelComparator)]
        if self.scorers:
            doubts = [None if own.errors is None else torch.from_numpy(own.errors)[used] for own in self.sets]
            scores = [self._known(torch.arange(len(used)), own) for own in self.sets]
            each = zip(self.scorers, scores, doubts, strict=True)
            known = torch.stack([view.goals(score, doubt) for view, score, doubt in each], 1).to(home)
        self.train = Pairs(
            images,
            parts["train"],
            encoded,
            known,
            torch.cat(targets) if targets else None,
            shift=config.shift,
            turn=config.texture,
            mirror=config.tuned,
            key=derive_key(config.seed, "lmol", "moves"),
            workers=workers,
        )
        self.validation = Pairs(images, parts["validation"], encoded, workers=workers)
        # Logarithms (A, 3) of the answers' frequencies among training pairs over those among all pairs.
        shares = ([own.answered for own in self.sets], [own.shares for own in self.sets])
        self.prior = (torch.tensor(shares[0]).log() - torch.tensor(shares[1]).log()).to(device)
        self.notes = self.data_notes(folder, len(used), time.perf_counter() - began)
        if isinstance(self.model, VlmComparator):
            self.model.rate_factors = dict.fromkeys(self.model.projectors, config.training.projector_rate)
            if config.hardware.gradient_checkpointing:
                self.model.gradient_checkpointing = True  # before the trial steps, which must fit in memory too
        if not any(parameter.is_meta for parameter in self.model.parameters()):  # a trial needs all of them
            self.notes.append(check_trains(self.model, self.train, self.loss))

    def _encoded(self) -> Tensor:
        """Return encodings (n, ...) of the images in use, and fit a tower's regressions to them."""
        if kept := features.of_all(self.model, self.sets, self.folder, self.device):
            found = kept[0][self.used].to(self.home)
        else:
            with deferred.lent(self.model, self.device):
                found = in_parts(lambda items: self.model.encode_all(self.stored[items]), len(self.used), self.home)
        for view, own in zip(self.model.views.values(), self.sets, strict=True):
            if isinstance(view, TowerSiamese):
                of_part = [self._of_part(part, own) for part in PARTS[:2]]
                view.regressions.fit(*[(found[rows], view.targets(self._known(rows, own))) for rows in of_part])
        return found

    def _of_part(self, part: str, found: data.Comparisons) -> Tensor:
        """Return the rows of the images in use (n,) that belong to a part."""
        return torch.isin(self.used, torch.from_numpy(found.parts[part])).nonzero().flatten()

    def _known(self, rows: Tensor, found: data.Comparisons) -> Tensor:
        """Return the scores (n,), on the user's scale, of rows of the images in use."""
        return torch.from_numpy(found.scores)[self.used[rows]] * float(found.unit)

    def _likely(self, found: data.Comparisons) -> Tensor | None:
        """Return target probabilities (P, 3) of the answers to training pairs whose scores have standard errors.

        Errors are taken as independent and normal. Without them None or, for several attributes, one-hot labels. A
        person's answer is mixed with the probabilities by everybody's, the more the less that rater is trusted.
        """
        pairs = torch.from_numpy(found.pairs["train"])
        ends, given = pairs[:, :2], functional.one_hot(pairs[:, 2], 3)
        scores = torch.from_numpy(found.scores * found.unit)[ends]
        difference = scores[:, 0] - scores[:, 1]
        if found.trust is not None and not found.scored:
            rare = math.log(2 * found.answered[SIMILAR] / (1 - found.answered[SIMILAR]))  # never the likeliest
            likely = Davidson(1.0, found.theta * found.unit / 2 or rare).probabilities(difference)
            trust = torch.from_numpy(found.trust)[:, None]
            return (trust * given + (1 - trust) * likely).float()
        if found.errors is None or not found.scored:
            return given.float() if len(self.sets) > 1 else None
        spread = torch.from_numpy(found.errors)[ends].double().square().sum(1).sqrt().clamp_min(1e-6 * found.unit)
        near = (found.theta + 0.5) * found.unit  # halfway to the next difference that scores can have
        first, second = (torch.special.ndtr((sign * difference - near) / spread) for sign in (1, -1))
        return torch.stack([first, second, 1 - first - second], 1).clamp_min(0).float()

    def data_notes(self, folder: Path, images: int, seconds: float) -> list[str]:
        """Return lines about the data: their pairs, what was guessed of a table, and images that were set aside."""
        found, validated = self.comparisons, self.config.training.validation_pairs
        notes = [
            f"{own.attribute} of {own.facts.get('source', self.config.data.source)}: {len(own.pairs['train']):,} pairs "
            f"to train on, {len(own.pairs['validation'][:validated]):,} to validate on, of {images:,} images; similar "
            f"up to a difference of {own.theta * own.unit:g}"
            for own in self.sets
        ]
        if (source := self.config.data.source) in EMBEDDED and Path(source).is_dir():
            notes.append(f"data.source={source} is the embedded data; the folder of that name is ./{source}")
        if found.attribute == "score" and self.config.data.attribute is None:
            notes.append("pages will call the attribute 'score'; to name it, give data.attribute=quality or the like")
        tower = getattr(self.model.of(None), "tower", None)
        if isinstance(tower, Tower) and self.config.data.size < tower.sight.size:
            notes.append(
                f"data.size={self.config.data.size} is below the base's {tower.sight.size} pixels a side, which costs "
                "accuracy (of faces scored by people, 32 instead of 224 took Pearson's correlation from 0.82 to 0.77); "
                f"give data.size={tower.sight.size}"
            )
        read = [(note, own.attribute) for own in self.sets for note in own.facts.get("columns", [])]
        of_all = {note for note, times in Counter(note for note, _ in read).items() if times == len(self.sets)}
        notes += dict.fromkeys(f"{source}: {note if note in of_all else f'{name}: {note}'}" for note, name in read)
        aside = {name: why for own in self.sets for name, why in own.facts.get("quarantined", {}).items()}
        notes += [f"set aside: {name}: {reason}" for name, reason in list(aside.items())[:NAMED]]
        if len(aside) > NAMED:
            notes.append(f"set aside: {len(aside):,} images in all; {folder}/manifest.json lists them as quarantined")
        if self.train.encoded is not None:
            size = self.train.encoded.numel() * self.train.encoded.element_size()
            notes.append(f"features of {images:,} images: {size / 2**20:.0f} MiB, computed once, in {seconds:.1f} s")
        return notes

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        """Return cross-entropy, the mean over both orders, plus the weighted divergence between them; sums over pairs.

        The logits are adjusted to the frequencies of the training pairs inside the loss only (Menon et al. 2021), so
        that the model's own logits are right for unselected pairs. Where scores are learnt, their loss is added.
        """
        one, other, encoded = logits_of_orders(model, batch, with_encodings="known" in batch)
        prior = self.prior[batch["attribute"]] if "attribute" in batch else self.prior[0]
        nats = cross_entropy(one + prior, other + prior, batch.get("target", batch["label"]))
        difference = one.log_softmax(-1) - other.log_softmax(-1)
        divergence = ((one.softmax(-1) - other.softmax(-1)) * difference).sum(-1) / 2
        right = (one.softmax(-1) + other.softmax(-1)).argmax(-1) == batch["label"]
        value = nats + self.config.training.consistency * divergence
        metrics = {"accuracy": right.float().sum(), "answer_loss": nats.sum(), "order_loss": divergence.sum()}
        if self.scorers:
            each = zip(self.scorers, batch["known"].unbind(1), strict=True)
            off = torch.stack([view.score_loss(encoded, known) for view, known in each])
            about = batch.get("attribute", 0)
            wrong = (off[about, batch["first"]] + off[about, batch["second"]]) / 2
            value, metrics = value + wrong, {**metrics, "score_loss": wrong.sum()}
        return Loss(value.sum(), len(nats), metrics)

    def score(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return, per pair, cross-entropy in nats, accuracy of the mean over both orders, and agreement of both."""
        one, other, _ = logits_of_orders(model, batch)
        return {
            "loss": cross_entropy(one, other, batch["label"]),
            "accuracy": ((one.softmax(-1) + other.softmax(-1)).argmax(-1) == batch["label"]).float(),
            "swap_consistency": (one.argmax(-1) == other.argmax(-1)).float(),
        }

    @torch.no_grad()
    def refit(self, map_items: MapItems) -> Mapping[str, float]:
        """Fit the scale that turns answers into scores, and measure on validation images how reliable these are."""
        encoded, figures = self.validation.encoded, dict[str, float]()
        if encoded is None and isinstance(self.model.of(None), TowerSiamese):
            encoded = self._encoded()  # a tuned tower's features have changed
        for number, (model, own) in enumerate(zip(self.model.views.values(), self.sets, strict=True)):
            pairs = self.validation.pairs[self.validation.pairs[:, 3:].sum(1) == number, :3]  # all, of one attribute
            rows = self._of_part("validation", own)
            rows = rows[torch.linspace(0, len(rows) - 1, min(SCORED, len(rows))).long()]
            images = data.Images(own.images, self.used[rows].numpy())[torch.arange(len(rows))]
            comparisons = self.config.evaluation.comparisons
            if isinstance(model, Siamese):
                both, places = pairs[:, :2].unique(return_inverse=True)
                shown = model.encode_all(self.stored[both]) if encoded is None else encoded[both].to(self.prior.device)
                model.weigh_answers(shown, torch.cat([places, pairs[:, 2:]], 1))
            model.fit_scale(comparisons, self.config.seed)
            seen = model.encode_all(images) if encoded is None else encoded[rows].to(self.prior.device)
            known = self._known(rows, own)
            names, groups = np.unique([own.groups[row] for row in self.used[rows]], return_inverse=True)
            shared = torch.from_numpy(groups) if len(names) < len(rows) else None
            scores, errors = model.rely(seen, known, comparisons, shared)
            which = f"_{own.attribute}" if len(self.sets) > 1 else ""
            figures[f"val/mae{which}"] = float((scores - known).abs().mean())
            figures[f"val/standard_error{which}"] = float(errors.mean())
        return figures


def logits_of_orders(
    model: nn.Module, batch: Mapping[str, Tensor], with_encodings: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits (b, 3) of the pairs in the order given, and swapped, both in terms of the order given.

    Third, what a forward pass returns `with_encodings`, else the logits again.
    """
    first, second = batch["first"], batch["second"]
    both = torch.cat([first, second]), torch.cat([second, first])
    given = {"encoded": batch.get("encoded"), "numbers": batch["numbers"]}
    if "attribute" in batch:
        given["attribute"] = batch["attribute"].repeat(2)
    found = model(batch.get("images"), *both, **given, **({"with_encodings": True} if with_encodings else {}))
    logits, encoded = found if with_encodings else (found, found)
    one, other = logits.float().chunk(2)
    # Indexing by a list would copy it to the device and wait for it.
    return one, torch.stack([other[:, answer] for answer in SWAPPED], -1), encoded


def cross_entropy(one: Tensor, other: Tensor, label: Tensor) -> Tensor:
    """Return nats (b,), the mean over both orders, for labels (b,) or probabilities of them (b, 3)."""
    given, swapped = (functional.cross_entropy(each, label, reduction="none") for each in (one, other))
    return (given + swapped) / 2
