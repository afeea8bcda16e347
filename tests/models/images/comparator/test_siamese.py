"""The siamese comparator: swapping to the bit, texture."""

import pytest
import torch

from models import io
from models.images.ranking import FIRST, SECOND, SIMILAR, SWAPPED
from tests.models.images.comparator.small import make, pictures, some_pairs


@pytest.mark.parametrize("count", [1, 7, 64, 333])
@pytest.mark.parametrize(("channels", "texture"), [(1, False), (3, False), (3, True)])
def test_swapping_the_images_swaps_the_siamese_answer_to_the_bit(count, channels, texture):
    model = make(channels=channels, width=20, texture=texture)
    first, second = some_pairs(count, 40)
    images = pictures(40, channels)
    logits = model(images, first, second)
    assert torch.equal(model(images, second, first), logits[:, SWAPPED])
    assert (logits[:, FIRST] != logits[:, SECOND]).any()


def test_texture_does_not_see_brightness_but_noise():
    model = make(texture=True)
    images = pictures(4) // 16 + torch.arange(16).to(torch.uint8)
    encoded = model.encode(images)
    torch.testing.assert_close(model.encode(images + 100), encoded, rtol=1e-3, atol=1e-4)
    assert (model.encode(images * 8) - encoded).abs().max() > 0.1


def test_an_image_compared_with_itself_is_neither_first_nor_second():
    logits = make()(pictures(3), torch.arange(3), torch.arange(3))
    assert torch.equal(logits[:, FIRST], logits[:, SECOND])


def sure_of(count, images, right=1.0):
    """A comparator that is sure of every answer, and pairs (count, 3) of images of which a share is answered right."""
    model, encoded = make(), torch.randn(images, 16, generator=torch.Generator().manual_seed(3)).abs()
    with torch.no_grad():
        model.higher.mul_(1e3)
        model.similar_bias.fill_(-1e3)
        first, second = some_pairs(4 * count, images)
        logits = model.compare_encoded(encoded, first, second)
    sure = ((logits[:, FIRST] - logits[:, SECOND]).abs() > 20).nonzero().flatten()[:count]
    answer = logits[sure].argmax(1)
    wrong = torch.arange(count) >= right * count
    return model, encoded, torch.stack([first[sure], second[sure], torch.where(wrong, 1 - answer, answer)], 1)


@torch.no_grad()
def answered(model, encoded, pairs):
    """The probability of the likelier answer, the mean over pairs, and which of their images ranks higher."""
    found = model.both_orders(encoded, pairs[:, 0], pairs[:, 1])
    return float(found.max(1).values.mean()), found[:, FIRST] > found[:, SECOND]


def test_a_few_pairs_that_are_all_right_make_no_answer_certain():
    few, many = sure_of(15, 12), sure_of(1000, 900)
    assert answered(*few)[0] > 0.999
    answers = answered(*few)[1]
    for model, encoded, pairs in (few, many):
        model.weigh_answers(encoded, pairs)
    assert answered(*few)[0] < 0.95
    assert answered(*many)[0] > 0.97
    assert torch.equal(answered(*few)[1], answers)


def test_answers_are_as_sure_as_validation_pairs_show():
    model, encoded, pairs = sure_of(1000, 900, right=0.7)
    model.weigh_answers(encoded, pairs)
    model.weigh_answers(encoded, pairs)  # which begins anew
    assert answered(model, encoded, pairs)[0] == pytest.approx(0.65, abs=0.05)
    assert not model(pictures(6), *some_pairs(6, 6)).softmax(1)[:, SIMILAR].gt(0.05).any()
    model.weigh_answers(encoded, torch.cat([pairs[:, :2], 1 - pairs[:, 2:]], 1))  # mostly wrong: it knows nothing
    logits = model.compare_encoded(encoded, pairs[:, 0], pairs[:, 1])
    assert answered(model, encoded, pairs)[0] < 0.6
    assert (logits[:, FIRST] != logits[:, SECOND]).all()


def test_a_model_without_the_fit_of_answers_is_read_as_it_was(tmp_path):
    model = make()
    io.save(model, tmp_path, state={name: each for name, each in model.state_dict().items() if name != "share"})
    asked = pictures(6), *some_pairs(6, 6)
    assert torch.equal(io.load(tmp_path)(*asked), model(*asked))
