"""The runtime in C against the reference and the tokenizer, on shapes of every kind and on odd choices."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from exporters.rp2040 import layout
from models.stories.integer_transformer import IntegerTransformer, Sampler
from models.stories.quantization import quantize
from models.stories.tiny_transformer import make_tokenizer
from tests.exporters.rp2040 import read_back
from tests.exporters.rp2040.c_reader import CReader
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
