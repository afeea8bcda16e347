"""What a backtest pays follows its written rules to the cent, and no candle is used before it exists."""

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.workloads.crypto import backtest
from pipelines.workloads.crypto.backtest import run

Candles = dict[str, np.ndarray]
FREE = {"fee": 0.0, "slippage": 0.0}


def candles(seed: int, num: int, gap_rate: float = 0.0, scale: float = 0.01) -> Candles:
    """A random walk whose opens jump a little from the last close."""
    generator = np.random.default_rng(seed)
    close = 100 * np.exp(np.cumsum(generator.normal(0, scale, num)))
    open_ = np.concatenate([[100.0], close[:-1]]) * np.exp(generator.normal(0, scale / 4, num))
    spread = generator.exponential(scale / 2, (2, num))
    return {
        "open": open_,
        "high": np.maximum(open_, close) * (1 + spread[0]),
        "low": np.minimum(open_, close) * (1 - spread[1]) + 1e-9,
        "close": close,
        "gap": generator.random(num) < gap_rate,
    }


def flat(*rows: tuple[float, float, float, float]) -> Candles:
    """Candles out of (open, high, low, close)."""
    columns = np.array(rows, dtype=float).T
    return {
        **dict(zip(("open", "high", "low", "close"), columns, strict=True)),
        "gap": np.zeros(len(rows), dtype=bool),
    }


def prices(market: Candles) -> Candles:
    return {name: market[name] for name in ("open", "close", "gap")}


@st.composite
def cases(draw, stops: bool = True):
    """(candles, signal, rules)"""
    num = draw(st.integers(1, 60))
    market = candles(draw(st.integers(0, 10**6)), num, draw(st.sampled_from([0.0, 0.1])))
    signal = np.array(draw(st.lists(st.sampled_from([-1, 0, 1, 1]), min_size=num, max_size=num)))
    rules = {
        "fee": draw(st.sampled_from([0.0, 0.001, 0.01])),
        "slippage": draw(st.sampled_from([0.0, 0.0005])),
        "horizon": draw(st.sampled_from([1, 3, 10])),
    }
    if stops:
        rules |= {"stop": draw(st.sampled_from([None, 0.005, 0.02])), "target": draw(st.sampled_from([None, 0.01]))}
    return market, signal, rules


# ---- identities


@given(cases())
@settings(max_examples=20, deadline=None)
def test_no_signal_is_exactly_nothing(case):
    market, signal, rules = case
    result = run(**market, signal=0 * signal, **rules)
    assert (result.equity == 1).all()
    found = backtest.figures(result, 4)
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
    assert result.buy_and_hold == result.equity[-1] - 1


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
    assert once.reason == twice.reason
    assert once.net - twice.net == pytest.approx(rules["fee"] * (1 + once.ratio), abs=1e-14)


@given(cases())
@settings(max_examples=50, deadline=None)
def test_at_the_break_even_fee_nothing_is_earned(case):
    market, signal, rules = case
    result = run(**market, signal=signal, **rules)
    fee = backtest.figures(result, 4)["break_even_fee"]
    assert (fee is None) == (len(result.trades) == 0)
    if fee is not None and fee < 0:
        # Without a fee these trades lose already; a rebate of that size would have saved them.
        assert run(**market, signal=signal, **rules | {"fee": 0.0}).equity[-1] < 1
        factors = 1 + result.trades.gross - (fee + result.slippage) * (1 + result.trades.ratio)
        assert factors.prod() == pytest.approx(1, abs=1e-9)
    elif fee is not None:
        assert run(**market, signal=signal, **rules | {"fee": fee}).equity[-1] == pytest.approx(1, abs=1e-9)


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
        # Of the signals that could be acted on none was the opposite, and never were a horizon of them silent.
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
    # A signal is left alone only where the candle after it lies behind a gap or is already traded in.
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


# ---- rules, one by one


def test_a_stop_that_the_open_jumps_is_filled_at_that_open_and_a_target_never_better_than_itself():
    market = flat((100, 100, 100, 100), (100, 100, 100, 100), (90, 91, 89, 90), (90, 90, 90, 90))
    signal = np.array([1, 1, 0, 0])
    assert run(**market, signal=signal, stop=0.02, **FREE).trades.ratio[0] == pytest.approx(0.90)
    short = run(**market, signal=-signal, target=0.02, **FREE).trades
    assert short.reason == ("target",)
    assert short.gross[0] == pytest.approx(0.02)


def test_a_changed_signal_is_filled_at_the_next_open_and_a_reversal_pays_both_trades():
    market = flat((10, 10, 10, 10), (10, 11, 10, 11), (12, 12, 12, 12), (15, 15, 15, 15))
    result = run(**market, signal=np.array([1, -1, -1, 0]), fee=0.01, slippage=0.0)
    assert result.trades.reason == ("signal", "end")
    assert result.trades.gross == pytest.approx([0.2, -0.25])
    assert result.trades.net == pytest.approx([0.2 - 0.01 * 2.2, -0.25 - 0.01 * 2.25])
    assert result.equity == pytest.approx([1, 1.1 - 0.021, 1.178 * 0.98, 1.178 * 0.7275])


def test_a_signal_is_traded_for_the_candles_it_speaks_of_and_prolonged_by_the_next():
    market = candles(0, 12)
    once = run(**market, signal=np.eye(12, dtype=int)[0], horizon=3).trades
    assert (once.entry.tolist(), once.exit.tolist(), once.held.tolist()) == ([1], [4], [3])
    assert once.ratio[0] == market["open"][4] / market["open"][1]
    twice = run(**market, signal=np.eye(12, dtype=int)[[0, 2]].sum(0), horizon=3).trades
    assert (twice.entry.tolist(), twice.exit.tolist()) == ([1], [6])
    turned = run(**market, signal=np.array([1, 0, -1, *[0] * 9]), horizon=3).trades
    assert (turned.entry.tolist(), turned.exit.tolist(), turned.side.tolist()) == ([1, 3], [3, 6], [1, -1])


def test_after_a_stop_an_older_signal_does_not_enter_again():
    market = flat((100, 100, 100, 100), (100, 100, 97, 98), (98, 98, 98, 98), (98, 98, 98, 98), (98, 98, 98, 98))
    signal = np.array([1, 0, 1, 0, 0])
    trades = run(**market, signal=signal, stop=0.02, horizon=4).trades
    assert (trades.entry.tolist(), trades.reason) == ([1, 3], ("stop", "end"))


def test_a_gap_closes_the_position_before_it_and_cancels_the_order_behind_it():
    market = candles(0, 8)
    market["gap"][4] = True
    result = run(**market, signal=np.array([0, 1, 1, 1, 1, 0, 0, 0]))
    assert result.trades.entry.tolist() == [2, 5]
    assert result.trades.exit.tolist() == [3, 6]
    assert result.trades.reason == ("gap", "signal")
    assert backtest.figures(result, 4)["num_closed_by_gap"] == 1
    assert not len(run(**market, signal=np.array([0, 0, 0, 1, 0, 0, 0, 0])).trades)


def test_a_short_that_loses_the_account_ends_the_trading():
    market = flat((10, 10, 10, 10), (10, 15, 10, 15), (15, 25, 15, 25), (10, 10, 10, 10), (10, 10, 5, 5))
    result = run(**market, signal=np.full(5, -1), **FREE)
    assert result.trades.reason == ("ruin",)
    assert result.trades.net.tolist() == [-1]
    assert result.equity.tolist() == [1, 0.5, 0, 0, 0]
    found = backtest.figures(result, 1)
    assert (found["net_return"], found["max_drawdown"], found["break_even_fee"]) == (-1, 1, None)
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"signal": np.array([0, 1])}, "must be one non-empty column each"),
        ({"signal": np.array([0, 2, 1])}, r"signals must be -1, 0 or 1, got \[2\]"),
        ({"close": np.array([1.0, np.nan, 1.0])}, "prices must be finite and above 0"),
        ({"low": np.array([1.0, 2.0, 1.0])}, "open and close must lie between low and high"),
        ({"fee": -0.1}, "must not be negative"),
        ({"stop": 1.5}, "stop is a share of the entry price between 0 and 1, got 1.5"),
        ({"horizon": 0}, "horizon is a number of candles, at least 1, got 0"),
    ],
)
def test_what_cannot_be_traded_is_refused(change, message):
    market = {**flat(*[(1, 1, 1, 1)] * 3), "signal": np.array([0, 1, 0])}
    with pytest.raises(ValueError, match=message):
        run(**market | change)


# ---- figures


def test_figures_are_those_of_the_textbook():
    market = candles(5, 400, scale=0.02)
    signal = np.random.default_rng(0).integers(-1, 2, 400)
    result = run(**market, signal=signal, fee=0.0002, slippage=0.0, horizon=5)
    found = backtest.figures(result, 10)
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
        "turnover_per_day": (1 + result.trades.ratio).sum() / 40,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert len(daily) == 40
    json.dumps(found, allow_nan=False)


def net_return(net: np.ndarray) -> float:
    return (1 + net).prod() - 1


@given(cases())
@settings(max_examples=20, deadline=None)
def test_no_figure_is_not_a_number(case):
    market, signal, rules = case
    for candles_per_day in (1, 10, 1000):
        json.dumps(backtest.figures(run(**market, signal=signal, **rules), candles_per_day), allow_nan=False)


def test_thirty_five_thousand_candles_are_quick():
    market = candles(0, 35_000, 0.001, 0.003)
    signal = np.random.default_rng(0).integers(-1, 2, 35_000)
    seconds = []
    for _ in range(2):
        began = time.process_time()
        run(**market, signal=signal, stop=0.008, target=0.015, horizon=3)
        seconds.append(time.process_time() - began)
    assert min(seconds) < 0.3


# ---- thresholds and luck


def test_signals_are_the_likelier_side_where_it_reaches_the_threshold():
    probabilities = np.array([[0.6, 0.3, 0.1], [0.1, 0.5, 0.4], [0.0, 0.2, 0.8], [0.5, 0.0, 0.5], [0.2, 0.8, 0.0]])
    assert backtest.signals(probabilities, 0.4).tolist() == [-1, 1, 1, 0, 0]
    assert backtest.signals(probabilities, 0.7).tolist() == [0, 0, 1, 0, 0]
    assert backtest.signals(probabilities, None).tolist() == [0] * 5


def test_not_trading_is_chosen_where_trading_only_costs():
    probabilities = np.random.default_rng(0).dirichlet([1, 1, 1], 2000)
    choice = backtest.choose_threshold(probabilities, **candles(0, 2000, scale=0.003), horizon=3)
    assert (choice.threshold, choice.net_return, choice.num_trades) == (None, 0, 0)
    assert len(choice.table) == 1 + len(backtest.THRESHOLDS)


def test_the_threshold_that_pays_is_chosen_and_ties_go_to_fewer_trades():
    market = candles(1, 600)
    move = np.append(market["close"][1:] / market["open"][1:] - 1, 0)
    sure = np.abs(move) > 0.01
    # Right about large moves with 0.8, wrong about the others with 0.5.
    long = np.where(sure, np.where(move > 0, 0.8, 0.1), np.where(move > 0, 0.2, 0.5))
    probabilities = np.stack([np.where(sure, 0.9, 0.7) - long, np.where(sure, 0.1, 0.3), long], axis=1)
    choice = backtest.choose_threshold(probabilities, **market, horizon=1, grid=(0.4, 0.6, 0.7, 0.85))
    assert choice.threshold == 0.7  # equal to 0.6, and higher
    assert choice.net_return > 1
    assert choice.net_return == max(row["net_return"] for row in choice.table)
    nothing = backtest.choose_threshold(probabilities, **flat(*[(5, 5, 5, 5)] * 600), grid=(0.4, 0.85), **FREE)
    assert nothing.threshold is None  # all return 0, and 0.85 never trades either


def test_random_trades_on_a_price_that_stands_pay_exactly_their_costs():
    market = flat(*[(5, 5, 5, 5)] * 200)
    signal = np.random.default_rng(0).integers(-1, 2, 200)
    result = run(**market, signal=signal, fee=0.001, slippage=0.0)
    found = backtest.random_trades(result, **prices(market), repetitions=130)
    assert found.shape == (130,)
    assert found == pytest.approx((1 - 0.002) ** len(result.trades) - 1)


def test_random_trades_never_reach_across_a_gap():
    # The price moves across gaps alone.
    generator = np.random.default_rng(0)
    gap = generator.random(300) < 0.1
    price = np.exp(np.cumsum(gap * generator.normal(0, 0.1, 300)))
    result = run(price, price, price, price, generator.integers(-1, 2, 300), gap, **FREE)
    assert len(result.trades) > 50
    assert backtest.random_trades(result, price, price, gap, repetitions=50) == pytest.approx(np.zeros(50), abs=1e-12)


def test_luck_is_told_from_foresight():
    market = candles(2, 2000)
    ahead = np.append(np.sign(market["close"][1:] - market["open"][1:]), 0).astype(int)
    generator = np.random.default_rng(0)
    for signal, low, high in ((ahead, 0, 0.01), (generator.integers(-1, 2, 2000), 0.02, 0.98)):
        result = run(**market, signal=np.where(generator.random(2000) < 0.1, signal, 0), horizon=1)
        luck = backtest.random_trades(result, **prices(market), repetitions=400, seed=1)
        assert low <= (luck >= result.equity[-1] - 1).mean() <= high
        assert np.array_equal(luck, backtest.random_trades(result, **prices(market), repetitions=400, seed=1))


def test_no_trades_have_no_luck():
    market = candles(0, 50)
    result = run(**market, signal=np.zeros(50, int))
    assert (backtest.random_trades(result, **prices(market), repetitions=7) == np.zeros(7)).all()
