"""Kneser-Ney against a naive implementation of its definition."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common import kneser_ney
from common.kneser_ney import KneserNey

SEQUENCES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=6)


class Naive:
    """Counts and probabilities by their definition, one id at a time."""

    def __init__(self, order, vocabulary):
        self.order, self.vocabulary = order, vocabulary
        self.counts = [defaultdict(Counter) for _ in range(order)]
        self.discounts = [[0, 0, 0, 0]] * order

    def contexts(self, before):
        """The contexts of an id, from the empty one to the longest."""
        return [tuple(before[len(before) - n :]) for n in range(min(self.order - 1, len(before)) + 1)]

    def count(self, before, number):
        contexts = self.contexts(before)
        for length in reversed(range(len(contexts))):
            following = self.counts[length][contexts[length]]
            following[number] += 1
            if following[number] > 1:  # a shorter context counts in how many longer ones the id occurred
                return

    def fix_discounts(self):
        for length, contexts in enumerate(self.counts):
            values = [count for following in contexts.values() for count in following.values()]
            n = [None, *(max(1, values.count(number)) for number in range(1, 5))]
            share = n[1] / (n[1] + 2 * n[2])
            free = [number - (number + 1) * share * n[number + 1] / n[number] for number in range(1, 4)]
            self.discounts[length] = [0, *(min(max(d, 0.05), most) for most, d in enumerate(free, 1))]

    def probability(self, before, number):
        found = 1 / self.vocabulary
        for length, context in enumerate(self.contexts(before)):
            following = self.counts[length].get(context)
            if not following:
                return found
            discounts = [self.discounts[length][min(count, 3)] for count in following.values()]
            count = following[number]
            own = count - self.discounts[length][min(count, 3)]
            found = (own + sum(discounts) * found) / following.total()
        return found


def naive_nats(training, sequences, order, vocabulary, adapting):
    model = Naive(order, vocabulary)
    for known in training:
        for place in range(1, len(known)):
            model.count(known[:place], known[place])
    model.fix_discounts()
    nats = []
    for sequence in sequences:
        nats.append([])
        for place in range(1, len(sequence)):
            nats[-1].append(-math.log(model.probability(sequence[:place], sequence[place])))
            if adapting:
                model.count(sequence[:place], sequence[place])
    return nats


@settings(deadline=None)
@given(SEQUENCES, SEQUENCES, st.integers(1, 6), st.booleans())
def test_it_is_the_definition(training, sequences, order, adapting):
    found = KneserNey(order, 4).fit(training).nats(sequences, adapting)
    for one, other in zip(found, naive_nats(training, sequences, order, 4, adapting), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@settings(deadline=None)
@given(SEQUENCES, st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(1, 5), st.booleans())
def test_probabilities_of_all_continuations_add_up_to_one(training, context, order, adapting):
    model = KneserNey(order, 4).fit(training)
    last = [model.nats([[*context, following]], adapting)[0][-1] for following in range(4)]
    assert np.exp(-np.array(last)).sum() == pytest.approx(1)


def test_a_case_by_hand():
    # After the marker 9: 1, 1, 2. Of the counts 2 and 1, one is 1 and one is 2: D1 = 1 - 2/3, D2 = 2 - 3/3.
    (nats,) = KneserNey(1, 10).fit([[9, 1, 1, 2]]).nats([[9, 1]])
    assert np.exp(-nats[0]) == pytest.approx((2 - 1 + (1 / 3 + 1) / 10) / 3)


def test_the_entropy_of_a_markov_chain_is_approached_and_its_order_found():
    flips = np.random.default_rng(0).random(60_000) < 0.1
    states = np.cumsum(flips) % 2
    model = KneserNey.chosen([states[:50_000]], 2)
    assert model.order in (2, 3, 4)
    (nats,) = model.nats([states[50_000:]])
    assert nats.mean() == pytest.approx(-(0.1 * math.log(0.1) + 0.9 * math.log(0.9)), rel=0.04)


def test_adapting_learns_what_the_training_text_lacks():
    rng = np.random.default_rng(0)
    training, other = rng.integers(0, 8, 500), np.tile(rng.integers(0, 8, 50), 6)
    found = kneser_ney.baselines([training], [other], 8)
    fixed, adapting = (nats[0][100:].mean() for nats in found.values())
    assert adapting < 0.7 * fixed
    assert [name.endswith("adapting") for name in found] == [False, True]


def test_contexts_do_not_cross_sequences_and_nothing_gives_nothing():
    model = KneserNey(3, 4).fit([[0, 1, 2], [0, 3, 3]])
    together, apart = model.nats([[0, 1, 2], [0, 3, 3]]), [model.nats([s])[0] for s in ([0, 1, 2], [0, 3, 3])]
    assert all((a == b).all() for a, b in zip(together, apart, strict=True))
    assert model.nats([]) == []
    assert len(model.nats([[0]])[0]) == 0
    with pytest.raises(ValueError, match="order and vocabulary must be 1 or more"):
        KneserNey(0, 4)


def test_high_orders_of_many_ids_do_not_run_into_each_other():
    rng = np.random.default_rng(0)
    training = [rng.choice([0, 1, 511, 1022, 1023], 100) for _ in range(3)]
    held_out = np.concatenate([training[0][50:90], rng.integers(0, 1024, 20)])
    found = KneserNey(6, 1024).fit(training).nats([held_out], adapting=True)
    expected = naive_nats([each.tolist() for each in training], [held_out.tolist()], 6, 1024, adapting=True)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-9)


@pytest.mark.parametrize("training", [[], [[]], [[2]]])
def test_without_anything_to_predict_all_ids_are_equally_likely(training):
    for model in (KneserNey(3, 4).fit(training), KneserNey.chosen(training, 4)):
        first, empty = model.nats([[0, 1, 2, 3], []])
        np.testing.assert_allclose(first, [math.log(4)] * 3)
        assert empty.shape == (0,)


@pytest.mark.parametrize("outside", [-1, 4])
def test_ids_outside_of_the_vocabulary_are_refused(outside):
    with pytest.raises(ValueError, match="ids must be 0 to 3"):
        KneserNey(2, 4).fit([[0, outside]])
    with pytest.raises(ValueError, match="ids must be 0 to 3"):
        KneserNey(2, 4).fit([[0, 1]]).nats([[0, outside]])
