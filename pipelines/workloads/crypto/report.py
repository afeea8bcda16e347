"""Sections of report.html: all coins by evidence, then each with its curves, matrices and equity."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import nn

from pipelines.engine.run import Run
from pipelines.engine.workload import Evaluation
from pipelines.report.plots import svg
from pipelines.report.tables import shown, table
from pipelines.workloads.crypto.evaluation import SPLIT
from pipelines.workloads.crypto.judge import LEAK, NO_SKILL, SKILL
from pipelines.workloads.crypto.pages import TRADING

if TYPE_CHECKING:
    from pipelines.workloads.crypto import Config

Logged = Mapping[str, Sequence[Mapping[str, Any]]]  # member -> the records of its metrics.jsonl

MOST_OPEN = 12  # coins whose details are unfolded
COLOURS = {SKILL: "tab:green", NO_SKILL: "tab:gray", LEAK: "tab:red"}
ACCURATE = 10  # windows that a bin of the calibration holds at least; fewer say nothing


def sections(
    config: "Config", models: Mapping[str, nn.Module], evaluations: Sequence[Evaluation], run: Run
) -> list[tuple[str, str]]:
    """Return (heading, HTML) pairs, from the evaluation and what the members logged in training."""
    (test,) = (evaluation for evaluation in evaluations if evaluation.split == SPLIT)
    summary = test.summary
    ranked = [row["coin"] for row in test.table if row["coin"] in summary]
    pages = [json.loads(test.files[f"{SPLIT}/{symbol}.json"]) for symbol in ranked]
    parts = [("Coins by evidence", _ranking(summary, pages, run))]
    unfolded = len(pages) <= MOST_OPEN
    logged = {
        fold["member"]: (run if config.model.coins else run.member(fold["member"])).metrics()
        for page in pages
        for fold in page["folds"]
    }
    return [*parts, ("Coin by coin", "\n".join(_coin(page, logged, unfolded) for page in pages))]


def _ranking(summary: Mapping[str, Any], pages: Sequence[Mapping[str, Any]], run: Run) -> str:
    confidence = f"{100 * summary['interval_confidence']:.4g} %"
    num = len(pages)
    told = (
        f"<p>{summary['skill']} of {num} coins show skill. Each interval holds the truth with {confidence}: models "
        f"that know nothing would bring {summary['skill_by_chance_at_most']:.3g} verdicts of skill on average, over "
        f"all coins and at most; with intervals of 95 % up to {summary['skill_by_chance_at_95_percent']:.3g}. Returns "
        f"are no evidence: they rank nothing here.{' The candles are simulated.' if summary['simulated'] else ''}</p>"
    )
    path = run.folder / "members.json"
    trained = json.loads(path.read_text()) if path.is_file() else {}
    failed = [
        {"without a model": name, "why": trained.get(name, {}).get("reason", reason)}
        for name, reason in summary["failed"].items()
    ]
    return told + svg(_gains(pages)) + (f"<div class='facts'>{table(failed)}</div>" if failed else "")


def _gains(pages: Sequence[Mapping[str, Any]]) -> Figure:
    """Plot nats gained on the prior, with intervals, a line per coin: in all, and for the direction alone."""
    figure = Figure(figsize=(11, 0.9 + 0.28 * len(pages)), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axis, which, what in zip(panels, (0, -1), ("log loss", "log loss of SHORT against LONG"), strict=True):
        for place, page in enumerate(pages):
            row, colour = page["comparisons"][which], COLOURS[page["verdict"]]
            if row["low"] is not None:
                axis.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=2)
            axis.plot(row["gain"], place, "o", color=colour, markersize=5)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_xlabel(f"{what} below the prior's, nats", fontsize=8)
        axis.tick_params(axis="x", labelsize=8)
        axis.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(pages)), [f"{page['symbol']}, {page['verdict']}" for page in pages], fontsize=8)
    panels[0].set_ylim(len(pages) - 0.5, -0.5)
    return figure


def _coin(page: Mapping[str, Any], logged: Logged, unfolded: bool) -> str:
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in page["reasons"])
    traded = [{"figure": name.replace("_", " "), "value": page["backtest"][name]} for name in TRADING]
    luck = page["random_trades"]
    traded.append({"figure": "random trades, 95 %", "value": [luck["low"], luck["high"]]})
    traded.append({"figure": "random trades that did as well", "value": luck["p_value"]})
    folds = [
        {name.replace("_", " "): _day(value) if name.endswith("_ms") else value for name, value in fold.items()}
        for fold in ({key: value for key, value in each.items() if key != "thresholds_tried"} for each in page["folds"])
    ]
    figure = page["figures"]
    title = (
        f"{page['symbol']}: {page['verdict']}; accuracy {shown(figure['accuracy'])}, always the majority class "
        f"{shown(figure['majority_accuracy'])}"
    )
    predictors = [{key.replace("_", " "): value for key, value in row.items()} for row in page["predictors"]]
    return (
        f"<details{' open' if unfolded else ''}><summary><b>{escape(title)}</b></summary><ul>{reasons}</ul>"
        f"{svg(_pictures(page, logged))}{_wide(table(predictors))}{table(traded)}{_wide(table(folds))}</details>"
    )


def _wide(html: str) -> str:
    return f"<div style='overflow-x: auto; font-size: 85%'>{html}</div>"


def _day(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def _pictures(page: Mapping[str, Any], logged: Logged) -> Figure:
    figure = Figure(figsize=(11, 7))
    figure.subplots_adjust(0.1, 0.08, 0.98, 0.95, 0.2, 0.35)  # a layout engine takes half the time of a page
    (matrix, calibration), (equity, training) = figure.subplots(2, 2)
    _confusion(matrix, page)
    _calibration(calibration, page)
    _accounts(equity, page)
    _training(training, page, logged)
    for axis in (matrix, calibration, equity, training):
        axis.tick_params(labelsize=8)
        axis.title.set_fontsize(10)
        axis.xaxis.label.set_fontsize(8)
        axis.yaxis.label.set_fontsize(8)
    return figure


def _confusion(axis: Axes, page: Mapping[str, Any]) -> None:
    counts, names = np.array(page["figures"]["confusion"]), page["classes"]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (row, column), count in np.ndenumerate(counts):
        share = shares[row, column]
        colour = "white" if share > 0.5 else "black"
        axis.text(column, row, f"{count}\n{share:.0%}", ha="center", va="center", color=colour, fontsize=8)
    axis.set_xticks(range(len(names)), names)
    axis.set_yticks(range(len(names)), names)
    axis.set_xlabel("predicted")
    axis.set_ylabel("what came")
    axis.set_title("confusion matrix, shares of each row")


def _calibration(axis: Axes, page: Mapping[str, Any]) -> None:
    """Plot the calibration of the predicted class; a point's area is the number of windows."""
    bins = [row for row in page["figures"]["reliability"] if row["n"] >= ACCURATE]
    most = max((row["n"] for row in bins), default=1)
    axis.plot([1 / 3, 1], [1 / 3, 1], color="black", linewidth=0.8)
    axis.plot([row["confidence"] for row in bins], [row["accuracy"] for row in bins], linewidth=1)
    axis.scatter(
        [row["confidence"] for row in bins],
        [row["accuracy"] for row in bins],
        s=[10 + 90 * row["n"] / most for row in bins],
    )
    axis.set_xlim(0.3, 1)
    axis.set_ylim(0, 1)
    axis.set_xlabel("probability of the predicted class")
    axis.set_ylabel("share that came")
    axis.set_title(f"calibration, error {page['figures']['calibration_error']:.3f}")


def _accounts(axis: Axes, page: Mapping[str, Any]) -> None:
    curve = page["equity"]
    times = np.array(curve["time_ms"], dtype="datetime64[ms]")
    for name, label in (("model", "model"), ("buy_and_hold", "buy-and-hold")):
        axis.plot(times, curve[name], linewidth=1, label=label)
    values = [value for name in ("model", "buy_and_hold") for value in curve[name]]
    if min(values) > 0 and max(values) > 4 * min(values):
        axis.set_yscale("log")
    axis.axhline(1, color="black", linewidth=0.5)
    axis.legend(fontsize=8)
    axis.set_title("account on the test, costs paid")
    axis.tick_params(axis="x", rotation=20)


def _training(axis: Axes, page: Mapping[str, Any], logged: Logged) -> None:
    """Plot the losses that the coin's members logged, one colour each."""
    for number, fold in enumerate(page["folds"]):
        metrics, colour = logged[fold["member"]], f"C{number}"
        for key, style in (("train/loss", ":"), ("val/log_loss", "-")):
            points = [(entry["step"], entry[key]) for entry in metrics if entry.get(key) is not None]
            if points:
                label = f"{fold['member']} {key}"
                axis.plot(*np.array(points).T, style, color=colour, linewidth=1, label=label)
    if axis.lines:
        axis.legend(fontsize=7)
    axis.axhline(page["figures"]["prior_log_loss"], color="black", linewidth=0.5)
    axis.set_xlabel("step")
    axis.set_title("training; the line is the log loss of the prior on the test")
