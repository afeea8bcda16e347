"""Sections of report.html: images in the order of their scores, reliability of the answers, mistakes."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

from common.foreign_text import from_csv
from common.statistics import Z95
from pipelines.engine.run import Run
from pipelines.engine.workload import Evaluation
from pipelines.report.plots import svg
from pipelines.report.tables import shown
from pipelines.workloads.lmol.data import CLASSES

if TYPE_CHECKING:
    from pipelines.workloads.lmol import Config

STYLE = """<style>
.strip { display: flex; flex-wrap: wrap; gap: .6rem .5rem } .strip figure { margin: 0; font-size: 11px; width: 6.2rem }
.strip img, .pair img { width: 6rem; image-rendering: pixelated; display: block; border: 1px solid #ddd }
.pairs { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1.2rem }
.pair { font-size: 12px } .pair div { display: flex; gap: .5rem } .pair figure { margin: 0; width: 6.2rem }
figcaption { overflow-wrap: anywhere; line-height: 1.3 }
</style>"""


def sections(
    config: "Config", models: Mapping[str, nn.Module], evaluations: Sequence[Evaluation], run: Run
) -> list[tuple[str, str]]:
    """Return (heading, HTML) for each section."""
    (test,) = (evaluation for evaluation in evaluations if evaluation.split == "test")
    found = json.loads(test.files["test.details.jsonl"])
    rows = from_csv(test.files["test.scores.csv"])
    parts = [
        ("Test images by score, the highest first", STYLE + _strip(found["strip"])),
        ("Scores against the known ones", svg(_scores(rows))),
        ("Answers: confidence and accuracy", svg(_answers(found))),
    ]
    if found["families"]:
        parts.append(("Accuracy by family", svg(_families(found["families"]))))
    if found["mistakes"]:
        parts.append(("The surest mistakes", _mistakes(found["mistakes"])))
    return parts


def _strip(images: Sequence[Mapping[str, Any]]) -> str:
    return (
        '<div class="strip">'
        + "".join(
            _picture(
                image,
                f"<b>{image['score']:.3g}</b> ± {Z95 * image['standard_error']:.2g}<br>known {shown(image['known'])}",
            )
            for image in images
        )
        + "</div>"
    )


def _mistakes(mistakes: Sequence[Mapping[str, Any]]) -> str:
    pairs = []
    for mistake in mistakes:
        pictures = "".join(_picture(image, f"known {shown(image['known'])}") for image in mistake["images"])
        said = f"{mistake['answer']} ({100 * mistake['probability']:.1f} %)"
        pairs.append(
            f'<div class="pair"><div>{pictures}</div>says <b>{said}</b>, labelled <b>{mistake["label"]}</b></div>'
        )
    return '<div class="pairs">' + "".join(pairs) + "</div>"


def _picture(image: Mapping[str, Any], caption: str) -> str:
    name = escape(image["name"], quote=True)
    source = f"data:image/png;base64,{image['png']}"
    return f'<figure><img src="{source}" alt="{name}" title="{name}"><figcaption>{caption}</figcaption></figure>'


def _scores(rows: Sequence[Mapping[str, str]]) -> Figure:
    """Plot estimated over known scores, with 95 % intervals."""
    known, score, error = (np.array([float(row[key]) for row in rows]) for key in ("known", "score", "standard_error"))
    figure = Figure(figsize=(6, 4.2), layout="constrained")
    axis = figure.subplots()
    axis.errorbar(known, score, Z95 * error, fmt="o", markersize=3, linewidth=0.5, alpha=0.5)
    axis.axline((known.mean(), known.mean()), slope=1, color="#888", linewidth=1)
    axis.set_xlabel("known score")
    axis.set_ylabel("score from comparisons, 95 % interval")
    axis.grid(alpha=0.3)
    return figure


def _answers(found: Mapping[str, Any]) -> Figure:
    """Plot reliability, accuracy by margin, and the confusion matrix."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    reliability, margins, confusion = figure.subplots(1, 3)
    _reliability(reliability, found["reliability"])
    _margins(margins, found["margins"])
    _confusion(confusion, np.array(found["confusion"]))
    return figure


def _reliability(axis: Axes, bins: Sequence[Mapping[str, float]]) -> None:
    axis.plot([0, 1], [0, 1], color="#888", linewidth=1)
    axis.plot([each["confidence"] for each in bins], [each["accuracy"] for each in bins], "o-")
    for each in bins:
        axis.annotate(
            f"{each['n']}", (each["confidence"], each["accuracy"]), (4, -9), textcoords="offset points", fontsize=7
        )
    axis.set_xlim(0.3, 1.02)  # the likeliest of three answers has a probability of at least a third
    axis.set_ylim(0, 1.02)
    axis.set_title("reliability (numbers of pairs)", fontsize=10)
    axis.set_xlabel("probability of the answer given")
    axis.set_ylabel("share of right answers")
    axis.grid(alpha=0.3)


def _margins(axis: Axes, rows: Sequence[Mapping[str, float]]) -> None:
    accuracy = np.array([row["accuracy"] for row in rows])
    bars = np.array([[row["accuracy"] - row["low"], row["high"] - row["accuracy"]] for row in rows]).T.clip(min=0)
    names = [f"{row['from']:.3g}" + (f" to {row['to']:.3g}" if row["to"] > row["from"] else "") for row in rows]
    axis.bar(range(len(rows)), accuracy, yerr=bars, color="#7aa6d6", ecolor="#444", capsize=2)
    axis.set_xticks(range(len(rows)), names, rotation=45 if len("".join(names)) > 30 else 0, ha="center", fontsize=8)
    axis.set_ylim(0, 1.02)
    axis.set_title("accuracy by margin", fontsize=10)
    axis.set_xlabel("distance of the known scores")


def _confusion(axis: Axes, counts: np.ndarray) -> None:
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), share in np.ndenumerate(shares):
        text = f"{counts[row, column]}\n{100 * share:.1f} %"
        axis.text(column, row, text, ha="center", va="center", fontsize=9, color="white" if share > 0.5 else "black")
    axis.set_xticks(range(len(CLASSES)), CLASSES)
    axis.set_yticks(range(len(CLASSES)), CLASSES)
    axis.set_title("confusion matrix", fontsize=10)
    axis.set_xlabel("answer")
    axis.set_ylabel("label")


def _families(families: Mapping[str, Mapping[str, float]]) -> Figure:
    """Plot a group of bars per family, with a bar per predictor."""
    predictors = [key for key in next(iter(families.values())) if key != "n"]
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    axis = figure.subplots()
    width = 0.8 / len(predictors)
    for i, name in enumerate(predictors):
        heights = [family[name] for family in families.values()]
        axis.bar(
            np.arange(len(families)) + (i - (len(predictors) - 1) / 2) * width,
            heights,
            width,
            label=name.replace("_", " "),
        )
    axis.set_xticks(range(len(families)), [f"{name}\n{family['n']} pairs" for name, family in families.items()])
    axis.set_ylim(0, 1.02)
    axis.set_ylabel("accuracy")
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
