"""inference_model.py against the reference."""

import io
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.rp2040 import inference, inference_model, layout
from models.stories.integer_transformer import IntegerTransformer, Sampler
from tests.exporters.rp2040.files import inner, quantized
from tests.models.tiny import trained_tokenizer


@cache
def models() -> tuple[IntegerTransformer, inference.Model]:
    integers = quantized(-12.0)
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    return integers, inference.Model(io.BytesIO(layout.pack_model(integers, vocabulary)))


def test_a_story_ends_where_the_reference_ends_it():
    integers, model = models()
    lengths = set()
    for seed in range(1, 9):
        found = list(model.tokens([5], 20, 2560, 0, seed))
        assert found == list(integers.decode([5], 20, Sampler(integers, 2560, 0, seed)))
        lengths.add(len(found))
    assert len(lengths) > 2


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-(2**10), 2**10).map(lambda x: x // 300 * 2**20), min_size=32, max_size=32),
    st.integers(13, 2560),
    st.integers(0, 40),
    st.integers(0, 2**32 - 1),
)
def test_choices_among_equal_logits_are_those_of_the_reference(logits, temperature, top_k, seed):
    integers, model = models()
    sampler = Sampler(integers, temperature, top_k, seed)
    for i, logit in enumerate(logits):
        inner(model, "y")[i] = logit
    vars(model)["_state"] = sampler.state
    assert inner(model, "sample")(temperature, top_k) == sampler(np.array(logits))
    assert inner(model, "state") == sampler.state


def test_a_model_that_the_heap_cannot_hold_is_refused(monkeypatch):
    data = layout.pack_model(models()[0], layout.pack_vocabulary(trained_tokenizer(32)))
    needed = inference_model.heap_bytes(*(getattr(models()[0].config, name) for name, *_ in inference_model.LIMITS))
    monkeypatch.setattr(inference_model.gc, "mem_free", lambda: needed, raising=False)
    inference.Model(io.BytesIO(data))
    monkeypatch.setattr(inference_model.gc, "mem_free", lambda: needed - 1)
    with pytest.raises(
        MemoryError, match=f"needs {needed} bytes of free heap, and {needed - 1} are free; export a smaller"
    ):
        inference.Model(io.BytesIO(data))


def test_a_second_story_does_not_remember_the_first():
    _, model = models()
    first = list(model.tokens([7, 8], 30, 256))
    list(model.tokens(list(range(2, 30)), 30, 256, 0, 9))
    assert list(model.tokens([7, 8], 30, 256)) == first
    assert list(model.tokens([7, 8], 0)) == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (([32], 1), r"tokens must be 0 to 31 \(given 32\)"),
        (([-1], 1), r"tokens must be 0 to 31 \(given -1\)"),
        (([], 1, 12), r"temperature must be 13 to 2560 in 256ths, or 0 for greedy \(given 12\)"),
        (([], 1, 2561), r"temperature must be 13 to 2560"),
        (([], 1, 256, -1), r"top_k must be 1 or more, or 0 for all tokens \(given -1\)"),
        (([], 1, 256, 0, 2**32), r"seed must be 0 to 4294967295 \(given 4294967296\)"),
    ],
)
def test_settings_out_of_range_are_refused(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        next(models()[1].tokens(*arguments))
