"""Thresholds: the profitable one is chosen, and none if trading only costs."""

import numpy as np
import pytest

from exporters.onnx.cnn_lstm import random_candles
from models.market.candles import Candles
from models.market.labels import signals
from pipelines.workloads.crypto import Config
from pipelines.workloads.crypto.data import Coin
from pipelines.workloads.crypto.trading import backtest, strategy
from pipelines.workloads.crypto.trading.strategy import choose_threshold
from tests.workloads.crypto.trading.sample_markets import COSTS, FREE, candles, flat


def test_a_signal_is_the_more_probable_side_if_it_reaches_the_threshold():
    probabilities = np.array([[0.6, 0.3, 0.1], [0.1, 0.5, 0.4], [0.0, 0.2, 0.8], [0.5, 0.0, 0.5], [0.2, 0.8, 0.0]])
    assert signals(probabilities, 0.4).tolist() == [-1, 1, 1, 0, 0]
    assert signals(probabilities, 0.7).tolist() == [0, 0, 1, 0, 0]
    assert signals(probabilities, None).tolist() == [0] * 5


def test_not_trading_is_chosen_where_trading_only_costs():
    probabilities = np.random.default_rng(0).dirichlet([1, 1, 1], 2000)
    choice, tried = choose_threshold(probabilities, {**candles(0, 2000, scale=0.003), **COSTS, "horizon": 3})
    assert choice == (None, 0, 0)
    assert [row.threshold for row in tried] == [None, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9]


def test_the_threshold_that_pays_is_chosen_and_ties_go_to_fewer_trades(monkeypatch):
    monkeypatch.setattr(strategy, "THRESHOLDS", (0.4, 0.6, 0.7, 0.85))
    market = candles(1, 600)
    move = np.append(market["close"][1:] / market["open"][1:] - 1, 0)
    sure = np.abs(move) > 0.01
    # Right about large moves with a probability of 0.8, wrong about the others with 0.5.
    long = np.where(sure, np.where(move > 0, 0.8, 0.1), np.where(move > 0, 0.2, 0.5))
    probabilities = np.stack([np.where(sure, 0.9, 0.7) - long, np.where(sure, 0.1, 0.3), long], axis=1)
    choice, tried = choose_threshold(probabilities, market | COSTS)
    assert choice.threshold == 0.7  # equal to 0.6, and higher
    traded = backtest.run(signal=signals(probabilities, 0.7), **market | COSTS)
    assert choice == (0.7, pytest.approx(traded.equity[-1] - 1), len(traded.trades))
    assert choice.net_return == max(row.net_return for row in tried)
    nothing, _ = choose_threshold(probabilities, flat(*[(5, 5, 5, 5)] * 600) | FREE)
    assert nothing.threshold is None  # all return 0, but not trading wins over a threshold that never trades


def test_each_class_is_traded_on_its_own_side():
    assert signals(np.eye(3), 0.5).tolist() == [-1, 0, 1]


def test_what_is_traded_lasts_to_the_last_label_and_only_where_a_window_ends():
    ends, probabilities = np.array([5, 6, 9]), np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.0, 0.1, 0.9]])
    rows, found = strategy.traded(probabilities, ends, 3)
    assert rows.tolist() == list(range(5, 13))
    nothing = [0, 1, 0]
    assert found.tolist() == [*probabilities[:2].tolist(), nothing, nothing, probabilities[2].tolist(), *[nothing] * 3]


def test_funding_is_paid_at_0_8_and_16_hours_and_missing_candles_are_a_gap():
    hours = np.delete(np.arange(3, 50), 6)  # that of 9 h, and not of 8 h, is missing
    columns = random_candles(0, len(hours), 3_600_000).columns() | {"time": 19_700 * 86_400_000 + 3_600_000 * hours}
    coin = Coin(Candles("XRPUSDTUSDT", 3_600_000, **columns), (), np.zeros((46, 0)), np.zeros(46), (), (), 60, {})
    found = strategy.market(Config(), coin, np.arange(1, 46))
    assert hours[1:][found["funding"] > 0].tolist() == [8, 16, 24, 32, 40, 48]
    assert set(found["funding"]) == {0, 0.0001}
    assert hours[1:][found["gap"]].tolist() == [10]
