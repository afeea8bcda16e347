"""Splits: valid windows, parts that share no candle, and a scaler fitted on training rows only."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from common.errors import UserError
from models.market.candle_features import NAMES, compute
from models.market.candles import Candles
from models.market.labels import label
from pipelines.workloads.crypto.candles import simulated
from pipelines.workloads.crypto.config import Data
from pipelines.workloads.crypto.splits import PARTS, Scaler, divide, usable
from tests.workloads.crypto.disjoint import assert_disjoint

STEP = 900_000
COINS = simulated.simulate(("BTCUSDT", "ETHUSDT"), 3000, "15m", 2)
LONG_TIME = {"BTCUSDT": STEP * np.arange(10_000), "ETHUSDT": STEP * np.arange(4000, 10_000)}  # ETH starts later


def prepared(candles, lookback, horizon=3):
    table, names = compute(candles), NAMES
    labels = label(candles, "fixed", horizon, 0.003)
    return table, names, labels, usable(candles, table, labels, lookback)


def test_purge_is_the_horizon_and_embargo_the_lookback():
    fold = divide(LONG_TIME, Data(split="chronological", folds=1, horizon=3, lookback=60))[0]
    parts = [LONG_TIME["BTCUSDT"][fold.indices["BTCUSDT"][part]] // STEP for part in PARTS]
    assert [(int(part[0]), int(part[-1])) for part in parts] == [(0, 6996), (7060, 8496), (8560, 9999)]
    assert fold.cuts == (0, 7000 * STEP, 8500 * STEP, 10_000 * STEP)


def test_without_purge_or_embargo_the_check_fails():
    times = {"BTCUSDT": LONG_TIME["BTCUSDT"]}
    fold = divide(times, Data(split="chronological", folds=1, horizon=3, lookback=60))[0]
    assert_disjoint(times, fold, 3, 60, STEP)
    for horizon, lookback in ((5, 60), (3, 62)):  # one candle lies between the parts, and two more are claimed here
        with pytest.raises(AssertionError, match="train uses candles up to"):
            assert_disjoint(times, fold, horizon, lookback, STEP)


def test_all_coins_are_cut_at_the_same_calendar_times():
    fold = divide(LONG_TIME, Data(split="chronological", folds=1, horizon=3, lookback=60))[0]
    for symbol, each in LONG_TIME.items():
        for part in PARTS:
            after, before = fold.cuts[PARTS.index(part)], fold.cuts[PARTS.index(part) + 1]
            chosen = each[fold.indices[symbol][part]]
            assert len(chosen)
            assert chosen.min() >= after
            assert chosen.max() < before
    assert len(fold.indices["ETHUSDT"]["train"]) < len(fold.indices["BTCUSDT"]["train"])


def test_walk_forward_trains_on_all_time_before_each_test_and_tests_follow_each_other():
    folds = divide(LONG_TIME, Data(split="walk_forward", folds=5, horizon=3, lookback=60))
    assert len(folds) == 5
    for before, after in pairwise(folds):
        assert before.cuts[0] == after.cuts[0] == 0
        assert before.cuts[3] == after.cuts[2]
        assert len(after.indices["BTCUSDT"]["train"]) > len(before.indices["BTCUSDT"]["train"])
    assert [fold.cuts[2] // STEP for fold in folds] == [1667, 3333, 5000, 6667, 8333]  # sixths, to the nearest candle
    assert folds[-1].cuts[3] == 10_000 * STEP
    share = (folds[2].cuts[2] - folds[2].cuts[1]) / folds[2].cuts[2]
    assert share == pytest.approx(0.15, abs=1e-3)


def test_a_walk_forward_of_one_fold_is_refused():
    with pytest.raises(UserError, match=r"data\.folds=1 must be 2 or more"):
        divide(LONG_TIME, Data(split="walk_forward", folds=1, horizon=3, lookback=60))


@given(st.floats(-1e12, 1e12).filter(lambda value: value == np.float32(value)))
def test_a_constant_feature_is_scaled_to_zero(value):
    assume(np.isfinite(value))
    table = np.column_stack([np.full(50, value), np.arange(50.0)]).astype(np.float32)
    scaler = Scaler.fit(table, np.arange(9, 50), 10)
    assert scaler.std[0] == 1
    assert (scaler.transform(table)[:, 0] == 0).all()


def test_a_scaler_counts_each_row_of_its_windows_once_and_no_other():
    features = np.random.default_rng(0).normal(size=(20, 2))
    found = Scaler.fit(features, np.array([5, 6, 12]), lookback=3)
    rows = features[[3, 4, 5, 6, 10, 11, 12]]
    np.testing.assert_allclose([found.mean, found.std], [rows.mean(0), rows.std(0)])


def test_a_window_ends_where_as_many_good_rows_follow_each_other_and_the_label_is_known():
    time = STEP * np.array([0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12])  # a gap before the seventh
    candles = Candles("AUSDT", STEP, time, *np.ones((5, len(time))))
    features, labels = np.ones((len(time), 1)), np.zeros(len(time))
    features[1], labels[9] = np.nan, -1
    assert usable(candles, features, labels, lookback=3).tolist() == [4, 5, 8, 10]
