"""The integer model against the float model, and the limits of its quantisation."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.stories.config import PRESETS
from models.stories.integer_transformer import Sampler
from models.stories.network import Block
from models.stories.quantization import quantize
from models.stories.tiny_transformer import TinyTransformer
from tests.models.tiny import make

SHAPES = [{}, {"heads": 8}, {"width": 12, "heads": 2, "hidden": 20}, {"width": 64, "heads": 4, "hidden": 192}]


@pytest.mark.parametrize("sizes", SHAPES)
def test_integer_logits_are_near_the_float_logits(sizes):
    model = make(context=10, **sizes)
    integers = quantize(model)
    tokens = torch.randint(0, 32, (3, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        exact = model(tokens).numpy()
    error = integers.logits(tokens.numpy()) * integers.nats - exact
    assert error.std() < 0.04 * exact.std()


@pytest.mark.parametrize("sizes", SHAPES)
def test_decoding_with_a_cache_chooses_as_the_whole_sequence_does(sizes):
    integers = quantize(make(context=6, **sizes))
    integers_only_text = [7, 3, 9]
    found = list(integers.decode(integers_only_text, 30, lambda logits: int(logits[2:].argmax()) + 2))
    assert len(found) == 30
    logits = integers.logits(np.array([[0, *integers_only_text, *found]]))[0]
    assert (logits[3:-1, 2:].argmax(-1) + 2).tolist() == found


def test_without_a_choice_the_likeliest_token_follows_until_the_story_ends():
    integers = quantize(make())
    found = list(integers.decode([7], 6))
    likeliest = integers.logits(np.array([[0, 7, *found]]))[0, 1:].argmax(-1).tolist()
    assert found == likeliest[: len(found)]
    assert len(found) == 6 or likeliest[-1] == 0


def test_stories_in_a_row_do_not_see_each_other():
    integers = quantize(make())
    tokens = np.random.default_rng(0).integers(2, 32, (1, 20))
    packed = integers.logits(tokens, np.array([[0] * 8 + [1] * 12]))
    assert (packed[0, 8:] == integers.logits(tokens[:, 8:])[0]).all()


def random_model(seed: int, size: float) -> TinyTransformer:
    torch.manual_seed(seed)
    model = TinyTransformer(PRESETS["rp2040-speed"])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn_like(parameter))
    return model


def largest_query_scale(block: Block, head_width: int) -> tuple[float, int]:
    """(the largest factor from a query's sum of products to its stored value, the least shift of such a sum).

    One nat of a score is 64, and the sum over query and key is shifted by 10; a key's unit is a 127th of its bias and
    four standard deviations, or of all that a normed vector can reach.
    """
    weight, bias = (tensor.detach().double().numpy() for tensor in (block.qkv.weight, block.qkv.bias))
    width = weight.shape[1]
    query, key = slice(0, width), slice(width, 2 * width)
    unit = np.maximum(abs(weight).max(1) / 127, abs(bias) * 1024 / (2**24 - 1))  # of a weight
    key_unit = (abs(bias[key]) + min(4, math.sqrt(width)) * np.linalg.norm(weight[key], axis=1)) / 127
    bound = (width << 17) + int(abs(np.round(bias * 1024 / unit)).max())
    pre = next(pre for pre in range(25) if bound >> pre <= 32767)
    return float((unit[query] / 1024 * key_unit * 64 * 1024 / math.sqrt(head_width)).max()), pre


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.001, 0.1, 1.0, 30.0]))
@example(460310452, 30.0)  # the output matrix of its attention has large scales
@example(0, 200.0)
def test_no_sum_leaves_32_bits_whatever_the_weights(seed, size):
    """The only random weights refused are those whose queries are beyond the largest multiplier and least shifts."""
    model = random_model(seed, size)
    scales = [largest_query_scale(block, 2) for block in model.blocks]
    if any(round(factor * 2.0 ** (pre + 1)) > 32767 for factor, pre in scales):
        with pytest.raises(ValueError, match="the weights of q are larger than 16-bit scales reach"):
            quantize(model)
        return
    integers = quantize(model)
    normed = [("qkv", "pre_qkv"), ("up", "pre_up")]
    limited = [("out", "pre_out"), ("down", "pre_down")]
    matrices = [(integers.embedding, integers.pre_logits)]
    matrices += [(getattr(layer, name), layer.shifts[pre]) for layer in integers.layers for name, pre in normed]
    for matrix, pre in matrices:
        assert (8 << 17) + abs(matrix.bias).max() >> pre <= 32767
    matrices += [(getattr(layer, name), layer.shifts[pre]) for layer in integers.layers for name, pre in limited]
    for matrix, pre in matrices:
        assert abs(matrix.weights).max() <= 127
        assert abs(matrix.bias).max() < 2**24
        assert matrix.multiplier.max() <= 32767
        assert 0 <= pre <= 24
    for layer in integers.layers:
        assert all(1 <= shift <= 30 for name, shift in layer.shifts.items() if name.startswith("post_"))


# Factors are FORMAT.md's unit of the residual stream over that of the matrix's input.
@pytest.mark.parametrize(("name", "factor"), [("out", 2**12 / 2**8), ("down", 2**12 / 2**10)])
def test_scales_into_the_residual_stream_go_up_to_the_limit_of_the_format(name, factor):
    """A shift of 0 before and of 1 after the largest multiplier is the most that a file can say."""
    for sign, fits in ((-1, True), (1, False)):
        model = make()
        with torch.no_grad():
            linear = getattr(model.blocks[0], name)
            linear.bias.zero_()
            # Stored values come with the scale of their channel, which is to be 1 here.
            values = model.blocks[0].qkv
            values.weight[16:] = 0
            values.bias[16:] = 127
            linear.weight.mul_((32767.5 + sign * 0.05) / 2 / factor * 127 / linear.weight.abs().max())
        if fits:
            layer = quantize(model).layers[0]
            assert (layer.shifts[f"pre_{name}"], layer.shifts[f"post_{name}"]) == (0, 1)
            assert getattr(layer, name).multiplier.max() == 32767
        else:
            with pytest.raises(ValueError, match=f"the weights of {name} are larger than 16-bit scales reach"):
                quantize(model)


def test_sums_of_large_scales_saturate_beyond_the_residual_stream():
    layers = quantize(random_model(460310452, 30.0)).layers
    assert min(layer.shifts["post_out"] for layer in layers) == 1
    for layer in layers:
        largest = 32767 * int(layer.out.multiplier.max()) >> layer.shifts["post_out"]
        assert largest > 2 * 2**22


def test_weights_that_are_not_finite_are_refused():
    model = make()
    with torch.no_grad():
        model.blocks[1].up.weight[3, 3] = torch.nan
    with pytest.raises(ValueError, match=r"blocks\.1\.up\.weight has values that are not finite"):
        quantize(model)


def test_a_model_of_zeros_gives_its_output_biases():
    model = make()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    integers = quantize(model)
    assert (integers.logits(np.array([[1, 2, 3]])) == 0).all()


def test_the_device_sampler_draws_by_probability_and_repeats_itself():
    integers = quantize(make())
    nats = np.log([0.6, 0.3, 0.1])
    logits = np.full(32, -(2**30))
    logits[[4, 9, 11]] = np.round(nats / integers.nats)
    sampler = Sampler(integers, 256, seed=5)
    drawn = [sampler(logits) for _ in range(4000)]
    shares = np.bincount(drawn, minlength=32)[[4, 9, 11]] / 4000
    np.testing.assert_allclose(shares, [0.6, 0.3, 0.1], atol=0.03)
    again = Sampler(integers, 256, seed=5)
    assert [again(logits) for _ in range(50)] == drawn[:50]
    few = Sampler(integers, 256, top_k=2, seed=5)
    kept = np.bincount([few(logits) for _ in range(4000)], minlength=32)
    np.testing.assert_allclose(kept[[4, 9, 11]] / 4000, [2 / 3, 1 / 3, 0], atol=0.03)


@pytest.mark.parametrize("temperature", [12, 2561])
def test_temperatures_that_would_overflow_are_refused(temperature):
    with pytest.raises(ValueError, match="13 to 2560"):
        Sampler(quantize(make()), temperature)
