"""Evaluation on unseen images: accuracy of the answers, quality of the scores made from them, and baselines."""

import base64
import io
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from common.plain import Plain
from common.statistics import Z95, percentiles
from models.images.comparator.interface import Comparator
from models.images.comparator.siamese import TowerSiamese
from models.images.ranking import FIRST, SECOND, SIMILAR, SWAPPED
from pipelines.engine.workload import Evaluation, MapItems
from pipelines.workloads.lmol import data, features
from pipelines.workloads.lmol.config import Config
from pipelines.workloads.lmol.data import CLASSES, Comparisons
from pipelines.workloads.lmol.judging import baselines as references
from pipelines.workloads.lmol.judging import figures
from pipelines.workloads.lmol.judging.answers import ModelAnswers
from pipelines.workloads.lmol.judging.baselines import CONSTANTS, Baseline, baselines, network_scores, of_scores
from pipelines.workloads.lmol.judging.figures import Figures, Placed
from pipelines.workloads.lmol.pairs import too_few

STRIP, MISTAKES = 36, 12  # images in the report, at most
PASSES = "passes an image"  # column of a vlm's passes for a score, beside encoding it
LEAD = "lead in"  # prefix of the columns of the model's lead
COST = "ms a pair"  # column of the time to encode two new images and to answer
Orders = tuple[np.ndarray, np.ndarray]  # (P, 3) in the order given, and swapped, both in terms of the order given


@dataclass(frozen=True)
class Findings:
    """The model's answers about the test part, and their figures."""

    comparisons: Comparisons
    orders: Orders
    probabilities: np.ndarray  # (P, 3), the mean over both orders, as `Comparator.compare` answers
    averaged: Figures  # of that mean
    placed: Placed


def evaluate(
    config: Config, name: str, model: Comparator, folder: Path, device: torch.device, map_items: MapItems
) -> Evaluation:
    """Evaluate an attribute's comparator on the test part, which neither trained nor selected a model."""
    began = time.perf_counter()
    several = config.data.attributes if len(config.data.attributes) > 1 else ()
    comparisons = data.load(folder, config.data.fold, several.index(name) if several else None)
    split = f"test-{name}" if several else "test"
    seen = np.arange(len(comparisons.images)) if isinstance(model, TowerSiamese) else comparisons.parts["test"]
    source = data.Images(comparisons.images, seen, config.data.workers)
    kept = features.of_all(model, [comparisons], folder, device, together=True)
    answers = ModelAnswers(model, source, device, map_items, kept)
    found = _ask(answers, comparisons, config.evaluation.comparisons)
    triples = figures.transitivity(answers, comparisons.parts["test"], comparisons.theta, config.seed)
    passes = _passes(answers, found.placed, config)
    groups = [comparisons.groups[image] for image in found.placed.images]
    parts = answers.features.split(model.regressions.sizes, 1)[:2] if isinstance(model, TowerSiamese) else ()
    towers = [(each.cpu().numpy(), 1000 * answers.encode_seconds) for each in parts]
    others = baselines(comparisons, config.seed, towers)
    if config.evaluation.network_steps != 0:
        tower = (model, answers.features) if isinstance(model, TowerSiamese) else ()
        network = network_scores(config, comparisons, device, *tower)
        others.append(of_scores("single-image network", network, comparisons))
    others.append(Baseline("blank images", answers.blank()))
    first, second, _ = comparisons.pairs["test"].T
    sharpness = next(each for each in others if each.name == references.SHARPNESS).answer(first, second)
    families = figures.by_family(comparisons, {"model": found.probabilities, "sharpness_rule": sharpness})
    cost = answers.cost()
    table = _table(config, found, others, 2 * cost["encode_ms"] + 2 * cost["comparison_ms"])
    if passes:
        table[0][PASSES] = passes["passes_per_image"]
    if isinstance(compared := passes.get("by_comparisons"), dict):
        table.insert(1, compared)
    summary = {
        "few": too_few(len(comparisons.parts["test"]), comparisons.pairs["test"][:, 2], config.data.folds),
        **_pair_summary(found, table[0]["95 %"]),
        **figures.score_figures(found.placed.scores, found.placed.known, groups, config.seed),
        "references": len(comparisons.references),
        "comparisons_per_score": config.evaluation.comparisons,
        "standard_error": float(found.placed.errors.mean()),
        "reliability": asdict(model.scoring.reliability),
        "coverage": float((np.abs(found.placed.scores - found.placed.known) <= Z95 * found.placed.errors).mean()),
        **_against_one_image(found, others),
        **triples,
        **passes,
        "family": families,
        "n": len(comparisons.pairs["test"]),
        "images": len(comparisons.parts["test"]),
        "theta": comparisons.theta * comparisons.unit,
        "attribute": comparisons.attribute,
        **cost,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": time.perf_counter() - began,
    }
    details = {  # for the report alone
        "confusion": found.averaged["confusion"],
        "reliability": found.averaged["reliability"],
        "margins": figures.by_margin(comparisons, found.probabilities),
        "families": families,
        "strip": _strip(comparisons, found.placed),
        "mistakes": _mistakes(comparisons, found.probabilities),
    }
    scores = figures.scores_csv(comparisons, found.placed)
    files = {f"{split}.scores.csv": scores, f"{split}.details.jsonl": json.dumps(details)}
    return Evaluation(split=split, summary=summary, table=table, examples=_examples(found), files=files)


def _ask(answers: ModelAnswers, comparisons: Comparisons, budget: int) -> Findings:
    """Return the answers to the test pairs in both orders, and scores as a user gets them."""
    first, second, labels = comparisons.pairs["test"].T
    orders = answers(first, second), answers(second, first)[:, SWAPPED]
    test = comparisons.parts["test"]
    placed = Placed(test, *answers.scores(test, budget), comparisons.scores[test] * comparisons.unit)
    mean = (orders[0] + orders[1]) / 2
    return Findings(comparisons, orders, mean, figures.pair_figures(mean, labels), placed)


def _pair_summary(found: Findings, over_images: Plain) -> dict[str, Plain]:
    bias, bias_interval = figures.position_bias(*found.orders)
    return {
        "accuracy": found.averaged["accuracy"],
        "accuracy_interval": over_images,
        "swap_consistency": figures.swap_consistency(*found.orders),
        "position_bias": bias,
        "position_bias_interval": bias_interval,
        **{name: found.averaged[name] for name in ("macro_f1", "nll", "calibration_error")},
        "class": found.averaged["classes"],
    }


def _against_one_image(found: Findings, others: Sequence[Baseline]) -> dict[str, Plain]:
    """Return the errors of the best constant, and the predictor of single images with the least error."""
    placed = found.placed
    errors = {each.name: _errors(each.scores[placed.images], placed) for each in others if each.scores is not None}
    best = min((name for name in errors if name not in CONSTANTS), key=lambda name: errors[name]["RMSE"] or 0.0)
    least = {f"{key.lower()}_constant": min(errors[name][key] or 0.0 for name in CONSTANTS) for key in ("RMSE", "MAE")}
    return {**least, "best_of_one_image": {"predictor": best, **errors[best]}}


def _errors(scores: np.ndarray, placed: Placed) -> dict[str, float | None]:
    """Return the table's error columns for scores (n,) of the test images; correlations are None if undefined."""
    found = {name: float(value) for name, value in figures.agreement(scores, placed.known).items()}
    same = np.ptp(scores) == 0  # constant scores: correlation undefined, whatever rounding makes of it
    pearson, spearman = (None if same or np.isnan(found[name]) else found[name] for name in ("pearson", "spearman"))
    return {"MAE": found["mae"], "RMSE": found["rmse"], "Pearson": pearson, "Spearman": spearman}


def _passes(answers: ModelAnswers, placed: Placed, config: Config) -> dict[str, Plain]:
    """Return a vlm's passes per score and, if it was trained on both questions, the errors of scores by comparisons."""
    if config.model.kind != "vlm":
        return {}
    own: dict[str, Plain] = {"passes_per_image": answers.passes}
    if config.model.question == "both":
        scores, _ = answers.scores(placed.images, config.evaluation.comparisons, compared=True)
        own["by_comparisons"] = {"predictor": "vlm by comparisons", **_errors(scores, placed), PASSES: answers.passes}
    return own


def _table(config: Config, found: Findings, others: Sequence[Baseline], milliseconds: float) -> list[dict[str, Plain]]:
    """Return a row for the model and each baseline, with intervals over images of accuracy and of the model's lead."""
    pairs, placed = found.comparisons.pairs["test"], found.placed
    first, second, labels = pairs.T
    table = [_row(config.model.kind, found.averaged, found.orders, milliseconds) | _errors(placed.scores, placed)]
    right = [found.probabilities.argmax(axis=1) == labels]
    for each in others:
        orders = each.answer(first, second), each.answer(second, first)[:, SWAPPED]
        cost = None if each.milliseconds is None else 2 * each.milliseconds
        scores = {} if each.scores is None else _errors(each.scores[placed.images], placed)
        table.append(_row(each.name, figures.pair_figures(orders[0], labels), orders, cost, each.soft) | scores)
        right.append(orders[0].argmax(axis=1) == labels)
    drawn = figures.accuracies_over_images(np.array(right), pairs, found.comparisons.groups, config.seed)
    for row, own, accuracies in zip(table, right, drawn.T, strict=True):
        row["95 %"] = percentiles(accuracies)
        if row is not table[0]:
            row[f"{LEAD} accuracy"] = float(right[0].mean() - own.mean())
            row[f"{LEAD} accuracy 95 %"] = percentiles(drawn[:, 0] - accuracies)
            one, other = table[0].get("Pearson"), row.get("Pearson")
            row[f"{LEAD} Pearson"] = one - other if isinstance(one, float) and isinstance(other, float) else None
    return table


def _row(name: str, found: Figures, orders: Orders, cost: float | None, soft: bool = True) -> dict[str, Plain]:
    return {
        "predictor": name,
        "accuracy": found["accuracy"],
        "95 %": None,  # filled in by `_table`, from resamples that all predictors share
        **{name: found["classes"][name]["accuracy"] for name in CLASSES},
        "macro-F1": found["macro_f1"],
        "NLL": found["nll"] if soft else None,
        "calibration error": found["calibration_error"] if soft else None,
        COST: cost,
        "swap consistency": figures.swap_consistency(*orders),
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


def _strip(comparisons: Comparisons, placed: Placed) -> list[dict[str, Plain]]:
    """Return test images spread over the estimated ranking, highest score first."""
    order = np.argsort(-placed.scores, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(STRIP, len(order))).round().astype(int))]
    scores, errors = placed.scores.tolist(), placed.errors.tolist()
    return [{**_shown(comparisons, placed.images[i]), "score": scores[i], "standard_error": errors[i]} for i in shown]


def _mistakes(comparisons: Comparisons, probabilities: np.ndarray) -> list[dict[str, Plain]]:
    """Return the most confident wrong answers, each image in one at most."""
    pairs, answers = comparisons.pairs["test"], probabilities.argmax(axis=1)
    wrong = np.flatnonzero(answers != pairs[:, 2])
    surest: list[int] = []
    for k in wrong[np.argsort(-probabilities[wrong].max(axis=1), kind="stable")]:
        if len(surest) < MISTAKES and not np.isin(pairs[k, :2], pairs[surest, :2]).any():
            surest.append(k)
    return [
        {
            "images": [_shown(comparisons, i) for i in pairs[k, :2]],
            "label": CLASSES[pairs[k, 2]],
            "answer": CLASSES[answers[k]],
            "probability": float(probabilities[k].max()),
        }
        for k in surest
    ]


def _shown(comparisons: Comparisons, number: int) -> dict[str, Plain]:
    """Return an image's name, known score, and PNG in Base64."""
    buffer, image = io.BytesIO(), comparisons.images[number]
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(buffer, "PNG")
    png = base64.b64encode(buffer.getvalue()).decode()
    known = float(comparisons.scores[number] * comparisons.unit)
    return {"name": comparisons.names[number], "known": known, "png": png}
