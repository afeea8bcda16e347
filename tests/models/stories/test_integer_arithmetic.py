"""The integer arithmetic against the definitions in real numbers."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from models.stories.integer_transformer import EXP, GELU, Matrix, add, attend, norm, rescale, saturate


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
