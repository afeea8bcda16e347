"""Figures by month and by volatility add up to those of the whole, and mixing up a part costs what it is worth."""

import numpy as np
import pytest

from pipelines.workloads.crypto.trading.backtest import buy_and_hold, run
from pipelines.workloads.crypto.verdict import breakdown
from tests.workloads.crypto.trading.sample_markets import candles

DAY = 86_400_000
NUM = 300


@pytest.fixture(scope="module")
def traded():
    """Candles of a day each from the 20th of January 2021 on, and a result of trading them."""
    market = candles(3, NUM, scale=0.02)
    times = 1_611_100_800_000 + DAY * np.arange(NUM)
    signal = np.random.default_rng(0).integers(-1, 2, NUM)
    return market, times, run(**market, signal=signal, fee=0.0005, slippage=0.0005, horizon=2)


def test_months_multiply_to_the_whole_account_and_hold_all_windows_and_trades(traded):
    market, times, result = traded
    held = buy_and_hold(market["open"], market["close"], result.fee, result.slippage)
    saved = np.random.default_rng(1).normal(size=NUM - 50)
    rows = breakdown.by_month(times, result.equity, held, result.trades, times[50:], saved)
    assert [row["month"] for row in rows][:2] == ["2021-01", "2021-02"]
    assert [row["n"] for row in rows][:3] == [0, 0, 21]  # the first window ends on the 11th of March
    assert rows[0]["log_loss_gain"] is None
    for name, curve in (("net_return", result.equity), ("buy_and_hold_return", held)):
        assert np.prod([1 + row[name] for row in rows]) == pytest.approx(curve[-1])
    assert sum(row["num_trades"] for row in rows) == len(result.trades)
    weighted = sum(row["n"] * (row["log_loss_gain"] or 0) for row in rows)
    assert weighted / len(saved) == pytest.approx(saved.mean())
    february = result.equity[11:40] / np.maximum.accumulate(np.concatenate([result.equity[11:40]]))
    assert rows[1]["max_drawdown"] == pytest.approx(1 - february.min())


def test_the_feature_and_the_lag_that_a_model_goes_by_cost_most_and_others_nothing():
    generator = np.random.default_rng(0)
    windows = generator.normal(size=(400, 20, 3))
    side = 3 * windows[:, -5, 1]  # 4 candles back
    labels = (generator.random(400) < 1 / (1 + np.exp(-side))).astype(int)

    def logits(seen):
        side = 3 * seen[:, -5, 1]
        return np.stack([np.zeros(len(seen)), side, np.full(len(seen), -9.0)], 1)

    rows = breakdown.importance(logits, windows, labels, ("a", "b", "c"), 0)
    by_name = {(row["part"], row["of"]): row for row in rows}
    best = by_name["feature", "b"]
    assert best["nats"] == by_name["candles back", "3 to 5"]["nats"] > 5 * best["error"] > 0
    assert {row["nats"] for row in rows[2:]} == {0.0}
    assert next(row["of"] for row in rows if row["part"] == "candles back") == "3 to 5"
    assert ("candles back", "12 to 19") in by_name
