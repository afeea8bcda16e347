"""Scores from comparisons: planted scores are recovered, intervals hold, and the order of images does not matter."""

import math

import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize

from models.images import ranking, reliability
from models.images.ranking import SWAPPED, Davidson


def planted(images, references, *, discrimination=6.0, tie=0.5, noise=0.0, reference_noise=None, tossed=False, seed=0):
    """Return known scores of all images, and a comparator that sees each score with an error of its own.

    If `tossed`, it gives one answer drawn from the model's probabilities instead of the probabilities.
    """
    generator = torch.Generator().manual_seed(seed)
    known = 1 + 4 * torch.rand(images + references, generator=generator, dtype=torch.float64)
    error = torch.full_like(known, noise)
    error[images:] = noise if reference_noise is None else reference_noise
    seen = known + error * torch.randn(known.shape, generator=generator, dtype=torch.float64)
    truth = Davidson(discrimination, tie)

    def log_odds(first, second):
        probabilities = truth.probabilities(seen[first] - seen[second])
        if tossed:
            drawn = torch.multinomial(probabilities, 1, generator=generator)[:, 0]
            return F.one_hot(drawn, 3) * 100.0
        return probabilities.log()

    return known, log_odds


def place(known, log_odds, images, budget=24, theta=0.2, numbers=None):
    numbers = torch.arange(images, len(known)) if numbers is None else numbers
    references = ranking.References(log_odds, numbers, known[numbers], theta, budget)
    scale = ranking.fit_scale(references, seed=0)
    return scale.scores(*references.placed(scale.davidson, torch.arange(images)))


@pytest.mark.parametrize(
    "how", [{"noise": 0.2}, pytest.param({"tossed": True}, marks=pytest.mark.slow), {"noise": 0.1, "tossed": True}]
)
def test_planted_scores_are_found_and_the_intervals_hold(how):
    ratios = []
    for seed in range(3):
        known, log_odds = planted(200, 100, seed=seed, **how)
        found, errors = place(known, log_odds, 200)
        assert torch.corrcoef(torch.stack([found, known[:200]]))[0, 1] > 0.97
        ratios.append((found - known[:200]) / errors)
    ratios = torch.cat(ratios)
    assert 0.9 < float((ratios.abs() < 1.96).double().mean()) < 0.98
    assert 0.85 < float(ratios.square().mean().sqrt()) < 1.15


def test_scores_of_another_level_are_found_at_that_level_as_surely():
    known, log_odds = planted(20, 30, noise=0.2)
    found, errors = place(known, log_odds, 20)
    higher, their_errors = place(known + 100, log_odds, 20)
    torch.testing.assert_close(higher, found + 100, rtol=0, atol=1e-6)
    torch.testing.assert_close(their_errors, errors, rtol=1e-6, atol=0)
    once = torch.eye(1, 30, dtype=torch.bool)  # compared with one image alone, so that the prior tells much
    low, high = (ranking.most_likely(Davidson(6.0, 0.5), known[20:] + up, once.double(), once) for up in (0, 100))
    assert [float(high[0]) - 100, float(high[1])] == pytest.approx([float(low[0]), float(low[1])])


@pytest.mark.slow
def test_errors_hidden_by_references_known_too_well_are_measured_on_other_images():
    known, log_odds = planted(2000, 100, noise=0.3, reference_noise=0.02)
    found, errors = place(known, log_odds, 2000)
    within = (found - known[:2000]).abs() < 1.96 * errors
    assert float(within.double().mean()) < 0.7
    factor = reliability.calibrated(errors[:1000], found[:1000], known[:1000])
    within = (found - known[:2000]).abs()[1000:] < 1.96 * factor * errors[1000:]
    assert 0.93 < float(within.double().mean()) < 0.97


def test_a_few_images_that_are_taken_for_something_else_do_not_widen_all_intervals():
    generator = torch.Generator().manual_seed(0)
    errors = torch.ones(200, dtype=torch.float64)
    wrong = torch.randn(400, generator=generator, dtype=torch.float64)
    wrong[::50] *= 1000
    factor = reliability.calibrated(errors, wrong[:200], torch.zeros(200))
    assert 0.8 < factor < 1.3
    assert 0.9 < float((wrong[200:].abs() < 1.96 * factor).double().mean()) < 0.99
    # Ten images are too few for a 95 % quantile, so the farthest of them counts.
    assert reliability.calibrated(errors[:10], wrong[:10], torch.zeros(10)) == pytest.approx(
        float(wrong[:10].abs().max()) / 1.96
    )


def test_the_order_of_images_and_references_does_not_matter():
    known, log_odds = planted(40, 30, noise=0.2)
    found, errors = place(known, log_odds, 40)
    shuffle = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    numbers = torch.cat([shuffle, torch.arange(40, 70)])
    again = place(known, lambda a, b: log_odds(numbers[a], numbers[b]), 40)
    assert torch.allclose(again[0], found[shuffle])
    assert torch.allclose(again[1], errors[shuffle])
    turned = place(known, log_odds, 40, numbers=torch.arange(69, 39, -1))
    assert torch.allclose(turned[0], found)


def test_placing_equals_a_search_of_all_scores():
    davidson = Davidson(9.0, 1.0)
    known = torch.tensor([0.0, 0.4, 1.0, 1.5, 3.0], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    answers = torch.rand(6, 5, 3, generator=generator, dtype=torch.float64).softmax(-1)
    answers[0] = torch.tensor([1.0, 0, 0])  # beats all
    answers[1] = torch.tensor([0, 1.0, 0])  # loses to all
    compared = torch.rand(6, 5, generator=generator) < 0.8
    compared[:2] = True
    compared[5] = False  # compared with none
    found, _ = ranking.most_likely(davidson, known, answers[..., 0] - answers[..., 1], compared)

    grid = torch.linspace(-3, 6, 90_001, dtype=torch.float64)
    for i in range(6):
        log_probabilities = davidson.probabilities(grid[:, None] - known).log()
        likelihood = ((answers[i] * log_probabilities).sum(-1) * compared[i]).sum(1)
        likelihood -= ((grid - known.mean()) / 3.0).square() / 2  # the prior is as wide as the references' range
        assert float(found[i]) == pytest.approx(float(grid[likelihood.argmax()]), abs=2e-4)
    assert known.max() < found[0] < 6
    assert -3 < found[1] < known.min()
    assert found[5] == pytest.approx(float(known.mean()))


def test_the_fit_equals_a_general_optimiser():
    generator = torch.Generator().manual_seed(0)
    differences = torch.randn(200, generator=generator, dtype=torch.float64) * 3
    answers = Davidson(1.7, -0.4).probabilities(differences + torch.randn(200, generator=generator))
    spread = float(differences.square().mean().sqrt())

    def loss(parameters):
        a, tie = (float(value) for value in parameters)
        log_probabilities = Davidson(a, tie).probabilities(differences).log()
        prior = ranking.FLATNESS / 2 * ((a * spread) ** 2 + tie**2)
        return -float((answers * log_probabilities).sum()) + prior

    best = minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12}).x
    fitted = ranking.fit(answers, differences)
    assert [fitted.discrimination, fitted.tie] == pytest.approx(best.tolist(), abs=1e-5)


def test_answers_without_doubt_leave_the_fit_finite():
    differences = torch.tensor([-2.0, -1, 0, 0, 1, 2], dtype=torch.float64)
    answers = F.one_hot(torch.tensor([1, 1, 2, 2, 0, 0]), 3).double()
    fitted = ranking.fit(answers, differences)
    assert math.isfinite(fitted.discrimination)
    assert math.isfinite(fitted.tie)
    assert torch.equal(fitted.probabilities(differences).argmax(1), answers.argmax(1))


def test_scores_of_few_values_are_found_where_only_equal_ones_are_similar():
    known = torch.arange(10.0, dtype=torch.float64).repeat(8)

    def log_odds(first, second):
        difference = known[first] - known[second]
        label = torch.where(difference == 0, 2, torch.where(difference > 0, 0, 1))
        return F.one_hot(label, 3) * 6.0

    found, errors = place(known, log_odds, 40, budget=16, theta=0)
    assert (found - known[:40]).abs().max() < 0.2
    assert errors.max() < 0.5


def test_each_image_meets_few_references_in_both_orders_and_mostly_near_ones():
    known, log_odds = planted(50, 100, tossed=True)
    asked = []

    def counted(first, second):
        asked.append(torch.stack([first, second]))
        return log_odds(first, second)

    place(known, counted, 50, budget=20)
    first, second = torch.cat(asked, dim=1)
    forward, backward = first < 50, second < 50
    given = sorted(zip(first[forward].tolist(), second[forward].tolist(), strict=True))
    turned = sorted(zip(second[backward].tolist(), first[backward].tolist(), strict=True))
    assert given == turned
    assert len(set(given)) == len(given) == 50 * 20
    distance = (known[first] - known[second])[forward].abs().view(-1)
    among_all = (known[:50, None] - known[50:]).abs().mean()
    assert distance.mean() < 0.6 * among_all
    assert not (first == second).any()  # a left-out reference is compared with the others only


def test_chosen_references_tell_more_than_spread_ones():
    known, log_odds = planted(200, 100, tossed=True, discrimination=12.0)
    chosen, _ = place(known, log_odds, 200, budget=16)
    spread = 200 + known[200:].argsort()[torch.linspace(0, 99, 16).round().long()]
    fixed, _ = place(known, log_odds, 200, budget=16, numbers=spread)
    assert (chosen - known[:200]).square().mean() < 0.5 * (fixed - known[:200]).square().mean()


def test_an_image_that_is_precise_enough_meets_no_more_references():
    known, log_odds = planted(20, 60)
    asked = []

    def counted(first, second):
        asked.append(int((first < 20).sum()))
        return log_odds(first, second)

    place(known, counted, 20, budget=40, theta=0.01)
    thorough = sum(asked)
    # A few at a time, so that each round profits from the answers before it.
    assert [count for count in asked if count] == [20 * 8] + [20 * 4] * 8
    asked.clear()
    place(known, counted, 20, budget=40, theta=2.0)
    assert thorough == 20 * 40
    assert sum(asked) == 20 * ranking.START


def test_a_lean_to_whichever_image_comes_first_cancels():
    known, log_odds = planted(30, 40)
    found, _ = place(known, lambda a, b: log_odds(a, b) + torch.tensor([1.0, 0, 0]), 30)
    assert abs(float((found - known[:30]).mean())) < 0.02


def test_an_answer_is_the_mean_over_both_orders():
    leaning = ranking.References(
        lambda a, b: torch.tensor([1.0, 0.5, 0]).expand(len(a), 3), torch.arange(2), torch.tensor([0.0, 1]), 0, 2
    )
    first, second, similar = leaning.answer(torch.tensor([0]), torch.tensor([1]))[0]
    assert first == second != similar


def test_the_seed_draws_which_references_the_scale_is_fitted_to():
    known, log_odds = planted(0, 40, noise=0.5)
    references = ranking.References(log_odds, torch.arange(40), known, 0.2, 3)  # 120 of 780 pairs
    one, again, other = (ranking.fit_scale(references, seed=seed).davidson for seed in (1, 1, 2))
    assert one == again != other


def test_a_comparator_that_learned_the_reverse_gives_the_same_scores():
    known, log_odds = planted(30, 40, noise=0.1)
    found, _ = place(known, log_odds, 30)
    turned, _ = place(known, lambda a, b: log_odds(a, b)[:, SWAPPED], 30)
    assert torch.allclose(turned, found)


def test_a_comparator_that_knows_nothing_says_so():
    known, _ = planted(30, 40)
    found, errors = place(known, lambda a, b: torch.zeros(len(a), 3), 30)
    assert (found - known[30:].mean()).abs().max() < 0.01
    # 95 % of even scores lie nearer than 1.645 deviations, 0.84 of what an error of one deviation would reach.
    assert errors.min() > 0.8 * known[30:].std()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"known": torch.full((9,), 2.0)}, "two different ones"),
        ({"known": torch.tensor([math.nan] * 9)}, "finite scores"),
        ({"budget": 1}, "budget of 2 references or more"),
    ],
)
def test_what_cannot_be_placed_is_refused(change, message):
    known = torch.arange(9.0)
    with pytest.raises(ValueError, match=message):
        place(**{"known": known, "log_odds": lambda a, b: torch.zeros(len(a), 3), "images": 3, **change})


def test_a_model_that_tells_nothing_apart_has_a_scale_all_the_same():
    found = ranking.fit(torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))
    assert (found.discrimination, found.tie) == pytest.approx((0, 0), abs=1e-6)
