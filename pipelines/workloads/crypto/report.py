"""Sections of report.html: the verdict on all coins with their gains, then each with its curves, matrix and account."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from torch import nn

from models.market.candle_tables import minute
from pipelines.engine.workload import Evaluation, Sections
from pipelines.report.markup import beside
from pipelines.report.plots import comparison, panel, panels, reliability, svg, thinned
from pipelines.report.tables import matrix, table
from pipelines.report.verdict import BETTER, EVEN, WORSE, Comparison, Row, answer
from pipelines.run.folder import Run
from pipelines.workloads.crypto.config import Config
from pipelines.workloads.crypto.evaluation import SPLIT
from pipelines.workloads.crypto.verdict.headline import coin_line, predictability
from pipelines.workloads.crypto.verdict.judge import LEAK, PAYS
from pipelines.workloads.crypto.verdict.summary import TRADING, Page, interval

Logged = Mapping[str, Sequence[Mapping[str, float | None]]]  # member -> the records of its metrics.jsonl

ACCURATE = 10  # windows that a bin of the calibration holds at least; fewer say nothing
NAMED = 5  # coins that a sentence names at most
ACCOUNT_POINTS = 200  # of each curve


def sections(config: Config, models: Mapping[str, nn.Module], evaluations: Sequence[Evaluation], run: Run) -> Sections:
    """Return (heading, HTML) pairs, from the evaluation and what the members logged in training."""
    (test,) = (evaluation for evaluation in evaluations if evaluation.split == SPLIT)
    summary = test.summary
    ranked = [row["coin"] for row in test.table if row["coin"] in summary]
    pages: list[Page] = [json.loads(test.files[f"{SPLIT}/{symbol}.json"]) for symbol in ranked]
    members = {fold["member"] for page in pages for fold in page["folds"]}
    logged = {name: (run if config.model.coins else run.member(name)).metrics() for name in members}
    leaks = [page["symbol"] for page in pages if page["verdict"] == LEAK]
    leaked = f" A leak is suspected on {_listed(leaks)}, whose figures are worth nothing." if leaks else ""
    simulated = " The candles are simulated." if summary["simulated"] else ""
    pay = all(page["grades"][PAYS] for page in pages)
    said = f"{predictability(pages)}{leaked}{simulated} Costs: {summary['costs']}."
    verdict = answer(WORSE if leaks else BETTER if pay else EVEN, said)
    untrained = [
        {"without a model": name, "why": run.member(name).outcome().get("reason", why)}
        for name, why in summary["failed"].items()
    ]
    compared = {page["symbol"]: _compared(page) for page in pages}
    verdict += _gains(summary, compared) + _statistics(summary, compared)
    verdict += table(untrained, "members without a model") if untrained else Markup("")
    return [(summary["headline"], verdict), ("Coin by coin", Markup("\n").join(_coin(page, logged) for page in pages))]


def _compared(page: Page) -> Comparison:
    """Return the comparison of the model's log loss with the strongest simple model's."""
    row = next(row for row in page["comparisons"] if row["figure"] == "log_loss" and row["rival"])
    return Comparison({}, {"predictor": row["against"]}, row["gain"], interval(row))


def _gains(summary: Row, compared: Mapping[str, Comparison]) -> Markup:
    """Plot the log loss gained on the strongest simple model of each coin."""
    gain, spread = "nats gained on the best rival", f"{100 * summary['interval_confidence']:.3g} %"
    drawn = {name: {"coin": name, gain: each.gain, spread: each.interval} for name, each in compared.items()}
    rows, clear = list(drawn.values()), [row for name, row in drawn.items() if compared[name].outcome != EVEN]
    return comparison(rows, clear, gain, spread, "above 0 wins")


def _statistics(summary: Row, rows: Mapping[str, Comparison]) -> Markup:
    """Return sentences on the comparison of log losses."""
    coins = {each: [name for name, row in rows.items() if row.outcome == each] for each in (BETTER, EVEN, WORSE)}
    rivals = Counter(row.rival["predictor"] for row in rows.values()).most_common()
    by_gain = sorted(rows, key=lambda name: rows[name].gain)
    ends = {name: rows[name] for name in (by_gain[0], by_gain[-1])}
    words = {"better": len(coins[BETTER]), "even": _listed(coins[EVEN]), "worse": _listed(coins[WORSE])}
    return beside(__file__, "statistics.html", summary=summary, rivals=rivals, ends=ends, **words)


def _listed(names: Sequence[str]) -> str:
    """Return the number of coins, and their names unless there are many."""
    return f"{len(names)}" + (f" ({', '.join(names)})" if 0 < len(names) <= NAMED else "")


def _coin(page: Page, logged: Logged) -> Markup:
    traded = [
        {"figure": name.replace("_", " "), "value": page["backtest"][name]} for name in (*TRADING, "deflated_sharpe")
    ]
    folds = [
        {name: minute(value) if name.endswith("_ms") else value for name, value in fold.items()}
        for fold in ({key: value for key, value in each.items() if key != "thresholds_tried"} for each in page["folds"])
    ]
    rows: dict[str, Sequence[Mapping[str, object]]] = {
        "predictors": page["predictors"],
        "trading": traded,
        "other fees per side, with the same trades,": page["backtest"]["fee_sensitivity"],
        "folds": folds,
    }
    named = {name: [{key.replace("_", " "): row[key] for key in row} for row in rows[name]] for name in rows}
    tables = Markup("").join(table(named[name], f"{name} of {page['symbol']}") for name in named)
    pictures = [
        *(svg(draw(page, logged), trimmed=False) for draw in DRAWN),
        matrix(page["figures"]["confusion"], page["classes"], "what came", "predicted"),
    ]
    return beside(__file__, "coin.html", page=page, said=coin_line(page), pictures=panels(pictures), tables=tables)


def _calibration(page: Page, logged: Logged) -> Figure:
    """Plot the calibration of the predicted class; a point's area is the number of windows."""
    title = f"calibration, error {page['figures']['calibration_error']:.3f}"
    bins = [row for row in page["figures"]["reliability"] if row["n"] >= ACCURATE]
    return reliability(bins, "probability of the predicted class", "share that came", title)


def _account(page: Page, logged: Logged) -> Figure:
    """Plot the accounts of the model and of buy-and-hold, with the model's drawdown shaded."""
    figure, axis = panel("", "account, multiples of its start", "account on the test, costs paid")
    curve = page["equity"]
    for name, label in (("model", "model"), ("buy_and_hold", "buy-and-hold")):
        columns = np.column_stack([curve["time_ms"], curve[name], np.maximum.accumulate(curve[name])])
        times, account, peak = thinned(columns, ACCOUNT_POINTS).T
        times = times.astype("datetime64[ms]")
        axis.plot(times, account, linewidth=1, label=label)
        if name == "model":
            axis.fill_between(times, account, peak, alpha=0.25, linewidth=0, label="drawdown of the model")
    values = [value for name in ("model", "buy_and_hold") for value in curve[name]]
    if min(values) > 0 and max(values) > 4 * min(values):
        axis.set_yscale("log")
    axis.axhline(1, color="black", linewidth=0.5)
    axis.legend(fontsize=8)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(axis.xaxis.get_major_locator()))
    return figure


def _training(page: Page, logged: Logged) -> Figure:
    """Plot the losses that the coin's members logged, one colour each."""
    figure, axis = panel("step (updates of the model)", "nats", "training; the line: that of the prior")
    for number, fold in enumerate(page["folds"]):
        metrics, colour = logged[fold["member"]], f"C{number}"
        for key, style in (("train/loss", ":"), ("val/log_loss", "-")):
            if points := [(entry["step"], entry[key]) for entry in metrics if entry.get(key) is not None]:
                label = f"{fold['member']} {key}"
                axis.plot(*thinned(np.array(points)).T, style, color=colour, linewidth=1, label=label)
    if axis.lines:
        axis.legend(fontsize=8)
    axis.axhline(page["figures"]["prior_log_loss"], color="black", linewidth=0.5)
    return figure


DRAWN = (_calibration, _account, _training)  # of each coin
