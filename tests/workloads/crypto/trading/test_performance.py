"""Performance of a backtest: textbook metrics, and luck distinguished from foresight."""

import json

import numpy as np
import pytest
from hypothesis import given, settings

from pipelines.workloads.crypto.trading import performance
from pipelines.workloads.crypto.trading.backtest import run
from tests.workloads.crypto.trading.sample_markets import COSTS, FREE, candles, cases, flat


@given(cases())
@settings(max_examples=50, deadline=None)
def test_at_the_break_even_fee_nothing_is_earned(case):
    market, signal, rules = case
    result = run(**market, signal=signal, **rules)
    fee = performance.metrics(result, 4)["break_even_fee"]
    assert (fee is None) == (len(result.trades) == 0)
    if fee is not None and fee < 0:
        # These trades lose even without a fee; a rebate of that size would break even.
        assert run(**market, signal=signal, **rules | {"fee": 0.0}).equity[-1] < 1
        factors = 1 + result.trades.gross - (fee + result.slippage) * (1 + result.trades.ratio)
        assert factors.prod() == pytest.approx(1, abs=1e-9)
    elif fee is not None:
        assert run(**market, signal=signal, **rules | {"fee": fee}).equity[-1] == pytest.approx(1, abs=1e-9)


def test_metrics_follow_the_textbook():
    market = candles(5, 400, scale=0.02)
    signal = np.random.default_rng(0).integers(-1, 2, 400)
    result = run(**market, signal=signal, fee=0.0002, slippage=0.0, horizon=5)
    found = performance.metrics(result, 10)
    net, equity = result.trades.net, result.equity
    daily = equity[9::10] / np.concatenate([[1], equity[9:-1:10]]) - 1
    below = np.sqrt(np.mean(np.minimum(daily, 0) ** 2))
    worst = max(1 - equity[j] / max(1, equity[: j + 1].max()) for j in range(400))
    expected = {
        "net_return": net_return(net),
        "num_trades": len(net),
        "win_rate": np.mean(net > 0),
        "profit_factor": net[net > 0].sum() / -net[net < 0].sum(),
        "expectancy": net.mean(),
        "max_drawdown": worst,
        "sharpe": daily.mean() / daily.std(ddof=1) * np.sqrt(365),
        "sortino": daily.mean() / below * np.sqrt(365),
        "calmar": daily.mean() * 365 / worst,
        "exposure": result.trades.held.sum() / 400,
        "turnover": (1 + result.trades.ratio).sum(),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert len(daily) == 40
    json.dumps(found, allow_nan=False)


def net_return(net: np.ndarray) -> float:
    return (1 + net).prod() - 1


@given(cases())
@settings(max_examples=20, deadline=None)
def test_no_metric_is_nan(case):
    market, signal, rules = case
    for candles_per_day in (1, 10, 1000):
        json.dumps(performance.metrics(run(**market, signal=signal, **rules), candles_per_day), allow_nan=False)


def test_a_trade_that_earns_exactly_nothing_is_not_won():
    market = flat(*[(4, 4, 4, 4)] * 50)
    found = performance.metrics(run(**market, signal=np.eye(50, dtype=int)[3], **FREE), 10)
    assert (found["num_trades"], found["win_rate"]) == (1, 0)


def test_the_maximum_drawdown_is_computed():
    close = np.array([10.0, 10, 12, 6, 9])
    market_ = {"open": close, "high": close, "low": close, "close": close, "gap": np.zeros(5, bool)}
    result = run(**market_, funding=np.zeros(5), signal=np.ones(5, int), fee=0.0, slippage=0.0)
    assert performance.metrics(result, 1)["max_drawdown"] == 0.5
    assert performance.max_drawdown(np.array([0.8, 0.9])) == pytest.approx(0.2)  # below the start


def test_the_break_even_fee_of_one_trade_is_its_return_less_the_slippage():
    market = flat((10, 10, 10, 10), (10, 11, 10, 11), (11, 11, 11, 11))
    result = run(**market, signal=np.array([1, 0, 0]), fee=0.0, slippage=0.01)
    assert performance.break_even_fee(result) == pytest.approx(0.1 / 2.1 - 0.01)


def test_sharpe_is_absent_under_30_days_and_its_error_is_that_of_many_samples():
    generator = np.random.default_rng(0)
    drawn = {
        "heavy tails": 0.01 * generator.standard_t(5, (400, 200)),
        "a drift": 1 + generator.standard_normal((1000, 200)),
        "skew": generator.exponential(size=(1000, 200)),
    }
    for samples in drawn.values():
        found = samples.mean(1) / samples.std(1, ddof=1) * np.sqrt(365)
        assert np.mean([performance.sharpe_error(daily) for daily in samples]) == pytest.approx(found.std(), rel=0.1)
    for days, present in ((29, False), (30, True)):
        part = {name: column[: days * 10] for name, column in candles(5, 400, scale=0.02).items()}
        figures = performance.metrics(run(**part, signal=np.ones(days * 10, int), **COSTS), 10)
        assert figures["days"] == days
        assert (figures["sharpe"] is not None) == (figures["sharpe_error"] is not None) == present


def test_the_best_of_many_trials_is_deflated_to_an_even_chance():
    drawn = np.random.default_rng(0).normal(size=(4000, 20)).max(1)
    assert performance.deflated_sharpe(drawn.mean(), 1.0, 20) == pytest.approx(0.5, abs=0.02)
    assert performance.deflated_sharpe(1.96, 1.0, 1) == pytest.approx(0.975, abs=1e-3)


def test_the_sensitivity_to_fees_is_that_of_a_backtest_at_each_fee():
    market = candles(5, 400, scale=0.02)
    signal = np.random.default_rng(0).integers(-1, 2, 400)
    found = performance.metrics(run(**market, signal=signal, **COSTS), 10)["fee_sensitivity"]
    for row in found[::3]:
        assert row["net_return"] == pytest.approx(
            run(**market, signal=signal, **COSTS | {"fee": row["fee"]}).equity[-1] - 1
        )


def test_an_account_that_never_trades_has_no_ratios():
    found = performance.metrics(run(**candles(5, 400), signal=np.zeros(400, int), **COSTS), 10)
    ratios = ("sharpe", "sharpe_error", "sortino", "calmar", "win_rate", "profit_factor", "expectancy")
    assert (found["days"], {found[name] for name in ratios}) == (40, {None})


def test_trades_that_a_gap_ends_are_counted():
    market = flat(*[(4, 4, 4, 4)] * 9) | {"gap": np.arange(9) == 5}
    found = performance.metrics(run(**market, signal=np.ones(9, int), **FREE), 10)
    assert (found["num_trades"], found["num_closed_by_gap"]) == (2, 1)


@pytest.mark.parametrize("count", [7, 1000])
def test_curves_are_the_accounts_from_the_first_candle_to_the_last(count):
    result, times = run(**candles(5, count), signal=np.ones(count, int), **COSTS), np.arange(count) * 60_000
    found = performance.equity_curves(times, result)
    rows = np.array(found["time_ms"]) // 60_000
    assert (len(rows), rows[0], rows[-1]) == (min(count, performance.EQUITY_POINTS), 0, count - 1)
    assert found["model"] == result.equity[rows].tolist()
    assert found["buy_and_hold"] == result.buy_and_hold[rows].tolist()
