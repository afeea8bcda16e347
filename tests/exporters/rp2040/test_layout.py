"""The bytes of model and vocabulary files, and what is not packed into them."""

import json
import struct
from dataclasses import fields, is_dataclass, replace
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from exporters.rp2040 import layout
from models.stories import rp2040
from models.stories.config import TinyTransformerConfig
from models.stories.integer_transformer import EXP, GELU, Entries, IntegerTransformer, Layer, Matrix, Table
from models.stories.quantization import quantize
from models.stories.tiny_transformer import make_tokenizer
from tests.exporters.rp2040 import read_back
from tests.exporters.rp2040.files import TABLES, vocabulary, with_sum
from tests.models.tiny import make, trained_tokenizer


def by_hand() -> IntegerTransformer:
    """A model whose numbers are all different where the file's order could be mistaken."""
    numbers = iter(range(-127, 10_000))

    def matrix(rows: int, columns: int) -> Matrix:
        weights = np.array([next(numbers) % 255 - 127 for _ in range(rows * columns)]).reshape(rows, columns)
        return Matrix(weights, np.arange(rows) * 1000 - next(numbers), np.arange(rows) + 300 + next(numbers))

    shifts = {name: number for number, name in enumerate(layout.SHIFTS, start=5)}
    layer = Layer(matrix(12, 4), matrix(4, 4), matrix(4, 4), matrix(4, 4), np.array([[7, -8], [9, -10]]), shifts)
    config = TinyTransformerConfig(vocabulary=6, width=4, layers=1, heads=2, hidden=4, context=2)
    return IntegerTransformer(config, (layer,), matrix(6, 4), 5, 6, 7)


def test_a_model_file_has_the_bytes_that_the_format_says():
    model = by_hand()
    data = layout.pack_model(model, b"TTV1" + bytes(8) + b"\1\2\3\4" + bytes(4))
    body = data[16:]
    assert data[:8] == b"TTM1" + b"\1\0" + b"\x28\0"
    assert struct.unpack("<II", data[8:16]) == (len(data), crc32(body))
    assert body[:24] == b"\6\0\4\0\1\0\2\0\4\0\2\0" + b"\5\6\7\0" + b"\x14\0\0\0" + b"\1\2\3\4"
    assert data[40:TABLES] == struct.pack("<704H", *EXP) + struct.pack("<1024h", *GELU)
    layer = model.layers[0]
    expected = bytes(range(5, 15)) + b"\0\0"
    matrices = (layer.qkv, layer.out, layer.up, layer.down)
    for matrix in matrices:
        expected += struct.pack(f"<{len(matrix.bias)}i", *matrix.bias)
    for matrix in matrices:
        expected += struct.pack(f"<{len(matrix.bias)}H", *matrix.multiplier)
    expected += struct.pack("<4h", -8, 7, -10, 9)
    for matrix in matrices:
        expected += two_rows_interleaved(matrix.weights.tolist())
    embedding = model.embedding
    expected += struct.pack("<6H", *embedding.multiplier) + struct.pack("<6i", *embedding.bias)
    expected += two_rows_interleaved(embedding.weights.tolist())
    assert data[TABLES:] == expected
    assert crc32(data) == 0xCCC54914  # the tables too


def two_rows_interleaved(rows: list[list[int]]) -> bytes:
    stored = []
    for even, odd in zip(rows[::2], rows[1::2], strict=True):
        for a, b in zip(even, odd, strict=True):
            stored += [a + 128, b + 128]
    return bytes(stored)


def test_a_vocabulary_file_has_the_bytes_that_the_format_says():
    tokenizer = trained_tokenizer(32)
    tokenizer["model"]["vocab"] = {"<|endoftext|>": 0, "<unk>": 1, "a": 2, "Ġ": 3, "Ġa": 4, "Ã": 5}
    tokenizer["model"]["merges"] = [["Ġ", "a"]]
    tokens = [1] * 256
    tokens[ord("a")], tokens[ord(" ")], tokens[0xC3] = 2, 3, 5
    body = struct.pack("<HHI", 6, 1, 5) + struct.pack("<256H", *tokens) + struct.pack("<3H", 3, 2, 4)
    body += struct.pack("<7H", 0, 0, 0, 1, 2, 4, 5) + b"a  a\xc3" + bytes(2)
    head = b"TTV1" + b"\1\0" + b"\x18\0" + struct.pack("<II", 16 + len(body), crc32(body))
    body_of_multiple = body + bytes(-(16 + len(body)) % 4)
    assert len(head + body_of_multiple) % 4 == 0
    assert layout.pack_vocabulary(tokenizer) == with_sum(head + body_of_multiple)


SIZES = st.fixed_dictionaries(
    {
        "width": st.sampled_from([4, 8, 12, 20]),
        "layers": st.integers(1, 3),
        "hidden": st.sampled_from([4, 8, 24]),
        "context": st.sampled_from([2, 4, 10]),
        "heads": st.sampled_from([1, 2, 4]),
    }
)


def same(one: object, other: object) -> bool:
    if is_dataclass(one):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other


def comes_back(integers: IntegerTransformer) -> bool:
    found = read_back.read_model(layout.pack_model(integers, vocabulary()))
    return same(replace(integers, config=replace(integers.config, tokenizer={})), found)


@settings(max_examples=25, deadline=None)
@given(SIZES, st.integers(0, 1000))
def test_a_model_comes_back_as_it_was(sizes, seed):
    integers = quantize(make(seed, **sizes))
    assert comes_back(integers)
    assert len(layout.pack_model(integers, vocabulary())) == 40 + rp2040.model_bytes(integers.config)


def test_memory_and_counts_come_back_as_they_were():
    integers = quantize(make(memory=(16, 64), counts=100))
    generator = np.random.default_rng(0)
    tables = tuple(
        Table(
            generator.integers(-127, 128, table.weights.shape),
            generator.integers(0, 2**15, len(table.multiplier)),
            generator.integers(0, 256, len(table.fingerprint)),
        )
        for table in integers.memory
    )
    starts = np.minimum(np.arange(len(integers.counts.starts)) * 8, 100)
    starts[-1] = 100
    drawn = (generator.integers(0, most, 100) for most in (32, 1024, 1024))
    counted = replace(integers, memory=tables, counts=Entries(starts, *drawn))
    assert comes_back(counted)
    assert comes_back(replace(counted, counts=None, config=replace(counted.config, counts=0)))
    assert comes_back(replace(counted, memory=(), post_memory=0, config=replace(counted.config, memory=())))
    assert not same(integers, counted)
    behind = rp2040.memory_bytes(counted.config) + rp2040.counts_bytes(counted.config)
    assert len(layout.pack_model(counted, vocabulary())) == 56 + rp2040.model_bytes(counted.config) + behind
    assert rp2040.flash_bytes(counted.config) >= len(layout.pack_model(counted, vocabulary()))


def test_the_largest_sizes_of_the_format_are_packed():
    assert comes_back(quantize(make(context=256, heads=1)))


def test_a_number_that_the_format_does_not_hold_is_not_packed():
    integers = by_hand()
    wrong = replace(integers, embedding=replace(integers.embedding, multiplier=np.full(6, 2**16)))
    with pytest.raises(ValueError, match="a value of multiplier beyond 2 bytes"):
        layout.pack_model(wrong, vocabulary())


def vandalized(path: str, value) -> dict:
    """The tokenizer with one setting changed; `path` has its keys, parted by points."""
    tokenizer = trained_tokenizer(32)
    *parents, last = path.split(".")
    place = tokenizer
    for key in parents:
        place = place[key]
    place[last] = value
    return tokenizer


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("model.type", "Unigram", "the tokenizer must be BPE with the unknown token <unk>"),
        ("model.unk_token", None, "the tokenizer must be BPE with the unknown token <unk>"),
        ("model.fuse_unk", True, "a device does not follow: model.fuse_unk"),
        ("model.dropout", 0.1, "a device does not follow: model.dropout"),
        ("model.byte_fallback", True, "a device does not follow: model.byte_fallback"),
        ("model.continuing_subword_prefix", "##", "a device does not follow: model.continuing_subword_prefix"),
        ("model.end_of_word_suffix", "</w>", "a device does not follow: model.end_of_word_suffix"),
        ("post_processor", {"type": "ByteLevel"}, "a device does not follow: post_processor"),
        ("truncation", {"max_length": 8}, "a device does not follow: truncation"),
        ("padding", {"pad_id": 0}, "a device does not follow: padding"),
        ("added_tokens", [{"id": 1, "content": "<unk>", "special": False}], "added token '<unk>'"),
        ("model.ignore_merges", True, "a device does not follow: model.ignore_merges"),
        ("normalizer", {"type": "Lowercase"}, "a device does not follow: normalizer"),
        ("pre_tokenizer", None, "a device does not follow: pre_tokenizer"),
        ("added_tokens", [{"id": 9, "content": "cat", "special": False}], "added token 'cat'"),
        ("model.vocab", {"<unk>": 0, "<|endoftext|>": 1, "a": 2, "b": 3}, "the tokenizer's first tokens are"),
        ("model.vocab", {"<|endoftext|>": 0, "<unk>": 1, "a": 2, "b": 4}, "ids are not 0, 1, 2 and so on"),
        ("model.vocab", {"<|endoftext|>": 0, "<unk>": 1, "a": 2, "猫": 3}, "a character that is no byte, '猫'"),
    ],
)
def test_a_tokenizer_that_a_device_would_not_follow_is_refused(path, value, reason):
    with pytest.raises(ValueError, match=reason):
        layout.pack_vocabulary(vandalized(path, value))


def test_a_model_without_a_tokenizer_has_no_vocabulary():
    with pytest.raises(ValueError, match="saved without its tokenizer; train it again"):
        layout.pack_vocabulary({})


def test_merges_are_each_there_once_and_not_of_special_tokens():
    tokenizer = trained_tokenizer(32)
    tokenizer["model"]["merges"] *= 2
    with pytest.raises(ValueError, match="the tokenizer has a merge twice"):
        layout.pack_vocabulary(tokenizer)
    tokens = ["<|endoftext|>", "<unk>", "<un", "k>", "<", "u", "n", "k", ">", "<u"]
    tokenizer["model"]["vocab"] = {token: i for i, token in enumerate(tokens)}
    tokenizer["model"]["merges"] = [["<un", "k>"]]
    with pytest.raises(ValueError, match=r"merges to or from one of .*<unk>"):
        layout.pack_vocabulary(tokenizer)


def test_merges_written_as_text_are_read_too():
    tokenizer = trained_tokenizer(48)
    packed = layout.pack_vocabulary(tokenizer)
    tokenizer["model"]["merges"] = [" ".join(pair) for pair in tokenizer["model"]["merges"]]
    assert layout.pack_vocabulary(tokenizer) == packed


def test_the_pieces_are_those_of_the_tokenizer():
    assert json.loads(make_tokenizer(trained_tokenizer(32)).to_str())["pre_tokenizer"] == layout.PRE_TOKENIZER


def many_tokens(count: int) -> dict:
    """A tokenizer of so many tokens without merges."""
    tokenizer = trained_tokenizer(32)
    letters = [chr(code) for code in range(33, 127)]
    names = ["<|endoftext|>", "<unk>", *(one + other for one in letters for other in letters)][:count]
    tokenizer["model"] |= {"vocab": {name: number for number, name in enumerate(names)}, "merges": []}
    return tokenizer


def test_the_largest_vocabulary_is_packed_and_no_larger_one():
    assert read_back.Vocabulary(layout.pack_vocabulary(many_tokens(4096))).size == 4096
    with pytest.raises(ValueError, match="the tokenizer has 4098 tokens; the most is 4096; train a smaller one"):
        layout.pack_vocabulary(many_tokens(4098))


@pytest.mark.parametrize("name", ["MOST_MERGES", "MOST_TEXT"])
def test_merges_and_bytes_are_held_up_to_their_limits_and_no_further(name, monkeypatch):
    tokenizer = trained_tokenizer(48)
    names = list(tokenizer["model"]["vocab"])[2:]
    used = {"MOST_MERGES": len(tokenizer["model"]["merges"]), "MOST_TEXT": sum(map(len, names))}[name]
    assert used > 10
    assert getattr(layout, name) == {"MOST_MERGES": 8192, "MOST_TEXT": 65535}[name]  # of FORMAT.md
    monkeypatch.setattr(layout, name, used)
    layout.pack_vocabulary(tokenizer)
    monkeypatch.setattr(layout, name, used - 1)
    with pytest.raises(ValueError, match=f"has {used} (merges|bytes of tokens); the most is {used - 1}"):
        layout.pack_vocabulary(tokenizer)


def test_every_byte_has_the_token_that_the_tokenizers_library_gives_it():
    tokenizer, library = trained_tokenizer(32), ByteLevel(add_prefix_space=False, use_regex=False)
    names = ["<|endoftext|>", "<unk>", *sorted(ByteLevel.alphabet())]
    tokenizer["model"] |= {"vocab": {name: number for number, name in enumerate(names)}, "merges": []}
    found = read_back.Vocabulary(layout.pack_vocabulary(tokenizer))
    for byte in range(0xC0):  # the last one of a character's UTF-8
        text = chr(byte)
        assert found.of_byte[text.encode()[-1]] == names.index(library.pre_tokenize_str(text)[0][0][-1])
