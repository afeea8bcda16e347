"""Trading on predictions: the candles and rules of a coin's backtest, its account, and its luck."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.workloads.crypto.data import Coin
from pipelines.workloads.crypto.labels import CLASSES, NO_TRADE
from pipelines.workloads.crypto.trading import backtest, performance
from pipelines.workloads.crypto.trading.backtest import Result

if TYPE_CHECKING:
    from pipelines.workloads.crypto import Config

EQUITY_POINTS = 400  # of a curve that is drawn
FUNDED = 8 * 3_600_000  # ms from one payment of funding to the next, at 0, 8 and 16 h UTC


def rules(config: "Config") -> dict[str, Any]:
    """Return the keyword arguments of `backtest.run` that come from the config."""
    settings = config.evaluation
    return {
        **{name: getattr(settings, name) for name in ("fee", "slippage", "stop", "target")},
        "horizon": config.data.horizon,
    }


def traded_rows(ends: np.ndarray, horizon: int) -> np.ndarray:
    """Return the rows (m,) from the end of the first window to that of the last label; no other part shares them."""
    return np.arange(ends[0], ends[-1] + horizon + 1)


def prices(config: "Config", coin: Coin, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return open, high, low, close, gap and funding (m,) of the rows, as `backtest.run` has them.

    Rows that do not follow each other in time have a gap.
    """
    candles = coin.candles
    times, step = candles.time[rows], candles.timeframe_ms
    found = {name: getattr(candles, name)[rows] for name in ("open", "high", "low", "close")}
    found["gap"] = np.diff(times, prepend=times[0] - step) != step
    found["funding"] = config.evaluation.funding * (times // FUNDED - (times - step) // FUNDED)
    return found


def spread(probabilities: np.ndarray, ends: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the probabilities (n, 3) of windows that end at `ends` (n,) for all rows (m, 3).

    Rows where no window ends, after a gap for example, are certain to be NO_TRADE.
    """
    result = np.tile(np.eye(len(CLASSES))[NO_TRADE], (len(rows), 1))
    result[ends - rows[0]] = probabilities
    return result


def luck(config: "Config", result: Result, market: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the quantiles of what the same trades earn at random moments, and the p-value of the result."""
    settings = config.evaluation
    returns = performance.random_trades(
        result,
        market["open"],
        market["close"],
        market["gap"],
        funding=market["funding"],
        repetitions=settings.repetitions,
        seed=settings.seed,
    )
    low, median, high = np.quantile(returns, (0.025, 0.5, 0.975)).tolist()
    num_as_good = int((returns >= result.equity[-1] - 1).sum())
    p_value = (1 + num_as_good) / (1 + len(returns)) if len(result.trades) else None
    return {"median": median, "low": low, "high": high, "p_value": p_value}


def equity_curves(times: np.ndarray, market: Mapping[str, np.ndarray], result: Result) -> dict[str, list]:
    """Return the accounts of the model and of buy-and-hold at up to EQUITY_POINTS candles, first and last included."""
    kept = np.unique(np.linspace(0, len(times) - 1, EQUITY_POINTS).round().astype(int))
    held = backtest.buy_and_hold(market["open"], market["close"], result.fee, result.slippage)
    return {
        "time_ms": times[kept].tolist(),
        "model": result.equity[kept].tolist(),
        "buy_and_hold": held[kept].tolist(),
    }
