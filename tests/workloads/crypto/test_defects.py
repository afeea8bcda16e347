"""Mistakes that per-coin classifiers of market moves were found to make elsewhere, each ruled out by a test.

More of them are tested beside what they concern: batches of one and windows copied 60 times (test_cnn_lstm,
test_crypto_task), coins that fail or are trained again (test_crypto), the accuracy shown without the majority
(test_crypto_report), open candles and gaps (test_candle_checks, test_candles), features in units of the price
(test_features), stops checked after targets (test_backtest), five of six published models (test_classification).
"""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models import io
from models.market import candle_features as features
from models.market.candles import COLUMNS, Candles
from models.market.cnn_lstm import CNNLSTM, CNNLSTMConfig
from models.market.inputs import CLASSES
from models.market.labels import UNKNOWN, label
from models.market.rule import Rule
from pipelines.run.folder import ROOT
from pipelines.workloads.crypto import Config, data, splits
from pipelines.workloads.crypto.candles import simulated
from pipelines.workloads.crypto.config import Data
from pipelines.workloads.crypto.evaluation import evaluate
from pipelines.workloads.crypto.splits import PARTS, Scaler
from pipelines.workloads.crypto.trading import backtest
from pipelines.workloads.crypto.untrained import description
from pipelines.workloads.crypto.verdict import classification
from tests.workloads.crypto.disjoint import assert_disjoint, windows
from tests.workloads.crypto.standin import CPU, fitted, map_items, prepared, without_trees

STEP = 900_000
RULES = ("fixed", "volatility", "triple_barrier")
COIN = simulated.simulate(("BTCUSDT",), 3000, "15m", 2)["BTCUSDT"]


def made(close, volume=None):
    """Return candles whose prices are all `close`."""
    close = np.asarray(close, np.float64)
    volume = np.ones(len(close)) if volume is None else volume
    return Candles("BTCUSDT", STEP, simulated.START + STEP * np.arange(len(close)), close, close, close, close, volume)


def usable(candles, lookback):
    """Return features, their names, labels, and the rows at which windows can end."""
    table, names = features.compute(candles), features.NAMES
    labels = label(candles, "fixed", 3, 0.003)
    return table, names, labels, splits.usable(candles, table, labels, lookback)


@pytest.fixture(scope="module")
def coin(tmp_path_factory):
    """(config, folder) of one prepared coin."""
    folder = tmp_path_factory.mktemp("defects")
    return prepared(folder, symbols=("AAAUSDT",), simulated_candles=2500, lookback=20), folder


# ---- leaks and serving


def test_the_scaler_is_fitted_on_training_rows_only():
    table, _, _, ends = usable(COIN, 60)
    times = {"BTCUSDT": COIN.time[ends]}
    chosen = Data(split="chronological", horizon=3, lookback=60)
    train = ends[splits.divide(times, chosen)[0].indices["BTCUSDT"]["train"]]
    scaler = Scaler.fit(table, train, 60)
    poisoned = table.copy()
    poisoned[train[-1] + 1 :] = 1e6
    again = Scaler.fit(poisoned, train, 60)
    np.testing.assert_array_equal(scaler.mean, again.mean)
    np.testing.assert_array_equal(scaler.std, again.std)
    rows = np.unique(windows(train, 60))
    scaled = scaler.transform(table[rows])
    np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(scaled.std(0), 1, atol=1e-4)


def test_train_and_serve_features_are_the_same_and_so_are_the_probabilities(coin):
    config, folder = coin
    loaded = data.load(folder, "AAAUSDT")
    torch.manual_seed(0)
    model = CNNLSTM(CNNLSTMConfig("default", **vars(description(config, [loaded], 0)))).eval()
    torch.nn.init.normal_(model.network.head[-1].weight)  # at its initial zeros all inputs give the same output
    found, own = evaluate(config, {"AAAUSDT": model}, folder, CPU, map_items)
    model.rule = Rule(**json.loads(own.beside["rule.json"]))
    assert model.recalibration("AAAUSDT")
    # A service keeps no more candles than the features of its newest window need.
    end = loaded.folds[0]["test"][-1]
    assert model.candles_needed == features.MEMORY + loaded.lookback - 1
    served = loaded.candles.rows(slice(end + 1 - model.candles_used("AAAUSDT"), end + 1))
    columns = {name: getattr(served, name) for name in COLUMNS}
    probabilities = model.probabilities(columns, now=int(served.time[-1]) + STEP)
    assert found.examples["time_ms"][-1] == served.time[-1]
    evaluated = [found.examples[name][-1] for name in CLASSES]
    np.testing.assert_allclose(probabilities[-1].numpy(), evaluated, atol=1e-6)


def test_what_serving_needs_is_saved_with_the_model_as_plain_json(coin, tmp_path):
    config, folder = coin
    loaded = data.load(folder, "AAAUSDT")
    io.save(CNNLSTM(CNNLSTMConfig("default", **vars(description(config, [loaded], 0)))), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    page = json.loads((tmp_path / "config.json").read_text())["config"]
    scaler = loaded.scalers[0]
    assert page["scalers"]["AAAUSDT"] == {"mean": scaler.mean.tolist(), "std": scaler.std.tolist()}
    assert (tuple(page["features"]), page["lookback"], page["timeframe_ms"]) == (loaded.names, 20, STEP)
    assert page["about"]["classes"] == list(CLASSES)
    assert page["about"]["label"] == {"rule": "fixed", "horizon": 3, "threshold": 0.003}
    assert page["about"]["data_sha256"] == {"AAAUSDT": loaded.facts["hash"]}


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 90), st.sampled_from(["chronological", "walk_forward"]), st.integers(2, 6))
def test_purge_and_embargo_leave_no_candle_in_two_parts_of_any_coin(horizon, lookback, kind, folds):
    rng = np.random.default_rng(horizon * 100 + lookback)
    listed = {"BTCUSDT": STEP * np.arange(3000), "ETHUSDT": STEP * np.arange(4000, 7000)}
    times = {symbol: each[rng.random(3000) < 0.9] for symbol, each in listed.items()}
    # Unchecked: windows shorter than a config allows are cut no less strictly.
    chosen = Data.model_construct(split=kind, folds=folds, horizon=horizon, lookback=lookback)
    for fold in splits.divide(times, chosen):
        assert_disjoint(times, fold, horizon, lookback, STEP)
        parts = np.zeros((len(PARTS), 8000), bool)
        for number, part in enumerate(PARTS):
            for symbol, each in times.items():
                ends = each[fold.indices[symbol][part]] // STEP + lookback
                parts[number, (ends[:, None] + np.arange(1 - lookback, horizon + 1)).ravel()] = True
        assert parts.sum(0).max() == 1


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("horizon", [1, 3, 10])
def test_rows_without_a_full_future_are_unknown_and_never_no_trade(rule, horizon):
    labels = label(COIN, rule, horizon, 0.003)
    for segment in COIN.segments():
        assert (labels[segment][-horizon:] == UNKNOWN).all()
    known = sum(max(0, segment.stop - segment.start - horizon) for segment in COIN.segments())
    if rule != "volatility":
        assert int((labels != UNKNOWN).sum()) == known


def test_the_label_starts_at_the_last_candle_of_its_window():
    _, _, labels, ends = usable(COIN, 60)
    assert (windows(ends, 60)[:, -1] == ends).all()
    move = COIN.close[ends + 3] / COIN.close[windows(ends, 60)[:, -1]] - 1
    expected = np.where(move > 0.003, 2, np.where(move < -0.003, 0, 1))
    np.testing.assert_array_equal(labels[ends], expected)


@pytest.mark.parametrize("lookback", [1, 60])
def test_no_window_crosses_a_gap_and_every_window_has_the_requested_lookback(lookback):
    candles = COIN.rows(np.delete(np.arange(2900), [700, 701, 1500]))
    table, _, labels, ends = usable(candles, lookback)
    rows = windows(ends, lookback)
    assert rows.shape == (len(ends), lookback)
    assert rows.min() >= 0
    assert (np.diff(candles.time[rows], axis=1) == STEP).all()
    assert np.isfinite(table[rows]).all()
    assert (labels[ends] != UNKNOWN).all()
    # Every other row cannot be the end of a window.
    good = np.isfinite(table).all(1)
    for row in set(range(lookback - 1, len(candles))) - set(ends.tolist()):
        window = np.arange(row - lookback + 1, row + 1)
        apart = (np.diff(candles.time[window]) != STEP).any()
        assert apart or not good[window].all() or labels[row] == UNKNOWN


def test_a_fall_is_0_no_move_is_1_and_a_rise_is_2():
    assert label(made([100, 99, 99, 100]), "fixed", 1, 0.003).tolist() == [0, 1, 2, UNKNOWN]
    assert CLASSES == ("SHORT", "NO_TRADE", "LONG")
    for rule in RULES:
        assert set(np.unique(label(COIN, rule, 3, 0.003))) == {UNKNOWN, 0, 1, 2}


# ---- reporting


def test_the_confusion_matrix_has_the_same_order_whichever_classes_occur():
    found = classification.metrics(np.eye(3)[[2, 2, 1]], np.array([0, 2, 2]), np.full(3, 1 / 3))
    assert found["confusion"] == [[0, 0, 1], [0, 0, 0], [0, 1, 1]]


def test_accuracy_is_computed_from_predictions_and_never_clipped():
    labels = np.array([0, 1, 2] * 20)
    for predicted, accuracy in ((labels, 1.0), ((labels + 1) % 3, 0.0), (np.ones(60, int), 1 / 3)):
        found = classification.metrics(np.eye(3)[predicted], labels, np.full(3, 1 / 3))
        assert found["accuracy"] == pytest.approx(accuracy)


def test_every_comparison_has_an_interval(coin):
    config, folder = coin
    found, *_ = evaluate(config, fitted(config, folder), folder, CPU, map_items)
    page = json.loads(found.files["test/AAAUSDT.json"])
    assert len(page["comparisons"]) == 3
    assert all(row["low"] < row["gain"] < row["high"] for row in page["comparisons"])
    low, high = page["figures"]["directional_hit_rate_interval"]
    assert low < page["figures"]["directional_hit_rate"] < high


def test_a_threshold_below_the_cost_of_a_trade_names_the_key_and_the_cost():
    assert Config().data.threshold == pytest.approx(2 * (0.001 + 0.0005))
    Config(data={"threshold": 0.0025}, evaluation={"fee": 0.0005})
    with pytest.raises(
        ValueError, match=r"data\.threshold=0\.0025 is below the cost.*= 0\.003.*give data\.threshold=0\.003"
    ):
        Config(data={"threshold": 0.0025})
    with pytest.raises(ValueError, match="less than 1"):
        Config(data={"threshold": 3})


# ---- backtest


def test_fee_and_slippage_of_the_config_are_paid(coin):
    config, folder = coin
    models = fitted(config, folder)
    models["AAAUSDT"].linear.bias.data += torch.tensor([9.0, 0, 0])  # always SHORT
    returns = []
    for fee, slippage in ((0.0, 0.0), (0.001, 0.0), (0.0, 0.001)):
        costs = config.evaluation.model_copy(update={"fee": fee, "slippage": slippage})
        with without_trees():
            found, *_ = evaluate(config.model_copy(update={"evaluation": costs}), models, folder, CPU, map_items)
        page = json.loads(found.files["test/AAAUSDT.json"])
        tried = {row["threshold"]: row["net_return"] for row in page["folds"][0]["thresholds_tried"]}
        returns.append(tried[0.5])
    assert returns[0] > returns[1] == pytest.approx(returns[2])


def test_no_trade_is_filled_on_candles_of_another_part(tmp_path, monkeypatch):
    config = prepared(tmp_path, symbols=("AAAUSDT",), simulated_candles=2500, split="walk_forward", folds=3)
    traded, run = [], backtest.run

    def spied(*columns, **named):
        traded.append(columns[0] if columns else named["open"])
        return run(*columns, **named)

    monkeypatch.setattr(backtest, "run", spied)
    with without_trees():
        evaluate(config, fitted(config, tmp_path, only="AAAUSDT-2"), tmp_path, CPU, map_items)
    loaded = data.load(tmp_path, "AAAUSDT")
    parts = loaded.folds[1]
    for opens, part in ((traded[0], "validation"), (traded[-1], "test")):
        first, last = parts[part][[0, -1]]
        assert np.array_equal(opens, loaded.candles.open[first : last + config.data.horizon + 1])
    assert parts["validation"][-1] + config.data.horizon < parts["test"][0]


# ---- files and settings


def test_importing_the_workload_makes_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    modules = sorted(Path(data.__file__).parent.glob("*.py"))
    before = {path.parent: set(path.parent.iterdir()) for path in (*modules, ROOT / "models")}
    for module in modules:
        runpy.run_path(str(module))
    assert list(tmp_path.iterdir()) == []
    assert {folder: set(folder.iterdir()) for folder in before} == before
    assert len(modules) > 10


def test_another_timeframe_does_not_overwrite_the_facts_of_a_coin(tmp_path):
    prepared(tmp_path, symbols=("AAAUSDT",), simulated_candles=2500, timeframe="1h")
    before = (tmp_path / "AAAUSDT-1h.json").read_text()
    prepared(tmp_path, symbols=("AAAUSDT",), simulated_candles=2500)
    assert (tmp_path / "AAAUSDT-1h.json").read_text() == before
    assert json.loads((tmp_path / "AAAUSDT-15m.json").read_text())["timeframe"] == "15m"


def test_the_lookback_is_the_configured_one(tmp_path):
    coins = {}
    for lookback in (20, 60):
        prepared(tmp_path / str(lookback), symbols=("AAAUSDT",), simulated_candles=2500, lookback=lookback)
        coins[lookback] = data.load(tmp_path / str(lookback), "AAAUSDT")
    assert [coin.lookback for coin in coins.values()] == [20, 60]
    gained = coins[20].facts["windows"] - coins[60].facts["windows"]
    long = [part for part in coins[20].candles.segments() if part.stop - part.start > 240]
    assert gained == 40 * len(long)
