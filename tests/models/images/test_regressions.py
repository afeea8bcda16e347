"""Regressions whose sum is about as good as the best of them, on features of several kinds."""

import pytest
import torch

from models.images.regressions import COMPONENTS, LENGTHS, Regressions

SIZES = [6, 40, 300]  # the last has more features than components are kept


def data(score, count=240):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(count, sum(SIZES), generator=generator) * 3 + 1
    features[:, 3] = 5  # which never changes
    return features, score(features).double()


def curved(features):
    return (features[:, 0] - 1).square() / 3 + features[:, 1]


def straight(features):
    return 2 * features[:, 10] - features[:, 20] + 4


def error(found, known):
    return float((found - known).square().mean() / known.var())


@pytest.mark.parametrize(("score", "most"), [(curved, 0.2), (straight, 0.05)])
def test_what_one_kind_tells_by_one_kernel_is_found_among_others(score, most):
    features, known = data(score)
    model = Regressions(SIZES, 160)
    model.fit((features[:160], known[:160]), (features[160:200], known[160:200]))
    assert error(model(features[200:])[:, 0], known[200:]) < most


def test_scores_of_another_level_are_told_at_that_level():
    features, known = data(curved)
    found = []
    for level in (0, 50):
        model = Regressions(SIZES, 160)
        model.fit((features[:160], known[:160] + level), (features[160:200], known[160:200] + level))
        found.append(model(features[200:]) - level)
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-3)


def test_noise_gets_the_mean():
    features, known = data(lambda features: torch.randn(len(features), generator=torch.Generator().manual_seed(9)) + 7)
    model = Regressions(SIZES, 160)
    model.fit((features[:160], known[:160]), (features[160:200], known[160:200]))
    assert error(model(features[200:])[:, 0], known[200:]) < 1.25
    assert float((model(features[200:]) - 7).abs().max()) < 1.5


def test_fewer_images_than_there_is_room_for_give_the_same_and_a_second_fit_forgets_the_first():
    features, known = data(curved)
    found = []
    for room in (50, 90):
        model = Regressions(SIZES, room)
        if room == 90:
            model.fit((features[:90], -known[:90]), (features[100:], -known[100:]))
        model.fit((features[:50], known[:50]), (features[100:160], known[100:160]))
        found.append(model(features[160:]))
    torch.testing.assert_close(*found)


def test_kernels_keep_components_not_features():
    assert Regressions(SIZES, 9).kernels[2].stored.shape == (9, COMPONENTS)
    assert Regressions(SIZES, 9).kernels[0].stored.shape == (9, 6)


@pytest.mark.parametrize("further", ["straight", "above"])
def test_each_of_two_targets_is_predicted_as_if_it_were_alone(further):
    features, known = data(curved)
    targets = torch.stack([known, straight(features).double() if further == "straight" else (known > 2).double()], 1)
    together = Regressions(SIZES, 160, 2)
    together.fit((features[:160], targets[:160]), (features[160:200], targets[160:200]))
    for each in range(2):
        alone = Regressions(SIZES, 160)
        alone.fit((features[:160], targets[:160, each]), (features[160:200], targets[160:200, each]))
        torch.testing.assert_close(together(features)[:, each], alone(features)[:, 0], rtol=1e-2, atol=2e-3)


def test_further_targets_choose_together_and_so_are_less_fitted_to_what_they_choose_by():
    features, known = data(curved)
    above = (known[:, None] > known.quantile(torch.linspace(0.05, 0.95, 16).double())).double()
    targets = torch.cat([known[:, None], above + torch.randn_like(above) / 2], 1)
    seen, unseen, new = slice(120), slice(120, 140), slice(140, None)
    errors = []
    for own in ([[each] for each in range(16)], [list(range(16))]):
        square = 0.0
        for at in own:
            model = Regressions(SIZES, 120, 1 + len(at))
            kept = targets[:, [0, *(1 + each for each in at)]]
            model.fit((features[seen], kept[seen]), (features[unseen], kept[unseen]))
            square += float((model(features[new])[:, 1:] - above[new][:, at]).square().sum())
        errors.append(square)
    assert errors[1] < errors[0]


def test_each_kernel_is_decomposed_once_which_is_most_of_the_time_to_fit(monkeypatch):
    eigh, decomposed = torch.linalg.eigh, []
    monkeypatch.setattr(torch.linalg, "eigh", lambda kernel: decomposed.append(len(kernel)) or eigh(kernel))
    features, scores = torch.randn(60, 5), torch.randn(60)
    Regressions([2, 3], images=40).fit((features[:40], scores[:40]), (features[40:], scores[40:]))
    assert decomposed == [40] * 2 * (1 + len(LENGTHS))
