"""A mixture and its counts, against a naive implementation, and what a reader must keep."""

from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models import io
from models.plans import chains, mixing, mixture_weights
from models.plans.char_lstm import PRESETS
from models.plans.char_mixture import CharMixture, CharMixtureConfig
from models.plans.characters import END
from models.plans.mixture_weights import ADAPTING, FROZEN, Examples

LETTERS = "abcd #.\n"
TEXTS = ["", "\ufffd", "", "<email>", "<telephone>", "<url>", *LETTERS]
CLASSES = chains.classes_of(TEXTS)
FIRST = 6
SIZES = {**PRESETS["default"], "width": 8, "embedding": 4, "vocabulary": LETTERS}


def tokens_of(text):
    return np.array([END, *(FIRST + LETTERS.index(character) for character in text)])


def counts_of(tokens):
    keys = chains.contexts(tokens, CLASSES)[1:, : chains.STORED]
    return chains.count(keys, tokens[1:], chains.counted(keys, tokens[1:]))


def mixture(text, seed=0, **sizes):
    torch.manual_seed(seed)
    counts = counts_of(tokens_of(text))
    model = CharMixture(
        CharMixtureConfig(**{**SIZES, **sizes}, rows=len(counts.keys), entries=len(counts.tokens))
    ).eval()
    model.count(counts)
    for table in model.weights():
        table.uniform_(0, 0.3)
    return model


def wording(seed, length=200):
    generator = np.random.default_rng(seed)
    words = ["abc", "dad", "cab", "bad", "a", "# dab\n", "abc. ", "cd.\n"]
    return " ".join(generator.choice(words, length))[:length]


def naive(tokens):
    """Counts of the first chain by their definition: {(order, context): Counter}."""
    found = defaultdict(Counter)
    for place in range(1, len(tokens)):
        for order in reversed(chains.ORDERS):
            context = order, tuple(tokens[max(0, place - order) : place])
            found[context][tokens[place]] += 1
            if found[context][tokens[place]] > 1:
                break
    return found


@settings(deadline=None, max_examples=25)
@given(st.text(LETTERS, min_size=1, max_size=60))
def test_the_counts_of_the_first_chain_are_their_definition(text):
    tokens = tokens_of(text)
    keys, counts, expected = chains.contexts(tokens, CLASSES), counts_of(tokens), naive(tokens.tolist())
    for place in range(1, len(tokens)):
        dense = np.zeros((len(chains.ORDERS), len(TEXTS)), np.float32)
        counts.add_to(dense, keys[place, : len(chains.ORDERS)])
        for row, order in zip(dense, chains.ORDERS, strict=True):
            context = expected[order, tuple(tokens[max(0, place - order) : place].tolist())]
            assert {token: int(row[token]) for token in np.flatnonzero(row)} == dict(context)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.text(LETTERS, min_size=1, max_size=30), min_size=1, max_size=4), st.integers(1, 3))
def test_pairs_of_several_documents_are_those_that_so_many_have(texts, least):
    whole = [tokens_of(text) for text in texts]
    keys = np.concatenate([chains.contexts(tokens, CLASSES)[1:, : chains.STORED] for tokens in whole])
    tokens = np.concatenate([each[1:] for each in whole])
    documents = np.repeat(np.arange(len(texts)), [len(each) - 1 for each in whole])
    owners = defaultdict(set)
    for row, level in np.ndindex(keys.shape):
        owners[level, keys[row, level], tokens[row]].add(documents[row])
    expected = [
        [len(owners[level, key, token]) >= least for level, key in enumerate(row)]
        for row, token in zip(keys, tokens, strict=True)
    ]
    assert chains.shared(keys, tokens, documents, least).tolist() == expected


def test_contexts_are_alike_where_what_they_stand_for_is():
    one, other = (chains.contexts(tokens_of(text), CLASSES)[-1] for text in ("# ab\nd cab bad.", "# ab\nc cab bad."))
    words = range(len(chains.ORDERS), len(chains.ORDERS) + chains.WORDS)
    assert (one == other).tolist()[words.start : words.stop] == [True, True, False]
    section = words.stop
    assert one[section] == other[section]
    elsewhere = chains.contexts(tokens_of("# ad\nd cab bad."), CLASSES)[-1]
    assert one[section] != elsewhere[section]
    assert one[words.stop - 1] == elsewhere[words.stop - 1]
    same_document, another = (chains.contexts(tokens_of("abc"), CLASSES, number)[-1] for number in (0, 1))
    assert (same_document != another).tolist() == [False] * chains.STORED + [True] * len(chains.OWN_ORDERS)


def test_a_heading_is_a_short_line_that_is_no_sentence():
    text = "# ab\ncab bad.\n" + "abc " * 30 + "\ndad\na"
    sections = chains.headings(tokens_of(text), CLASSES)
    assert len(set(sections.tolist())) == 3  # none, "# ab" and "dad"
    assert sections[6] == sections[-6] != sections[-1]


@pytest.mark.parametrize(("size", "heading"), [(chains.LONGEST_HEADING, True), (chains.LONGEST_HEADING + 1, False)])
def test_a_heading_has_at_most_eighty_characters(size, heading):
    sections = chains.headings(tokens_of(f"b\n{'a' * size}\nc"), CLASSES)
    assert (sections[-1] != sections[3]) == heading


@pytest.mark.parametrize("adapting", [False, True])
def test_a_text_read_at_once_in_pieces_or_token_by_token_is_predicted_alike(adapting, monkeypatch):
    model, tokens = mixture(wording(0)), tokens_of(wording(1, 60))[1:]
    whole = model.reader(adapting=adapting).read(tokens)
    assert torch.allclose(whole.exp().sum(1), torch.ones(len(tokens)), atol=1e-5)
    monkeypatch.setattr("models.plans.readers.AT_ONCE", 25)
    torch.testing.assert_close(model.reader(adapting=adapting).read(tokens), whole, atol=1e-5, rtol=1e-4)
    reader = model.reader(adapting=adapting)
    for place, token in enumerate(tokens):
        torch.testing.assert_close(reader.ahead(), whole[place], atol=1e-5, rtol=1e-4)
        if place % 2:
            reader.read(tokens[place : place + 1])
        else:
            reader.skim(np.array([token]))


def test_what_was_read_before_is_counted_in_the_next_document():
    model, text = mixture(wording(0)), tokens_of("dcbadcbadcba" * 4)[1:]
    for table in model.weights():
        table.fill_(0)
    model.common[:] = 0.5
    reader = model.reader()
    first = reader.read(text)
    reader.begin()
    second = reader.read(text)
    rows = np.arange(len(text))
    assert second[rows, text].mean() > first[rows, text].mean()


def test_a_frozen_mixture_is_the_same_in_windows_and_read():
    model, tokens = mixture(wording(0)), tokens_of(wording(1, 80))
    read = model.reader(adapting=False).read(tokens[1:])
    windows, _ = model(torch.from_numpy(tokens)[None, :-1], mixed=True)
    torch.testing.assert_close(windows[0], read, atol=1e-5, rtol=1e-4)


def test_a_document_before_the_prompt_is_taken_up():
    model = mixture(wording(0))
    model.common[:] = 0.7
    alone, after = (model.complete("ab", 20, temperature=0, document=text) for text in ("", "abdabdabdabdabd\n" * 8))
    assert after.startswith("d")
    assert alone != after
    assert model.complete("ab", 20, seed=3) == model.complete("ab", 20, seed=3)
    with pytest.raises(ValueError, match="document: String should have at most 1000000 characters"):
        model.complete("a", document="a" * 1_000_001)


def test_fitted_weights_predict_better_than_the_network_alone():
    model, tokens = mixture(wording(0, 1000)), tokens_of(wording(7, 150))
    keys = chains.contexts(tokens, CLASSES)[1:]
    found = chains.layers(keys[:, : chains.STORED], tokens[1:], len(TEXTS), [model.counted()], None)
    network = torch.log_softmax(torch.randn(len(tokens) - 1, len(TEXTS)), -1)
    examples = [Examples(network.numpy(), found, tokens[1:])]
    before = [table.clone() for table in model.weights()]
    nats = model.fit(FROZEN, examples)
    alone = -network[np.arange(len(tokens) - 1), tokens[1:]].mean()
    assert nats < 0.7 * float(alone)
    assert model.fit(FROZEN, examples) == nats
    assert all(torch.equal(own[ADAPTING], old[ADAPTING]) for own, old in zip(model.weights(), before, strict=True))


def test_weights_are_looked_up_by_entropy_longest_contexts_and_states():
    generator, size = np.random.default_rng(0), (30, chains.CONTEXTS)
    network = torch.log_softmax(torch.from_numpy(generator.normal(0, 2, (30, len(TEXTS))).astype(np.float32)), -1)
    states = generator.integers(1, chains.STATES, size) * (generator.random(size) < 0.2)
    own, share = generator.random((*size, len(TEXTS))), generator.random(size)
    found = chains.Layers(own.astype(np.float32), share.astype(np.float32), states)
    tables = [table[0].numpy().copy() for table in mixture("abc").weights()]
    for table in tables:
        table[:] = generator.normal(0, 0.1, table.shape)
    common, by_length, by_lengths, by_state = tables
    features = np.concatenate([network.numpy()[:, None], mixing.sharpened(found, network.numpy())], 1)
    mixed = mixture_weights.mixture(network, found, tables)
    for row, expected in enumerate(network):
        entropy = float(-(expected.exp() * expected).sum())
        seen = [[place for place, level in enumerate(levels, 1) if states[row, level]] for levels in chains.CHAINS]
        first, *others = [max(places, default=0) for places in seen]
        place, fine = (
            sum(entropy > border for border in borders) for borders in (mixing.ENTROPIES, mixing.FINE_ENTROPIES)
        )
        weights = common + by_length[first * (len(mixing.ENTROPIES) + 1) + place]
        weights = weights + by_lengths[np.ravel_multi_index(others, mixing.LENGTHS[1:])]
        weights = weights + by_state[np.arange(len(weights)), [fine, *states[row]]]
        wanted = torch.log_softmax(torch.from_numpy(weights @ features[row]), -1)
        torch.testing.assert_close(mixed[row].float(), wanted.float(), atol=1e-4, rtol=1e-4)


def test_examples_in_pieces_are_fitted_as_at_once():
    model, tokens = mixture(wording(0, 400)), tokens_of(wording(7, 60))
    keys = chains.contexts(tokens, CLASSES)[1:, : chains.STORED]
    network = torch.log_softmax(torch.randn(len(tokens) - 1, len(TEXTS)), -1).numpy()

    def examples(rows):
        found = chains.layers(keys, tokens[1:], len(TEXTS), [model.counted()], None, rows)
        return Examples(network[rows], found, tokens[1:][rows])

    rows = np.arange(len(keys))
    whole = model.fit(FROZEN, [examples(rows)])
    assert model.fit(FROZEN, [examples(part) for part in np.array_split(rows, 3)]) == pytest.approx(whole, abs=1e-3)


class Seen:
    """Counts of four tokens, 1, 2, 3 and 5, after any context."""

    def add_to(self, dense, keys):
        dense[:, :4] += np.array([1, 2, 3, 5], np.float32)


def test_counts_are_discounted_by_their_size_and_the_rest_goes_to_shorter_contexts():
    found = chains.layers(np.zeros((1, chains.CONTEXTS), np.int64), np.zeros(1, int), 6, [Seen()], None)
    for level, discounts in ((0, (0.88, 1.1, 1.3)), (chains.STORED, (0.8, 1.0, 1.2))):
        once, twice, more = discounts
        own = [1 - once, 2 - twice, 3 - more, 5 - more, 0, 0]
        assert found.own[0, level].tolist() == pytest.approx([value / 11 for value in own], abs=1e-6)
        assert found.share[0, level] == pytest.approx((once + twice + 2 * more) / 11)
    assert found.states[0].tolist() == [1 + 4 * (len(chains.KINDS) + 1) + 2] * chains.CONTEXTS


def test_bounded_counts_keep_what_was_seen_most():
    tokens = tokens_of(wording(0, 400))
    counts = counts_of(tokens)
    kept = chains.added([counts], 50)
    assert len(kept.keys) == 50
    totals = np.add.reduceat(counts.counts, counts.offsets[:-1])
    assert np.add.reduceat(kept.counts, kept.offsets[:-1]).sum() == np.sort(totals)[-50:].sum()
    twice = chains.added([counts, counts])
    assert np.array_equal(twice.counts, 2 * counts.counts)


@pytest.mark.parametrize(
    ("name", "place", "value"), [("tokens", 3, 99), ("tokens", 3, -1), ("counts", 3, 0), ("keys", 1, None)]
)
def test_damaged_counts_are_refused(tmp_path, name, place, value):
    model = mixture(wording(0))
    damaged = getattr(model, name)
    damaged[place] = damaged[place - 1] if value is None else value  # the keys ascend
    io.save(model, tmp_path)
    with pytest.raises(ValueError, match="counts are damaged"):
        io.load(tmp_path)
