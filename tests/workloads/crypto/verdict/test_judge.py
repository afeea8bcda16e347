"""Verdicts: no skill for noise, skill for a signal, a suspected leak for a leak."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from models.market import candle_features
from pipelines.workloads.crypto.candles.simulated import simulate
from pipelines.workloads.crypto.verdict.baselines import fit_and_predict
from pipelines.workloads.crypto.verdict.classification import class_shares, metrics
from pipelines.workloads.crypto.verdict.judge import (
    BEYOND,
    BOUNCE,
    LEAK,
    LEVEL,
    NO_SKILL,
    NOT_TRADABLE,
    PAYS,
    PREDICTIVE,
    SKILL,
    judge,
    leaking,
    verdicts,
)
from pipelines.workloads.crypto.verdict.significance import holm, p_value
from tests.workloads.crypto.verdict.samples import SHIPPED, guesses, rows_with_a_signal, sample


def verdict(probabilities, labels, prior, baselines, moves=None, equity=None, **words):
    """The verdict on a coin by itself; moves that go with the labels, and an account that stands still."""
    moves = np.asarray(labels) - 1.0 if moves is None else moves
    equity = np.ones(len(labels)) if equity is None else equity
    words = {"horizon": 3, "resamples": 200, "later": moves, "last": np.zeros(len(labels))} | words
    found = {"A": judge(probabilities, labels, prior, baselines, moves, equity, **words)}
    json.dumps(found, allow_nan=False)
    return {**found["A"], **verdicts(found)["A"]}


def test_a_perfect_predictor_is_suspected_of_a_leak():
    _, labels = sample(0, 500)
    found = verdict(np.eye(3)[labels], labels, class_shares(labels), guesses(0, labels))
    assert found["verdict"] == LEAK
    assert len(found["reasons"]) == 3
    assert "balanced accuracy of the model is 1.000" in found["reasons"][0]


@pytest.mark.parametrize(("share", "rate", "expected"), [(0.2, 0.92, False), (0.9, 0.92, True), (0.9, 0.8, False)])
def test_being_right_about_a_few_sure_moves_is_no_leak_but_about_most_moves_it_is(share, rate, expected):
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 1500)
    right = np.where(generator.random(1500) < rate, labels, 2 - labels)
    said = np.where((labels != 1) & (generator.random(1500) < share), right, 1)
    probabilities = 0.2 * np.eye(3)[said] + 0.8 / 3  # so unsure that only the sign reveals the leak
    found = verdict(probabilities, labels, np.full(3, 1 / 3), guesses(0, labels))
    assert any("has the sign right" in reason for reason in found["reasons"]) == expected


def test_the_future_among_the_features_is_found_by_a_baseline():
    rows = rows_with_a_signal(0)
    labels = rows.pop("test_labels")
    rows["train"]["last row"][:, 2] = rows["labels"]
    rows["test"]["last row"][:, 2] = labels
    prior = class_shares(rows["labels"])
    found = verdict(np.tile(prior, (len(labels), 1)), labels, prior, fit_and_predict(**rows))
    assert found["verdict"] == LEAK
    assert any("gradient boosting" in reason for reason in found["reasons"])


def test_shuffled_labels_show_no_skill_at_more_than_the_nominal_rate():
    reached = []
    for seed in range(40):
        probabilities, labels = sample(seed, 1000, 0.1)
        labels = np.random.default_rng(1000 + seed).permutation(labels)
        reached.append(verdict(probabilities, labels, class_shares(labels), guesses(seed, labels))["verdict"])
    assert reached.count(NO_SKILL) >= 38
    assert LEAK not in reached


def test_a_model_that_learned_shuffled_labels_shows_no_skill():
    rows = rows_with_a_signal(4)
    labels = rows.pop("test_labels")
    rows["labels"] = np.random.default_rng(0).permutation(rows["labels"])
    learned = fit_and_predict(**rows)
    prior = class_shares(rows["labels"])
    for name in learned:
        assert verdict(learned[name], labels, prior, learned)["verdict"] == NO_SKILL


def test_a_signal_that_the_simple_models_do_not_see_is_beyond_them():
    rows = rows_with_a_signal(2, test=3000)
    labels = rows.pop("test_labels")
    # The feature that the model uses is hidden from the last row, so the baselines find nothing.
    seen = rows["test"]["last row"][:, 0].copy()
    for part in ("train", "test"):
        rows[part]["last row"][:, 0] = 0
    scores = softmax(np.stack([-seen / 2, np.full(3000, -0.2), seen / 2], axis=1), axis=1)
    others = fit_and_predict(**rows)
    found = verdict(scores, labels, class_shares(rows["labels"]), others)
    assert found["verdict"] == f"{SKILL}: {BEYOND}"
    assert found["grades"] == {PREDICTIVE: True, BEYOND: True, PAYS: False}
    assert found["reasons"][0].startswith(NOT_TRADABLE)
    figures = ["log_loss", "log_loss", "direction_log_loss"]
    assert [row["figure"] for row in found["comparisons"]] == figures
    growing = np.exp(np.cumsum(np.random.default_rng(0).normal(0.001, 0.005, 3000)))
    assert verdict(scores, labels, class_shares(rows["labels"]), others, equity=growing)["grades"][PAYS]


def test_knowing_when_prices_move_but_not_in_which_direction_is_no_skill():
    generator = np.random.default_rng(0)
    wild = generator.random(3000)
    labels = np.where(generator.random(3000) < wild, 2 * generator.integers(0, 2, 3000), 1)
    lean = 0.02 * generator.normal(size=3000)  # the model must lean to one side
    probabilities = np.stack([wild * (0.5 - lean), 1 - wild, wild * (0.5 + lean)], axis=1)
    growing = np.exp(0.001 * np.arange(3000) + 0.001 * generator.normal(size=3000))  # it was lucky
    found = verdict(probabilities, labels, class_shares(labels), guesses(0, labels), equity=growing)
    assert found["tests"][BEYOND]["p"] < LEVEL
    assert found["tests"][PAYS]["p"] < LEVEL
    assert (found["verdict"], set(found["grades"].values())) == (NO_SKILL, {False})


def test_a_reason_tells_the_gains_on_the_prior_in_log_loss_and_in_that_of_the_direction():
    probabilities, labels = sample(0, 2000)
    prior = class_shares(labels)
    own = metrics(probabilities, labels, prior)
    gains = [own[f"prior_{name}"] - own[name] for name in ("log_loss", "direction_log_loss")]
    reason = verdict(probabilities, labels, prior, guesses(0, labels))["reasons"][1]
    said = f"; log loss {gains[0]:+.4f} nats below the prior's, of the direction {gains[1]:+.4f} ("
    assert said in reason


def test_an_account_that_surely_loses_is_not_said_to_have_too_few_rows():
    probabilities, labels = sample(0, 3000)
    losing = np.exp(np.cumsum(np.random.default_rng(0).normal(-0.001, 0.003, 3000)))  # a trade every three candles
    *_, reason = verdict(probabilities, labels, class_shares(labels), guesses(0, labels), equity=losing)["reasons"]
    assert reason.startswith("not pays its costs: account -96.")
    assert " % after all costs: p = 1 (" in reason


def test_a_signal_that_a_baseline_has_too_is_predictive_and_no_more():
    rows = rows_with_a_signal(3, test=3000)
    labels = rows.pop("test_labels")
    others = fit_and_predict(**rows)
    own = others["logistic regression, last row"]
    found = verdict(own, labels, class_shares(rows["labels"]), others)
    assert found["verdict"] == f"{SKILL}: {PREDICTIVE}"
    assert found["tests"][BEYOND] == {
        "p": 1.0,
        "found": "log loss +0.0000 nats below that of logistic regression, last row: p = none, too few rows or no "
        "difference",
    }


def test_holm_holds_many_coins_to_more_and_the_best_of_them_to_the_most():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]).tolist() == [1.0, 1.0]
    probabilities, labels = sample(6, 1000, 0.14)
    given = probabilities, labels, class_shares(labels), guesses(6, labels)
    found = judge(*given, labels - 1.0, np.ones(1000), horizon=3, later=labels - 1.0, last=np.zeros(1000))
    chance = found["tests"][PREDICTIVE]["p"]
    assert LEVEL / 20 < chance < LEVEL
    blind = {**found, "tests": {grade: {"p": 1.0, "found": ""} for grade in found["tests"]}}
    assert verdicts({"A": found})["A"]["grades"][PREDICTIVE]
    assert not verdicts({"A": found, **{f"B{number}": blind for number in range(19)}})["A"]["grades"][PREDICTIVE]


def test_block_errors_of_overlapping_values_are_wider_than_those_of_independent_ones():
    drawn = np.random.default_rng(0).normal(size=(400, 1000))
    overlapping = drawn[:, 3:] + drawn[:, 2:-1] + drawn[:, 1:-2] + drawn[:, :-3]
    for values in (drawn, overlapping):
        rejected = np.mean([p_value(each, 4) < 0.05 for each in values])
        assert 0.02 < rejected < 0.1
    assert p_value(np.zeros(500), 3) == p_value(drawn[0, :20], 3) == 1


def test_the_published_model_of_sol_shows_no_skill_however_well_calibrated():
    matrix = np.array(SHIPPED["SOL"][0])
    labels = np.repeat([0, 1, 2], matrix.sum(axis=1))
    predicted = np.concatenate([np.repeat([0, 1, 2], row) for row in matrix])
    order = np.random.default_rng(0).permutation(len(labels))
    labels, predicted = labels[order], predicted[order]
    # Only the predictions were published; the log loss is lowest with about half the weight on them.
    prior = class_shares(labels)
    for weight in (0.5, 0.9):
        probabilities = weight * np.eye(3)[predicted] + (1 - weight) * prior
        found = verdict(probabilities, labels, prior, guesses(1, labels))
        assert found["verdict"] == NO_SKILL


def test_too_few_rows_show_no_skill():
    probabilities, labels = sample(0, 20, 3)
    found = verdict(probabilities, labels, np.full(3, 1 / 3), guesses(0, labels))
    assert found["verdict"] == NO_SKILL
    assert "too few rows" in found["reasons"][0]


def bouncing(phi, count=6000):
    """Moves over one candle, those a candle later, and the newest ones, where prices jump between bid and ask."""
    generator = np.random.default_rng(0)
    worth, side = np.cumsum(generator.normal(size=count + 3)) * 0.3, generator.integers(0, 2, count + 3)
    returns = np.diff(worth + side)
    for t in range(1, len(returns)):
        returns[t] += phi * returns[t - 1]
    return returns[1:-1], returns[2:], returns[:-2]


@pytest.mark.parametrize(("against", "expected"), [(1.0, "skill: "), (-1.0, "no skill shown")])
def test_a_lean_against_the_newest_candle_is_a_bounce_and_one_against_older_ones_is_skill(against, expected):
    moves, later, last = bouncing(0.0)
    prior = np.full(3, 1 / 3)

    def judged(pull, moves, later, last):
        labels = np.digitize(moves, [-0.4, 0.4])
        probabilities = softmax(0.3 * np.stack([-pull, 0 * pull, pull], 1), axis=1)
        return verdict(probabilities, labels, prior, guesses(0, labels), moves, horizon=1, later=later, last=last)

    found = judged(-last, moves, later, last)
    assert found["verdict"] == BOUNCE
    assert not any(found["grades"].values())
    assert "vanishes where entries are taken one candle later" in found["reasons"][0]
    # The sign of what follows depends on an older candle here, not on the newest one.
    generator = np.random.default_rng(1)
    older, *noise = generator.normal(size=(4, 6000))
    now, after = (-0.3 * against * older + each for each in noise[:2])
    found = judged(-older, now, after, noise[2] + 0.1 * older)
    assert found["verdict"].startswith(expected)


def test_a_feature_that_holds_part_of_the_coming_move_is_a_leak_and_a_signal_is_none():
    generator = np.random.default_rng(0)
    returns = generator.normal(size=5003)
    prices, rows = returns.cumsum(), np.arange(3, 5000)
    past, coming = prices[rows] - prices[rows - 3], prices[rows + 3] - prices[rows]
    volume = generator.normal(size=len(rows))
    features = np.stack([past + generator.normal(size=len(rows)), volume, 0.35 * coming / coming.std() + volume], 1)
    (found,) = leaking(("return", "volume", "spoilt volume"), features, returns, rows, 3)
    assert found.startswith("spoilt volume correlates with the coming candle (by ranks, 0.")
    # A market that goes on as it went before is no leak, though its returns are worth as much.
    for t in range(1, 5003):
        returns[t] += 0.6 * returns[t - 1]
    assert leaking(("return",), returns[rows, None], returns, rows, 3) == []


@pytest.mark.parametrize(
    ("horizon", "ahead", "candles"), [(3, 3, 8000), (48, 1, 8000), pytest.param(48, 48, 35_000, marks=pytest.mark.slow)]
)
def test_volume_that_correlates_with_what_comes_at_035_is_a_leak_at_every_horizon(horizon, ahead, candles):
    for signal in (0.0, 1.0):
        (clean,) = simulate(["AAAUSDT"], candles, "15m", 0, signal).values()
        returns = np.diff(np.log(clean.close), prepend=np.log(clean.close[0]))
        coming = np.append(np.log(clean.close[ahead:] / clean.close[:-ahead]), np.zeros(ahead))
        noise = np.random.default_rng(0).normal(size=candles)[: len(clean)]
        spoilt = replace(clean, volume=np.exp(0.35 * coming / coming.std() + np.sqrt(1 - 0.35**2) * noise))
        found = []
        for each in (clean, spoilt):
            columns = np.column_stack([candle_features.compute(each), each.volume])
            rows = np.flatnonzero(np.isfinite(columns).all(1))[:-horizon]
            said = leaking((*candle_features.NAMES, "volume"), columns[rows], returns, rows, horizon)
            found.append([each.split()[0] for each in said])
        assert (found[0], found[1][-1:]) == ([], ["volume"])
