"""The tokenizer has the size asked for, spells every text, and follows a rule that a microcontroller can follow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from common.errors import UserError
from pipelines.workloads.tinystories import tokenization
from pipelines.workloads.tinystories.tokenization import Encoder, train_tokenizer
from tests.properties import examples
from tests.workloads.tinystories.texts import STORIES

ODD = 'Été à la "mer": 12 € 7\n\t- ok?'


def pieces(text: bytes) -> list[bytes]:
    """The rule as a microcontroller would follow it."""

    def kind(byte: int) -> str:
        if byte >= 0x80 or chr(byte).isalpha():
            return "letter"
        return "digit" if chr(byte).isdigit() else "space" if byte in b" \t\n\r" else "other"

    found, start = [], 0
    while start < len(text):
        first = start + (text[start] == 0x20)
        end = start + 1
        if first < len(text) and kind(text[first]) != "space":
            end = first + 1
            while end < len(text) and kind(text[end]) == kind(text[first]):
                end += 1
        found.append(text[start:end])
        start = end
    return found


@pytest.fixture(scope="module")
def odd():
    """A tokenizer whose alphabet has bytes of all kinds."""
    return train_tokenizer([ODD, *STORIES], 200)


@pytest.fixture(scope="module")
def tagged():
    """A tokenizer that has learned the names of its special tokens as text."""
    return train_tokenizer(["fox <|endoftext|> <unk>\n<|endoftext|><unk>"] * 9, 33)


@pytest.mark.parametrize("vocabulary", [63, 64, 100, 256, 600])
def test_the_vocabulary_has_exactly_the_size_asked_for(vocabulary):
    assert train_tokenizer(STORIES, vocabulary).get_vocab_size() == vocabulary


def test_a_vocabulary_too_small_for_the_bytes_is_refused_with_the_one_that_works():
    texts = ["aab aab", "abc"]
    with pytest.raises(UserError, match=r"model\.vocabulary=5 is too small: the 4 different bytes .* give "):
        train_tokenizer(texts, 5)
    assert train_tokenizer(texts, 6).get_vocab_size() == 6


@pytest.mark.parametrize("texts", [["aab aab", "abc"], ["aab aab", "abcd"], ["aab aab"]])
def test_a_vocabulary_larger_than_the_text_yields_is_lowered_to_an_even_number(texts):
    found = train_tokenizer(texts, 999)
    largest = found.get_vocab_size()
    assert largest % 2 == 0
    assert found.to_str() == train_tokenizer(texts, largest).to_str()
    assert {train_tokenizer(texts, size).get_vocab_size() for size in (largest + 1, largest + 2)} <= {
        largest,
        largest + 1,
    }
    assert all(found.decode(found.encode(text).ids) == text for text in texts)


def test_the_first_tokens_are_the_special_ones_and_the_bytes_of_the_training_text(odd):
    vocabulary = odd.get_vocab()
    assert vocabulary["<|endoftext|>"] == 0
    assert vocabulary["<unk>"] == 1
    singles = [token for token in vocabulary if len(token) == 1]
    assert sorted(vocabulary[token] for token in singles) == list(range(2, 2 + len(singles)))
    assert len(singles) == len(set((ODD + "".join(STORIES)).encode()))


@settings(deadline=None)
@given(text=st.text(st.sampled_from(sorted(set(ODD + "".join(STORIES))))))
def test_text_over_the_alphabet_comes_back_unchanged(odd, text):
    assert odd.decode(odd.encode(text).ids) == text


@settings(deadline=None)
@given(text=st.text())
def test_every_unknown_byte_becomes_one_unknown_token(odd, text):
    known = set((ODD + "".join(STORIES)).encode())
    ids = odd.encode(text).ids
    assert ids.count(1) == sum(byte not in known for byte in text.encode())
    assert 0 not in ids


@settings(deadline=None)
@given(text=st.lists(st.sampled_from(["<|endoftext|>", "<unk>", " ", "\n", "fox", "<|", "|>"])).map("".join))
def test_the_names_of_special_tokens_within_a_text_are_text(tagged, text):
    ids = tagged.encode(text).ids
    assert not {0, 1} & set(ids)
    assert tagged.decode(ids) == text


@settings(deadline=None, max_examples=examples(300))
@given(text=st.text() | st.text(st.sampled_from('aZé 7\n\t\r\x0b\xa0\u2028\u3000\x85-."<|_`[@{/:^')).filter(bool))
def test_pieces_are_those_of_the_rule_on_bytes(odd, text):
    decode = decoders.ByteLevel().decode
    found = [decode([piece]) for piece, _ in odd.pre_tokenizer.pre_tokenize_str(text)]
    assert [piece.encode() for piece in found] == pieces(text.encode())


def test_no_token_crosses_a_piece(odd):
    decode = decoders.ByteLevel().decode
    for token, number in odd.get_vocab().items():
        if number > 1 and len(token) > 1 and "\ufffd" not in (text := decode([token])):
            assert len(pieces(text.encode())) == 1


@settings(deadline=None)
@given(text=st.text() | st.text(st.sampled_from("aZé 7\n\t\r\x0b\xa0.<|_")))
def test_an_encoder_gives_the_tokens_of_the_whole_text(odd, text):
    assert np.frombuffer(Encoder(odd).encode(text), np.uint16).tolist() == odd.encode(text).ids


def test_an_encoder_forgets_so_that_its_memory_stays_small(odd, monkeypatch):
    monkeypatch.setattr(tokenization, "KEPT_PIECES", 5)
    encoder = Encoder(odd)
    for text in (*STORIES, "x" * 1000):
        assert np.frombuffer(encoder.encode(text), np.uint16).tolist() == odd.encode(text).ids
        assert len(encoder) <= 5
