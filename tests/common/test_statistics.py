"""Intervals: known values to the last digit, published ones, and simulations of how often they hold the truth."""

import numpy as np
import pytest
from scipy.stats import norm

from common import statistics

VALUES, WEIGHTS = np.array([6.25, 5.5, 7.125, 6.0, 6.75]), np.array([3, 2, 4, 3, 3])


def test_every_interval_of_a_small_sample_is_known_to_the_last_digit():
    mean, half = statistics.mean_and_half_width(VALUES)
    assert (mean, half) == (6.325, pytest.approx(2.7764451051977934 / 1.96 * 0.5565330178884268, rel=1e-12))
    assert statistics.interval_around(mean, half) == [mean - half, mean + half]
    assert statistics.ratio_half_width(VALUES, WEIGHTS) == pytest.approx(
        2.7764451051977934 / 1.96 * 0.2791253623396387, rel=1e-12
    )
    assert statistics.wilson(1, 10) == pytest.approx([0.017876213095072868, 0.4041500267952385], rel=1e-14)
    assert statistics.percentiles(VALUES) == [5.55, 7.0875]
    assert statistics.percentiles(VALUES.tolist(), (0.25, 0.75)) == [6.0, 6.75]


def test_draws_are_those_of_the_seed():
    assert [drawn.tolist() for drawn in statistics.resampled_groups(range(5), 2, 7)] == [
        [4, 3, 3, 4, 2],
        [3, 4, 1, 0, 1],
    ]
    counts = statistics.resampled_counts(5, 2000, 7)
    assert counts.shape == (2000, 5)
    assert counts[:2].tolist() == [[1, 2, 1, 0, 1], [0, 2, 0, 2, 1]]
    assert statistics.ratio_percentiles(VALUES, WEIGHTS, counts) == [1.8958333333333333, 2.3958333333333335]


def test_too_few_values_have_no_interval():
    one = np.array([3.5])
    assert statistics.mean_and_half_width(one) == (3.5, None)
    assert statistics.interval_around(3.5, None) is None
    assert statistics.ratio_half_width(one, one) is None
    assert statistics.ratio_half_width(np.array([1.0, 3.0]), np.ones(2)) == pytest.approx(12.7062, abs=1e-4)
    assert statistics.wilson(0, 0) is None
    assert statistics.ratio_percentiles(one, one, statistics.resampled_counts(1, 10, 0)) is None


def test_means_of_few_values_have_the_intervals_of_students_t():
    """The quantiles are those of Student (1908) as tables have them: 4.303, 2.262, 2.045; beyond, the normal one."""
    for count, errors in ((3, 4.303), (10, 2.262), (30, 2.045), (31, 1.96)):
        values = np.arange(count) / 1.0
        half = errors * values.std(ddof=1) / count**0.5
        assert statistics.mean_and_half_width(values) == (values.mean(), pytest.approx(half, rel=2e-4))
        assert statistics.ratio_half_width(values, np.full(count, 2.0)) == pytest.approx(half / 2, rel=2e-4)


# Newcombe (1998), "Two-sided confidence intervals for the single proportion", table I, method 3.
@pytest.mark.parametrize(
    ("successes", "trials", "interval"),
    [(81, 263, (0.2553, 0.3662)), (15, 148, (0.0624, 0.1605)), (0, 20, (0.0, 0.1611)), (1, 29, (0.0061, 0.1718))],
)
def test_wilson_intervals_are_the_published_ones(successes, trials, interval):
    found = statistics.wilson(successes, trials)
    assert found == pytest.approx(interval, abs=5e-5)


def test_the_interval_of_a_difference_is_the_published_one():
    """Newcombe (1998), "Interval estimation for the difference between independent proportions", method 10."""
    one, other = (56, 70), (48, 80)
    figures = [(count / trials, *statistics.wilson(count, trials)) for count, trials in (one, other)]
    assert statistics.difference_interval(*figures) == pytest.approx([0.0524, 0.3339], abs=5e-5)


def test_the_quantiles_of_the_normal_distribution_are_right():
    assert round(norm.ppf((1 + statistics.CONFIDENCE) / 2), 2) == statistics.Z95
    assert pytest.approx([(1 - statistics.CONFIDENCE) / 2, (1 + statistics.CONFIDENCE) / 2]) == statistics.QUANTILES_95


def test_intervals_shrink_with_evidence_and_hold_the_truth():
    generator = np.random.default_rng(0)

    def interval(count):
        values, weights = generator.normal(1000, 200, count), np.full(count, 500)
        return statistics.ratio_percentiles(values, weights, statistics.resampled_counts(count, 2000, 0))

    few, many = interval(10), interval(1000)
    assert few[0] < 2 < few[1]
    assert many[0] < 2.03
    assert many[1] > 1.97
    assert many[1] - many[0] < (few[1] - few[0]) / 4


def mean_interval(values, weights, seed):
    return statistics.interval_around(*statistics.mean_and_half_width(values / weights))


def ratio_interval(values, weights, seed):
    half = statistics.ratio_half_width(values, weights)
    return statistics.interval_around(values.sum() / weights.sum(), half)


def bootstrapped_ratio(values, weights, seed):
    return statistics.ratio_percentiles(values, weights, statistics.resampled_counts(len(values), 200, seed))


def bootstrapped_mean(values, weights, seed):
    each = values / weights
    drawn = np.stack(list(statistics.resampled_groups(range(len(each)), 200, seed)))
    return statistics.percentiles(each[drawn].mean(axis=1))


@pytest.mark.parametrize("count", [100, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize("interval", [mean_interval, ratio_interval, bootstrapped_ratio, bootstrapped_mean])
def test_intervals_of_95_percent_hold_the_truth_about_as_often(interval, count):
    held = 0
    for seed in range(count):
        generator = np.random.default_rng(seed)
        weights = generator.integers(50, 150, 60)
        low, high = interval(generator.normal(2, 0.5, 60) * weights, weights, seed)
        held += low < 2 < high
    assert 0.9 < held / count < 0.98


@pytest.mark.parametrize("successes", [5, 30])
def test_wilson_intervals_hold_the_share_about_as_often(successes):
    drawn = np.random.default_rng(0).binomial(60, successes / 60, 2000)
    intervals = {count: statistics.wilson(count, 60) for count in np.unique(drawn).tolist()}
    held = [intervals[count][0] < successes / 60 < intervals[count][1] for count in drawn.tolist()]
    assert 0.92 < np.mean(held) < 0.98


def test_moving_blocks_are_summed_as_in_a_plain_loop_and_portions_do_not_change_them(monkeypatch):
    rows = np.random.default_rng(1).integers(0, 100, (23, 2)).astype(float)
    found = np.concatenate(list(statistics.moving_block_sums(rows, 5, 250, 3)))
    starts = np.random.default_rng(3).integers(0, 23 - 5 + 1, (250, 5))
    assert found.tolist() == [sum(rows[first : first + 5].sum(0) for first in each).tolist() for each in starts]
    monkeypatch.setattr(statistics, "RESAMPLES_AT_ONCE", 7)
    assert np.concatenate(list(statistics.moving_block_sums(rows, 5, 250, 3))).tolist() == found.tolist()


def test_moving_blocks_hold_the_mean_of_dependent_rows_and_single_rows_do_not():
    def held(block):
        count = 0
        for seed in range(200):
            rows = np.repeat(np.random.default_rng(seed).normal(size=60), 10)[:, None]
            sums = np.concatenate(list(statistics.moving_block_sums(rows, block, 200, seed)))
            low, high = statistics.percentiles(sums[:, 0])
            count += low < 0 < high
        return count / 200

    assert held(20) > 0.87
    assert held(1) < 0.6
