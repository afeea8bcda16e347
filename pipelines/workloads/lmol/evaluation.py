"""How often the model says rightly which of two unseen images ranks higher, beside what is had without a network, and
what scores its answers give.
"""

import base64
import csv
import io
import itertools
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from scipy import stats
from sklearn.metrics import confusion_matrix, log_loss, precision_recall_fscore_support
from torch import Tensor, nn

from common.flops import counted
from models import ranking
from models.ranking import FIRST, SECOND, SIMILAR, SWAPPED, Z95
from pipelines.engine.batches import Resident
from pipelines.engine.workload import Evaluation, MapItems
from pipelines.workloads.lmol import data
from pipelines.workloads.lmol.baselines import SHARPNESS, Answer, Baseline, baselines
from pipelines.workloads.lmol.data import CLASSES, Comparisons
from pipelines.workloads.lmol.pairs import label

if TYPE_CHECKING:
    from pipelines.workloads.lmol import Config

IMAGES_AT_ONCE = 64
PAIRS_AT_ONCE = 512
BINS = 10  # of confidence, equally wide, and of margin, equally full
TRIPLES = 1000
RESAMPLES = 1000
PRISTINE = "pristine"  # the family of photos that nothing was done to
STRIP, MISTAKES = 36, 12  # pictures in the report


def evaluate(
    config: "Config", models: Mapping[str, nn.Module], folder: Path, device: torch.device, map_items: MapItems
) -> list[Evaluation]:
    """The test part, whose images no update has seen and no choice was made by."""
    (model,) = models.values()
    began = time.perf_counter()
    comparisons = data.load(folder)
    pairs, images = comparisons.pairs["test"], comparisons.parts["test"]
    first, second, labels = pairs.T
    needed = np.unique(np.concatenate([images, comparisons.parts["validation"], comparisons.references]))
    source = data.Images(comparisons.images, needed, config.data.workers)
    asked = Asked(model, source, device, map_items)

    orders = asked(first, second), asked(second, first)[:, SWAPPED]
    probabilities = (orders[0] + orders[1]) / 2  # as `compare` answers
    found = pair_figures(probabilities, labels)
    bias, bias_interval = position_bias(*orders)
    placed = place(asked, comparisons, config.evaluation.comparisons, config.seed)
    scored = score_figures(placed.scores, placed.known, config.seed)
    triples = transitivity(asked, images, comparisons.theta, config.seed)
    others = [*baselines(comparisons, config.seed), Baseline("blank images", asked.blank())]
    rows = [
        {
            "predictor": f"{config.model.kind}, both orders averaged",
            **_row(found),
            "swap consistency": swap_consistency(*orders),
            "Pearson": scored["pearson"],
        }
    ]
    given = pair_figures(orders[0], labels)
    rows.append({"predictor": f"{config.model.kind}, in the order given", **_row(given)})
    rows += [_baseline_row(each, comparisons) for each in others]
    sharpness = next(each for each in others if each.name == SHARPNESS)
    families = by_family(comparisons, {"model": probabilities, "sharpness_rule": sharpness.answer(first, second)})
    summary = {
        "accuracy": found["accuracy"],
        "accuracy_interval": found["interval"],
        "accuracy_interval_over_images": _accuracy_over_images(probabilities, pairs, config.seed),
        "accuracy_in_the_order_given": given["accuracy"],
        "swap_consistency": swap_consistency(*orders),
        "position_bias": bias,
        "position_bias_interval": bias_interval,
        "macro_f1": found["macro_f1"],
        "nll": found["nll"],
        "calibration_error": found["calibration_error"],
        "class": found["classes"],
        **scored,
        "references": len(comparisons.references),
        "comparisons_per_score": config.evaluation.comparisons,
        "standard_error": float(placed.errors.mean()),
        "standard_error_factor": placed.factor,
        "interval_coverage": placed.coverage,
        **triples,
        "family": families,
        "n": len(pairs),
        "images": len(images),
        "theta": comparisons.theta * comparisons.unit,
        "attribute": comparisons.attribute,
        **asked.cost(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": time.perf_counter() - began,
    }
    details = {
        "confusion": found["confusion"],
        "reliability": found["reliability"],
        "margins": by_margin(comparisons, probabilities),
        "families": families,
        "strip": _strip(comparisons, placed),
        "mistakes": _mistakes(comparisons, probabilities),
    }
    return [
        Evaluation(
            split="test",
            summary=summary,
            table=rows,
            examples={
                "first_image": [comparisons.names[i] for i in first],
                "second_image": [comparisons.names[i] for i in second],
                "first_score": (comparisons.scores[first] * comparisons.unit).tolist(),
                "second_score": (comparisons.scores[second] * comparisons.unit).tolist(),
                "label": [CLASSES[k] for k in labels],
                **{
                    f"p_{CLASSES[k].lower()}{how}": each[:, k].round(6).tolist()
                    for how, each in (("", orders[0]), ("_swapped", orders[1]))
                    for k in (FIRST, SECOND, SIMILAR)
                },
            },
            files={"test.scores.csv": _scores_csv(comparisons, placed), "test.details.jsonl": json.dumps(details)},
        )
    ]


def _row(found: Mapping[str, Any], soft: bool = True) -> dict[str, Any]:
    return {
        "accuracy": found["accuracy"],
        "95 %": found["interval"],
        **{name: found["classes"][name]["accuracy"] for name in CLASSES},
        "macro-F1": found["macro_f1"],
        "NLL": found["nll"] if soft else None,
        "calibration error": found["calibration_error"] if soft else None,
    }


def _baseline_row(baseline: Baseline, comparisons: Comparisons) -> dict[str, Any]:
    first, second, labels = comparisons.pairs["test"].T
    given, swapped = baseline.answer(first, second), baseline.answer(second, first)[:, SWAPPED]
    test = comparisons.parts["test"]
    pearson = None
    if baseline.scores is not None:
        pearson = float(_correlation(baseline.scores[test], comparisons.scores[test] * comparisons.unit))
    return {
        "predictor": baseline.name,
        **_row(pair_figures(given, labels), baseline.soft),
        "swap consistency": swap_consistency(given, swapped),
        "Pearson": pearson,
    }


class Asked:
    """The model's answers about images of the data, each image encoded once, over all processes."""

    def __init__(self, model: nn.Module, source: data.Images, device: torch.device, map_items: MapItems):
        self.model, self.device, self.map_items = model, device, map_items
        self.comparisons, self.seconds = 0, 0.0
        began = time.perf_counter()
        encoded = map_items(source, lambda batch: {"features": model.encode(batch["image"].to(device))}, IMAGES_AT_ONCE)
        # Where images are too many for the device, what was made of them may be too.
        self.features = encoded["features"] if source.workers else encoded["features"].to(device)
        self.encode_seconds = (time.perf_counter() - began) / len(source)
        self.row = torch.full((len(source.images),), -1)
        self.row[source.rows] = torch.arange(len(source))
        self.one = source[torch.zeros(1, dtype=torch.long)].to(device)
        self.grey = torch.full_like(self.one, round(np.mean([source.images[row].mean() for row in source.rows])))

    def logits(self, first: Tensor, second: Tensor) -> Tensor:
        """(P, 3) for numbers of images (P,), (P,), in the order given."""
        if not len(first):
            return torch.empty(0, 3)
        began = time.perf_counter()
        source = Resident({"first": self.row[first], "second": self.row[second]}, self.device)
        answers = self.map_items(source, self._answers, PAIRS_AT_ONCE)["logits"]
        self.comparisons += len(first)
        self.seconds += time.perf_counter() - began
        return answers

    def _answers(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        # What a comparator does to each image it does to all it is handed, so only those of the pairs.
        rows, (first, second) = torch.stack([batch["first"], batch["second"]]).unique(return_inverse=True)
        features = self.features[rows.to(self.features.device)].to(self.device)
        return {"logits": self.model.compare_encoded(features, first, second).float()}

    def __call__(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """(P, 3) float64 probabilities."""
        logits = self.logits(torch.tensor(first), torch.tensor(second))
        return logits.double().softmax(dim=1).numpy()

    def blank(self) -> Answer:
        """What it says of two even grey images, whichever they should have been."""
        nothing = torch.zeros(1, dtype=torch.long, device=self.device)
        with torch.no_grad():
            logits = self.model.compare_encoded(self.model.encode(self.grey), nothing, nothing)
        answer = logits.double().softmax(dim=1).cpu().numpy()
        return lambda first, _: np.tile(answer, (len(first), 1))

    def cost(self) -> dict[str, float]:
        """Of one comparison of images that are encoded, and of encoding one: wall clock, and operations counted."""
        nothing = torch.zeros(1, dtype=torch.long, device=self.device)
        with torch.no_grad(), counted() as encoding:
            features = self.model.encode(self.one)
        with torch.no_grad(), counted() as comparing:
            self.model.compare_encoded(features, nothing, nothing)
        return {
            "comparisons": self.comparisons,
            "comparison_ms": 1000 * self.seconds / self.comparisons,
            "comparison_mflops": comparing.get_total_flops() / 1e6,
            "encode_ms": 1000 * self.encode_seconds,
            "encode_mflops": encoding.get_total_flops() / 1e6,
        }


# Answers about pairs


def pair_figures(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Figures of probabilities (P, 3) for labels (P,).

    `interval` is Wilson's of the accuracy, which takes pairs for independent though they share images. The calibration
    error is that of the answer given, over ten bins of its probability (Guo et al. 2017). NLL is in nats.
    """
    probabilities = probabilities / probabilities.sum(axis=1, keepdims=True)  # exact, which float32 ones are not
    answers = probabilities.argmax(axis=1)
    right = answers == labels
    precision, recall, f1, counts = precision_recall_fscore_support(
        labels, answers, labels=range(len(CLASSES)), zero_division=0
    )
    interval = stats.binomtest(int(right.sum()), len(labels)).proportion_ci(method="wilson")
    error, reliability = _calibration(probabilities.max(axis=1), right)
    return {
        "n": len(labels),
        "accuracy": float(right.mean()),
        "interval": [float(interval.low), float(interval.high)],
        "macro_f1": float(f1.mean()),
        "nll": float(log_loss(labels, probabilities, labels=range(len(CLASSES)))),
        "calibration_error": error,
        "reliability": reliability,
        "confusion": confusion_matrix(labels, answers, labels=range(len(CLASSES))).tolist(),
        "classes": {
            name: {"accuracy": float(recall[k]), "precision": float(precision[k]), "n": int(counts[k])}
            for k, name in enumerate(CLASSES)
        },
    }


def _calibration(confidence: np.ndarray, right: np.ndarray) -> tuple[float, list[dict[str, float]]]:
    """Mean distance of confidence and accuracy, weighted by pairs, and the bins that have any."""
    member = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins = [
        {
            "from": k / BINS,
            "to": (k + 1) / BINS,
            "confidence": float(confidence[member == k].mean()),
            "accuracy": float(right[member == k].mean()),
            "n": int((member == k).sum()),
        }
        for k in np.unique(member)
    ]
    return sum(each["n"] * abs(each["confidence"] - each["accuracy"]) for each in bins) / len(right), bins


def swap_consistency(given: np.ndarray, swapped: np.ndarray) -> float:
    """Share of pairs with the same answer in both orders; `swapped` (P, 3) is already put in terms of the first."""
    return float((given.argmax(axis=1) == swapped.argmax(axis=1)).mean())


def position_bias(given: np.ndarray, swapped: np.ndarray) -> tuple[float, list[float]]:
    """How much oftener it says First than Second over both orders of every pair, and a 95 % interval.

    Without bias it is 0: whatever ranks higher stands first in one order and second in the other.
    """
    sign = np.array([1, -1, 0])
    lean = (sign[given.argmax(axis=1)] - sign[swapped.argmax(axis=1)]) / 2
    half = Z95 * lean.std() / math.sqrt(len(lean))
    return float(lean.mean()), [float(lean.mean() - half), float(lean.mean() + half)]


def by_margin(comparisons: Comparisons, probabilities: np.ndarray) -> list[dict[str, float]]:
    """Accuracy by the distance of the two scores: each distance where they are few, else bins of as many pairs."""
    first, second, labels = comparisons.pairs["test"].T
    distance = np.abs(comparisons.scores[first] - comparisons.scores[second])
    values = np.unique(distance)
    if len(values) > BINS + 2:  # theta is an edge: on either side of it lie different classes
        values = np.unique([*np.quantile(distance, np.linspace(0, 1, BINS + 1)[1:], method="lower"), comparisons.theta])
    member = np.searchsorted(values, distance)
    right = probabilities.argmax(axis=1) == labels
    rows = []
    for k in np.unique(member):
        inside = member == k
        interval = stats.binomtest(int(right[inside].sum()), int(inside.sum())).proportion_ci(method="wilson")
        rows.append(
            {
                "from": float(distance[inside].min() * comparisons.unit),
                "to": float(distance[inside].max() * comparisons.unit),
                "accuracy": float(right[inside].mean()),
                "low": float(interval.low),
                "high": float(interval.high),
                "n": int(inside.sum()),
            }
        )
    return rows


def by_family(comparisons: Comparisons, answers: Mapping[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """Accuracy of each predictor's probabilities where both images are of one family; nothing for a single family.

    A pristine image beside one of a family counts as of that family.
    """
    first, second, labels = comparisons.pairs["test"].T
    families = np.asarray(comparisons.families)
    one, other = families[first], families[second]
    one, other = np.where(one == PRISTINE, other, one), np.where(other == PRISTINE, one, other)
    names = sorted({*one.tolist(), *other.tolist()})
    if len(names) < 2:
        return {}
    inside = {name: (one == name) & (other == name) for name in names}
    inside["across families"] = one != other
    return {
        name: {
            **{who: float((each[chosen].argmax(axis=1) == labels[chosen]).mean()) for who, each in answers.items()},
            "n": int(chosen.sum()),
        }
        for name, chosen in inside.items()
        if chosen.any()
    }


def transitivity(ask: Answer, images: np.ndarray, theta: int, seed: int) -> dict[str, Any]:
    """Share of sampled triples whose three answers no scores whatever could give, and what random answers would have.

    With theta above 0 similarity need not be transitive; with theta 0 it must be.
    """
    if len(images) < 3:
        return {}
    generator = np.random.default_rng(seed)
    triples = np.stack([generator.choice(images, 3, replace=False) for _ in range(TRIPLES)])
    sides = ((0, 1), (1, 2), (0, 2))
    first, second = (np.concatenate([triples[:, side[k]] for side in sides]) for k in (0, 1))
    answers = ((ask(first, second) + ask(second, first)[:, SWAPPED]) / 2).argmax(axis=1).reshape(3, TRIPLES)
    possible = _possible_answers(theta > 0)
    violated = [tuple(answer) not in possible for answer in answers.T.tolist()]
    return {
        "transitivity_violations": float(np.mean(violated)),
        "transitivity_violations_at_random": 1 - len(possible) / len(CLASSES) ** 3,
        "triples": TRIPLES,
    }


def _possible_answers(tolerant: bool) -> set[tuple[int, ...]]:
    """Answers to (a, b), (b, c), (a, c) that some scores give, with a theta or without."""
    theta, values = (2, range(7)) if tolerant else (0, range(3))
    a, b, c = np.array(list(itertools.product(values, repeat=3))).T
    return set(zip(*(label(*each, theta).tolist() for each in ((a, b), (b, c), (a, c))), strict=True))


def _accuracy_over_images(probabilities: np.ndarray, pairs: np.ndarray, seed: int) -> list[float]:
    """95 % bootstrap interval of the accuracy: images are drawn, and a pair comes as often as both its images do."""
    generator = np.random.default_rng(seed)
    right = probabilities.argmax(axis=1) == pairs[:, 2]
    images, rows = np.unique(pairs[:, :2], return_inverse=True)
    first, second = rows.reshape(-1, 2).T
    drawn = []
    for _ in range(RESAMPLES):
        times = np.bincount(generator.integers(len(images), size=len(images)), minlength=len(images))
        weight = times[first] * times[second]
        if weight.any():
            drawn.append(weight @ right / weight.sum())
    return _interval(drawn)


def _interval(drawn: Sequence[float]) -> list[float]:
    low, high = np.quantile(drawn, (0.025, 0.975))
    return [float(low), float(high)]


# Scores


@dataclass(frozen=True)
class Placed:
    """Scores of the test images, in the data's units."""

    images: np.ndarray  # (N,) their numbers
    scores: np.ndarray  # (N,)
    errors: np.ndarray  # (N,) standard errors, with `factor`
    known: np.ndarray  # (N,)
    factor: float  # by which validation images said that errors measured on references fall short

    @property
    def coverage(self) -> float:
        """Share of test images whose known score lies in the 95 % interval."""
        return float((np.abs(self.scores - self.known) <= Z95 * self.errors).mean())


def place(asked: Asked, comparisons: Comparisons, budget: int, seed: int) -> Placed:
    """Score the test images by comparison with references, `budget` at most for each.

    References are training images, about which the model errs less. So the validation images are scored too, and what
    their standard errors fall short by, those of the test images are given.
    """
    test, validation, references = comparisons.parts["test"], comparisons.parts["validation"], comparisons.references
    numbers = torch.from_numpy(np.concatenate([test, validation, references]))
    known = torch.from_numpy(comparisons.scores[numbers]).double() * comparisons.unit
    count = len(test) + len(validation)
    found, errors = ranking.scores(
        lambda first, second: asked.logits(numbers[first], numbers[second]),
        count,
        torch.arange(count, len(numbers)),
        known[count:],
        theta=comparisons.theta * comparisons.unit,
        budget=budget,
        seed=seed,
    )
    unseen = slice(len(test), count)
    factor = ranking.calibrated(errors[unseen], found[unseen], known[unseen]) if len(validation) else 1.0
    mine = slice(0, len(test))
    return Placed(test, found[mine].numpy(), factor * errors[mine].numpy(), known[mine].numpy(), factor)


def score_figures(found: np.ndarray, known: np.ndarray, seed: int) -> dict[str, Any]:
    """Agreement of scores (N,) with known ones (N,), and 95 % intervals bootstrapped over images.

    Images of one group, crops of one photo say, are drawn as if independent. A correlation of constant scores is None.
    """
    drawn = np.random.default_rng(seed).integers(len(found), size=(RESAMPLES, len(found)))
    spread = agreement(found[drawn], known[drawn])
    figures: dict[str, Any] = {}
    for name, value in agreement(found, known).items():
        values = spread[name][np.isfinite(spread[name])]
        figures[name] = float(value) if np.isfinite(value) else None
        figures[f"{name}_interval"] = _interval(values) if np.isfinite(value) else None
    return figures


def agreement(found: np.ndarray, known: np.ndarray) -> dict[str, np.ndarray]:
    """Figures (...) of scores (..., N); not a number where scores that are all the same have no correlation."""
    wrong = found - known
    rows = zip(found.reshape(-1, found.shape[-1]), known.reshape(-1, found.shape[-1]), strict=True)
    return {
        "pearson": _correlation(found, known),
        "spearman": _correlation(stats.rankdata(found, axis=-1), stats.rankdata(known, axis=-1)),
        "kendall": np.array([stats.kendalltau(*row).statistic for row in rows]).reshape(found.shape[:-1]),
        "mae": np.abs(wrong).mean(axis=-1),
        "rmse": np.sqrt(np.square(wrong).mean(axis=-1)),
    }


def _correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Pearson's, of (..., N)."""
    x, y = (each - each.mean(axis=-1, keepdims=True) for each in (x, y))
    with np.errstate(invalid="ignore"):
        return (x * y).sum(axis=-1) / np.sqrt((x * x).sum(axis=-1) * (y * y).sum(axis=-1))


# What the report shows


def _strip(comparisons: Comparisons, placed: Placed) -> list[dict[str, Any]]:
    """Test images spread over the estimated ranking, the highest first."""
    order = np.argsort(-placed.scores, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(STRIP, len(order))).round().astype(int))]
    return [
        {
            "name": comparisons.names[placed.images[i]],
            "score": float(placed.scores[i]),
            "standard_error": float(placed.errors[i]),
            "known": float(placed.known[i]),
            "png": _png(comparisons.images[placed.images[i]]),
        }
        for i in shown
    ]


def _mistakes(comparisons: Comparisons, probabilities: np.ndarray) -> list[dict[str, Any]]:
    """Wrong answers, the surest first, each image in one of them."""
    pairs, answers = comparisons.pairs["test"], probabilities.argmax(axis=1)
    wrong = np.flatnonzero(answers != pairs[:, 2])
    surest: list[int] = []
    for k in wrong[np.argsort(-probabilities[wrong].max(axis=1), kind="stable")]:
        if len(surest) < MISTAKES and not np.isin(pairs[k, :2], pairs[surest, :2]).any():
            surest.append(k)
    return [
        {
            "images": [
                {
                    "name": comparisons.names[i],
                    "known": float(comparisons.scores[i] * comparisons.unit),
                    "png": _png(comparisons.images[i]),
                }
                for i in pairs[k, :2]
            ],
            "label": CLASSES[pairs[k, 2]],
            "answer": CLASSES[answers[k]],
            "probability": float(probabilities[k].max()),
        }
        for k in surest
    ]


def _png(image: np.ndarray) -> str:
    """Base64 of uint8 (S, S, C)."""
    buffer = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def _scores_csv(comparisons: Comparisons, placed: Placed) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["image", "known", "score", "standard_error"])
    for image, known, score, error in zip(placed.images, placed.known, placed.scores, placed.errors, strict=True):
        writer.writerow([comparisons.names[image], f"{known:g}", f"{score:.4f}", f"{error:.4f}"])
    return text.getvalue()
