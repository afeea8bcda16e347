"""Baselines and measures of text, against definitions and a naive implementation."""

import math
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common import text


def test_nats_of_tokens_are_cross_entropy_and_0_where_the_target_is_ignored():
    logits = torch.tensor([[[0.0, math.log(3)], [5.0, 5.0], [1.0, 2.0]]])
    nats = text.token_nats(logits, torch.tensor([[1, 0, 0]]))
    torch.testing.assert_close(nats, torch.tensor([[math.log(4 / 3), math.log(2), math.log(1 + math.e)]]))
    assert text.token_nats(logits, torch.tensor([[1, 0, 0]]), ignored=0)[0, 1:].tolist() == [0, 0]


def test_words_keep_apostrophes_and_lose_case():
    assert text.words("Sam's dog didn\u2019t BARK, 12 times!") == ["sam's", "dog", "didn\u2019t", "bark", "times"]


@settings(deadline=None)
@given(st.text("ab", max_size=30), st.text("ab", max_size=60))
def test_the_longest_copied_span_is_the_longest(sample, training):
    found = text.longest_copied_span(sample, training)
    pieces = {sample[i:j] for i in range(len(sample)) for j in range(i, len(sample) + 1)} | {""}
    assert found in sample
    assert found in training
    assert len(found) == max(len(piece) for piece in pieces if piece in training)


def test_of_equally_long_copied_spans_the_first_is_given():
    assert text.longest_copied_span("xab-cdx", "cd ab") == "ab"
    assert text.longest_copied_span("na\u00efve \U0001f600!", "so na\u00efve \U0001f600") == "na\u00efve \U0001f600"
    assert text.longest_copied_span("", "abc") == text.longest_copied_span("abc", "") == ""
    assert text.longest_copied_span("abc", "xyz") == ""


def test_a_span_is_not_grown_by_one_character_at_a_time():
    began = time.process_time()
    assert len(text.longest_copied_span("a" * 100_000, "a" * 100_000)) == 100_000
    assert time.process_time() - began < 2


def test_a_span_of_texts_that_repeat_themselves_is_found_in_time():
    began = time.process_time()
    sample, training = ("a" * 1000 + "b" * 1000) * 50, ("a" * 999 + "b" * 1000) * 50
    assert len(text.longest_copied_span(sample, training)) == 2998
    assert time.process_time() - began < 3


@settings(deadline=None)
@given(st.text("ab", max_size=30), st.text("ab", max_size=30), st.integers(1, 6))
def test_copied_characters_are_those_within_a_copied_piece(sample, training, span):
    inside = [False] * len(sample)
    for start in range(len(sample) - span + 1):
        if sample[start : start + span] in training:
            inside[start : start + span] = [True] * span
    assert text.copied_characters(sample, training, span).tolist() == inside
    with pytest.raises(ValueError, match="span must be 1 or more"):
        text.copied_characters(sample, training, 0)
