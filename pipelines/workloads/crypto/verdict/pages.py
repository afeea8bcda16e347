"""Page of a coin: everything found out about it on the tests of all its folds, as plain values for JSON."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.workloads.crypto.data import Coin
from pipelines.workloads.crypto.folds import CoinFold, joined
from pipelines.workloads.crypto.labels import CLASSES
from pipelines.workloads.crypto.trading import backtest, performance, strategy
from pipelines.workloads.crypto.verdict import breakdown, classification, judge
from pipelines.workloads.crypto.verdict.calibration import softmax

if TYPE_CHECKING:
    from pipelines.workloads.crypto import Config

TAIL_DRAWS = 10  # resamples beyond each end of an interval; fewer do not locate it
DAY = 86_400_000
METRICS = (
    "log_loss", "direction_log_loss", "macro_f1", "accuracy", "balanced_accuracy", "mcc", "brier", "calibration_error",
    "directional_hit_rate",
)  # fmt: skip
TRADING = (
    "net_return", "buy_and_hold_return", "num_trades", "win_rate", "profit_factor", "expectancy", "max_drawdown",
    "days", "sharpe", "sharpe_error", "sortino", "calmar", "exposure", "turnover", "break_even_fee",
)  # fmt: skip


def coin_page(config: "Config", coin: Coin, folds: Sequence[CoinFold], confidence: float) -> dict[str, Any]:
    """Judge and trade a coin on its folds joined in time, and describe each fold; the verdict is still to come."""
    settings = config.evaluation
    probabilities, labels, priors = joined(folds)
    baselines = {name: np.concatenate([fold.baselines[name] for fold in folds]) for name in folds[0].baselines}
    rows, signals = (np.concatenate([getattr(fold, name) for fold in folds]) for name in ("rows", "signals"))
    market, per_day = strategy.prices(config, coin, rows), DAY // coin.candles.timeframe_ms
    result = backtest.run(**market, signal=signals, **strategy.rules(config))
    judged = judge.judge(
        probabilities,
        labels,
        priors,
        baselines,
        np.concatenate([fold.moves for fold in folds]),
        result.equity,
        horizon=config.data.horizon,
        resamples=_resamples(settings.repetitions, confidence),
        confidence=confidence,
        seed=settings.seed,
    )
    metrics = classification.metrics(probabilities, labels, priors)
    tempered = np.concatenate([softmax(fold.test.logits, fold.temperature) for fold in folds])
    traded = performance.metrics(result, per_day)
    luck = strategy.luck(config, result, market)
    compared = {
        "model": metrics,
        **{name: classification.metrics(rows, labels, priors) for name, rows in baselines.items()},
    }
    saved = classification.log_losses(priors, labels) - classification.log_losses(probabilities, labels)
    held = backtest.buy_and_hold(market["open"], market["close"], result.fee, result.slippage)
    window_times = np.concatenate([fold.test.times for fold in folds])
    return {
        "symbol": coin.candles.symbol,
        "timeframe": coin.facts["timeframe"],
        "horizon": config.data.horizon,
        "classes": list(CLASSES),
        **judged,
        "interval_confidence": confidence,
        "figures": metrics,
        "predictors": _predictors(compared, traded, luck),
        "tempered": classification.metrics(tempered, labels, priors),
        "backtest": traded,
        "random_trades": luck,
        "months": breakdown.by_month(coin.candles.time[rows], result.equity, held, result.trades, window_times, saved),
        "regimes": breakdown.by_volatility(
            np.concatenate([fold.volatility for fold in folds]),
            saved,
            probabilities.argmax(1),
            labels,
            np.searchsorted(rows, np.concatenate([fold.test.ends for fold in folds])),
            result.trades,
        ),
        "folds": [_fold_entry(config, coin, fold, per_day) for fold in folds],
        "equity": strategy.equity_curves(coin.candles.time[rows], market, result),
    }


def _resamples(repetitions: int, confidence: float) -> int:
    """Return the repetitions, or more where a wide interval would end at its luckiest resamples."""
    return max(repetitions, math.ceil(2 * TAIL_DRAWS / (1 - confidence)))


def _predictors(
    compared: Mapping[str, Mapping[str, Any]], traded: Mapping[str, Any], luck: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the table of the model (first), its baselines, and the two returns that need no predictor."""
    table: list[dict[str, Any]] = [
        {"predictor": name, **{metric: metrics[metric] for metric in METRICS}} for name, metrics in compared.items()
    ]
    table[0]["net_return"] = traded["net_return"]
    table.append({"predictor": "buy-and-hold", "net_return": traded["buy_and_hold_return"]})
    table.append({"predictor": "random trades (median)", "net_return": luck["median"]})
    return table


def _fold_entry(config: "Config", coin: Coin, fold: CoinFold, per_day: int) -> dict[str, Any]:
    metrics = classification.metrics(fold.test.probabilities, fold.test.labels, fold.prior)
    result = backtest.run(**strategy.prices(config, coin, fold.rows), signal=fold.signals, **strategy.rules(config))
    traded = performance.metrics(result, per_day)
    shown = ("log_loss", "prior_log_loss", "macro_f1", "accuracy", "majority_accuracy")
    return {
        "fold": fold.fold + 1,
        "member": fold.member,
        "from_ms": int(fold.test.times[0]),
        "to_ms": int(fold.test.times[-1]),
        "n": metrics["n"],
        **{name: metrics[name] for name in shown},
        "temperature": fold.temperature,
        "threshold": fold.choice.threshold,
        "validation_net_return": fold.choice.net_return,
        **{name: traded[name] for name in TRADING},
        "thresholds_tried": list(fold.choice.table),
    }
