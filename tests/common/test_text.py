"""Baselines and measures of text, against definitions and a naive implementation."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common import text

SEQUENCES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=6)


def test_nats_of_tokens_are_cross_entropy_and_0_where_the_target_is_ignored():
    logits = torch.tensor([[[0.0, math.log(3)], [5.0, 5.0], [1.0, 2.0]]])
    nats = text.token_nats(logits, torch.tensor([[1, 0, 0]]))
    torch.testing.assert_close(nats, torch.tensor([[math.log(4 / 3), math.log(2), math.log(1 + math.e)]]))
    assert text.token_nats(logits, torch.tensor([[1, 0, 0]]), ignored=0)[0, 1:].tolist() == [0, 0]


def naive(training, sequence, order, vocabulary):
    """Witten-Bell by its formula, one id at a time."""
    counts = [defaultdict(Counter) for _ in range(order)]
    for known in training:
        for i in range(1, len(known)):
            for n in range(min(order, i + 1)):
                counts[n][tuple(known[i - n : i])][known[i]] += 1
    nats = []
    for i in range(1, len(sequence)):
        probability = 1 / vocabulary
        for n in range(min(order, i + 1)):
            seen = counts[n].get(tuple(sequence[i - n : i]))
            if not seen:
                break
            probability = (seen[sequence[i]] + len(seen) * probability) / (seen.total() + len(seen))
        nats.append(-math.log(probability))
    return nats


@settings(deadline=None)
@given(SEQUENCES, SEQUENCES, st.integers(1, 6))
def test_the_ngram_is_the_formula(training, sequences, order):
    model = text.NGram(order, 4).fit(training)
    for sequence, found in zip(sequences, model.nats(sequences), strict=True):
        np.testing.assert_allclose(found, naive(training, sequence, order, 4), rtol=1e-12)


@settings(deadline=None)
@given(SEQUENCES, st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(1, 5))
def test_probabilities_of_all_continuations_add_up_to_one(training, context, order):
    model = text.NGram(order, 4).fit(training)
    last = [nats[-1] for nats in model.nats([[*context, following] for following in range(4)])]
    assert np.exp(-np.array(last)).sum() == pytest.approx(1)


def test_a_case_by_hand():
    # After the marker 9: 1, 1, 2. Unigrams of the predicted ids 1 1 2: p(1) = (2 + 2/10) / 5.
    (nats,) = text.NGram(1, 10).fit([[9, 1, 1, 2]]).nats([[9, 1]])
    assert np.exp(-nats[0]) == pytest.approx(2.2 / 5)


def test_the_entropy_of_a_markov_chain_is_approached():
    rng = np.random.default_rng(0)
    flips = rng.random(60_000) < 0.1
    states = np.cumsum(flips) % 2
    (nats,) = text.NGram(2, 2).fit([states[:50_000]]).nats([states[50_000:]])
    entropy = -(0.1 * math.log(0.1) + 0.9 * math.log(0.9))
    assert nats.mean() == pytest.approx(entropy, rel=0.04)


def test_contexts_do_not_cross_sequences_and_nothing_gives_nothing():
    model = text.NGram(3, 4).fit([[0, 1, 2], [0, 3, 3]])
    together, apart = model.nats([[0, 1, 2], [0, 3, 3]]), [model.nats([s])[0] for s in ([0, 1, 2], [0, 3, 3])]
    assert all((a == b).all() for a, b in zip(together, apart, strict=True))
    assert model.nats([]) == []
    assert len(model.nats([[0]])[0]) == 0
    with pytest.raises(ValueError, match="order and vocabulary must be 1 or more"):
        text.NGram(0, 4)


def test_two_levels_by_hand():
    # p(2 | 1) = (1 + 2 p(2)) / (2 + 2), as 1 was followed by 1 and 2, and p(2) = (1 + 2 / 10) / 5.
    (nats,) = text.NGram(2, 10).fit([[9, 1, 1, 2]]).nats([[1, 2]])
    assert np.exp(-nats[0]) == pytest.approx((1 + 2 * 1.2 / 5) / 4)


def test_high_orders_of_many_ids_do_not_run_into_each_other():
    rng = np.random.default_rng(0)
    training = [rng.choice([0, 1, 511, 1022, 1023], 300) for _ in range(3)]
    held_out = np.concatenate([training[0][50:90], rng.integers(0, 1024, 20)])
    (nats,) = text.NGram(6, 1024).fit(training).nats([held_out])
    np.testing.assert_allclose(nats, naive(training, held_out, 6, 1024), rtol=1e-12)


@pytest.mark.parametrize("training", [[], [[]], [[2]], iter([])])
def test_without_anything_to_predict_all_ids_are_equally_likely(training):
    first, empty = text.NGram(3, 4).fit(training).nats([[0, 1, 2, 3], []])
    np.testing.assert_allclose(first, [math.log(4)] * 3)
    assert empty.shape == (0,)


@pytest.mark.parametrize("outside", [-1, 4])
def test_ids_outside_of_the_vocabulary_are_refused(outside):
    with pytest.raises(ValueError, match="ids must be 0 to 3"):
        text.NGram(2, 4).fit([[0, outside]])
    with pytest.raises(ValueError, match="ids must be 0 to 3"):
        text.NGram(2, 4).fit([[0, 1]]).nats([[0, outside]])


def test_bits_are_per_character():
    assert text.bits_per_character(math.log(2) * 12, 4) == pytest.approx(3)


def test_bits_of_a_text_without_characters_are_refused():
    with pytest.raises(ValueError, match="at least one character"):
        text.bits_per_character(0.0, 0)
    with pytest.raises(ValueError, match="held_out is empty"):
        text.xz_bits_per_character("training", "")


def test_xz_counts_unicode_characters_not_bytes():
    plain, wide = (text.xz_bits_per_character("", letter * 1000)["alone"] for letter in "a\u4e00")
    assert wide == pytest.approx(plain, rel=0.2)


def test_xz_needs_little_for_what_it_has_seen():
    rng = np.random.default_rng(0)
    noise = "".join(rng.choice(list("abcdefgh"), 5000))
    bits = text.xz_bits_per_character(noise, noise[1000:3000])
    assert 3 < bits["alone"] < 4
    assert bits["after training"] < 0.2


def test_the_rows_of_xz_say_that_only_the_end_of_the_training_text_was_used():
    whole, part = text.xz_rows("abc" * 99, "abcabc", 1000), text.xz_rows("abc" * 99, "abcabc", 10)
    assert [row["predictor"] for row in whole] == ["xz -9e, alone", "xz -9e, after training"]
    assert part[1]["predictor"] == "xz -9e, after training on its last 10 characters"
    assert part[0] == whole[0]


def test_baselines_are_labelled():
    labels = [text.ngram_label(f"{order}-gram") for order in (1, 2, 5)]
    assert labels == ["unigram (Witten-Bell)", "bigram (Witten-Bell)", "5-gram (Witten-Bell)"]


def test_words_keep_apostrophes_and_lose_case():
    assert text.words("Sam's dog didn\u2019t BARK, 12 times!") == ["sam's", "dog", "didn\u2019t", "bark", "times"]
    assert text.known_share(text.words("The cat zorgs"), {"the", "cat"}) == pytest.approx(2 / 3)
    assert text.known_share(text.words("12 !"), {"the"}) is None


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


def test_distinct():
    assert text.distinct("abab", 2) == pytest.approx(2 / 3)
    assert text.distinct("a", 2) is None


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
