"""The integer arithmetic against the definitions in real numbers."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from models.stories.integer_arithmetic import EXP, GELU, norm


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
