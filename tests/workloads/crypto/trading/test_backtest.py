"""The backtest follows its written rules to the cent, and uses no candle before it exists."""

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.workloads.crypto.trading import backtest, performance
from pipelines.workloads.crypto.trading.backtest import run
from tests.workloads.crypto.trading.sample_markets import COSTS, FREE, candles, cases, flat


@given(cases())
@settings(max_examples=20, deadline=None)
def test_without_signals_nothing_is_traded_and_nothing_is_paid(case):
    market, signal, rules = case
    result = run(**market, signal=0 * signal, **rules)
    assert (result.equity == 1).all()
    found = performance.metrics(result, 4)
    assert (found["net_return"], found["num_trades"], found["exposure"], found["turnover"]) == (0, 0, 0, 0)
    assert found["break_even_fee"] is None


@given(st.integers(0, 10**6), st.integers(2, 200), st.sampled_from([0.0, 0.001]), st.sampled_from([0.0, 0.0005]))
@settings(max_examples=20, deadline=None)
def test_always_long_is_buy_and_hold_less_two_costs(seed, num, fee, slippage):
    market = candles(seed, num)
    result = run(**market, signal=np.ones(num, int), fee=fee, slippage=slippage)
    ratio = market["close"][-1] / market["open"][1]
    assert len(result.trades) == 1
    assert result.trades.net[0] == (ratio - 1) - (fee + slippage) * (1 + ratio)
    assert np.array_equal(result.equity, backtest.buy_and_hold(market["open"], market["close"], fee, slippage))
    assert np.array_equal(result.buy_and_hold, result.equity)


@given(cases(stops=False))
@settings(max_examples=25, deadline=None)
def test_a_short_earns_minus_the_longs_gross_and_pays_its_costs(case):
    market, signal, rules = case
    long, short = (run(**market, signal=side * signal, **rules).trades for side in (1, -1))
    for column in ("entry", "exit", "held", "ratio"):
        assert np.array_equal(getattr(long, column), getattr(short, column))
    assert np.array_equal(long.gross, -short.gross)
    costs = 2 * (rules["fee"] + rules["slippage"]) * (1 + long.ratio)
    assert long.net + short.net == pytest.approx(-costs, abs=1e-14)


@given(cases())
@settings(max_examples=25, deadline=None)
def test_doubling_the_fee_lowers_each_trade_by_the_fee_on_both_notionals(case):
    market, signal, rules = case
    once = run(**market, signal=signal, **rules).trades
    twice = run(**market, signal=signal, **rules | {"fee": 2 * rules["fee"]}).trades
    assert np.array_equal(once.entry, twice.entry)
    assert once.reason.tolist() == twice.reason.tolist()
    assert once.net - twice.net == pytest.approx(rules["fee"] * (1 + once.ratio), abs=1e-14)


@given(cases())
@settings(max_examples=50, deadline=None)
def test_equity_ends_at_the_product_of_the_trades_and_every_fill_is_where_the_rules_say(case):
    market, signal, rules = case
    result = run(**market, signal=signal, **rules)
    trades = result.trades
    assert result.equity[-1] == pytest.approx((1 + trades.net).prod(), abs=1e-12)
    for i, reason in enumerate(trades.reason):
        entry, leave, side = trades.entry[i], trades.exit[i], trades.side[i]
        exit_price = trades.ratio[i] * market["open"][entry]
        assert signal[entry - 1] == side
        assert not market["gap"][entry : leave + (reason != "signal")].any()
        assert trades.held[i] == leave - entry + (reason != "signal")
        assert i == 0 or entry >= trades.exit[i - 1] + (trades.reason[i - 1] != "signal")
        # Meanwhile no signal was the opposite one, and signals were never silent for longer than the horizon.
        since = signal[entry - 1 : leave - (reason == "signal")]
        assert (side * since >= 0).all()
        silent = np.diff(np.append(np.flatnonzero(since), len(since)))
        assert silent.max() <= rules["horizon"]
        if reason == "signal":
            assert signal[leave - 1] == -side or silent[-1] == rules["horizon"]
            assert exit_price == pytest.approx(market["open"][leave])
        elif reason == "stop":
            assert side * (exit_price - market["open"][entry] * (1 - side * rules["stop"])) < 1e-9
            assert market["low"][leave] - 1e-9 <= exit_price <= market["high"][leave] + 1e-9
        elif reason == "target":
            assert exit_price == pytest.approx(market["open"][entry] * (1 + side * rules["target"]))
        else:
            assert exit_price == pytest.approx(market["close"][leave])
            assert reason != "gap" or market["gap"][leave + 1]
            assert reason != "end" or leave == len(signal) - 1
    idle = np.ones(len(signal), bool)
    for entry, held in zip(trades.entry, trades.held, strict=True):
        idle[entry : entry + held] = False
    # A signal is ignored only if a gap follows it or a position is already open in the next candle.
    fillable = np.flatnonzero(idle[1:] & (signal[:-1] != 0) & ~market["gap"][1:])
    assert len(fillable) == 0


@given(cases(), st.integers(0, 10**6), st.integers(0, 59))
@settings(max_examples=50, deadline=None)
def test_the_future_changes_no_past_equity(case, seed, now):
    market, signal, rules = case
    now = min(now, len(signal) - 1)
    changed = candles(seed, len(signal), 0.3, scale=0.05)
    for name, column in market.items():
        changed[name][: now + 1] = column[: now + 1]
    other = np.where(np.arange(len(signal)) < now, signal, np.random.default_rng(seed).integers(-1, 2, len(signal)))
    whole = run(**market, signal=signal, **rules)
    past = whole.equity[: now + 1]
    assert np.array_equal(run(**changed, signal=other, **rules).equity[: now + 1], past)
    cut = {name: column[: now + 1] for name, column in market.items()}
    assert np.array_equal(run(**cut, signal=signal[: now + 1], **rules).equity, past)


def test_a_stop_that_the_open_jumps_over_is_filled_at_the_open_and_a_target_at_its_own_price():
    market = flat((100, 100, 100, 100), (100, 100, 100, 100), (90, 91, 89, 90), (90, 90, 90, 90))
    signal = np.array([1, 1, 0, 0])
    assert run(**market, signal=signal, stop=0.02, **FREE).trades.ratio[0] == pytest.approx(0.90)
    short = run(**market, signal=-signal, target=0.02, **FREE).trades
    assert short.reason.tolist() == ["target"]
    assert short.gross[0] == pytest.approx(0.02)
    rising = flat((100, 100, 100, 100), (100, 100, 100, 100), (110, 111, 109, 110), (110, 110, 110, 110))
    assert run(**rising, signal=-signal, stop=0.02, **FREE).trades.ratio[0] == pytest.approx(1.10)
    assert run(**rising, signal=signal, target=0.02, **FREE).trades.ratio[0] == pytest.approx(1.02)


def test_a_changed_signal_is_filled_at_the_next_open_and_a_reversal_pays_both_trades():
    market = flat((10, 10, 10, 10), (10, 11, 10, 11), (12, 12, 12, 12), (15, 15, 15, 15))
    result = run(**market, signal=np.array([1, -1, -1, 0]), fee=0.01, slippage=0.0)
    assert result.trades.reason.tolist() == ["signal", "end"]
    assert result.trades.gross == pytest.approx([0.2, -0.25])
    assert result.trades.net == pytest.approx([0.2 - 0.01 * 2.2, -0.25 - 0.01 * 2.25])
    assert result.equity == pytest.approx([1, 1.1 - 0.021, 1.178 * 0.98, 1.178 * 0.7275])


def test_a_signal_is_traded_for_its_horizon_and_prolonged_by_the_next_one():
    market = candles(0, 12)
    once = run(**market, signal=np.eye(12, dtype=int)[0], **COSTS, horizon=3).trades
    assert (once.entry.tolist(), once.exit.tolist(), once.held.tolist()) == ([1], [4], [3])
    assert once.ratio[0] == market["open"][4] / market["open"][1]
    twice = run(**market, signal=np.eye(12, dtype=int)[[0, 2]].sum(0), **COSTS, horizon=3).trades
    assert (twice.entry.tolist(), twice.exit.tolist()) == ([1], [6])
    turned = run(**market, signal=np.array([1, 0, -1, *[0] * 9]), **COSTS, horizon=3).trades
    assert (turned.entry.tolist(), turned.exit.tolist(), turned.side.tolist()) == ([1, 3], [3, 6], [1, -1])


def test_after_a_stop_an_older_signal_does_not_enter_again():
    market = flat((100, 100, 100, 100), (100, 100, 97, 98), (98, 98, 98, 98), (98, 98, 98, 98), (98, 98, 98, 98))
    signal = np.array([1, 0, 1, 0, 0])
    trades = run(**market, signal=signal, stop=0.02, **COSTS, horizon=4).trades
    assert (trades.entry.tolist(), trades.reason.tolist()) == ([1, 3], ["stop", "end"])


def test_a_gap_closes_the_position_before_it_and_cancels_the_order_after_it():
    market = candles(0, 8)
    market["gap"][4] = True
    result = run(**market, signal=np.array([0, 1, 1, 1, 1, 0, 0, 0]), **COSTS)
    assert result.trades.entry.tolist() == [2, 5]
    assert result.trades.exit.tolist() == [3, 6]
    assert result.trades.reason.tolist() == ["gap", "signal"]
    assert performance.metrics(result, 4)["num_closed_by_gap"] == 1
    assert not len(run(**market, signal=np.array([0, 0, 0, 1, 0, 0, 0, 0]), **COSTS).trades)


def test_a_short_that_loses_the_account_ends_the_trading():
    market = flat((10, 10, 10, 10), (10, 15, 10, 15), (15, 25, 15, 25), (10, 10, 10, 10), (10, 10, 5, 5))
    result = run(**market, signal=np.full(5, -1), **FREE)
    assert result.trades.reason.tolist() == ["ruin"]
    assert result.trades.net.tolist() == [-1]
    assert result.equity.tolist() == [1, 0.5, 0, 0, 0]
    found = performance.metrics(result, 1)
    assert (found["net_return"], found["max_drawdown"], found["break_even_fee"]) == (-1, 1, None)
    json.dumps(found, allow_nan=False)


def test_a_backtest_of_35_000_candles_is_quick():
    market = candles(0, 35_000, 0.001, 0.003)
    signal = np.random.default_rng(0).integers(-1, 2, 35_000)
    seconds = []
    for _ in range(2):
        began = time.process_time()
        run(**market, signal=signal, stop=0.008, target=0.015, **COSTS, horizon=3)
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.3


def test_the_stop_is_checked_before_the_target():
    market_ = {
        "open": np.array([100.0, 100, 102]),
        "high": np.array([100.0, 103, 102]),
        "low": np.array([100.0, 97, 102]),
        "close": np.array([100.0, 102, 102]),
        "gap": np.zeros(3, bool),
        "funding": np.zeros(3),
    }
    for side, price in ((1, 98.0), (-1, 102.0)):
        signal = np.array([side, 0, 0])
        trades = backtest.run(**market_, signal=signal, stop=0.02, target=0.02, fee=0.0, slippage=0.0).trades
        assert trades.reason.tolist() == ["stop"]
        assert (trades.entry[0], trades.exit[0], trades.ratio[0]) == (1, 1, pytest.approx(price / 100))


@pytest.mark.parametrize(
    ("rule", "side", "level"), [("stop", 1, 60), ("stop", -1, 68), ("target", 1, 68), ("target", -1, 60)]
)
def test_a_level_that_is_just_touched_is_filled_and_one_that_is_almost_reached_is_not(rule, side, level):
    # 64 and a sixteenth of it are exact, so the level is reached to the last bit.
    for price, reason in ((level, rule), (np.nextafter(level, 64), "end")):
        high, low = max(64, price), min(64, price)
        market = flat((64, 64, 64, 64), (64, high, low, 64), (64, 64, 64, 64))
        trades = run(**market, signal=np.array([side, 0, 0]), **{rule: 1 / 16}, **FREE, horizon=5).trades
        assert trades.reason.tolist() == [reason]


def test_an_account_that_is_worth_exactly_nothing_is_closed_at_once():
    market = flat((10, 10, 10, 10), (10, 20, 10, 20), (20, 20, 10, 10), (10, 10, 10, 10))
    result = run(**market, signal=np.array([-1, 0, 0, 0]), **FREE, horizon=3)
    assert result.trades.reason.tolist() == ["ruin"]
    assert result.equity.tolist() == [1, 0, 0, 0]


def test_longs_pay_and_shorts_receive_funding_for_the_candles_they_are_held_into():
    market = flat(*[(10, 10, 10, 10)] * 8)
    rates = np.array([9.0, 9, 0.01, 0, 0.02, 0.04, 9, 9])  # entered at the open of 1, left at that of 5
    for side in (1, -1):
        market["funding"] = rates
        result = run(**market, signal=side * np.array([1, 0, 0, 0, 0, 0, 0, 0]), **FREE, horizon=4)
        assert result.trades.held.tolist() == [4]
        assert result.trades.net == pytest.approx([-side * 0.07])
        assert result.trades.gross == pytest.approx(result.trades.net)
        assert result.equity == pytest.approx(1 - side * np.array([0, 0, 0.01, 0.01, 0.03, 0.07, 0.07, 0.07]))
        fee = performance.break_even_fee(result)
        assert fee == pytest.approx(-side * 0.035)
