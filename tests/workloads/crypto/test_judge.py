"""The judge calls noise noise, a signal a signal and a leak a leak; its figures are those of scikit-learn."""

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.workloads.crypto import judge
from pipelines.workloads.crypto.judge import LEAK, NO_SKILL, SKILL

# Test-set confusion matrices that six models of 15-minute candles were shipped with, and what follows from them:
# (matrix, accuracy, majority, balanced accuracy, macro-F1, MCC, sign right when traded and moved).
SHIPPED = {
    "BTC": ([[149, 735, 171], [157, 2781, 182], [154, 733, 182]], 0.5934, 0.5950, 0.401, 0.393, 0.170, 0.505),
    "ETH": ([[1, 464, 885], [0, 1385, 1119], [0, 451, 939]], 0.4434, 0.4775, 0.410, 0.337, 0.152, 0.515),
    "BNB": ([[344, 578, 302], [552, 1832, 368], [332, 574, 362]], 0.4840, 0.5248, 0.411, 0.411, 0.139, 0.527),
    "SOL": ([[561, 0, 1003], [1048, 0, 1081], [569, 0, 982]], 0.2942, 0.4060, 0.331, 0.242, -0.005, 0.495),
    "XRP": ([[0, 269, 1241], [0, 790, 1548], [0, 244, 1152]], 0.3703, 0.4458, 0.388, 0.288, 0.121, 0.481),
    "ADA": ([[1272, 184, 302], [1316, 356, 193], [1150, 188, 283]], 0.3644, 0.3556, 0.363, 0.325, 0.055, 0.517),
}


def made(seed: int, num: int, strength: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (N, 3) and labels (N,) that were drawn from them."""
    generator = np.random.default_rng(seed)
    probabilities = judge.softmax(strength * generator.normal(size=(num, 3)) + [0.0, 0.3, 0.0])
    labels = (generator.random((num, 1)) > probabilities.cumsum(axis=1)[:, :2]).sum(axis=1)
    return probabilities, labels


def guesses(seed: int, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Baselines that have nothing to see, made at once."""
    prior = judge.class_shares(labels)
    drawn = np.random.default_rng(seed).choice(3, len(labels), p=prior)
    return {"majority": np.tile(prior, (len(labels), 1)), "stratified guess": (np.eye(3)[drawn] + prior) / 2}


# ---- figures


@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 10**6), num=st.integers(3, 200), strength=st.floats(0, 6), lacking=st.sampled_from([-1, 1, 2])
)
def test_every_figure_equals_scikit_learns(seed, num, strength, lacking):
    from sklearn import metrics

    probabilities, labels = made(seed, num, strength)
    labels[labels == lacking] = 0
    labels[:2] = [0, 2 if lacking == 1 else 1]
    prior = judge.class_shares(labels)
    found = judge.figures(probabilities, labels, prior)
    predicted = probabilities.argmax(axis=1)
    classes = [0, 1, 2]
    expected = {
        "confusion": metrics.confusion_matrix(labels, predicted, labels=classes).tolist(),
        "accuracy": metrics.accuracy_score(labels, predicted),
        "macro_f1": metrics.f1_score(labels, predicted, labels=classes, average="macro", zero_division=0),
        "mcc": metrics.matthews_corrcoef(labels, predicted),
        "log_loss": metrics.log_loss(labels, probabilities, labels=classes),
        "prior_log_loss": metrics.log_loss(labels, np.tile(prior, (num, 1)), labels=classes),
        "brier": metrics.brier_score_loss(labels, probabilities, labels=classes),
    }
    assert found["confusion"] == expected.pop("confusion")
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-9)
    recalls = metrics.recall_score(
        labels, predicted, labels=sorted(set(labels.tolist())), average=None, zero_division=0
    )
    assert found["balanced_accuracy"] == pytest.approx(recalls.mean())
    precisions = metrics.precision_score(labels, predicted, labels=classes, average=None, zero_division=0)
    assert [row["precision"] or 0 for row in found["classes"]] == pytest.approx(precisions.tolist())


def test_the_reliability_bins_equal_scikit_learns():
    from sklearn.calibration import calibration_curve

    probabilities, labels = made(1, 2000, 2)
    found = judge.figures(probabilities, labels, judge.class_shares(labels))
    right = probabilities.argmax(axis=1) == labels
    accuracy, confidence = calibration_curve(right, probabilities.max(axis=1), n_bins=judge.BINS)
    filled = [row for row in found["reliability"] if row["n"]]
    assert [row["accuracy"] for row in filled] == pytest.approx(accuracy.tolist())
    assert [row["confidence"] for row in filled] == pytest.approx(confidence.tolist())
    weights = np.array([row["n"] for row in filled]) / 2000
    assert found["calibration_error"] == pytest.approx((weights * np.abs(accuracy - confidence)).sum())


def test_probabilities_in_float32_are_taken():
    probabilities, labels = made(0, 500)
    prior = judge.class_shares(labels)
    exact, rounded = (judge.figures(p, labels, prior) for p in (probabilities, probabilities.astype(np.float32)))
    assert rounded["log_loss"] == pytest.approx(exact["log_loss"], abs=1e-6)


@pytest.mark.parametrize(("label", "predicted"), [(1, 1), (1, 0), (2, 2)])
@pytest.mark.parametrize("num", [1, 40])
def test_a_single_class_has_no_figure_that_is_not_a_number(num, label, predicted):
    found = judge.figures(np.tile(np.eye(3)[predicted], (num, 1)), np.full(num, label), np.full(3, 1 / 3))
    json.dumps(found, allow_nan=False)
    assert found["mcc"] is None
    assert found["balanced_accuracy"] is None
    assert len(found["never_predicted"]) == 2


def test_without_trades_the_hit_rate_is_none():
    found = judge.table_figures([[0, 10, 0], [0, 20, 0], [0, 5, 0]])
    assert (found["trades"], found["directional_n"]) == (0, 0)
    assert found["directional_hit_rate"] is None
    assert found["directional_hit_rate_interval"] is None
    assert found["mcc"] == 0
    assert found["never_predicted"] == ["SHORT", "LONG"]


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        (np.zeros((0, 3)), [], r"at least one row are needed, got \(0, 3\)"),
        (np.full((2, 2), 0.5), [0, 1], r"got \(2, 2\) and \(2,\)"),
        (np.eye(3), [0, 1, -1], "labels must be 0 SHORT, 1 NO_TRADE or 2 LONG"),
        (np.eye(3) * 2, [0, 1, 2], "sum to 1"),
        (np.full((1, 3), np.nan), [0], "must be finite"),
        ([[1.5, -0.5, 0]], [0], "not negative"),
    ],
)
def test_rows_that_cannot_be_judged_are_refused(probabilities, labels, message):
    with pytest.raises(ValueError, match=message):
        judge.figures(probabilities, np.array(labels, dtype=int), np.full(3, 1 / 3))


# Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I, method 3.
@pytest.mark.parametrize(
    ("successes", "trials", "interval"),
    [(81, 263, (0.2553, 0.3662)), (15, 148, (0.0624, 0.1605)), (0, 20, (0.0, 0.1611)), (1, 29, (0.0061, 0.1718))],
)
def test_wilson_intervals_are_the_published_ones(successes, trials, interval):
    from scipy.stats import binomtest

    assert judge.wilson(successes, trials) == pytest.approx(interval, abs=5e-5)
    assert judge.wilson(successes, trials) == pytest.approx(
        tuple(binomtest(successes, trials).proportion_ci(method="wilson")), abs=1e-12
    )


@pytest.mark.parametrize("coin", SHIPPED)
def test_shipped_confusion_matrices_give_their_known_figures(coin):
    matrix, accuracy, majority, balanced, macro_f1, mcc, hit_rate = SHIPPED[coin]
    found = judge.table_figures(matrix)
    assert found["n"] == 5244
    assert found["accuracy"] == pytest.approx(accuracy, abs=6e-5)
    assert found["majority_accuracy"] == pytest.approx(majority, abs=6e-5)
    names = ("balanced_accuracy", "macro_f1", "mcc", "directional_hit_rate")
    assert [found[name] for name in names] == pytest.approx([balanced, macro_f1, mcc, hit_rate], abs=6e-4)


def test_five_of_six_shipped_models_lose_to_the_majority_class_and_two_never_predict_one():
    found = {coin: judge.table_figures(row[0]) for coin, row in SHIPPED.items()}
    assert [coin for coin, f in found.items() if f["accuracy"] > f["majority_accuracy"]] == ["ADA"]
    assert {coin: f["never_predicted"] for coin, f in found.items() if f["never_predicted"]} == {
        "SOL": ["NO_TRADE"],
        "XRP": ["SHORT"],
    }
    hits = [(f["directional_hit_rate"] * f["directional_n"], f["directional_n"]) for f in found.values()]
    assert [round(sum(column)) for column in zip(*hits, strict=True)] == [6227, 12336]


# ---- bootstrap


def test_the_bootstrap_equals_a_plain_loop_over_blocks():
    from sklearn.metrics import f1_score, log_loss

    probabilities, labels = made(3, 130)
    other = np.tile(judge.class_shares(labels), (130, 1))
    found = judge.block_bootstrap(probabilities, other, labels, horizon=4, block=7, resamples=30, seed=5)
    generator = np.random.default_rng(5)
    gains = []
    for starts in generator.integers(0, 130 - 7 + 1, (30, 19)):
        rows = (starts[:, None] + np.arange(7)).ravel()
        loss, f1 = zip(
            *(
                (
                    log_loss(labels[rows], p[rows], labels=[0, 1, 2]),
                    f1_score(labels[rows], p[rows].argmax(1), labels=[0, 1, 2], average="macro", zero_division=0),
                )
                for p in (probabilities, other)
            ),
            strict=True,
        )
        gains.append((loss[1] - loss[0], f1[0] - f1[1]))
    low, high = np.quantile(gains, (0.025, 0.975), axis=0)
    for i, name in enumerate(("log_loss", "macro_f1")):
        assert (found[name]["low"], found[name]["high"]) == pytest.approx((low[i], high[i]))
    assert found["block"] == 7


def test_the_bootstrap_is_seeded_and_blocks_are_no_shorter_than_the_horizon():
    probabilities, labels = made(0, 1000)
    other = guesses(0, labels)["stratified guess"]
    found = judge.block_bootstrap(probabilities, other, labels, horizon=3, seed=1)
    assert found == judge.block_bootstrap(probabilities, other, labels, horizon=3, seed=1)
    assert found != judge.block_bootstrap(probabilities, other, labels, horizon=3, seed=2)
    assert found["block"] == 10
    assert judge.block_bootstrap(probabilities, other, labels, horizon=30)["block"] == 30
    with pytest.raises(ValueError, match="a block of 5 is shorter than the labels' horizon 6"):
        judge.block_bootstrap(probabilities, other, labels, horizon=6, block=5)


def test_too_few_blocks_have_no_interval():
    probabilities, labels = made(0, 59)
    found = judge.block_bootstrap(probabilities, guesses(0, labels)["majority"], labels, horizon=6)
    assert found["log_loss"]["low"] is None
    assert found["log_loss"]["gain"] is not None


def test_rows_of_one_time_stay_together_whatever_their_order():
    probabilities, labels = made(0, 400)
    other = guesses(0, labels)["majority"]
    # Five coins that move as one are no more evidence than one of them.
    five = [np.concatenate([rows] * 5) for rows in (probabilities, other, labels)]
    times = np.tile(np.arange(400) * 900_000, 5)
    alone = judge.block_bootstrap(probabilities, other, labels, horizon=3)
    together = judge.block_bootstrap(*five, horizon=3, time=times)
    order = np.random.default_rng(0).permutation(2000)
    shuffled = judge.block_bootstrap(*(rows[order] for rows in five), horizon=3, time=times[order])
    for name in ("log_loss", "macro_f1"):
        assert together[name] == pytest.approx(alone[name])
        assert shuffled[name] == pytest.approx(alone[name])


def test_a_thousand_resamples_of_five_thousand_rows_are_quick():
    probabilities, labels = made(0, 5000)
    began = time.process_time()
    judge.block_bootstrap(probabilities, guesses(0, labels)["majority"], labels, horizon=3, resamples=1000)
    assert time.process_time() - began < 2


def test_overlapping_labels_do_not_pass_for_evidence():
    def wrong(block: int | None) -> int:
        count = 0
        for seed in range(60):
            # Neighbours share both their label and the model's whim, as windows and horizons that overlap make them.
            generator = np.random.default_rng(seed)
            labels = np.repeat(generator.integers(0, 3, 60), 10)
            probabilities = judge.softmax(0.1 * np.repeat(generator.normal(size=(60, 3)), 10, axis=0))
            uniform = np.full((600, 3), 1 / 3)
            horizon = 1 if block == 1 else 10
            found = judge.block_bootstrap(
                probabilities, uniform, labels, horizon=horizon, block=block, resamples=200, seed=seed
            )
            count += found["log_loss"]["low"] > 0
        return count

    assert wrong(20) <= 5  # nominally 1.5; 60 independent labels are few
    assert wrong(1) > 10


# ---- baselines


def market(seed: int, train: int = 1500, test: int = 800) -> dict[str, np.ndarray]:
    """Rows whose label follows their first feature, in part."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(train + test, 4))
    move = features[:, 0] + 2 * generator.normal(size=train + test)
    labels = 1 + (move > 0.8).astype(int) - (move < -0.8)
    return {
        "train_features": features[:train],
        "train_labels": labels[:train],
        "train_last_returns": features[:train, 0],
        "test_features": features[train:],
        "test_last_returns": features[train:, 0],
        "test_labels": labels[train:],
    }


def test_baselines_find_what_the_last_row_shows():
    rows = market(0)
    labels = rows.pop("test_labels")
    prior = judge.class_shares(rows["train_labels"])
    found = {name: judge.figures(p, labels, prior) for name, p in judge.baselines(**rows).items()}
    assert list(found) == [
        "majority",
        "stratified guess",
        "sign of last return",
        "logistic regression",
        "gradient boosting",
    ]
    assert found["majority"]["log_loss"] == found["majority"]["prior_log_loss"]
    assert found["stratified guess"]["macro_f1"] == pytest.approx(1 / 3, abs=0.05)
    for name in ("sign of last return", "logistic regression", "gradient boosting"):
        assert found[name]["log_loss"] < found["majority"]["log_loss"] - 0.03


def test_baselines_are_the_same_for_the_same_seed_and_see_no_test_row_but_their_own():
    rows = market(1, train=300)
    del rows["test_labels"]
    few = {name: column[:5] if name.startswith("test") else column for name, column in rows.items()}
    all_rows, again, first_rows = (judge.baselines(**given, seed=3) for given in (rows, rows, few))
    for name, probabilities in all_rows.items():
        assert np.array_equal(probabilities, again[name])
        assert np.allclose(probabilities[:5], first_rows[name], atol=1e-12)


@pytest.mark.parametrize("labels", [[0, 1], [2]])
def test_baselines_give_three_probabilities_where_training_lacks_a_class(labels):
    generator = np.random.default_rng(0)
    for num in (60, 1200):
        found = judge.baselines(
            generator.normal(size=(num, 3)),
            generator.choice(labels, num),
            np.ones(num),
            generator.normal(size=(20, 3)),
            -np.ones(20),
        )
        for probabilities in found.values():
            assert probabilities.shape == (20, 3)
            assert (probabilities > 0).all()
            assert probabilities.sum(axis=1) == pytest.approx(np.ones(20))


def test_baselines_refuse_features_that_are_not_finite():
    rows = market(0, 50, 10)
    del rows["test_labels"]
    rows["test_features"] = rows["test_features"] * np.inf
    with pytest.raises(ValueError, match="test_features must be finite"):
        judge.baselines(**rows)


# ---- verdict


def test_a_perfect_predictor_is_suspected_of_a_leak():
    _, labels = made(0, 500)
    found = judge.verdict(np.eye(3)[labels], labels, judge.class_shares(labels), guesses(0, labels), horizon=3)
    assert found["verdict"] == LEAK
    assert len(found["reasons"]) == 3
    assert "balanced accuracy of the model is 1.000" in found["reasons"][0]


@pytest.mark.parametrize(("share", "expected"), [(0.2, False), (0.9, True)])
def test_being_right_about_a_few_sure_moves_is_no_leak_and_about_most_of_them_is(share, expected):
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 1500)
    right = np.where(generator.random(1500) < 0.92, labels, 2 - labels)
    said = np.where((labels != 1) & (generator.random(1500) < share), right, 1)
    probabilities = 0.2 * np.eye(3)[said] + 0.8 / 3  # so unsure that only the sign tells
    found = judge.verdict(probabilities, labels, np.full(3, 1 / 3), guesses(0, labels), horizon=3)
    assert any("has the sign right" in reason for reason in found["reasons"]) == expected


def test_the_future_among_the_features_is_found_by_a_baseline():
    rows = market(0)
    labels = rows.pop("test_labels")
    rows["train_features"][:, 2] = rows["train_labels"]
    rows["test_features"][:, 2] = labels
    prior = judge.class_shares(rows["train_labels"])
    blind = np.tile(prior, (len(labels), 1))
    found = judge.verdict(blind, labels, prior, judge.baselines(**rows), horizon=3)
    assert found["verdict"] == LEAK
    assert any("gradient boosting" in reason for reason in found["reasons"])


def test_shuffled_labels_show_no_skill_at_more_than_the_nominal_rate():
    verdicts = []
    for seed in range(40):
        probabilities, labels = made(seed, 1000, 0.1)
        labels = np.random.default_rng(1000 + seed).permutation(labels)
        prior = judge.class_shares(labels)
        found = judge.verdict(probabilities, labels, prior, guesses(seed, labels), horizon=3, resamples=200, seed=seed)
        verdicts.append(found["verdict"])
    assert set(verdicts) <= {SKILL, NO_SKILL}
    assert verdicts.count(SKILL) <= 2


def test_a_model_that_learned_shuffled_labels_shows_no_skill():
    rows = market(4)
    labels = rows.pop("test_labels")
    rows["train_labels"] = np.random.default_rng(0).permutation(rows["train_labels"])
    learned = judge.baselines(**rows)
    prior = judge.class_shares(rows["train_labels"])
    for name in ("logistic regression", "gradient boosting"):
        assert judge.verdict(learned[name], labels, prior, learned, horizon=3)["verdict"] == NO_SKILL


def test_a_planted_signal_is_skill():
    rows = market(2, test=3000)
    labels = rows.pop("test_labels")
    # What the model sees is hidden from the last row, so the baselines know nothing.
    seen = rows["test_features"][:, 0].copy()
    for part in ("train", "test"):
        rows[f"{part}_features"][:, 0] = 0
        rows[f"{part}_last_returns"] = rows[f"{part}_features"][:, 1]
    scores = np.stack([-seen / 2, np.full(3000, -0.2), seen / 2], axis=1)
    found = judge.verdict(
        judge.softmax(scores), labels, judge.class_shares(rows["train_labels"]), judge.baselines(**rows), horizon=3
    )
    assert found["verdict"] == SKILL
    figures = ["log_loss", "log_loss", "macro_f1", "macro_f1", "direction_log_loss"]
    assert [row["figure"] for row in found["comparisons"]] == figures
    assert all(row["low"] > 0 for row in found["comparisons"])
    json.dumps(found, allow_nan=False)


def test_knowing_when_prices_move_but_not_where_to_is_no_skill():
    generator = np.random.default_rng(0)
    wild = generator.random(3000)
    labels = np.where(generator.random(3000) < wild, 2 * generator.integers(0, 2, 3000), 1)
    lean = 0.02 * generator.normal(size=3000)  # the model must say one of both sides
    probabilities = np.stack([wild * (0.5 - lean), 1 - wild, wild * (0.5 + lean)], axis=1)
    prior = judge.class_shares(labels)
    found = judge.verdict(probabilities, labels, prior, guesses(0, labels), horizon=3)
    *others, direction = found["comparisons"]
    assert all(row["low"] > 0 for row in others)
    assert (direction["figure"], direction["low"] < 0) == ("direction_log_loss", True)
    assert found["verdict"] == NO_SKILL
    assert len(found["reasons"]) == 1


def test_the_log_loss_is_that_of_moving_and_that_of_the_direction():
    probabilities, labels = made(0, 400)
    found = judge.figures(probabilities, labels, np.full(3, 1 / 3))
    still, moved = probabilities[:, 1], labels != 1
    moving = -np.log(np.where(moved, 1 - still, still)).mean()
    assert found["log_loss"] == pytest.approx(moving + moved.mean() * found["direction_log_loss"])
    assert found["prior_direction_log_loss"] == pytest.approx(np.log(2))


def test_a_signal_that_a_baseline_has_too_is_no_skill():
    rows = market(3)
    labels = rows.pop("test_labels")
    others = judge.baselines(**rows)
    found = judge.verdict(
        others["logistic regression"], labels, judge.class_shares(rows["train_labels"]), others, horizon=3
    )
    assert found["verdict"] == NO_SKILL
    assert any("against logistic regression: not better (+0.0000)" in reason for reason in found["reasons"])


def test_the_shipped_model_of_sol_shows_no_skill_however_well_calibrated():
    matrix = np.array(SHIPPED["SOL"][0])
    labels = np.repeat([0, 1, 2], matrix.sum(axis=1))
    predicted = np.concatenate([np.repeat([0, 1, 2], row) for row in matrix])
    order = np.random.default_rng(0).permutation(len(labels))
    labels, predicted = labels[order], predicted[order]
    # Only its predictions were kept; half the weight on them, the rest on the class shares, loses the least.
    prior = judge.class_shares(labels)
    for weight in (0.5, 0.9):
        probabilities = weight * np.eye(3)[predicted] + (1 - weight) * prior
        found = judge.verdict(probabilities, labels, prior, guesses(1, labels), horizon=3)
        assert found["verdict"] == NO_SKILL


def test_better_figures_whose_intervals_hold_zero_are_no_skill():
    probabilities, labels = made(6, 200, 0.2)
    found = judge.verdict(probabilities, labels, judge.class_shares(labels), guesses(6, labels), horizon=3)
    assert all(row["gain"] > 0 for row in found["comparisons"])
    assert found["verdict"] == NO_SKILL
    assert "but 0 is within its interval" in found["reasons"][0]


def test_too_few_rows_show_no_skill():
    probabilities, labels = made(0, 20, 3)
    found = judge.verdict(probabilities, labels, np.full(3, 1 / 3), guesses(0, labels), horizon=3)
    assert found["verdict"] == NO_SKILL
    assert "too few rows for an interval" in found["reasons"][0]


def test_a_verdict_without_baselines_is_refused():
    probabilities, labels = made(0, 100)
    with pytest.raises(ValueError, match="needs a baseline beside the prior"):
        judge.verdict(probabilities, labels, np.full(3, 1 / 3), {"majority": probabilities}, horizon=3)


# ---- temperature


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_temperature_that_spoilt_the_logits_is_found(temperature):
    probabilities, labels = made(0, 20_000, 1.5)
    logits = np.log(probabilities) * temperature
    found = judge.fit_temperature(logits, labels)
    assert found == pytest.approx(temperature, rel=0.05)
    prior = judge.class_shares(labels)
    before, after = (judge.figures(judge.softmax(logits, t), labels, prior) for t in (1.0, found))
    assert after["log_loss"] <= before["log_loss"] + 1e-9
    assert after["calibration_error"] < 0.02


def test_the_temperature_stays_bounded_where_labels_are_separable_or_logits_worthless():
    labels = np.random.default_rng(0).integers(0, 3, 300)
    low, high = judge.TEMPERATURES
    assert judge.fit_temperature(np.eye(3)[labels], labels) == pytest.approx(low, rel=0.01)
    assert judge.fit_temperature(-np.eye(3)[labels], labels) == pytest.approx(high, rel=0.01)
    with pytest.raises(ValueError, match="finite logits"):
        judge.fit_temperature(np.zeros((0, 3)), np.zeros(0))
