"""The strategy for freqtrade, run here on a stand-in of the class that it extends."""

import importlib
import json
import shutil
import sys
import types
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from exporters import __main__ as exporters
from exporters.onnx import cnn_lstm
from exporters.onnx.cnn_lstm import random_candles
from models import io
from models.market.candle_features import NAMES
from models.market.candles import COLUMNS
from models.market.pooled_experts import PooledExperts, PooledExpertsConfig
from models.market.rule import fingerprint
from models.market.signal_model import ANY, NOTE, SIMULATED
from models.shipped import models_in
from pipelines.workloads.crypto.trading import backtest
from tests.exporters.commands import refusal
from tests.models.tiny import disturb

ABOUT = {"timeframe": "1m", "label": {"rule": "fixed", "horizon": 3, "threshold": 0.003}}
FEATURES = NAMES


@pytest.fixture
def many(tmp_path, monkeypatch):
    """A run of two coins, evaluated."""
    monkeypatch.setattr(cnn_lstm, "FRESH", 2)
    torch.manual_seed(0)
    run = tmp_path / "crypto" / "two"
    scaler = {"mean": [0.0] * len(FEATURES), "std": [0.5] * len(FEATURES)}
    for coin, threshold in (("AAAUSDT", 0.36), ("BBBUSDT", None)):
        member = run / "members" / coin
        known = {"coins": (coin,), "scalers": {coin: scaler}, "timeframe_ms": 60_000, "lookback": 12, "about": ABOUT}
        model = disturb(PooledExperts(PooledExpertsConfig(features=FEATURES, width=8, rounds=2, nodes=5, **known)))
        model.location.normal_(0, 0.3)
        model.location[-1] = 0  # no side is preferred
        model.weights.copy_(torch.tensor([0.8, 0.1, 0.1]))
        io.save(model, member / "model" / "best")
        with_rule(model, member / "model" / "best", threshold)
    return run


def with_rule(model, folder, threshold, recalibration=0, **costs):
    """Keep beside a model of one coin the rule of an evaluation."""
    (coin,) = model.config.coins
    own = {"verdict": f"{coin}: no skill shown: no trade", "threshold": threshold, "recalibration": recalibration}
    own["reason"] = "not trading was best on validation" if threshold is None else ""
    costs, told = {"fee": 0.001, **costs}, {"headline": "0 of 2 coins pay their costs: no trade", "coins": {coin: own}}
    (folder / "rule.json").write_text(json.dumps({"weights": fingerprint(model), "costs": costs, **told}))


def strategy_of(out, monkeypatch, **config):
    """The strategy of an export, with a stand-in of freqtrade's class."""
    module = types.ModuleType("freqtrade.strategy")
    module.IStrategy = type("IStrategy", (), {"__init__": lambda self, config: None})
    monkeypatch.setitem(sys.modules, "freqtrade", types.ModuleType("freqtrade"))
    monkeypatch.setitem(sys.modules, "freqtrade.strategy", module)
    for name in ("SignalStrategy", *(name for name in sys.modules if name.split(".")[0] == "signals")):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(out))
    return importlib.import_module("SignalStrategy").SignalStrategy(config)


def frame_of(candles):
    columns = {name: getattr(candles, name) for name in ("open", "high", "low", "close", "volume")}
    return pd.DataFrame({"date": pd.to_datetime(candles.time, unit="ms", utc=True), **columns})


def traded(frame):
    """Trades as (entry, exit, side) by freqtrade's rules: orders of a row are filled at the next open, exits first."""
    found, side, entry = [], 0, 0
    orders = frame[["enter_long", "enter_short", "exit_long", "exit_short"]].to_numpy()
    for t in range(1, len(frame)):
        long, short, leave_long, leave_short = orders[t - 1]
        if (side == 1 and leave_long and not long) or (side == -1 and leave_short and not short):
            found.append((entry, t, side))
            side = 0
        if not side:
            side = 1 if long and not (leave_long or short) else -1 if short and not (leave_short or long) else 0
            entry = t
    return found


def test_the_strategy_trades_as_the_evaluation_does(many, monkeypatch, logged):
    told = exporters.export("freqtrade", many, "best", None)
    assert "with 2 coins" in told
    assert "never traded, as that was best on validation: BBBUSDT" in told
    out = many / "exports" / "freqtrade"
    strategy = strategy_of(out, monkeypatch, trading_mode="futures")
    assert (strategy.timeframe, strategy.can_short, strategy.stoploss) == ("1m", True, -0.99)
    candles = random_candles(7, 700, 60_000)
    frame = strategy.populate_indicators(frame_of(candles), {"pair": "AAA/USDT:USDT"})
    frame = strategy.populate_exit_trend(strategy.populate_entry_trend(frame, {}), {})
    signals = frame["signal"].to_numpy()
    assert {-1, 0, 1} == set(signals.tolist())
    prices = {name: getattr(candles, name) for name in ("open", "high", "low", "close")}
    prices |= {"gap": np.zeros(700, bool), "funding": np.zeros(700)}
    ours = backtest.run(**prices, signal=signals, fee=0.001, slippage=0.0005, horizon=3).trades
    expected = list(zip(ours.entry.tolist(), ours.exit.tolist(), ours.side.tolist(), strict=True))
    assert len(expected) > 20
    closed = [trade for trade, reason in zip(expected, ours.reason, strict=True) if reason == "signal"]
    assert traded(frame)[: len(closed)] == closed
    none = strategy.populate_indicators(frame_of(candles), {"pair": "BBB/USDT"})
    assert not none["signal"].any()
    assert "0 of 2 coins pay their costs" in logged()
    assert "BBBUSDT: NO_TRADE: not trading was best on validation" in logged()
    with pytest.raises(ValueError, match="there is no model of CCCUSDT, only of AAAUSDT, BBBUSDT; leave the pair"):
        strategy.populate_indicators(frame_of(candles), {"pair": "CCC/USDT"})


def test_a_strategy_of_a_simulated_market_says_so_with_each_entry_and_when_it_starts(many, monkeypatch, logged):
    assert NOTE not in exporters.export("freqtrade", many, "best", None)
    folder = many / "members" / "AAAUSDT" / "model" / "best"
    model = io.load(folder)
    model.config = replace(model.config, about={**ABOUT, "market": SIMULATED})
    io.save(model, folder)
    assert NOTE in exporters.export("freqtrade", many, "best", None)
    strategy = strategy_of(many / "exports" / "freqtrade", monkeypatch)
    assert NOTE in logged()
    frame = strategy.populate_indicators(frame_of(random_candles(7, 700, 60_000)), {"pair": "AAA/USDT"})
    frame = strategy.populate_entry_trend(frame, {})
    entered = frame["enter_long"] + frame["enter_short"] > 0
    assert entered.any()
    assert (frame.loc[entered, "enter_tag"] == "simulated market").all()


def test_a_model_of_any_coin_becomes_no_strategy(many):
    model = io.load(many / "members" / "AAAUSDT" / "model" / "best")
    model.config = replace(model.config, coins=ANY, scalers={"": model.config.scalers["AAAUSDT"]})
    io.save(model, many / "any")
    with pytest.raises(ValueError, match="a model of any coin, for trying out; train one on your own candles"):
        exporters.export("freqtrade", many / "any", "best", None)


@pytest.mark.parametrize(
    ("without", "missing"), [({"scalers": {}}, "no scaler of AAAUSDT; train"), ({"timeframe_ms": 0}, "of its features")]
)
def test_a_model_that_cannot_scale_or_time_its_candles_becomes_no_strategy(many, without, missing):
    model = io.load(many / "members" / "AAAUSDT" / "model" / "best")
    model.config = replace(model.config, **without)
    io.save(model, many / "bare")
    with pytest.raises(ValueError, match=missing):
        exporters.export("freqtrade", many / "bare", "best", None)


def test_a_model_of_a_future_is_found_by_the_pair_that_freqtrade_gives(many, monkeypatch):
    exporters.export("freqtrade", many, "best", None)
    strategy_of(many / "exports" / "freqtrade", monkeypatch)
    strategy = sys.modules["SignalStrategy"]
    assert [strategy.coin_of(pair) for pair in ("AAA/USDT", "AAA/USDT:USDT")] == ["AAAUSDT", "AAAUSDT"]
    # The file AAA_USDT_USDT-5m-futures.feather, as freqtrade names it, is of the coin AAAUSDTUSDT.
    strategy.SETTINGS["coins"]["AAAUSDTUSDT"] = strategy.SETTINGS["coins"]["AAAUSDT"]
    assert strategy.coin_of("AAA/USDT:USDT") == "AAAUSDTUSDT"
    assert strategy.coin_of("AAA/USDT") == "AAAUSDT"


def test_the_strategy_is_recalibrated_as_the_model_is(many, monkeypatch):
    folder = many / "members/AAAUSDT/model/best"
    with_rule(io.load(folder), folder, 0.36, recalibration=100)
    exporters.export("freqtrade", many, "best", None)
    strategy = strategy_of(many / "exports/freqtrade", monkeypatch)
    model, candles = io.load(folder), random_candles(7, 600, 60_000)
    assert strategy.startup_candle_count == model.candles_used("AAAUSDT") + 3
    found = strategy.populate_indicators(frame_of(candles), {"pair": "AAA/USDT"})["signal"].to_numpy()
    columns = {name: getattr(candles, name) for name in COLUMNS}
    corrected, own = (
        each.probabilities(columns, "AAAUSDT", int(candles.time[-1]) + 60_000).numpy()
        for each in (model, PooledExperts(model.config))
        if each.load_state_dict(model.state_dict())
    )
    assert abs(corrected - own).max() > 1e-3
    expected = np.where(corrected[:, [0, 2]].max(1) >= 0.36, np.sign(corrected[:, 2] - corrected[:, 0]), 0)
    np.testing.assert_array_equal(found[-len(expected) :], expected)


def test_the_newest_fold_of_a_coin_is_what_a_strategy_trades_and_the_last_model_of_an_export(many):
    member = many / "members/AAAUSDT"
    model = io.load(member / "model/best")
    for fold in (2, 10):
        with_rule(model, member / "model/best", 0.3 + fold / 100)
        shutil.copytree(member, many / f"members/AAAUSDT-{fold}")
    shutil.rmtree(member)
    exporters.export("freqtrade", many, "best", None)
    settings = json.loads((many / "exports/freqtrade/signals/settings.json").read_text())
    assert settings["coins"]["AAAUSDT"]["threshold"] == 0.4
    exporters.export("safetensors", many, "best", None)
    assert list(models_in(many / "exports/safetensors")) == ["AAAUSDT-2", "AAAUSDT-10", "BBBUSDT"]


def test_candles_that_freqtrade_filled_in_are_no_input_and_end_a_position(many, monkeypatch):
    exporters.export("freqtrade", many, "best", None)
    strategy = strategy_of(many / "exports" / "freqtrade", monkeypatch)
    assert not strategy.can_short
    frame = frame_of(random_candles(7, 900, 60_000))
    frame.loc[500:502, ["open", "high", "low", "close"]] = frame.loc[499, "close"]
    frame.loc[500:502, "volume"] = 0.0
    frame = strategy.populate_exit_trend(strategy.populate_indicators(frame, {"pair": "AAA/USDT"}), {})
    assert np.flatnonzero(frame["missing"]).tolist() == [500, 501, 502]
    assert frame.loc[500:502, ["exit_long", "exit_short"]].all(axis=None)
    needed = sys.modules["SignalStrategy"].SETTINGS["candles_needed"]
    assert not frame.loc[500 : 502 + needed - 1, "signal"].any()
    assert frame.loc[503 + needed :, "signal"].any()


def test_gaps_that_training_filled_are_candles_of_the_strategy(many, monkeypatch):
    folder = many / "members/AAAUSDT/model/best"
    model = io.load(folder)
    model.config = replace(model.config, fill=2)
    io.save(model, folder)
    exporters.export("freqtrade", many, "best", None)
    strategy = strategy_of(many / "exports/freqtrade", monkeypatch)
    candles = random_candles(7, 900, 60_000)
    kept = candles.rows(np.delete(np.arange(900), [500, 501, 600, 601, 602]))
    frame = strategy.populate_indicators(frame_of(kept.filled(9)), {"pair": "AAA/USDT"})
    assert np.flatnonzero(frame["missing"]).tolist() == [600, 601, 602]
    whole = kept.rows(kept.time < candles.time[600])
    columns = {name: getattr(whole, name) for name in COLUMNS}
    found = model.probabilities(columns, "AAAUSDT", int(whole.time[-1]) + 60_000).numpy()
    expected = np.where(found[:, [0, 2]].max(1) >= 0.36, np.sign(found[:, 2] - found[:, 0]), 0)
    assert expected[-99:].any()  # after the gap that is filled
    np.testing.assert_array_equal(frame["signal"].to_numpy()[600 - len(expected) : 600], expected)


def test_candles_without_a_trade_are_no_gap_where_training_had_as_many(many, monkeypatch):
    folder = many / "members/AAAUSDT/model/best"
    model = io.load(folder)
    model.config = replace(model.config, about=ABOUT | {"longest_still": {"AAAUSDT": 2}})
    io.save(model, folder)
    exporters.export("freqtrade", many, "best", None)
    strategy = strategy_of(many / "exports/freqtrade", monkeypatch)
    kept = random_candles(7, 900, 60_000).rows(np.delete(np.arange(900), [500, 501, 600, 601, 602]))
    frame = strategy.populate_indicators(frame_of(kept.filled(9)), {"pair": "AAA/USDT"})
    assert np.flatnonzero(frame["missing"]).tolist() == [600, 601, 602]


def test_what_freqtrade_does_not_have_is_refused(many, capsys, monkeypatch):
    folder = many / "members/AAAUSDT/model/best"
    model = io.load(folder)
    with_rule(model, folder, 0.36, target=0.01)
    error = refusal(capsys, monkeypatch, "freqtrade", many)
    assert "evaluation.target=0.01: freqtrade counts profits after fees" in error
    with_rule(model, folder, 0.36, stop=0.02)
    assert "have different rules" in refusal(capsys, monkeypatch, "freqtrade", many)
    (folder / "rule.json").unlink()
    assert "evaluate the run first" in refusal(capsys, monkeypatch, "freqtrade", many)
    assert not (many / "exports").exists()


def test_features_of_ones_own_are_refused_by_name(many, capsys, monkeypatch):
    folder, own = many / "members/AAAUSDT/model/best", {"word": "mine.py:features", "sha256": "0", "memory": 9}
    known = {"features": (*FEATURES, "mine"), "timeframe_ms": 60_000, "lookback": 12, "about": ABOUT}
    known |= {"coins": ("AAAUSDT",), "scalers": {"AAAUSDT": {"mean": [0.0] * 23, "std": [1.0] * 23}}}
    model = PooledExperts(PooledExpertsConfig(**known | {"about": ABOUT | {"feature_set": own}}))
    io.save(model, folder)
    with_rule(model, folder, 0.36)
    assert "there is no feature mine here: your own" in refusal(capsys, monkeypatch, "freqtrade", many)


def test_only_classifiers_of_candles_become_strategies(run, capsys, monkeypatch):
    error = refusal(capsys, monkeypatch, "freqtrade", run)
    assert "family 'routing'; a freqtrade strategy needs pooled_experts: train" in error


@pytest.mark.parametrize("coin", ["../../elsewhere", "/tmp/elsewhere", ".", "a\nb"])
def test_a_coin_whose_name_leads_out_of_the_folder_is_refused(many, tmp_path, capsys, monkeypatch, coin):
    folder = many / "members/AAAUSDT/model/best"
    model = io.load(folder)
    (scaler,) = model.config.scalers.values()
    model.config = replace(model.config, coins=(coin,), scalers={coin: scaler})
    io.save(model, folder)
    said = refusal(capsys, monkeypatch, "freqtrade", many, "--out", tmp_path / "deep" / "out")
    assert "cannot name a file" in said
    assert not (tmp_path / "deep").exists()
