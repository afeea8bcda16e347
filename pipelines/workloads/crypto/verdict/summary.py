"""Results of an evaluation: a page for each coin, and a summary of all, as plain values for JSON."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import NotRequired

import numpy as np

from models.market.candles import DAY
from models.market.inputs import CLASSES
from pipelines.workloads.crypto.config import Config
from pipelines.workloads.crypto.data import Coin
from pipelines.workloads.crypto.folds import CoinFold
from pipelines.workloads.crypto.trading import backtest, performance, strategy
from pipelines.workloads.crypto.verdict import classification, judge
from pipelines.workloads.crypto.verdict.classification import Metrics, prior_rows
from pipelines.workloads.crypto.verdict.significance import Gain

ERROR = 0.05  # of the intervals of all coins together
TAIL_DRAWS = 10  # resamples beyond each end of an interval; fewer do not locate it
COMPARED = (
    "log_loss", "direction_log_loss", "macro_f1", "accuracy", "balanced_accuracy", "mcc", "brier", "calibration_error",
    "directional_hit_rate",
)  # fmt: skip
TRADING = (
    "net_return", "net_return_one_candle_later", "buy_and_hold_return", "num_trades", "win_rate", "profit_factor",
    "expectancy", "max_drawdown", "days", "sharpe", "sharpe_error", "sortino", "calmar", "exposure", "turnover",
    "break_even_fee",
)  # fmt: skip
METRICS = (
    "n", "macro_f1", "log_loss", "prior_log_loss", "direction_log_loss", "prior_direction_log_loss", "accuracy",
    "never_predicted",
)  # fmt: skip


class Page(judge.Judged):
    """All results of a coin, as its file holds them."""

    symbol: str
    timeframe: str
    horizon: int
    candles: str  # digest of the returns in the test
    classes: list[str]
    interval_confidence: float
    figures: Metrics
    predictors: list[dict[str, object]]  # the model first
    backtest: performance.Figures
    folds: list[performance.Figures]
    equity: dict[str, list[float]]
    verdict: NotRequired[str]  # this and what follows depends on all coins
    grades: NotRequired[dict[str, bool]]
    reasons: NotRequired[list[str]]


def confidence_of(num_coins: int) -> float:
    """Return the confidence of the intervals of each coin, such that all of them together err with ERROR."""
    return 1 - ERROR / num_coins


def evidence(page: Page) -> tuple[bool, bool, float]:
    """Return a sort key: the surest gain on the prior comes first, and a suspected leak, being no evidence, last."""
    gain, low = page["comparisons"][0]["gain"], page["comparisons"][0]["low"]
    return page["verdict"] == judge.LEAK, low is None, -(gain if low is None else low)


def summarise(
    config: Config, ranking: Sequence[Page], folds: Mapping[str, Sequence[CoinFold]], missing: Mapping[str, str]
) -> dict[str, object]:
    """Return the summary of the coins' pages in order of their evidence; `missing` says why members have no model."""
    verdicts = [page["verdict"] for page in ranking]
    return {
        "coins": len(ranking),
        "skill": sum(verdict.startswith(judge.SKILL) for verdict in verdicts),
        "grades": {grade: sum(page["grades"][grade] for page in ranking) for grade in judge.GRADES},
        "leaks_suspected": verdicts.count(judge.LEAK),
        "interval_confidence": confidence_of(len(ranking)),
        "chance_of_any_false_skill": judge.LEVEL,
        "costs": "; ".join(dict.fromkeys(config.costs(page["symbol"]).said for page in ranking)),
        "simulated": config.data.origin == "simulate",
        "n": sum(len(fold.test.ends) for each in folds.values() for fold in each),
        "failed": dict(missing),
        **{page["symbol"]: _coin_entry(page) for page in ranking},
    }


def interval(row: Gain) -> list[float] | None:
    """Return both ends of a gain's interval, if it has one."""
    return None if row["low"] is None or row["high"] is None else [row["low"], row["high"]]


def _coin_entry(page: Page) -> dict[str, object]:
    """Return the coin's entry in the summary; the threshold is that of its newest model."""
    metrics, traded, newest = page["figures"], page["backtest"], page["folds"][-1]
    return {
        **_picked(page, ("verdict", "grades", "reasons")),
        **_picked(metrics, METRICS),
        "majority": metrics["majority_accuracy"],
        "threshold": newest["threshold"],
        "net_return": traded["net_return"],
        "buy_and_hold": traded["buy_and_hold_return"],
        "folds": [fold["fold"] for fold in page["folds"]],
    }


def table_row(page: Page) -> dict[str, object]:
    """Return the coin's row in the ranking."""
    metrics, traded = page["figures"], page["backtest"]
    gain, direction = page["comparisons"][0], page["comparisons"][-1]
    return {
        "coin": page["symbol"],
        "verdict": page["verdict"],
        "net return": traded["net_return"],
        "filled a candle later": traded["net_return_one_candle_later"],
        "buy-and-hold": traded["buy_and_hold_return"],
        "trades": traded["num_trades"],
        "break-even fee": traded["break_even_fee"],
        "days": traded["days"],
        "nats gained": gain["gain"],
        "over": gain["against"],
        "interval": interval(gain),
        "of direction": direction["gain"],
        "macro-F1": metrics["macro_f1"],
        "accuracy": metrics["accuracy"],
        "majority": metrics["majority_accuracy"],
        "sign right": metrics["directional_hit_rate"],
    }


def example_columns(folds: Mapping[str, Sequence[CoinFold]]) -> dict[str, list[object]]:
    """Return the columns of the per-window file: coin, time, fold, label and the probability of each class."""
    rows = [
        (symbol, int(time), fold.fold + 1, int(label), *row.tolist())
        for symbol, each in folds.items()
        for fold in each
        for time, label, row in zip(fold.test.times, fold.test.labels, fold.test.probabilities, strict=True)
    ]
    names = ("symbol", "time_ms", "fold", "label", *CLASSES)
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def coin_page(config: Config, coin: Coin, folds: Sequence[CoinFold], confidence: float) -> Page:
    """Judge and trade a coin on its folds joined in time, and describe each fold; the verdict follows later."""
    settings = config.evaluation
    tests = [(one.test.probabilities, one.test.labels, prior_rows(one.prior, len(one.test.labels))) for one in folds]
    probabilities, labels, priors = map(np.concatenate, zip(*tests, strict=True))
    baselines = {name: np.concatenate([fold.baselines[name] for fold in folds]) for name in folds[0].baselines}
    names = ("rows", "signals", "moves", "later", "last")
    rows, signals, moves, later, last = (np.concatenate([getattr(fold, name) for fold in folds]) for name in names)
    market, per_day = strategy.market(config, coin, rows), DAY // coin.candles.timeframe_ms
    result = backtest.run(signal=signals, **market)
    judged = judge.judge(
        probabilities,
        labels,
        priors,
        baselines,
        moves,
        result.equity,
        horizon=config.data.horizon,
        later=later,
        last=last,
        # More where the ends of a wide interval would be extreme resamples.
        resamples=max(settings.repetitions, math.ceil(2 * TAIL_DRAWS / (1 - confidence))),
        confidence=confidence,
        seed=settings.seed,
    )
    traded = performance.metrics(result, per_day)
    delayed = backtest.run(signal=np.concatenate([[0], signals[:-1]]), **market)
    traded["net_return_one_candle_later"] = float(delayed.equity[-1] - 1)
    compared = {"model": probabilities, judge.PRIOR: priors, **baselines}
    figures = {name: classification.metrics(each, labels, priors) for name, each in compared.items()}
    # The model, its baselines, and the two returns that need no predictor.
    predictors = [{"predictor": name, **_picked(each, COMPARED)} for name, each in figures.items()]
    predictors[0]["net_return"] = traded["net_return"]
    predictors.append({"predictor": "buy-and-hold", "net_return": traded["buy_and_hold_return"]})
    return {
        "symbol": coin.candles.symbol,
        "timeframe": coin.facts["timeframe"],
        "horizon": config.data.horizon,
        "classes": list(CLASSES),
        "tests": judged["tests"],
        "leaks": list(dict.fromkeys([*judged["leaks"], *(leak for fold in folds for leak in fold.leaks)])),
        "bounce": judged["bounce"],
        "candles": hashlib.sha256(np.diff(np.log(market["close"])).round(6).tobytes()).hexdigest(),
        "comparisons": judged["comparisons"],
        "interval_confidence": confidence,
        "figures": figures["model"],
        "predictors": predictors,
        "backtest": traded,
        "folds": [_fold_entry(config, coin, fold, per_day) for fold in folds],
        "equity": performance.equity_curves(coin.candles.time[rows], result),
    }


def _picked(figures: Mapping[str, object], names: Sequence[str]) -> dict[str, object]:
    return {name: figures[name] for name in names}


def _fold_entry(config: Config, coin: Coin, fold: CoinFold, per_day: int) -> dict[str, object]:
    metrics = classification.metrics(fold.test.probabilities, fold.test.labels, fold.prior)
    traded = performance.metrics(backtest.run(signal=fold.signals, **strategy.market(config, coin, fold.rows)), per_day)
    return {
        "fold": fold.fold + 1,
        "member": fold.member,
        "from_ms": int(fold.test.times[0]),
        "to_ms": int(fold.test.times[-1]),
        "n": metrics["n"],
        **_picked(metrics, ("log_loss", "prior_log_loss", "macro_f1", "accuracy", "majority_accuracy")),
        "recalibration": fold.recalibration,
        "recalibration_gain": fold.recalibration_gain,
        "threshold": fold.choice.threshold,
        "validation_net_return": fold.choice.net_return,
        **_picked(traded, [name for name in TRADING if name in traded]),
        "thresholds_tried": [row._asdict() for row in fold.tried],
    }
