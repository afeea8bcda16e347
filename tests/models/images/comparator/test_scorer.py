"""The scorer: one image in, a score with a standard error out."""

import math

import pytest
import torch

from models import io
from models.images.comparator import build
from models.images.ranking import FIRST, SECOND, SWAPPED
from models.images.reliability import QUANTILES
from tests.models.images.comparator.small import SMALL, pictures, some_pairs


def scorer():
    torch.manual_seed(1)
    model = build({"kind": "scorer", **SMALL}).eval()
    model.prior.copy_(torch.linspace(0, 11, QUANTILES))
    model.fit_scale()
    return model


def test_pairs_are_answered_by_the_difference_of_scores_and_swapping_swaps_to_the_bit():
    model, images = scorer(), pictures(20)
    first, second = some_pairs(50, 20)
    logits = model(images, first, second)
    assert torch.equal(model(images, second, first), logits[:, SWAPPED])
    scores = model.encode(images)[:, 0]
    assert torch.equal(logits[:, FIRST] > logits[:, SECOND], scores[first] > scores[second])


def test_the_loss_is_least_for_the_right_score_and_error():
    model = scorer()
    known = torch.randn(4000, generator=torch.Generator().manual_seed(0)) * 0.5 + 1

    def loss(mean, error):
        return float(model.score_loss(torch.tensor([[mean, math.log(error)]]).expand(4000, 2), known).mean())

    assert loss(1.0, 0.5) < min(loss(1.3, 0.5), loss(0.7, 0.5))
    # The weight is held fixed for the gradient, which must vanish at the right error.
    encoded = torch.tensor([[1.0, math.log(0.5)]], requires_grad=True)
    model.score_loss(encoded.expand(4000, 2), known).mean().backward()
    assert encoded.grad.abs().max() < 0.03


def test_scorers_of_several_attributes_share_a_network_and_each_has_its_own_numbers(tmp_path):
    torch.manual_seed(1)
    model = build({"attributes": [{"kind": "scorer", **SMALL, "attribute": name} for name in "ab"]}).eval()
    for view in model.views.values():
        view.prior.copy_(torch.linspace(0, 11, QUANTILES))
        view.fit_scale()
    one, other = model.views.values()
    encoded = model.encode(pictures(5))
    assert encoded.shape == (5, 4)
    assert torch.equal(encoded, other.encode(pictures(5)))
    assert one.encoder is other.encoder
    known = torch.zeros(5)
    for view, columns in ((one, [0, 1]), (other, [2, 3])):
        alone = scorer()
        found = encoded[:, columns]
        torch.testing.assert_close(view.estimates(encoded), alone.estimates(found))
        torch.testing.assert_close(view.score_loss(encoded, known), alone.score_loss(found, known))
        torch.testing.assert_close(
            view.compare_encoded(encoded, *some_pairs(9, 5)), alone.compare_encoded(found, *some_pairs(9, 5))
        )
    io.save(model, tmp_path)
    again = io.load(tmp_path)
    for name in "ab":
        torch.testing.assert_close(again.of(name).score(pictures(5)), model.of(name).score(pictures(5)))
    assert again.of("B").config.attribute == "b"
    with pytest.raises(ValueError, match="attribute is 'c'; the model ranks by a, b"):
        again.of("c")
    with pytest.raises(ValueError, match="of one kind and base"):
        build({"attributes": [{"kind": kind, **SMALL, "attribute": kind} for kind in ("scorer", "siamese")]})


def test_a_saved_scorer_gives_the_same_scores(tmp_path):
    model = scorer()
    io.save(model, tmp_path)
    again = io.load(tmp_path)
    torch.testing.assert_close(again.score(pictures(5)), model.score(pictures(5)))
