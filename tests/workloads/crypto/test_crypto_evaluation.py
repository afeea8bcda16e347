"""The evaluation tells skill from noise and leaks, chooses nothing on the test, and leaves no coin out."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from common.errors import UserError
from models.market.recalibration import WINDOW
from pipelines.workloads.crypto import data, folds
from pipelines.workloads.crypto.candles import simulated
from pipelines.workloads.crypto.evaluation import evaluate
from pipelines.workloads.crypto.verdict import baselines
from pipelines.workloads.crypto.verdict.judge import BEYOND, LEAK, LEVEL, NO_SKILL, PREDICTIVE, SKILL
from pipelines.workloads.crypto.windows import pooled
from tests.workloads.crypto.standin import CPU, Regression, fitted, map_items, prepared, without_trees


def evaluated(config, models, folder):
    found, *_ = evaluate(config, models, folder, CPU, map_items)
    assert found.split == "test"
    json.dumps(found.summary, allow_nan=False)
    json.dumps(found.table, allow_nan=False)
    return found, {name.split("/")[1][:-5]: json.loads(text) for name, text in found.files.items()}


@pytest.fixture(scope="module", autouse=True)
def baselines_fitted_once():
    """Fit baselines once for the same rows, since they take most of the time of an evaluation."""
    fit, known = baselines.fit_and_predict, {}

    def remembered(*given, seed, linear):
        arrays = [array for each in given for array in (each.values() if isinstance(each, dict) else [each])]
        key = seed, *(array.tobytes() for array in arrays)
        if key not in known:
            known[key] = fit(*given, seed=seed, linear=linear)
        return dict(known[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baselines, "fit_and_predict", remembered)
        patch.setattr(folds, "WINDOW", 0)  # what is judged are the stand-in's own probabilities
        yield


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Two coins with a planted signal, and models that have found it."""
    folder = tmp_path_factory.mktemp("planted")
    config = prepared(folder, signal=1.0)
    models = fitted(config, folder)
    return config, folder, models, *evaluated(config, models, folder)


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """A walk-forward of three folds, one of whose models was not trained."""
    folder = tmp_path_factory.mktemp("walked")
    config = prepared(folder, signal=1.0, split="walk_forward", folds=3, simulated_candles=3500)
    models = fitted(config, folder)
    del models["BBBUSDT-2"]
    with without_trees():
        return config, folder, models, *evaluated(config, models, folder)


# ---- verdicts


def test_a_planted_signal_is_skill(planted):
    config, _, _, found, pages = planted
    for symbol in config.data.symbols:
        assert found.summary[symbol]["verdict"].startswith(SKILL)
        assert found.summary[symbol]["grades"][PREDICTIVE]
        assert found.summary[symbol]["log_loss"] < found.summary[symbol]["prior_log_loss"]
        assert pages[symbol]["backtest"]["net_return"] > 0
    assert (found.summary["coins"], found.summary["skill"], found.summary["leaks_suspected"]) == (2, 2, 0)


@pytest.mark.slow
def test_without_a_signal_no_skill_is_shown(tmp_path):
    config = prepared(tmp_path, signal=0.0, simulated_candles=5000)
    found, _ = evaluated(config, fitted(config, tmp_path), tmp_path)
    assert [found.summary[symbol]["verdict"] for symbol in config.data.symbols] == [NO_SKILL] * 2
    assert found.summary["skill"] == 0
    assert all(found.summary[symbol]["reasons"] for symbol in config.data.symbols)


def test_a_model_that_learned_shuffled_labels_gains_nothing_where_there_is_a_signal(planted):
    """What it leans to at random may go with the signal, if by a small part of what a model that knows it gains."""
    config, folder, _, good, _ = planted
    models = fitted(config, folder, np.random.default_rng(0).permutation, only="AAAUSDT")
    found, _ = evaluated(config, models, folder)
    gains = [each["AAAUSDT"]["prior_log_loss"] - each["AAAUSDT"]["log_loss"] for each in (found.summary, good.summary)]
    assert gains[0] < 0.01 < 0.05 < gains[1]
    assert not found.summary["AAAUSDT"]["grades"][BEYOND]


@pytest.mark.slow
def test_a_planted_future_feature_is_suspected_of_a_leak_and_ranked_last(planted, monkeypatch):
    config, folder, models, _, _ = planted
    load = data.load

    def leaking(folder, symbol):
        coin = load(folder, symbol)
        if symbol == "AAAUSDT":
            future = np.zeros(len(coin.labels))
            future[:-3] = np.log(coin.candles.close[3:] / coin.candles.close[:-3])
            coin.features[:, 0] = np.where(np.isfinite(coin.features[:, 0]), future, np.nan)
        return coin

    monkeypatch.setattr(data, "load", leaking)
    found, _ = evaluated(config, models, folder)
    assert [row["coin"] for row in found.table] == ["BBBUSDT", "AAAUSDT"]
    assert [row["verdict"].split(":")[0] for row in found.table] == [SKILL, LEAK]
    assert found.summary["leaks_suspected"] == 1
    assert any("gradient boosting" in reason for reason in found.summary["AAAUSDT"]["reasons"])


def test_each_of_many_coins_is_held_to_a_wider_interval(planted, tmp_path):
    config, folder, models, found, pages = planted
    assert found.summary["interval_confidence"] == pytest.approx(0.975)
    assert found.summary["chance_of_any_false_skill"] == LEVEL == 0.025
    alone, page = evaluated(config, {"AAAUSDT": models["AAAUSDT"]}, folder)
    assert alone.summary["interval_confidence"] == 0.95
    narrow, wide = (each["AAAUSDT"]["comparisons"][0] for each in (page, pages))
    assert wide["gain"] == narrow["gain"]
    assert wide["low"] < narrow["low"] < narrow["high"] < wide["high"]


# ---- metrics


def test_metrics_follow_from_the_probabilities_in_the_per_window_file(planted):
    config, folder, models, found, pages = planted
    columns = {name: np.array(values) for name, values in found.examples.items()}
    assert list(columns) == ["symbol", "time_ms", "fold", "label", "SHORT", "NO_TRADE", "LONG"]
    for symbol in config.data.symbols:
        coin = data.load(folder, symbol)
        rows = columns["symbol"] == symbol
        ends = coin.folds[0]["test"]
        assert np.array_equal(columns["time_ms"][rows], coin.candles.time[ends])
        assert np.array_equal(columns["label"][rows], coin.labels[ends])
        probabilities = np.stack([columns[name][rows] for name in ("SHORT", "NO_TRADE", "LONG")], 1)
        source = pooled([coin], 0, "test")
        batch = source.batch(torch.arange(source.size))
        direct = models[symbol](batch["windows"], batch["coins"])[:, 0].softmax(-1).detach().double().numpy()
        np.testing.assert_allclose(probabilities, direct, atol=1e-6)
        labels = columns["label"][rows]
        right = np.log(probabilities[np.arange(len(labels)), labels])
        assert found.summary[symbol]["log_loss"] == pytest.approx(-right.mean(), abs=1e-6)
        assert found.summary[symbol]["accuracy"] == (probabilities.argmax(1) == labels).mean()
        assert found.summary[symbol]["majority"] == np.bincount(labels).max() / len(labels)
        assert np.array(pages[symbol]["figures"]["confusion"]).sum() == len(labels)
    assert found.summary["n"] == len(columns["label"])


def test_the_baselines_are_in_the_same_table_as_the_model(planted):
    _, _, _, _, pages = planted
    rows = {row["predictor"]: row for row in pages["AAAUSDT"]["predictors"]}
    assert list(rows) == [
        "model",
        "prior",
        "logistic regression, last row",
        "gradient boosting, last row",
        "logistic regression, window",
        "gradient boosting, window",
        "autoregression",
        "rolling priors, blended",
        "rolling prior",
        "location-scale",
        "buy-and-hold",
    ]
    assert rows["prior"]["log_loss"] == pytest.approx(pages["AAAUSDT"]["figures"]["prior_log_loss"])
    assert rows["model"]["net_return"] == pages["AAAUSDT"]["backtest"]["net_return"]
    assert rows["buy-and-hold"]["net_return"] == pages["AAAUSDT"]["backtest"]["buy_and_hold_return"]


def test_a_distorted_model_is_judged_by_its_own_probabilities(planted):
    config, folder, _, found, _ = planted
    sharp = fitted(config, folder, only="AAAUSDT")
    sharp["AAAUSDT"].linear.weight.data *= 4
    sharp["AAAUSDT"].linear.bias.data *= 4
    with without_trees():
        spoilt, _ = evaluated(config, sharp, folder)
    before, after = found.summary["AAAUSDT"], spoilt.summary["AAAUSDT"]
    assert after["log_loss"] > before["log_loss"] + 0.1


def test_a_distorted_model_is_recalibrated_and_its_rule_says_so(planted, monkeypatch):
    config, folder, models, found, _ = planted
    models["AAAUSDT"].linear.weight.data *= 4
    spoilt, _ = evaluated(config, {"AAAUSDT": models["AAAUSDT"]}, folder)
    monkeypatch.setattr(folds, "WINDOW", WINDOW)
    mended, own = evaluate(config, {"AAAUSDT": models["AAAUSDT"]}, folder, CPU, map_items)
    models["AAAUSDT"].linear.weight.data /= 4
    (fold,) = own.summary["folds"]
    assert fold["recalibration"] == json.loads(own.beside["rule.json"])["coins"]["AAAUSDT"]["recalibration"] == WINDOW
    losses = [each.summary["AAAUSDT"]["log_loss"] for each in (spoilt, mended, found)]
    assert fold["recalibration_gain"] == pytest.approx(losses[0] - losses[1])
    assert losses[0] - losses[1] > (losses[0] - losses[2]) / 2


# ---- backtest


def test_the_threshold_sees_no_test_row(planted, monkeypatch):
    config, folder, models, found, _ = planted
    load = data.load

    def changed(folder, symbol):
        coin = load(folder, symbol)
        first = coin.folds[0]["test"][0]
        tested = coin.folds[0]["test"]
        coin.labels[tested] = np.random.default_rng(0).integers(0, 3, len(tested))
        for column in (coin.candles.open, coin.candles.high, coin.candles.low, coin.candles.close):
            column[first:] *= 3
        return coin

    monkeypatch.setattr(data, "load", changed)
    with without_trees():
        other, _ = evaluated(config, {"AAAUSDT": models["AAAUSDT"]}, folder)
    before, after = found.summary["AAAUSDT"], other.summary["AAAUSDT"]
    assert after["accuracy"] != before["accuracy"]
    assert after["threshold"] == before["threshold"]


def test_the_equity_curve_starts_at_one_and_ends_at_the_net_return(planted):
    _, _, _, _, pages = planted
    for page in pages.values():
        curve = page["equity"]
        assert len(curve["time_ms"]) == len(curve["model"]) == len(curve["buy_and_hold"]) <= 400
        assert (curve["model"][0], curve["buy_and_hold"][0]) == (1, 1)
        assert curve["model"][-1] - 1 == pytest.approx(page["backtest"]["net_return"])
        assert curve["buy_and_hold"][-1] - 1 == pytest.approx(page["backtest"]["buy_and_hold_return"])


def test_the_folds_of_a_walk_forward_are_judged_together_and_traded_one_by_one(walked):
    _, _, _, found, pages = walked
    page = pages["AAAUSDT"]
    assert [fold["member"] for fold in page["folds"]] == ["AAAUSDT-1", "AAAUSDT-2", "AAAUSDT-3"]
    assert sum(fold["n"] for fold in page["folds"]) == page["figures"]["n"]
    # No trade reaches from one fold into the next, so the joined account is the product of the folds' accounts.
    for each in pages.values():
        accounts = [1 + fold["net_return"] for fold in each["folds"]]
        assert 1 + each["backtest"]["net_return"] == pytest.approx(np.prod(accounts))
        assert each["backtest"]["num_trades"] == sum(fold["num_trades"] for fold in each["folds"]) > 0
    rows = np.array(found.examples["symbol"]) == "AAAUSDT"
    assert (np.diff(np.array(found.examples["time_ms"])[rows]) > 0).all()
    weighted = sum(fold["n"] * fold["prior_log_loss"] for fold in page["folds"]) / page["figures"]["n"]
    assert page["figures"]["prior_log_loss"] == pytest.approx(weighted)
    assert found.summary["AAAUSDT"]["threshold"] == page["folds"][-1]["threshold"]


# ---- members


def test_members_without_a_model_are_listed_with_the_reason(walked):
    _, _, _, found, pages = walked
    assert found.summary["failed"] == {"BBBUSDT-2": "no trained model"}
    assert [fold["fold"] for fold in pages["BBBUSDT"]["folds"]] == [1, 3]
    assert found.summary["BBBUSDT"]["folds"] == [1, 3]


def test_a_coin_that_could_not_be_prepared_is_in_the_table(tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    made = simulated.simulate(("AAAUSDT",), 2500, "15m", 0)["AAAUSDT"]
    columns = np.column_stack([made.time, made.open, made.high, made.low, made.close, made.volume])
    for symbol, rows in (("AAAUSDT", 2500), ("BBBUSDT", 30)):
        (files / f"{symbol}-15m.json").write_text(json.dumps(columns[:rows].tolist()))
    folder = tmp_path / "data"
    config = prepared(folder, folder=str(files))
    with without_trees():
        found, _ = evaluated(config, fitted(config, folder, only="AAAUSDT"), folder)
    assert "30 rows are too few" in found.summary["failed"]["BBBUSDT"]
    assert found.table[-1] == {"coin": "BBBUSDT", "verdict": "not evaluated"}
    with pytest.raises(UserError, match="none of the 2 members has a trained model: AAAUSDT: no trained model; BBB"):
        evaluate(config, {}, folder, CPU, map_items)


@pytest.mark.slow
def test_a_pooled_model_gets_the_number_and_scaler_of_each_coin(tmp_path):
    config = prepared(tmp_path, model={"pooled": True}, signal=1.0, simulated_candles=2500)
    models = fitted(config, tmp_path)
    assert list(models) == ["all"]
    asked = []
    models["all"].register_forward_pre_hook(lambda module, inputs: asked.append(inputs[1].unique().tolist()))
    with without_trees():
        found, of_member = evaluate(config, models, tmp_path, CPU, map_items)
    pages = {name: json.loads(found.files[f"test/{name}.json"]) for name in config.data.symbols}
    assert of_member.member == "all"
    assert of_member.summary == pages
    assert all(page["folds"][0]["member"] == "all" for page in pages.values())
    assert [numbers for number, numbers in enumerate(asked) if numbers not in asked[:number]] == [[0], [1]]
    assert found.summary["coins"] == 2


def test_a_model_of_other_candles_or_another_order_of_features_is_refused(planted):
    config, folder, models, _, _ = planted
    model = models["AAAUSDT"]
    known = model.config
    for wrong, message in (
        (replace(known, features=known.features[::-1]), "in this order, but the prepared data of AAAUSDT have log_"),
        (replace(known, about={"data_sha256": {"AAAUSDT": "0"}}), "the candles of AAAUSDT have changed since"),
    ):
        model.config = wrong
        try:
            with pytest.raises(UserError, match=message):
                evaluate(config, models, folder, CPU, map_items)
        finally:
            model.config = known


def test_a_model_whose_outputs_are_not_finite_is_refused_with_the_coins_name(planted):
    config, folder, _, _, _ = planted
    models = fitted(config, folder, only="BBBUSDT")
    models["BBBUSDT"].linear.bias.data[0] = float("nan")
    with pytest.raises(UserError, match="BBBUSDT: the model's outputs are not finite"):
        evaluate(config, models, folder, CPU, map_items)


def test_the_ranking_follows_the_evidence_and_not_the_return(planted):
    _, _, _, found, pages = planted
    lows = [row["interval"][0] for row in found.table]
    assert lows == sorted(lows, reverse=True)
    assert [row["coin"] for row in found.table] == sorted(
        pages, key=lambda symbol: -pages[symbol]["comparisons"][0]["low"]
    )


@pytest.mark.slow
def test_a_copy_of_another_coin_is_counted_once(planted, monkeypatch):
    config, folder, models, *_ = planted
    load = data.load

    def copied(folder, symbol):
        coin = load(folder, "AAAUSDT")
        return replace(coin, candles=replace(coin.candles, symbol=symbol), facts={**coin.facts, "symbol": symbol})

    monkeypatch.setattr(data, "load", copied)
    first = models["AAAUSDT"]
    second = Regression(replace(first.config, coins=("BBBUSDT",), scalers={"BBBUSDT": first.config.scalers["AAAUSDT"]}))
    second.load_state_dict(first.state_dict())
    with without_trees():
        found, pages = evaluated(config, {"AAAUSDT": first, "BBBUSDT": second}, folder)
    assert found.summary["headline"].startswith("1 of 1 simulated coin pays its costs; 1 more is a copy of another's")
    assert pages["BBBUSDT"]["verdict"] == "a copy of AAAUSDT"
    assert not any(pages["BBBUSDT"]["grades"].values())
