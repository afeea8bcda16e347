"""Thresholds: the profitable one is chosen, and none if trading only costs."""

import numpy as np

from models.market.labels import signals
from pipelines.workloads.crypto.trading import strategy
from pipelines.workloads.crypto.trading.strategy import THRESHOLDS, choose_threshold
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
    assert len(tried) == 1 + len(THRESHOLDS)


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
    assert choice.net_return > 1
    assert choice.net_return == max(row.net_return for row in tried)
    nothing, _ = choose_threshold(probabilities, flat(*[(5, 5, 5, 5)] * 600) | FREE)
    assert nothing.threshold is None  # all return 0, but not trading wins over a threshold that never trades


def test_each_class_is_traded_on_its_own_side():
    assert signals(np.eye(3), 0.5).tolist() == [-1, 0, 1]
