"""Sections of report.html: images in the order of their scores, reliability of the answers, mistakes."""

import json
import re
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from torch import nn

from common.foreign_text import from_csv
from common.statistics import Z95
from pipelines.engine.workload import Evaluation, Sections
from pipelines.report.markup import beside
from pipelines.report.plots import panel, panels, reliability, svg
from pipelines.report.tables import matrix, table
from pipelines.report.verdict import BETTER, EQUAL_COST, EVEN, WORSE, Comparison, divide
from pipelines.run.folder import Run
from pipelines.workloads.lmol.config import Config
from pipelines.workloads.lmol.data import CLASSES
from pipelines.workloads.lmol.evaluation import COST, LEAD

MEANS = {BETTER: "", EVEN: ", which may serve as well", WORSE: ", which would serve better"}


def sections(config: Config, models: Mapping[str, nn.Module], evaluations: Sequence[Evaluation], run: Run) -> Sections:
    """Return (heading, HTML) for each section; of several attributes, the verdicts come first."""
    known, names = {each.split: each for each in evaluations}, config.data.attributes
    if len(names) < 2:
        return _of_attribute(config, known["test"])
    parts = {name: _of_attribute(config, known[f"test-{name}"]) for name in names}
    verdict = "; ".join(f"{name}: {own[0][0]}" for name, own in parts.items())
    further = [(f"{name}: {heading}", html) for name, own in parts.items() for heading, html in own[1:]]
    return [(verdict, Markup().join(own[0][1] for own in parts.values())), *further]


def _of_attribute(config: Config, test: Evaluation) -> list[tuple[str, Markup]]:
    (own, *_), others = divide(test.table)
    rival = max((row for row in others if row.get("accuracy") is not None), key=lambda row: row["accuracy"])
    # In points of accuracy, by the interval of the model's lead.
    judged = Comparison(own, rival, rival[f"{LEAD} accuracy"], rival[f"{LEAD} accuracy 95 %"]).in_percent(1)
    verdict = beside(__file__, "verdict.html", summary=test.summary, found=judged, even=EVEN)
    if config.data.fold == "all":
        few = test.summary.get("few", "")
        return [(heading(judged, few) + f", over {config.data.folds} folds" * (not few), verdict)]
    found = json.loads(test.files[f"{test.split}.details.jsonl"])
    rows = from_csv(test.files[f"{test.split}.scores.csv"])
    strip = beside(__file__, "strip.html", images=found["strip"], Z95=Z95)
    named = "probability of the answer given", "share of right answers", "reliability; areas: numbers of pairs"
    drawn = [svg(reliability(found["reliability"], *named)), svg(_margins(found["margins"]))]
    answers = panels([*drawn, matrix(found["confusion"], CLASSES, "label", "answer")])
    parts = [(heading(judged, test.summary["few"]), verdict + strip)]
    parts += [("Scores against the known ones", svg(_scores(rows))), ("Answers: confidence and accuracy", answers)]
    if by_family := [{"family": name, **figures} for name, figures in found["families"].items()]:
        parts.append(("Accuracy by family", table(by_family, "accuracy by family")))
    if found["mistakes"]:
        parts.append(("The surest mistakes", beside(__file__, "mistakes.html", mistakes=found["mistakes"])))
    return parts


def heading(found: Comparison, few: str = "") -> str:
    """Return the verdict and its meaning, preceded by both costs if unequal; or why there is none."""
    if few:
        return re.sub(", of which[^;]*", "", few).capitalize()
    verdict = f"{found.heading}: {found.rival['predictor']}{MEANS[found.outcome] * bool(found.interval)}"
    own, rival = found.own.get(COST), found.rival.get(COST)
    if own and rival is not None and not 1 / EQUAL_COST <= rival / own <= EQUAL_COST:
        return f"At {own:.2g} ms for two new images against {rival:.2g}, {verdict[0].lower()}{verdict[1:]}"
    return verdict


def _scores(rows: Sequence[Mapping[str, str]]) -> Figure:
    """Plot estimated over known scores, with 95 % intervals."""
    known, score, error = (np.array([float(row[key]) for row in rows]) for key in ("known", "score", "standard_error"))
    figure, axis = panel("known score", "score, 95 % interval")
    axis.grid(alpha=0.5)
    axis.errorbar(known, score, Z95 * error, fmt="o", markersize=3, linewidth=0.5, alpha=0.5)
    axis.axline((known.mean(), known.mean()), slope=1, color="gray", linewidth=1)
    return figure


def _margins(rows: Sequence[Mapping[str, float]]) -> Figure:
    """Plot the accuracy of answers over the distance of the known scores, with 95 % intervals."""
    figure, axis = panel("distance of the known scores", "share of right answers", "accuracy by margin")
    axis.grid(alpha=0.5)
    accuracy = np.array([row["accuracy"] for row in rows])
    bars = np.array([[row["accuracy"] - row["low"], row["high"] - row["accuracy"]] for row in rows]).T.clip(min=0)
    names = [f"{row['from']:.3g}" + (f" to {row['to']:.3g}" if row["to"] > row["from"] else "") for row in rows]
    axis.bar(range(len(rows)), accuracy, yerr=bars, alpha=0.6, ecolor="black", capsize=2)
    axis.set_xticks(range(len(rows)), names, rotation=45 if len("".join(names)) > 30 else 0, ha="center", fontsize=8)
    axis.set_ylim(0, 1.02)
    return figure
