"""The integer model against the float model, and its parts against their definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from models import rp2040
from models.integer_transformer import EXP, GELU, Sampler, norm, quantize
from models.tiny_transformer import PRESETS, TinyTransformer, TinyTransformerConfig
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


def test_stories_in_a_row_do_not_see_each_other():
    integers = quantize(make())
    tokens = np.random.default_rng(0).integers(2, 32, (1, 20))
    packed = integers.logits(tokens, np.array([[0] * 8 + [1] * 12]))
    assert (packed[0, 8:] == integers.logits(tokens[:, 8:])[0]).all()


@given(arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(2, 128)), elements=st.integers(-(2**22), 2**22)))
def test_the_integer_norm_is_a_layer_norm(x):
    spread = x.std(-1, keepdims=True)
    exact = 1024 * np.divide(x - x.mean(-1, keepdims=True), spread, where=spread > 0, out=np.zeros(x.shape))
    found = norm(x)
    # 12 bits of the largest deviation, 11 of the root, rounded once.
    tolerance = 1 + abs(exact) / 1024 + np.abs(exact).max(-1, keepdims=True) / 1024
    assert (abs(found - exact) <= tolerance).all()
    assert (np.sqrt((found.astype(float) ** 2).sum(-1)) <= 1025 * math.sqrt(x.shape[1])).all()  # FORMAT.md relies on it


def test_the_tables_are_what_the_format_says():
    assert EXP[0] == 32768
    assert EXP[64] == round(32768 / math.e)
    assert EXP.min() >= 1
    assert abs(GELU[512 + 128] - 1024 * 0.8413447) < 1
    assert GELU[0] == 0
    assert abs(GELU).max() <= 16383


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.001, 0.1, 1.0, 30.0]))
def test_no_sum_leaves_32_bits_whatever_the_weights(seed, size):
    torch.manual_seed(seed)
    model = TinyTransformer(TinyTransformerConfig(**PRESETS["rp2040-speed"]))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn_like(parameter))
    integers = quantize(model)
    for matrix, pre in [(integers.embedding, integers.pre_logits)] + [
        (getattr(layer, name), layer.shifts[pre])
        for layer in integers.layers
        for name, pre in (("qkv", "pre_qkv"), ("up", "pre_up"))
    ]:
        assert abs(matrix.weights).max() <= 127
        assert abs(matrix.bias).max() < 2**24
        assert matrix.multiplier.max() <= 32767
        assert (8 << 17) + abs(matrix.bias).max() >> pre <= 32767


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
    assert {few(logits) for _ in range(200)} == {4, 9}


@pytest.mark.parametrize("temperature", [12, 2561])
def test_temperatures_that_would_overflow_are_refused(temperature):
    with pytest.raises(ValueError, match="13 to 2560"):
        Sampler(quantize(make()), temperature)


def test_the_memory_of_a_model_grows_with_every_size():
    config = TinyTransformerConfig(**PRESETS["rp2040-speed"])
    assert rp2040.model_bytes(config) < rp2040.sram_bytes(config) < 40_000
