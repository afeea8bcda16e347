"""From probabilities to orders: a threshold chosen on validation candles, and the candles and rules of a backtest."""

from typing import NamedTuple

import numpy as np

from models.market.inputs import CLASSES
from models.market.labels import NO_TRADE, signals
from pipelines.workloads.crypto.config import Config
from pipelines.workloads.crypto.data import Coin
from pipelines.workloads.crypto.trading import backtest

THRESHOLDS = tuple(round(0.35 + 0.05 * i, 2) for i in range(12))  # 0.35 to 0.90; 1/3 excludes little among 3 classes
FUNDED = 8 * 3_600_000  # ms from one payment of funding to the next, at 0, 8 and 16 h UTC


def market(config: Config, coin: Coin, rows: np.ndarray) -> backtest.Market:
    """Return the candles at `rows` (m,) and the config's rules, for `backtest.run`.

    Rows that do not follow each other in time have a gap.
    """
    candles, settings, costs = coin.candles, config.evaluation, config.costs(coin.candles.symbol)
    times, step = candles.time[rows], candles.timeframe_ms
    return backtest.Market(
        open=candles.open[rows],
        high=candles.high[rows],
        low=candles.low[rows],
        close=candles.close[rows],
        gap=np.diff(times, prepend=times[0] - step) != step,
        funding=costs.funding * (times // FUNDED - (times - step) // FUNDED),
        fee=costs.fee,
        slippage=settings.slippage,
        stop=settings.stop,
        target=settings.target,
        horizon=config.data.horizon,
    )


def traded(probabilities: np.ndarray, ends: np.ndarray, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows (m,) from the first of `ends` (n,) to the last label, and their probabilities (m, 3).

    Rows where no window ends, as after a gap, are certain to be NO_TRADE. No other part shares the rows.
    """
    rows = np.arange(ends[0], ends[-1] + horizon + 1)
    found = np.tile(np.eye(len(CLASSES))[NO_TRADE], (len(rows), 1))
    found[ends - rows[0]] = probabilities
    return rows, found


class Tried(NamedTuple):
    """A threshold and its result on validation."""

    threshold: float | None  # None: not trading
    net_return: float
    num_trades: int


def choose_threshold(probabilities: np.ndarray, market: backtest.Market) -> tuple[Tried, list[Tried]]:
    """Return the threshold with the highest net return on validation candles with probabilities (N, 3), and all tried.

    Not trading is one of the choices. Among equal returns, fewer trades win, then the higher threshold, and not trading
    wins over a threshold that never traded. One threshold serves both sides: with two, the drift of the validation
    period would pick the side.
    """
    results = {each: backtest.run(signal=signals(probabilities, each), **market) for each in THRESHOLDS}
    tried = [Tried(each, float(found.equity[-1] - 1.0), len(found.trades)) for each, found in results.items()]
    tried.insert(0, Tried(None, 0.0, 0))
    return max(tried, key=lambda row: (row.net_return, -row.num_trades, row.threshold or float("inf"))), tried
