"""The bytes of model and vocabulary files, and what is not packed into them."""

import json
import struct
from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.rp2040 import inference_files, layout
from models.stories import rp2040
from models.stories.config import TinyTransformerConfig
from models.stories.integer_arithmetic import EXP, GELU, Matrix
from models.stories.integer_transformer import IntegerTransformer, Layer
from models.stories.quantization import quantize
from models.stories.tiny_transformer import make_tokenizer
from tests.exporters.rp2040.files import TABLES, vocabulary, with_sum
from tests.models.tiny import make, trained_tokenizer


def by_hand() -> IntegerTransformer:
    """A model whose numbers are all different where the file's order could be mistaken."""
    numbers = iter(range(-127, 10_000))

    def matrix(rows: int, columns: int) -> Matrix:
        weights = np.array([next(numbers) % 255 - 127 for _ in range(rows * columns)]).reshape(rows, columns)
        return Matrix(weights, np.arange(rows) * 1000 - next(numbers), np.arange(rows) + 300 + next(numbers))

    shifts = {name: number for number, name in enumerate(inference_files.SHIFTS, start=5)}
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


@settings(max_examples=25, deadline=None)
@given(SIZES, st.integers(0, 1000))
def test_a_model_comes_back_as_it_was(sizes, seed):
    integers = quantize(make(seed, **sizes))
    data = layout.pack_model(integers, vocabulary())
    assert len(data) == 40 + rp2040.model_bytes(integers.config)
    found = layout.read_model(data)
    assert found.config == replace(integers.config, tokenizer={})
    for one, other in zip((*integers.layers, integers), (*found.layers, found), strict=True):
        for name, value in vars(one).items():
            if isinstance(value, Matrix):
                for field in ("weights", "bias", "multiplier"):
                    assert np.array_equal(getattr(value, field), getattr(getattr(other, name), field))
            elif isinstance(value, np.ndarray):
                assert np.array_equal(value, getattr(other, name))
            elif name not in ("layers", "config"):
                assert value == getattr(other, name)


def test_the_limits_are_those_of_the_chip():
    assert {name: limits for name, *limits in inference_files.LIMITS} == {
        name: list(limits) for name, limits in rp2040.FORMAT_LIMITS.items()
    }


def test_a_model_that_the_format_does_not_hold_is_not_packed():
    for sizes, reason in (
        ({"width": 6, "heads": 2}, "the model's width is 6; a model file holds 4 to 128, multiples of 4"),
        ({"context": 258}, "the model's context is 258"),
        ({"vocabulary": 33}, "the model's vocabulary is 33"),
    ):
        with pytest.raises(ValueError, match=reason):
            layout.pack_model(quantize(make(**sizes)), vocabulary())
    integers = by_hand()
    wrong = replace(integers, embedding=replace(integers.embedding, multiplier=np.full(6, 2**16)))
    with pytest.raises(ValueError, match="a value of multiplier that does not fit 2 bytes"):
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
        ("model.ignore_merges", True, "a device does not follow: model.ignore_merges"),
        ("normalizer", {"type": "Lowercase"}, "a device does not follow: normalizer"),
        ("pre_tokenizer", None, "a device does not follow: pre_tokenizer"),
        ("added_tokens", [{"id": 9, "content": "cat", "special": False}], "added token 'cat'"),
        ("model.vocab", {"<unk>": 0, "<|endoftext|>": 1, "a": 2, "b": 3}, "the tokenizer's first tokens are"),
        ("model.vocab", {"<|endoftext|>": 0, "<unk>": 1, "a": 2, "b": 4}, "ids are not 0, 1, 2 and so on"),
        ("model.vocab", {"<|endoftext|>": 0, "<unk>": 1, "a": 2}, "the tokenizer has 3 tokens"),
        ("model.vocab", {"<|endoftext|>": 0, "<unk>": 1, "a": 2, "猫": 3}, "a character that stands for no byte, '猫'"),
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
