"""Raters: those who guess are found and hardly heard, honest ones lose nothing; and many images at once."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from scipy.stats import norm, spearmanr

from models.images.people import many_images
from models.images.people.many_images import Sampled, SampledUncertainty, fit_many
from models.images.people.preferences import ALIKE, UNKNOWN, Posterior, Prior, Uncertainty, fit, next_pairs
from models.images.people.propagation import averaged
from models.images.people.raters import DISCRIMINATION, LEAN, LEAST, SPREAD, Raters, fitted, updated
from tests.workloads.lmol.people.test_preferences import alike, answered, random_pairs


def crowd(seed, spammers, images=60, answers=300, raters=6):
    """True scores, answers about random pairs, and who gave them; the first raters guess."""
    generator = np.random.default_rng(seed)
    scores = generator.normal(0, 3, images)
    rows = answered(scores, random_pairs(answers, images, generator), generator)
    who = generator.integers(0, raters, answers)
    rows[:, 2] = np.where(who < spammers, generator.integers(0, 3, answers), rows[:, 2])
    return scores, rows, [f"rater {k}" for k in who]


def gain(spammers, seeds):
    """The rise of the rank correlation by knowing who answered, for each seed."""
    found = []
    for seed in seeds:
        scores, rows, who = crowd(seed, spammers)
        fits = [fitted(rows, Prior(np.zeros(60), np.full(60, UNKNOWN)), names) for names in ((), who)]
        each = [averaged(rows, one.priors, one.beforehand, one.heard).scores for one in fits]
        found.append(spearmanr(each[1], scores).statistic - spearmanr(each[0], scores).statistic)
    return np.array(found)


@pytest.mark.slow
def test_two_spammers_of_six_cost_less_once_they_are_found_and_honest_raters_nothing():
    spoilt, honest = gain(2, range(12)), gain(0, range(12))
    assert spoilt.mean() > 2 * spoilt.std(ddof=1) / len(spoilt) ** 0.5
    assert abs(honest.mean()) < 0.03


def test_who_guesses_is_named_in_the_table_and_one_rater_is_taken_as_all():
    _, rows, who = crowd(1, 2, answers=600)
    prior = Prior(np.zeros(60), np.full(60, UNKNOWN))
    found = fitted(rows, prior, who)
    assert set(np.argsort(found.raters.factor)[:2]) == {0, 1}
    assert found.raters.factor[2:].min() > 2 * found.raters.factor[:2].max()
    assert found.raters.table()[0].startswith("rater rater ")
    factor = found.raters.factor
    assert np.square(factor).sum() == pytest.approx(factor.sum())  # scores are in the logits of who is heard
    assert fitted(rows, prior, ["me"] * len(rows)).raters is None


def test_discriminations_and_leans_equal_a_general_optimisers():
    """One rater is careful, one leans to the first image, one prefers what others do not; each gives 40 answers."""
    generator = np.random.default_rng(0)
    scores = 2 * generator.normal(size=12)
    posterior = Posterior(scores, np.diag(generator.uniform(0.1, 0.6, 12)), 0.3)
    rows, of = random_pairs(120, 12, generator), np.repeat(np.arange(3), 40)
    difference = scores[rows[:, 0]] - scores[rows[:, 1]]
    logits = np.stack([np.array([2, 1, -0.5])[of] * difference / 2 + np.array([0, 1.5, 0])[of]] * 2, 1) * [1, -1]
    logits = np.column_stack([logits, np.full(120, 0.3)])
    rows = np.column_stack([rows, (logits + generator.gumbel(size=(120, 3))).argmax(1)])
    found = updated(Raters(["a", "b", "c"], of, np.full(3, DISCRIMINATION), np.zeros(3)), rows, posterior)
    deviation = np.sqrt(posterior.variances(*rows[:, :2].T))
    grid, step = np.linspace(-8, 8, 801, retstep=True)

    def loss(values, rater):
        factor, lean = values
        own = rows[of == rater]
        seen = factor * (difference[of == rater, None] + deviation[of == rater, None] * grid) + lean
        nats = log_softmax(np.stack([seen / 2, -seen / 2, np.full_like(seen, posterior.tie)]), axis=0)
        expected = (nats[own[:, 2], np.arange(len(own))] * norm.pdf(grid) * step).sum()
        return (factor - DISCRIMINATION) ** 2 / (2 * SPREAD**2) + lean**2 / (2 * LEAN**2) - expected

    best = [minimize(loss, [1.0, 0.0], args=(rater,)).x for rater in range(3)]
    for rater in (0, 1):
        assert [found.factor[rater], found.lean[rater]] == pytest.approx(best[rater], abs=0.01)
    assert best[2][0] < found.factor[2] == LEAST  # hardly heard, and not the other way round


@pytest.mark.parametrize("share", [0.0, 0.8])
def test_sparse_matrices_find_what_dense_ones_do(share):
    generator = np.random.default_rng(0)
    features, scores, _ = alike(150, generator)
    prior = Prior(np.zeros(150), np.full(150, 3.0), features, share, 0.8)
    rows = answered(scores, random_pairs(900, 150, generator), generator)
    dense, sparse = fit(rows, prior), fit_many(rows, prior, heard=ALIKE)
    assert isinstance(sparse, Sampled)
    np.testing.assert_allclose(sparse.scores, dense.scores, atol=0.02)
    assert abs(sparse.tie - dense.tie) < 0.01
    assert abs(np.log(sparse.errors / dense.errors)).mean() < 0.06
    chosen = next_pairs(sparse, 10, rows, 0)
    best, drawn = (sum_of_gains(dense, pairs) for pairs in (chosen, random_pairs(10, 150, generator)))
    assert best > 1.2 * drawn


def sum_of_gains(posterior, pairs):
    """The squared lengths of the covariance of each pair's difference with all scores."""
    return posterior.uncertainty().of(*pairs.T)[1].sum()


def test_what_samples_lose_by_an_answer_is_what_the_covariance_loses():
    generator = np.random.default_rng(0)
    samples = generator.normal(size=(6, 4))
    both = SampledUncertainty(samples), Uncertainty(samples @ samples.T)
    pairs = np.stack(np.triu_indices(6, 1))
    for first, second, weight in ((0, 3, 0.05), (2, 3, 0.1), (0, 5, 0.02)):
        for each in both:
            each.answered(first, second, weight)
        for sampled, exact in zip(*(each.of(*pairs) for each in both), strict=True):
            assert sampled == pytest.approx(exact)


def test_priors_of_many_images_are_chosen_by_those_that_most_answers_are_about(monkeypatch):
    pairs = np.array([[0, 1, 0], [4, 1, 0], [1, 4, 2], [4, 0, 0], [2, 3, 1], [0, 3, 0]])
    assert many_images.some(pairs, 5).tolist() == list(range(6))
    monkeypatch.setattr(many_images, "MOST_DENSE", 3 * 3)
    assert many_images.some(pairs, 10).tolist() == [0, 1, 2, 3]  # among images 0, 1 and 4
