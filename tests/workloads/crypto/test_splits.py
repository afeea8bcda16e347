"""Splits: windows where they may be, parts that share no candle, a scaler that knows training rows only."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipelines.engine.errors import UserError
from pipelines.workloads.crypto import market
from pipelines.workloads.crypto.features import compute
from pipelines.workloads.crypto.labels import UNKNOWN, label
from pipelines.workloads.crypto.splits import (
    FRACTIONS,
    PARTS,
    Scaler,
    assert_disjoint,
    chronological,
    divide,
    usable,
    walk_forward,
    windows,
)

STEP = 900_000
COINS = market.simulate(("BTCUSDT", "ETHUSDT"), 3000, "15m", 2)
LONG_TIME = {"BTCUSDT": STEP * np.arange(10_000), "ETHUSDT": STEP * np.arange(4000, 10_000)}  # listed later


def prepared(candles, lookback, horizon=3):
    table, names = compute(candles, "default")
    labels = label(candles, "fixed", horizon, 0.003)
    return table, names, labels, usable(candles, table, labels, lookback)


@pytest.mark.parametrize("lookback", [1, 7, 60, 90])
def test_no_window_has_a_gap_and_the_lookback_is_the_one_that_was_asked_for(lookback):
    candles = COINS["BTCUSDT"].rows(np.delete(np.arange(2900), [700, 701, 1500]))
    table, _, labels, ends = prepared(candles, lookback)
    rows = windows(ends, lookback)
    assert rows.shape == (len(ends), lookback)
    assert rows.min() >= 0
    assert (np.diff(candles.time[rows], axis=1) == STEP).all()
    assert np.isfinite(table[rows]).all()
    assert (labels[ends] != UNKNOWN).all()
    # and no end that could be one is missing
    good = np.isfinite(table).all(1)
    for row in set(range(lookback - 1, len(candles))) - set(ends.tolist()):
        window = np.arange(row - lookback + 1, row + 1)
        apart = (np.diff(candles.time[window]) != STEP).any()
        assert apart or not good[window].all() or labels[row] == UNKNOWN


def test_no_off_by_one_the_label_starts_at_the_last_candle_of_its_window():
    candles = COINS["BTCUSDT"]
    _, _, labels, ends = prepared(candles, 60)
    assert (windows(ends, 60)[:, -1] == ends).all()
    move = candles.close[ends + 3] / candles.close[windows(ends, 60)[:, -1]] - 1
    expected = np.where(move > 0.003, 2, np.where(move < -0.003, 0, 1))
    np.testing.assert_array_equal(labels[ends], expected)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 90), st.sampled_from(["chronological", "walk_forward"]), st.integers(2, 6))
def test_purge_and_embargo_leave_no_candle_in_two_parts_of_any_coin(horizon, lookback, kind, folds):
    rng = np.random.default_rng(horizon * 100 + lookback)
    times = {symbol: each[:3000][rng.random(3000) < 0.9] for symbol, each in LONG_TIME.items()}
    for fold in divide(times, kind, folds, horizon, lookback, STEP):
        assert_disjoint(times, fold, horizon, lookback, STEP)
        parts = np.zeros((len(PARTS), 8000), bool)
        for number, part in enumerate(PARTS):
            for symbol, each in times.items():
                ends = each[fold.indices[symbol][part]] // STEP + lookback
                parts[number, (ends[:, None] + np.arange(1 - lookback, horizon + 1)).ravel()] = True
        assert parts.sum(0).max() == 1


def test_purge_is_the_horizon_and_embargo_the_lookback():
    fold = chronological(LONG_TIME, FRACTIONS, 3, 60, STEP)
    parts = [LONG_TIME["BTCUSDT"][fold.indices["BTCUSDT"][part]] // STEP for part in PARTS]
    assert [(int(part[0]), int(part[-1])) for part in parts] == [(0, 6996), (7060, 8496), (8560, 9999)]
    assert fold.cuts == (0, 7000 * STEP, 8500 * STEP, 10_000 * STEP)


def test_without_purge_or_embargo_the_checker_speaks():
    times = {"BTCUSDT": LONG_TIME["BTCUSDT"]}
    fold = chronological(times, FRACTIONS, 3, 60, STEP)
    assert_disjoint(times, fold, 3, 60, STEP)
    for horizon, lookback in (
        (5, 60),
        (3, 62),
    ):  # one candle lies between the parts: 3 + 60 rows are left out, 62 would do
        with pytest.raises(AssertionError, match="train knows candles up to"):
            assert_disjoint(times, fold, horizon, lookback, STEP)


def test_all_coins_are_cut_at_the_same_calendar_times():
    fold = chronological(LONG_TIME, FRACTIONS, 3, 60, STEP)
    for symbol, each in LONG_TIME.items():
        for part in PARTS:
            after, before = fold.span(part)
            chosen = each[fold.indices[symbol][part]]
            assert len(chosen)
            assert chosen.min() >= after
            assert chosen.max() < before
    assert len(fold.indices["ETHUSDT"]["train"]) < len(fold.indices["BTCUSDT"]["train"])


def test_walk_forward_trains_on_all_time_before_each_test_and_tests_follow_each_other():
    folds = walk_forward(LONG_TIME, 5, 3, 60, STEP)
    assert len(folds) == 5
    for before, after in pairwise(folds):
        assert before.cuts[0] == after.cuts[0] == 0
        assert before.cuts[3] == after.cuts[2]
        assert len(after.indices["BTCUSDT"]["train"]) > len(before.indices["BTCUSDT"]["train"])
    assert folds[-1].cuts[3] == 10_000 * STEP
    share = (folds[2].cuts[2] - folds[2].cuts[1]) / folds[2].cuts[2]
    assert share == pytest.approx(0.15, abs=1e-3)


def test_splits_that_cannot_be_are_refused():
    with pytest.raises(UserError, match=r"data\.split=random is not known; give one of chronological, walk_forward"):
        divide(LONG_TIME, "random", 5, 3, 60, STEP)
    with pytest.raises(UserError, match=r"data\.folds=1 must be 2 or more"):
        walk_forward(LONG_TIME, 1, 3, 60, STEP)
    with pytest.raises(UserError, match="add up to 1"):
        chronological(LONG_TIME, (0.7, 0.2, 0.2), 3, 60, STEP)
    with pytest.raises(UserError, match="there is no window"):
        chronological({"BTCUSDT": np.zeros(0, np.int64)}, FRACTIONS, 3, 60, STEP)


def test_the_scaler_is_fitted_on_training_rows_only():
    candles = COINS["BTCUSDT"]
    table, names, _, ends = prepared(candles, 60)
    times = {"BTCUSDT": candles.time[ends]}
    train = ends[chronological(times, FRACTIONS, 3, 60, STEP).indices["BTCUSDT"]["train"]]
    scaler = Scaler.fit(names, table, train, 60)
    poisoned = table.copy()
    poisoned[train[-1] + 1 :] = 1e6
    again = Scaler.fit(names, poisoned, train, 60)
    np.testing.assert_array_equal(scaler.mean, again.mean)
    np.testing.assert_array_equal(scaler.std, again.std)
    rows = np.unique(windows(train, 60))
    scaled = scaler.transform(names, table[rows])
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(scaled.std(0), 1, atol=1e-4)


def test_features_in_another_order_or_number_are_refused_and_not_scaled_by_position():
    names, table = ("a", "b", "c"), np.random.default_rng(0).normal(size=(50, 3))
    scaler = Scaler.fit(names, table, np.arange(9, 50), 10)
    for wrong, columns in ((("b", "a", "c"), table), (("a", "b"), table[:, :2]), (names, table[:, :2])):
        with pytest.raises(UserError, match="knows the features a, b, c in this order"):
            scaler.transform(wrong, columns)
    again = Scaler.from_dict(json.loads(json.dumps(scaler.to_dict())))
    np.testing.assert_array_equal(again.transform(names, table), scaler.transform(names, table))


@given(st.floats(-1e12, 1e12).filter(lambda value: value == np.float32(value)))
def test_a_constant_feature_is_scaled_to_zero(value):
    assume(np.isfinite(value))
    table = np.column_stack([np.full(50, value), np.arange(50.0)]).astype(np.float32)
    scaler = Scaler.fit(("a", "b"), table, np.arange(9, 50), 10)
    assert scaler.std[0] == 1
    assert (scaler.transform(("a", "b"), table)[:, 0] == 0).all()


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"names": ["a"], "mean": [0.0], "std": [0.0]},
        {"names": ["a"], "mean": [0.0, 1.0], "std": [1.0, 1.0]},
        {"names": ["a"], "mean": ["x"], "std": [1.0]},
        {"names": ["a"], "mean": [float("nan")], "std": [1.0]},
    ],
)
def test_what_is_no_scaler_is_refused(plain):
    with pytest.raises(UserError, match="scaler"):
        Scaler.from_dict(plain)
