"""The siamese comparator: swapping to the bit, texture."""

import pytest
import torch

from models.images.ranking import FIRST, SECOND, SWAPPED
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
