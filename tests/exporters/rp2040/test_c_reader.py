"""The runtime in C against the reference and the tokenizer, on shapes of every kind and on odd choices."""

from ctypes import c_size_t, c_uint16, c_uint32
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from exporters.rp2040 import layout
from models.stories.integer_transformer import Entries, IntegerTransformer, Sampler, Table
from models.stories.ngram_counts import hashes
from models.stories.ngram_embedding import contexts
from models.stories.quantization import quantize
from models.stories.tiny_transformer import make_tokenizer
from models.stories.tokens import END
from tests.exporters.rp2040 import read_back
from tests.exporters.rp2040.c_reader import CReader, library
from tests.exporters.rp2040.files import PROMPTS, SHAPES, SOME, quantized, read_in_c
from tests.models.tiny import make, trained_tokenizer
from tests.properties import examples


@pytest.mark.parametrize(
    "sizes",
    [pytest.param(SHAPES[name], id=name, marks=() if name in SOME[:2] else pytest.mark.slow) for name in SHAPES],
)
def test_tokens_are_those_of_the_reference(sizes):
    integers, reader = read_in_c(**sizes)
    stories = set()
    for prompt in PROMPTS:
        ids = reader.encode(prompt.encode())
        assert list(reader.tokens(ids, 16)) == list(integers.decode(ids, 16))
        for temperature, top_k, seed in ((256, 0, 1), (2560, 5, 2**32 - 1)):
            found = list(reader.tokens(ids, 16, temperature, top_k, seed))
            assert found == list(integers.decode(ids, 16, Sampler(integers, temperature, top_k, seed)))
            stories.add(tuple(found))
    assert len(stories) > 4  # the models are not so dull that any two would agree


def assert_same_logits(integers: IntegerTransformer, ids: list[int]) -> None:
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    model = layout.pack_model(integers, vocabulary)
    expected = integers.logits(np.array([[END, *ids]]))[0, -1]
    for streamed in (False, True):
        reader = CReader(model, vocabulary, streamed)
        assert reader.logits(ids) == expected.tolist()
        assert next(reader.tokens(ids, 1), END) == expected.argmax()


def test_of_equal_logits_the_first_is_chosen():
    model = make()
    with torch.no_grad():
        model.embedding.weight.copy_(model.embedding.weight[:1].expand_as(model.embedding.weight))
        model.output_bias.zero_()
        model.output_bias[END] = -50
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    assert list(CReader(layout.pack_model(quantize(model), vocabulary), vocabulary).tokens([], 3)) == [1, 1, 1]


@pytest.mark.parametrize("size", [100, 10_000])
def test_sums_of_extreme_weights_saturate_as_the_references_do(size):
    for seed in range(3):
        model = make(seed, width=32)
        token, qkv = 9, model.blocks[0].qkv.weight
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if any(part in name for part in ("out.", "up.", "down.")):
                    parameter.add_(size * torch.randn_like(parameter))
            qkv[32:] = torch.nn.functional.layer_norm(model.embedding.weight[token], (32,))  # farther than 4 deviations
        assert_same_logits(quantize(model), [token, 8, token, token, 5])


def remembering(integers: IntegerTransformer, tokens: list[int]) -> IntegerTransformer:
    """The model with rows at the limits of the format for the contexts that end with `tokens`."""
    found = contexts(torch.tensor([tokens]), None, integers.config.memory)
    tables = []
    for table, (row, fingerprint) in zip(integers.memory, found, strict=True):
        weights, multiplier, prints = table.weights.copy(), table.multiplier.copy(), table.fingerprint.copy()
        place = int(row[0, -1])
        weights[place] = np.linspace(-127, 127, weights.shape[1]).round()
        multiplier[place], prints[place] = 32767, int(fingerprint[0, -1])
        tables.append(Table(weights, multiplier, prints))
    return replace(integers, memory=tuple(tables), post_memory=1)


def test_what_all_tables_remember_saturates_as_the_references_does():
    integers = quantize(make(memory=(64, 2, 16, 32), width=32))
    ids = [7, 8, 9, 5, 6]
    assert_same_logits(remembering(integers, [END, *ids]), ids)


def test_the_contexts_of_a_story_begin_with_it():
    integers = remembering(quantize(make(memory=(64, 2, 16, 32))), [END])
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    reader = CReader(layout.pack_model(integers, vocabulary), vocabulary)
    first = reader.logits([])
    reader.logits([7, 8, 9, 5])
    assert reader.logits([]) == first == integers.logits(np.array([[END]]))[0, -1].tolist()


@pytest.mark.parametrize(("equal", "ids"), [(False, [7, 8, 9]), (True, [7, 8, 9]), (False, [])])
def test_contexts_with_many_counts_sharpen_as_the_reference_does(equal, ids):
    """Tokens that are as likely as all others together, behind the last token and behind the last two.

    Without `ids` the last two would begin before the story, and do not count.
    """
    model = make(counts=40)
    if equal:  # of equal logits, raised from the last token to the first, the first is the largest
        with torch.no_grad():
            model.embedding.weight.copy_(model.embedding.weight[:1].expand_as(model.embedding.weight))
            model.output_bias.zero_()
    integers = quantize(model)
    codes = [int(code[0, -1]) for code, _ in hashes(torch.tensor([[END, *ids]]))][:2]
    code = np.repeat(codes, (28, 12))
    tokens = np.concatenate([np.arange(30, 2, -1), np.arange(20, 8, -1)])
    order = np.argsort(code >> 32 - model.counts.bits, kind="stable")
    starts = np.searchsorted(code[order] >> 32 - model.counts.bits, np.arange(len(integers.counts.starts)))
    counts = Entries(starts, tokens[order], code[order] >> 6 & 1023, np.zeros(40, np.int64))
    assert_same_logits(replace(integers, counts=counts), ids)


@cache
def ending() -> tuple[IntegerTransformer, CReader]:
    integers = quantized(-12.0)
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    return integers, CReader(layout.pack_model(integers, vocabulary), vocabulary)


def test_a_story_ends_where_the_reference_ends_it():
    integers, reader = ending()
    lengths = set()
    for seed in range(1, 9):
        found = list(reader.tokens([5], 20, 2560, 0, seed))
        assert found == list(integers.decode([5], 20, Sampler(integers, 2560, 0, seed)))
        lengths.add(len(found))
    assert len(lengths) > 2


@pytest.mark.parametrize("seed", [0, 1, 99_999_999, 2**32 - 1])
def test_a_seed_begins_where_the_references_does(seed):
    assert library().tt_seed(c_uint32(seed)) == Sampler(ending()[0], 256, 0, seed).state != 0  # which would stay 0


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.integers(-(2**10), 2**10).map(lambda x: x // 300 * 2**20), min_size=32, max_size=32),
    st.integers(13, 2560),
    st.integers(0, 40),
    st.integers(0, 2**32 - 1),
)
def test_choices_among_equal_logits_are_those_of_the_reference(logits, temperature, top_k, seed):
    integers, reader = ending()
    sampler = Sampler(integers, temperature, top_k, seed)
    chosen, state = reader.choose(logits, temperature, top_k, sampler.state)
    assert chosen == sampler(np.array(logits))
    assert state == sampler.state


@pytest.mark.parametrize("post", [18, 22])  # with 22, a high temperature reaches farther than 31 bits
def test_a_token_that_is_none_of_the_top_ones_is_drawn_again_from_those_before_it(post):
    integers, vocabulary = replace(ending()[0], post_logits=post), layout.pack_vocabulary(trained_tokenizer(32))
    reader = CReader(layout.pack_model(integers, vocabulary), vocabulary)
    random = np.random.default_rng(0)
    for seed in range(300):
        logits = random.integers(-4, 4, 32) << random.integers(post, 27)
        sampler = Sampler(integers, int(random.integers(13, 2561)), int(random.integers(1, 12)), seed)
        chosen, state = reader.choose(logits.tolist(), sampler.temperature, sampler.top_k, sampler.state)
        assert (chosen, state) == (sampler(logits), sampler.state)


def test_a_second_story_does_not_remember_the_first():
    _, reader = ending()
    first = list(reader.tokens([7, 8], 30, 256))
    list(reader.tokens(list(range(2, 30)), 30, 256, 0, 9))
    assert list(reader.tokens([7, 8], 30, 256)) == first


@cache
def tokenizer_and_readers(size: int) -> tuple[Tokenizer, read_back.Vocabulary, CReader]:
    described = trained_tokenizer(size)
    packed = layout.pack_vocabulary(described)
    integers = quantized(0.0, vocabulary=size)
    return make_tokenizer(described), read_back.Vocabulary(packed), CReader(layout.pack_model(integers, packed), packed)


@pytest.mark.parametrize("lower", [True, False])
def test_capitals_are_read_as_small_letters_where_no_capital_has_a_token(lower):
    model = make(tokenizer=trained_tokenizer(32, lower))
    packed = layout.pack_vocabulary(model.config.tokenizer)
    reader = CReader(layout.pack_model(quantize(model), packed), packed)
    for text in ("The CAT sat.", "the cat sat.", "AZ[@`az{ Ää 12"):
        assert reader.encode(text.encode()) == read_back.Vocabulary(packed).encode(text.encode()) == model.encoded(text)
    assert (reader.encode(b"The CAT") == reader.encode(b"the cat")) is model.lower_case is lower


def test_letters_of_several_bytes_merge_whatever_their_bytes_are():
    """Some end with the byte 128, as the Cyrillic er does, the least that belongs to a letter."""
    text = "рыба рыба рад рыбам"
    described = trained_tokenizer(18, sentences=[text])
    packed = layout.pack_vocabulary(described)
    ids = make_tokenizer(described).encode(text).ids
    assert len(ids) < len(text)
    assert CReader(layout.pack_model(quantized(0.0, vocabulary=18), packed), packed).encode(text.encode()) == ids


def test_merges_make_way_for_earlier_ones_on_both_sides_and_join_no_spaces():
    described = trained_tokenizer(32)
    tokens = ["<|endoftext|>", "<unk>", *"abcdx", "bc", "abc", "abcd", "xabc", "ĉ", "ĉĉ", "y"]  # ĉ: a tab
    merges = [["b", "c"], ["abc", "d"], ["x", "abc"], ["a", "bc"], ["ĉ", "ĉ"]]
    described["model"] |= {"vocab": {token: number for number, token in enumerate(tokens)}, "merges": merges}
    packed = layout.pack_vocabulary(described)
    reader = CReader(layout.pack_model(quantized(0.0, vocabulary=14), packed), packed)
    for text, ids in (("abcd", [9]), ("xabc", [10]), ("xabcd", [6, 9]), ("\t\t", [11, 11])):
        assert reader.encode(text.encode()) == ids == make_tokenizer(described).encode(text).ids


def test_a_text_for_whose_tokens_there_is_no_room_is_not_encoded():
    reader, tokens = tokenizer_and_readers(32)[2], (c_uint16 * 4)(*range(4))
    assert library().tt_encode(reader._t, b"cat", c_size_t(3), tokens, c_size_t(2)) == -1
    assert list(tokens) == [0, 1, 2, 3]


# Arbitrary text is mostly unknown to a small tokenizer, so half of it is of words, spaces and signs that it knows.
KNOWN = st.lists(st.sampled_from(["The", "cat", "at", "sat", " ", "  ", "\n", "dog", "12", "!", ".", "é", "<unk>"]))


@pytest.mark.parametrize("size", [32, pytest.param(48, marks=pytest.mark.slow)])
@settings(max_examples=examples(300), deadline=None)
@given(st.one_of(st.text(), KNOWN.map("".join), st.text(alphabet="Thecatso .1\n<|>é\x00")))
def test_text_becomes_the_tokens_of_the_tokenizer(size, text):
    tokenizer, vocabulary, reader = tokenizer_and_readers(size)
    ids = tokenizer.encode(text).ids
    assert vocabulary.encode(text.encode()) == ids
    assert reader.encode(text.encode()) == ids
    known = bytes(byte for byte in text.encode() if vocabulary.of_byte[byte] != 1)
    assert vocabulary.decode(ids) == reader.decode(ids) == known
