"""Block bootstrap: equal to a plain loop, and not misled by overlapping labels or coins that move together."""

import time

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import norm, ttest_1samp

from pipelines.workloads.crypto.verdict import significance
from pipelines.workloads.crypto.verdict.classification import class_shares
from pipelines.workloads.crypto.verdict.significance import block_bootstrap, block_length, fitted_block, p_value
from tests.workloads.crypto.verdict.samples import guesses, sample


def test_the_bootstrap_equals_a_plain_loop_over_blocks(monkeypatch):
    from sklearn.metrics import log_loss

    probabilities, labels = sample(3, 130)
    other = np.tile(class_shares(labels), (130, 1))
    monkeypatch.setattr(significance, "block_length", lambda steps, least: 7)
    found = block_bootstrap(probabilities, other, labels, horizon=4, resamples=30, seed=5)
    generator = np.random.default_rng(5)
    gains = []
    for starts in generator.integers(0, 130 - 7 + 1, (30, 19)):
        rows = (starts[:, None] + np.arange(7)).ravel()
        moved = rows[labels[rows] != 1]
        own, others = (
            (
                log_loss(labels[rows], p[rows], labels=[0, 1, 2]),
                log_loss(labels[moved], p[moved][:, [0, 2]] / p[moved][:, [0, 2]].sum(1, keepdims=True), labels=[0, 2]),
            )
            for p in (probabilities, other)
        )
        gains.append(np.subtract(others, own))
    low, high = np.quantile(gains, (0.025, 0.975), axis=0)
    for i, name in enumerate(("log_loss", "direction_log_loss")):
        assert (found[name]["low"], found[name]["high"]) == pytest.approx((low[i], high[i]))


def test_the_bootstrap_is_seeded_and_blocks_are_no_shorter_than_the_horizon():
    probabilities, labels = sample(0, 1000)
    other = guesses(0, labels)["guess"]
    found = block_bootstrap(probabilities, other, labels, horizon=3, seed=1)
    assert found == block_bootstrap(probabilities, other, labels, horizon=3, seed=1)
    assert found != block_bootstrap(probabilities, other, labels, horizon=3, seed=2)
    assert [block_length(1000, horizon) for horizon in (3, 30)] == [10, 30]


def test_too_few_blocks_have_no_interval():
    probabilities, labels = sample(0, 59)
    found = block_bootstrap(probabilities, guesses(0, labels)["majority"], labels, horizon=6)
    assert found["log_loss"]["low"] is None
    assert found["log_loss"]["gain"] is not None


def test_a_thousand_resamples_of_five_thousand_rows_are_quick():
    probabilities, labels = sample(0, 5000)
    began = time.process_time()
    block_bootstrap(probabilities, guesses(0, labels)["majority"], labels, horizon=3, resamples=1000)
    assert time.process_time() - began < 2


def test_overlapping_labels_are_not_mistaken_for_evidence(monkeypatch):
    def wrong(block: int) -> int:
        monkeypatch.setattr(significance, "block_length", lambda steps, least: block)
        count = 0
        for seed in range(60):
            # Neighbouring rows share label and prediction, like overlapping windows and horizons.
            generator = np.random.default_rng(seed)
            labels = np.repeat(generator.integers(0, 3, 60), 10)
            probabilities = softmax(0.1 * np.repeat(generator.normal(size=(60, 3)), 10, axis=0), axis=1)
            uniform = np.full((600, 3), 1 / 3)
            found = block_bootstrap(probabilities, uniform, labels, horizon=10, resamples=200, seed=seed)
            count += found["log_loss"]["low"] > 0
        return count

    assert wrong(20) <= 5  # nominally 1.5; 60 independent labels are few
    assert wrong(1) > 10


def persistent(seed, count, share):
    """A process each of whose values repeats a share of the one before."""
    from scipy.signal import lfilter  # slow to import

    return lfilter([1], [1, -share], np.random.default_rng(seed).standard_normal(count))


@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_blocks_grow_with_the_persistence_of_a_process_as_theory_says(share):
    known = (1.5 * 200_000) ** (1 / 3) * (2 * share / (1 - share**2)) ** (2 / 3)
    assert fitted_block(persistent(0, 200_000, share)) == pytest.approx(known, rel=0.15)
    assert fitted_block(persistent(0, 200_000, 0.0)) < 10
    assert fitted_block(np.ones(100)) == 1


def test_p_values_are_those_of_students_test_and_allow_for_persistence():
    for seed in range(10):
        noise = 0.02 + persistent(seed, 4000, 0.0)
        assert p_value(noise, 1) == pytest.approx(ttest_1samp(noise, 0, alternative="greater").pvalue, abs=0.04)
        slow = 0.02 + persistent(seed, 20_000, 0.8)
        assert p_value(slow, 1) == pytest.approx(norm.sf(slow.mean() * (1 - 0.8) * 20_000**0.5), abs=0.08)


def test_p_values_need_ten_blocks_of_three_horizons_and_a_difference():
    values = 1 + persistent(0, 300, 0.0)
    assert p_value(values, 10) < 0.001
    assert p_value(values[1:], 10) == p_value(values, 11) == p_value(np.zeros(300), 10) == 1
