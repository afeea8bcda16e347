"""The scorer: one image in, a score with a standard error out; comparisons where it is unsure."""

import dataclasses
import math

import pytest
import torch

from models import io
from models.images.comparator import build
from models.images.ranking import FIRST, SECOND, SWAPPED
from models.images.reliability import QUANTILES
from tests.models.images.comparator.small import SMALL, make, pictures, some_pairs


def taught(**changes):
    """A scorer with a teacher, which has a scale of its own."""
    teacher = make(references=12)
    teacher.reference_images.copy_(pictures(12))
    teacher.reference_scores.copy_(torch.arange(12))
    teacher.fit_scale()
    described = {"family": "comparator", "config": dataclasses.asdict(teacher.config)}
    torch.manual_seed(1)
    model = build({"kind": "scorer", **SMALL, "teacher": described, **changes}).eval()
    model.teacher.load_state_dict(teacher.state_dict())
    model.prior.copy_(torch.linspace(0, 11, QUANTILES))
    model.fit_scale()
    return model


def test_pairs_are_answered_by_the_difference_of_scores_and_swapping_swaps_to_the_bit():
    model, images = taught(), pictures(20)
    first, second = some_pairs(50, 20)
    logits = model(images, first, second)
    assert torch.equal(model(images, second, first), logits[:, SWAPPED])
    scores = model.encode(images)[:, 0]
    assert torch.equal(logits[:, FIRST] > logits[:, SECOND], scores[first] > scores[second])


def test_a_score_takes_one_pass_and_the_teacher_is_asked_where_it_is_unsure():
    model, images = taught(), pictures(30)
    asked, encode = [], model.teacher.encode_all

    def counted(images):
        asked.append(len(images))
        return encode(images)

    model.teacher.encode_all = counted
    scores, errors = model.score(images)
    assert not asked
    model.widest.fill_(float(errors.median()))
    again, _ = model.score(images)
    wide = errors > errors.median()
    assert torch.equal(again[~wide], scores[~wide])
    assert torch.equal(again[wide], model.asked(images[wide], (scores[wide], errors[wide]))[0])
    assert sorted(asked) == [12, int(wide.sum()), int(wide.sum())]  # the references once


def test_the_loss_is_least_for_the_right_score_and_error():
    model = taught()
    known = torch.randn(4000, generator=torch.Generator().manual_seed(0)) * 0.5 + 1

    def loss(mean, error):
        return float(model.score_loss(torch.tensor([[mean, math.log(error)]]).expand(4000, 2), known).mean())

    assert loss(1.0, 0.5) < min(loss(1.3, 0.5), loss(0.7, 0.5))
    # The weight is held fixed for the gradient, which must vanish at the right error.
    encoded = torch.tensor([[1.0, math.log(0.5)]], requires_grad=True)
    model.score_loss(encoded.expand(4000, 2), known).mean().backward()
    assert encoded.grad.abs().max() < 0.03


def test_a_saved_scorer_gives_the_same_scores_with_its_teacher_and_the_teacher_does_not_train(tmp_path):
    model = taught()
    model.widest.fill_(1.0)
    io.save(model, tmp_path)
    again = io.load(tmp_path)
    torch.testing.assert_close(again.score(pictures(5)), model.score(pictures(5)))
    assert not any(name.startswith("teacher.") for name, p in again.named_parameters() if p.requires_grad)
    assert not again.train().teacher.training


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        ({"family": "char_lstm", "config": {}}, "teacher must be"),
        ({"family": "comparator", "config": {"kind": "scorer", **SMALL}}, "a scorer itself"),
        ({"family": "comparator", "config": {"kind": "siamese", **SMALL, "size": 32}}, "32 pixels a side"),
        ({"family": "comparator"}, "teacher must be"),
    ],
)
def test_what_cannot_teach_is_refused(teacher, message):
    with pytest.raises(ValueError, match=message):
        build({"kind": "scorer", **SMALL, "teacher": teacher})
