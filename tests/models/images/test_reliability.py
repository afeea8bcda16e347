"""Scores of unreliable comparators: never worse than a constant, with intervals that hold."""

import math
from dataclasses import replace

import pytest
import torch

from models.images import ranking, reliability
from models.images.ranking import Davidson
from models.images.reliability import Reliability

VALIDATION, TEST, REFERENCES, TRAINING = 200, 400, 40, 300


def comparator(accuracy, *, seed, values=None, known_too_well=0.2):
    """Known scores of validation, test, reference and further training images, and a comparator that orders them.

    `accuracy` is the share of pairs of unseen images that it orders rightly.

    It sees each score with an error of its own, the same in all comparisons; those of references, on which it was
    trained, it sees better. Scores are normal, or as many different ones as `values`.
    """
    generator = torch.Generator().manual_seed(seed)
    count = VALIDATION + TEST + REFERENCES + TRAINING
    known = 3 + torch.randn(count, generator=generator, dtype=torch.float64)
    if values:
        known = torch.randint(values, (count,), generator=generator).double()
    # Normal scores with an error of deviation t are ordered rightly with probability 1/2 + atan(1/t) / pi.
    deviation = known.std() / math.tan(math.pi * (accuracy - 0.5))
    error = deviation * torch.randn(count, generator=generator, dtype=torch.float64)
    error[VALIDATION + TEST :] *= known_too_well
    seen, truth = known + error, Davidson(4.0, 0.5)
    return known, lambda first, second: truth.probabilities(seen[first] - seen[second]).log()


def scored(known, log_odds):
    """Known scores of the test images, those found, and their standard errors."""
    count = VALIDATION + TEST
    numbers = torch.arange(count, count + REFERENCES)
    references = ranking.References(log_odds, numbers, known[numbers], theta=0.2, budget=16)
    prior = reliability.quantiles(known[count:])
    scale = ranking.fit_scale(references, seed=0, prior=prior)
    estimates, information = references.placed(scale.davidson, torch.arange(count))
    measured = reliability.fit(prior, estimates[:VALIDATION], information[:VALIDATION], known[:VALIDATION])
    scale = replace(scale, reliability=measured)
    return known[VALIDATION:count], *scale.scores(estimates[VALIDATION:], information[VALIDATION:])


def root_mean_square(values):
    return float(values.square().mean().sqrt())


def judged(accuracy, seeds):
    """RMSE over the constant's, and coverage of the 95 % intervals, the means over simulations."""
    ratios, inside = [], []
    for seed in range(seeds):
        known, found, errors = scored(*comparator(accuracy, seed=seed))
        ratios.append(root_mean_square(found - known) / float(known.std()))
        inside.append(float(((found - known).abs() <= 1.96 * errors).double().mean()))
    return sum(ratios) / seeds, sum(inside) / seeds


@pytest.mark.parametrize("accuracy", [0.6, 0.9])
def test_scores_are_better_than_a_constant(accuracy):
    ratio, coverage = judged(accuracy, 1)
    assert ratio < 1
    assert 0.9 < coverage < 0.99


@pytest.mark.slow
@pytest.mark.parametrize("accuracy", [0.55, 0.6, 0.7, 0.8, 0.9, 0.99])
def test_scores_are_nearly_as_good_as_they_can_be_and_intervals_hold(accuracy):
    ratio, coverage = judged(accuracy, 8)
    best = math.cos(math.pi * (accuracy - 0.5))  # of the posterior mean under the truth: t / sqrt(1 + t^2)
    print(f"accuracy {accuracy}: RMSE over the constant's {ratio:.3f}, at best {best:.3f}; coverage {coverage:.3f}")
    assert ratio < 1
    assert ratio < best + 0.03
    assert 0.93 < coverage < 0.97


def test_a_comparator_that_errs_the_same_about_all_its_images_is_corrected():
    known, _ = comparator(0.9, seed=0)
    images = torch.arange(len(known)) < VALIDATION + TEST
    shift = torch.where(images, 1.5, 0.0).double()
    truth = Davidson(4.0, 0.5)
    seen = torch.where(images, 0.5 * known, known) + shift
    _, found, errors = scored(known, lambda a, b: truth.probabilities(seen[a] - seen[b]).log())
    wrong = found - known[VALIDATION : VALIDATION + TEST]
    assert root_mean_square(wrong) < 0.2 * float(known.std())
    assert float((wrong.abs() <= 1.96 * errors).double().mean()) > 0.93


def test_scores_of_few_values_stay_on_them():
    known, found, _ = scored(*comparator(0.97, seed=0, values=10))
    assert float((found - known).abs().median()) < 0.02
    assert root_mean_square(found - known) < 0.15 * float(known.std())


def test_a_score_that_occurs_repeatedly_has_no_width():
    prior, noise = torch.tensor([0.0, 0, 1, 1], dtype=torch.float64), 0.25
    estimate = torch.tensor([0.4], dtype=torch.float64)
    (mean,), (error,) = Reliability(0, 1, noise, 0).scores(prior, estimate, torch.ones(1))
    share = torch.tensor([-(0.4**2), -(0.6**2)], dtype=torch.float64).div(2 * noise).softmax(0)[1]  # of the score 1
    assert float(mean) == pytest.approx(float(share))
    assert float(error) == pytest.approx(float((share * (1 - share)).sqrt()))


def test_a_comparator_that_knows_nothing_gives_the_mean():
    known = comparator(0.9, seed=0)[0]
    generator = torch.Generator().manual_seed(0)
    known, found, errors = scored(known, lambda a, b: torch.randn(len(a), 3, generator=generator))
    assert root_mean_square(found - known) < 1.02 * float(known.std())
    assert 0.9 < float(((found - known).abs() <= 1.96 * errors).double().mean()) < 0.98


def test_the_posterior_of_a_normal_prior_is_that_of_the_textbook():
    """Mean m + k (x - m), variance (1 - k) s^2, with k = s^2 / (s^2 + v), up to the finite number of quantiles."""
    shares = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    prior = reliability.quantiles(2 + 3 * torch.special.ndtri(shares))
    x = torch.tensor([-3.0, 2.0, 6.0], dtype=torch.float64)
    mean, error = Reliability(offset=1.0, slope=0.5, floor=1.0, dispersion=2.0).scores(prior, 1 + 0.5 * x, 2 + 0 * x)
    variance = (1.0 + 2.0 / 2) / 0.5**2
    gain = 9 / (9 + variance)
    torch.testing.assert_close(mean, 2 + gain * (x - 2), atol=0.03, rtol=0)
    torch.testing.assert_close(error, torch.full_like(x, math.sqrt((1 - gain) * 9)), rtol=0.03, atol=0)


def test_the_posterior_of_few_scores_far_apart_is_that_of_a_fine_grid():
    """The prior has a normal distribution around each score, as wide as the gap to the nearer neighbour."""
    prior = torch.tensor([-3.0, 1, 7], dtype=torch.float64)
    estimates = torch.tensor([-2.0, 1.5, 5.0], dtype=torch.float64)
    mean, error = Reliability(offset=1.0, slope=0.4, floor=0.5, dispersion=3.0).scores(prior, estimates, 2 + 0 * prior)
    grid = torch.linspace(-60, 60, 120_001, dtype=torch.float64)
    widths = torch.tensor([4.0, 4, 6], dtype=torch.float64)
    density = ((-((grid - prior[:, None]) / widths[:, None]).square() / 2).exp() / widths[:, None]).sum(0)
    chance = density * (-(estimates[:, None] - 1 - 0.4 * grid).square() / (2 * (0.5 + 3 / 2))).exp()
    chance = chance / chance.sum(1, keepdim=True)
    torch.testing.assert_close(mean, chance @ grid)
    torch.testing.assert_close(error, (chance @ grid.square() - (chance @ grid).square()).sqrt())


def test_what_falls_with_information_is_told_from_what_does_not():
    generator = torch.Generator().manual_seed(0)
    known, noise = torch.randn(2, 1500, generator=generator, dtype=torch.float64)
    information = 10 ** (2 * torch.rand(1500, generator=generator, dtype=torch.float64))
    estimates = 0.3 + 0.8 * known + noise * (0.25 + 4 / information).sqrt()
    found = reliability.fit(reliability.quantiles(known), estimates, information, known)
    assert found.offset == pytest.approx(0.3, abs=0.05)
    assert found.slope == pytest.approx(0.8, abs=0.05)
    assert found.floor == pytest.approx(0.25, abs=0.15)
    assert found.dispersion == pytest.approx(4, abs=1)
    assert found.factor == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_few_images_or_equal_scores_leave_everything_finite(count):
    known = torch.arange(count, dtype=torch.float64)
    for scores in (known, torch.full_like(known, 2.0)):
        found = reliability.fit(reliability.quantiles(known), known + 0.1, torch.ones(count).double(), scores)
        mean, error = found.scores(reliability.quantiles(known), known, torch.ones(count).double())
        assert mean.isfinite().all()
        assert error.isfinite().all()


@pytest.mark.parametrize(("count", "place"), [(19, 19), (20, 20), (39, 38), (99, 95)])
def test_the_factor_covers_one_image_more_than_the_share(count, place):
    distances = torch.arange(1.0, count + 1, dtype=torch.float64)
    factor = reliability.calibrated(torch.ones(count, dtype=torch.float64), distances, torch.zeros_like(distances))
    assert factor * 1.96 == pytest.approx(place)  # of the sorted distances: that of rank .95 (M + 1), rounded up


def test_exact_estimates_narrow_intervals_no_further_than_to_four_fifths():
    known = torch.arange(5.0, dtype=torch.float64).repeat(20)
    assert reliability.fit(None, known, torch.full_like(known, 100.0), known).factor == 0.8


@pytest.mark.parametrize("count", [5, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("grouped", "least", "most"), [(True, 0.93, 1.0), (False, 0.0, 0.9)])
def test_intervals_hold_for_images_of_new_groups_where_a_group_shares_an_error(grouped, least, most, count):
    """As photos are, of which each has many versions."""
    inside = []
    for seed in range(count):
        generator = torch.Generator().manual_seed(seed)
        group = torch.arange(600) // 20
        known, own = torch.randn(2, 600, generator=generator, dtype=torch.float64)
        shared = torch.randn(30, 2, generator=generator, dtype=torch.float64)[group]
        # Of a group, estimates are off by as much, and another score counts for more or less.
        estimates = (1 + 0.3 * shared[:, 1]) * known + 0.8 * shared[:, 0] + 0.1 * own
        information, seen = torch.full_like(known, 100.0), slice(160)
        prior = reliability.quantiles(known)
        groups = group[seen] if grouped else None
        found = reliability.fit(prior, estimates[seen], information[seen], known[seen], groups)
        scores, errors = found.scores(prior, estimates[160:], information[160:])
        inside.append(float(((scores - known[160:]).abs() <= 1.96 * errors).double().mean()))
    assert least < sum(inside) / len(inside) < most
