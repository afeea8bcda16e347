"""The integer arithmetic against the definitions in real numbers."""

import math
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from models.stories import integer_transformer
from models.stories.integer_transformer import (
    EXP,
    GELU,
    ONE,
    Layer,
    Matrix,
    Sampler,
    add,
    attend,
    norm,
    rescale,
    saturate,
)


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
    levels, x = np.arange(704), (np.arange(1024) - 512) / 128
    assert (len(EXP), len(GELU), ONE) == (704, 1024, 665)
    assert abs(EXP - 32768 * np.e ** (-levels / 64)).max() < 0.501
    assert abs(GELU - 1024 * x * [NormalDist().cdf(each) for each in x]).max() < 0.501
    assert (EXP[0], EXP.min(), GELU[0]) == (32768, 1, 0)
    assert abs(GELU).max() <= 16383


def norm_of(x: list[int]) -> list[int]:
    """`norm` of FORMAT.md, number by number."""
    width, total = len(x), sum(x)
    deviation = [width * value - total for value in x]
    length = max(value.bit_length() if value >= 0 else (-value - 1).bit_length() for value in deviation)
    if not any(deviation):
        return [0] * width
    scaled = [value >> length - 12 if length >= 12 else value << 12 - length for value in deviation]
    ratio = (math.isqrt(width << 20) << 12) // math.isqrt(sum(value * value for value in scaled))
    return [(value * ratio + 2048) >> 12 for value in scaled]


@given(st.lists(st.integers(-(2**22), 2**22), min_size=2, max_size=64))
def test_the_integer_norm_is_that_of_the_format_to_the_bit(x):
    assert norm(np.array(x)).tolist() == norm_of(x)


def test_rounding_and_saturation_are_those_of_the_format():
    assert rescale(np.array([1, -1, 3, 5, -3]), np.array(1), 1).tolist() == [1, 0, 2, 3, -1]  # halves go up
    assert rescale(np.array([1, 2, 6]), np.array(1), 2).tolist() == [0, 1, 2]
    assert saturate(np.array([-6, -5, 0, 5, 6]), 5).tolist() == [-5, -5, 0, 5, 5]


def test_what_is_added_to_the_residual_stream_saturates_twice():
    matrix = Matrix(np.array([[127], [-127], [1]]), np.zeros(3, np.int64), np.array([2, 2, 32767]))
    found = add(np.array([[10, 10, 2**22 - 1]]), matrix, np.array([[600]]), 1, 1)  # sums of 38,100, -38,100 and 300
    assert found.tolist() == [[10 + 32767, 10 - 32767, 2**22]]


def test_attention_is_that_of_the_format():
    key = np.array([0, 1, -8, 3, 5]) * 64
    query, value, bias = 1024, np.array([127, -127, 90, 5, 64]), np.array([0, 0, 0, -60, 7])
    seen = np.array([True, True, True, True, False])
    scores = [(query * k >> 10) + b for k, b in zip(key.tolist(), bias.tolist(), strict=True)]
    assert scores[:3] == [0, 64, -512]
    best = max(score for score, counts in zip(scores, seen, strict=True) if counts)
    weights = [int(EXP[best - score]) if counts else 0 for score, counts in zip(scores, seen, strict=True)]
    total = sum(weight * v for weight, v in zip(weights, value.tolist(), strict=True))
    shape = (1, 1, -1, 1)
    found = attend(np.full((1, 1, 1, 1), query), key.reshape(shape), value.reshape(shape), bias[None, None], seen)
    assert found.item() == (total >> 7) * (2**31 // sum(weights)) >> 16


def test_attention_rounds_scores_down_and_forgets_what_is_704_levels_below():
    query, value = np.full((1, 1, 1, 1), 1023), np.array([100, -100]).reshape(1, 1, 2, 1)
    seen, none = np.ones((1, 1, 1, 2), bool), np.zeros((1, 1, 2), np.int64)
    equal = attend(query, np.array([1, 0]).reshape(1, 1, 2, 1), value, none, seen)
    assert equal.item() == 0  # 1023 >> 10 is 0
    for below, weight in ((703, EXP[703]), (704, 0)):
        found = attend(query, np.zeros((1, 1, 2, 1), np.int64), value * 20_000, none - np.array([0, below]), seen)
        assert found.item() == (2_000_000 * (32768 - int(weight)) >> 7) * (2**31 // (32768 + int(weight))) >> 16


def test_attention_to_scores_far_below_zero_is_that_to_the_same_scores_above():
    query, value = np.full((1, 1, 1, 1), 1024), np.array([100, -7, 90]).reshape(1, 1, 3, 1)
    key, seen = np.array([0, 5, 9]).reshape(1, 1, 3, 1), np.array([True, True, False])
    found = [attend(query, key, value, np.full((1, 1, 3), bias), seen) for bias in (0, -900_000)]
    assert found[0].tolist() == found[1].tolist()


def test_the_norm_of_small_deviations_is_scaled_up_to_twelve_bits():
    x = np.array([0, 0, 0, 3])  # deviations -3, -3, -3, 9: 4 bits, so 8 more
    scaled = np.array([-3, -3, -3, 9]) * 2**8
    ratio = (math.isqrt(4 << 20) << 12) // math.isqrt(int((scaled * scaled).sum()))
    assert norm(x).tolist() == [(int(each) * ratio + 2048) >> 12 for each in scaled]


def drawn_by_hand(logits: list[int], post: int, temperature: int, top_k: int, seed: int, count: int) -> list[int]:
    """Tokens as FORMAT.md draws them, number by number."""
    state, tokens = seed * 0x9E3779B1 % 2**32 or 1, []
    better = [sum((b, -j) > (a, -i) for j, b in enumerate(logits)) for i, a in enumerate(logits)]
    for _ in range(count):
        places = [min(max(logits) - logit >> post, 65535) * (65536 // temperature) >> 8 for logit in logits]
        weights = [int(EXP[place]) if place < 704 else 0 for place in places]
        while True:
            state = (state ^ state << 13) % 2**32
            state ^= state >> 17
            state = (state ^ state << 5) % 2**32
            limit = (state >> 8) * sum(weights) >> 24
            token = next(i for i in range(len(logits)) if sum(weights[: i + 1]) > limit)
            if not top_k or better[token] < top_k:
                break
            weights = [w if better[j] < better[token] else 0 for j, w in enumerate(weights)]
        tokens.append(token)
    return tokens


@pytest.mark.parametrize("temperature", [13, 205, 2560])
@pytest.mark.parametrize("top_k", [0, 1, 3])
def test_tokens_are_drawn_as_the_format_says_to_the_bit(temperature, top_k):
    for post, seed in ((0, 0), (2, 1), (1, 2**32 - 1)):
        for below in ([0], [64, 5, 0, 0, 64], [128, 640, 0, 704, 703, 10**7, 192]):
            logits = [-(each * temperature // 256 << post) for each in below]
            sampler = Sampler(SimpleNamespace(post_logits=post), temperature, top_k, seed)
            expected = drawn_by_hand(logits, post, temperature, top_k, seed, 6)
            assert [sampler(np.array(logits)) for _ in range(6)] == expected


def test_the_least_and_largest_temperatures_are_taken_and_none_beyond():
    model = SimpleNamespace(post_logits=0)
    assert [Sampler(model, temperature).temperature for temperature in (13, 2560)] == [13, 2560]
    for temperature in (12, 2561):
        with pytest.raises(ValueError, match="13 to 2560"):
            Sampler(model, temperature)


@pytest.mark.parametrize("gate", [-9000, -513, -512, -1, 0, 511, 512, 513, 2046, 2047, 2048, 9000])
def test_the_feed_forward_part_is_that_of_the_format(gate):
    zero = Matrix(np.zeros((2, 2), np.int64), np.zeros(2, np.int64), np.ones(2, np.int64))
    up = Matrix(np.zeros((1, 2), np.int64), np.array([gate * 4 + 3]), np.array([2]))
    down = Matrix(np.array([[1], [-1]]), np.zeros(2, np.int64), np.array([4, 4]))
    shifts = {"pre_out": 0, "post_out": 1, "pre_up": 2, "post_up": 1, "pre_down": 1, "post_down": 2}
    layer = Layer(zero, zero, up, down, np.zeros((1, 1), np.int64), shifts)
    hidden = 0 if gate < -512 else int(GELU[gate + 512]) if gate < 512 else min(gate, 2047) * 8
    x = np.array([[[100, -100]]])
    found = integer_transformer._after_attention(layer, x, np.zeros((1, 1, 1, 2), np.int64))
    assert found.tolist() == [[[100 + (hidden >> 1), -100 + (-hidden >> 1)]]]
