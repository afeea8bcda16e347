"""Evaluation on unseen images: accuracy of the answers, quality of the scores made from them, and baselines."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from common.plain import Plain
from models.images.comparator.interface import Comparator
from models.images.comparator.scorer import Scorer
from models.images.ranking import FIRST, SECOND, SIMILAR, SWAPPED
from pipelines.engine.workload import Evaluation, MapItems
from pipelines.workloads.lmol import data
from pipelines.workloads.lmol.config import Config
from pipelines.workloads.lmol.data import CLASSES, Comparisons
from pipelines.workloads.lmol.judging.answers import ModelAnswers
from pipelines.workloads.lmol.judging.baselines import SHARPNESS, Baseline, baselines, of_scores
from pipelines.workloads.lmol.judging.one_image import CONSTANTS, network_scores
from pipelines.workloads.lmol.judging.pair_figures import (
    PairFigures,
    accuracy_over_images,
    by_family,
    by_margin,
    pair_figures,
    position_bias,
    swap_consistency,
    transitivity,
)
from pipelines.workloads.lmol.judging.pictures import mistakes, strip
from pipelines.workloads.lmol.judging.score_figures import Placed, agreement, place, score_figures, scores_csv

COST = "ms a pair"  # column of the time that it takes to look at two new images and to answer
Orders = tuple[np.ndarray, np.ndarray]  # (P, 3) in the order given, and swapped, both in terms of the order given


@dataclass(frozen=True)
class Findings:
    """The model's answers about the test part, and their figures."""

    comparisons: Comparisons
    orders: Orders
    averaged: PairFigures  # of the mean over both orders
    given: PairFigures  # of the order given
    placed: Placed
    scored: Mapping[str, Plain]  # `score_figures`
    triples: Mapping[str, float]  # `transitivity`

    @property
    def probabilities(self) -> np.ndarray:
        """(P, 3), the mean over both orders, as `Comparator.compare` answers."""
        return (self.orders[0] + self.orders[1]) / 2


def evaluate(
    config: Config, models: Mapping[str, Comparator], folder: Path, device: torch.device, map_items: MapItems
) -> list[Evaluation]:
    """Evaluate on the test part, which was used neither to train nor to choose a model."""
    (model,) = models.values()
    began = time.perf_counter()
    comparisons = data.load(folder)
    source = needed(comparisons, config.data.workers, hasattr(model, "tower"))
    answers = ModelAnswers(model, source, device, map_items)
    found = _ask(answers, comparisons, config)
    tower = answers.of_tower()
    parts = () if tower is None else (tower[:, :2], tower[:, 2:])  # moments and cells
    seen = [(each.flatten(1).cpu().numpy(), 1000 * answers.encode_seconds) for each in parts]
    others = baselines(comparisons, config.seed, seen)
    if config.evaluation.network_steps != 0:
        network = network_scores(config, comparisons, device, tower)
        others.append(of_scores("single-image network", network, comparisons))
    others.append(Baseline("blank images", answers.blank()))
    families = _families(found, others)
    cost = answers.cost()
    table = [*_model_rows(found, config.model.kind, cost), *(_baseline_row(each, found) for each in others)]
    summary = {
        **_pair_summary(found, config.seed),
        **found.scored,
        "references": len(comparisons.references),
        "comparisons_per_score": config.evaluation.comparisons,
        "standard_error": float(found.placed.errors.mean()),
        "reliability": asdict(found.placed.reliability),
        "coverage": found.placed.coverage,
        **_against_one_image(found, others),
        **found.triples,
        **_against_teacher(model, comparisons, found.placed, config.evaluation.comparisons),
        "family": families,
        "n": len(comparisons.pairs["test"]),
        "images": len(comparisons.parts["test"]),
        "theta": comparisons.theta * comparisons.unit,
        "attribute": comparisons.attribute,
        **cost,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": time.perf_counter() - began,
    }
    files = {
        "test.scores.csv": scores_csv(comparisons, found.placed),
        "test.details.jsonl": json.dumps(_details(found, families)),
    }
    return [Evaluation(split="test", summary=summary, table=table, examples=_examples(found), files=files)]


def needed(comparisons: Comparisons, workers: int, everything: bool = False) -> data.Images:
    """Return the images that the model is asked about: test and validation images, and references, or all."""
    parts = comparisons.parts
    needed = np.unique(np.concatenate([parts["test"], parts["validation"], comparisons.references]))
    needed = np.arange(len(comparisons.images)) if everything else needed
    return data.Images(comparisons.images, needed, workers)


def _ask(answers: ModelAnswers, comparisons: Comparisons, config: Config) -> Findings:
    """Ask about the test pairs in both orders, about scores, and about triples."""
    first, second, labels = comparisons.pairs["test"].T
    orders = answers(first, second), answers(second, first)[:, SWAPPED]
    placed = place(answers, comparisons, config.evaluation.comparisons, config.seed)
    return Findings(
        comparisons=comparisons,
        orders=orders,
        averaged=pair_figures((orders[0] + orders[1]) / 2, labels),
        given=pair_figures(orders[0], labels),
        placed=placed,
        scored=score_figures(placed.scores, placed.known, config.seed),
        triples=transitivity(answers, comparisons.parts["test"], comparisons.theta, config.seed),
    )


def _families(found: Findings, others: Sequence[Baseline]) -> dict[str, dict[str, float]]:
    """Return the accuracy within each family, of the model and of the sharpness rule."""
    first, second, _ = found.comparisons.pairs["test"].T
    sharpness = next(each for each in others if each.name == SHARPNESS)
    answers = {"model": found.probabilities, "sharpness_rule": sharpness.answer(first, second)}
    return by_family(found.comparisons, answers)


def _pair_summary(found: Findings, seed: int) -> dict[str, Plain]:
    bias, bias_interval = position_bias(*found.orders)
    return {
        "accuracy": found.averaged["accuracy"],
        "accuracy_interval": found.averaged["interval"],
        "accuracy_interval_over_images": accuracy_over_images(
            found.probabilities, found.comparisons.pairs["test"], seed
        ),
        "accuracy_in_the_order_given": found.given["accuracy"],
        "swap_consistency": swap_consistency(*found.orders),
        "position_bias": bias,
        "position_bias_interval": bias_interval,
        "macro_f1": found.averaged["macro_f1"],
        "nll": found.averaged["nll"],
        "calibration_error": found.averaged["calibration_error"],
        "class": found.averaged["classes"],
    }


def _against_one_image(found: Findings, others: Sequence[Baseline]) -> dict[str, Plain]:
    """Return the errors of the best constant, and the predictor of single images with the least error."""
    placed = found.placed
    scores = {each.name: each.scores[placed.images] for each in others if each.scores is not None}
    errors = {name: agreement(each, placed.known) for name, each in scores.items()}
    best = min((name for name in scores if name not in CONSTANTS), key=lambda name: float(errors[name]["rmse"]))
    return {
        **{f"{key}_constant": min(float(errors[name][key]) for name in CONSTANTS) for key in ("rmse", "mae")},
        "best_of_one_image": {"predictor": best, **_errors(scores[best], placed)},
    }


def _errors(scores: np.ndarray, placed: Placed) -> dict[str, float | None]:
    """Return the columns of the table about scores (n,) of the test images; correlations are None if undefined."""
    found = {name: float(value) for name, value in agreement(scores, placed.known).items()}
    same = np.ptp(scores) == 0  # constant scores: correlation undefined, whatever rounding makes of it
    pearson, spearman = (None if same or np.isnan(found[name]) else found[name] for name in ("pearson", "spearman"))
    return {"MAE": found["mae"], "RMSE": found["rmse"], "Pearson": pearson, "Spearman": spearman}


def _against_teacher(model: Comparator, comparisons: Comparisons, placed: Placed, budget: int) -> dict[str, Plain]:
    """Return what a scorer loses and gains against its teacher, which compares each test image."""
    if not isinstance(model, Scorer) or model.teacher is None:
        return {}
    images = data.Images(comparisons.images, placed.images)[torch.arange(len(placed.images))]
    wide = model.scoring.scores(*model.place(images))[1] > model.widest.cpu()
    seconds, pearson = [], []
    for scorer in (model, model.teacher):
        began = time.perf_counter()
        scores = scorer.score(images, budget)[0]
        seconds.append(time.perf_counter() - began)
        pearson.append(_errors(scores.numpy(), placed)["Pearson"])
    own, best = pearson
    return {
        "passes_per_image": 1 + float(wide.double().mean()),
        "pearson_with_comparisons": own,
        "pearson_lost": None if own is None or best is None else best - own,
        "images_per_s": len(images) / seconds[0],
        "times_faster": seconds[1] / seconds[0],
    }


def _model_rows(found: Findings, kind: str, cost: Mapping[str, float]) -> list[dict[str, Plain]]:
    """Return the table's rows of the model: with both orders averaged, and with a single order."""
    encoding, comparing = 2 * cost["encode_ms"], cost["comparison_ms"]
    return [
        {
            "predictor": f"{kind}, both orders averaged",
            **_row(found.averaged),
            COST: encoding + 2 * comparing,
            "swap consistency": swap_consistency(*found.orders),
            **_errors(found.placed.scores, found.placed),
        },
        {"predictor": f"{kind}, in the order given", **_row(found.given), COST: encoding + comparing},
    ]


def _baseline_row(baseline: Baseline, found: Findings) -> dict[str, Plain]:
    comparisons = found.comparisons
    first, second, labels = comparisons.pairs["test"].T
    given, swapped = baseline.answer(first, second), baseline.answer(second, first)[:, SWAPPED]
    placed = found.placed
    return {
        "predictor": baseline.name,
        **_row(pair_figures(given, labels), baseline.soft),
        COST: None if baseline.milliseconds is None else 2 * baseline.milliseconds,
        "swap consistency": swap_consistency(given, swapped),
        **({} if baseline.scores is None else _errors(baseline.scores[placed.images], placed)),
    }


def _row(found: PairFigures, soft: bool = True) -> dict[str, Plain]:
    return {
        "accuracy": found["accuracy"],
        "95 %": found["interval"],
        **{name: found["classes"][name]["accuracy"] for name in CLASSES},
        "macro-F1": found["macro_f1"],
        "NLL": found["nll"] if soft else None,
        "calibration error": found["calibration_error"] if soft else None,
    }


def _details(found: Findings, families: Mapping[str, Plain]) -> dict[str, Plain]:
    """Return the part of the evaluation that only the report reads."""
    return {
        "confusion": found.averaged["confusion"],
        "reliability": found.averaged["reliability"],
        "margins": by_margin(found.comparisons, found.probabilities),
        "families": families,
        "strip": strip(found.comparisons, found.placed),
        "mistakes": mistakes(found.comparisons, found.probabilities),
    }


def _examples(found: Findings) -> dict[str, Sequence[Plain]]:
    """Return the columns of the per-example file, a row per test pair."""
    comparisons = found.comparisons
    first, second, labels = comparisons.pairs["test"].T
    return {
        "first_image": [comparisons.names[i] for i in first],
        "second_image": [comparisons.names[i] for i in second],
        "first_score": (comparisons.scores[first] * comparisons.unit).tolist(),
        "second_score": (comparisons.scores[second] * comparisons.unit).tolist(),
        "label": [CLASSES[k] for k in labels],
        **{
            f"p_{CLASSES[k].lower()}{how}": each[:, k].round(6).tolist()
            for how, each in (("", found.orders[0]), ("_swapped", found.orders[1]))
            for k in (FIRST, SECOND, SIMILAR)
        },
    }
