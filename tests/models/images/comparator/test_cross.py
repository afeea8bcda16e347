"""The cross comparator: a frozen encoder and its dictionary."""

import pytest
import torch

from models.images.comparator.cross import DictionaryCross
from tests.models.images.comparator.small import make, pictures


def test_only_the_head_of_cross_trains_and_images_reach_no_gradient():
    model = make("cross")
    assert model.frozen
    assert not model.encode(pictures(2)).requires_grad
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained.isdisjoint({"words", "mean", "scale"})
    assert trained.isdisjoint(name for name, _ in model.named_buffers())


def test_the_dictionary_is_a_function_of_images_and_seed():
    one, same, other = make("cross"), make("cross"), make("cross")
    other.learn_dictionary(pictures(60), seed=1)
    assert torch.equal(one.words, same.words)
    assert not torch.equal(one.words, other.words)
    encoded = one.encode(pictures(60))
    assert encoded.shape == (60, DictionaryCross.GRID**2, 2 * one.config.words)
    assert (encoded.std((0, 1)) > 0.5).all()  # every word carries information, and all are on one scale


def test_too_few_images_make_no_dictionary():
    model = make("cross")
    with pytest.raises(ValueError, match=r"121 patches of 1 images are too few for 128 words"):
        model.learn_dictionary(pictures(1), seed=0)
