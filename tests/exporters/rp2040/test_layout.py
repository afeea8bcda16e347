"""Model and vocabulary files: their bytes, what is refused, and text to tokens."""

import io
import json
import random
import struct
from dataclasses import replace
from functools import cache
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from exporters.rp2040 import inference, layout, uf2
from models import rp2040
from models.integer_transformer import EXP, GELU, IntegerTransformer, Layer, Matrix, quantize
from models.tiny_transformer import TinyTransformerConfig, make_tokenizer
from tests.models.tiny import make, trained_tokenizer

SMALLEST = {"vocabulary": 32, "width": 4, "layers": 1, "heads": 2, "hidden": 4, "context": 2}
TABLES = 40 + 2 * 704 + 2 * 1024  # where the first layer starts
MODEL_SIZES = 16  # where six u16 are


@cache
def vocabulary() -> bytes:
    return layout.pack_vocabulary(trained_tokenizer(32))


@cache
def model() -> bytes:
    return layout.pack_model(quantize(make(**SMALLEST)), vocabulary())


@cache
def uf2_file() -> bytes:
    boot = bytes(252)
    return uf2.join(boot + struct.pack("<I", uf2.boot_sum(boot)) + b"runtime", model(), vocabulary())


def with_sum(data: bytes) -> bytes:
    """`data` with the size and the CRC-32 that it should have."""
    return data[:8] + struct.pack("<II", len(data), crc32(data[16:])) + data[16:] if len(data) >= 16 else data


def patched(data: bytes, offset: int, new: bytes) -> bytes:
    offset %= len(data)
    return with_sum(data[:offset] + new + data[offset + len(new) :])


def by_hand() -> IntegerTransformer:
    """A model whose numbers are all different where the file's order could be mistaken."""
    numbers = iter(range(-127, 10_000))

    def matrix(rows: int, columns: int) -> Matrix:
        weights = np.array([next(numbers) % 255 - 127 for _ in range(rows * columns)]).reshape(rows, columns)
        return Matrix(weights, np.arange(rows) * 1000 - next(numbers), np.arange(rows) + 300 + next(numbers))

    shifts = {name: number for number, name in enumerate(inference.SHIFTS, start=5)}
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
    assert {name: limits for name, *limits in inference.LIMITS} == {
        name: list(limits) for name, limits in rp2040.FORMAT_LIMITS.items()
    }


def u16(number: int) -> bytes:
    return struct.pack("<H", number)


# offset, new bytes, what is said
REFUSED_MODELS = [
    (0, b"TTV1", "this is no model file: it does not start with TTM1"),
    (4, u16(2), "the model file is of version 2; this reader knows version 1"),
    (6, u16(44), "the model file says its header has 44 bytes; version 1 has 40"),
    (16, u16(3), "the model file's vocabulary is 3; allowed are 4 to 4096, multiples of 2"),
    (16, u16(4098), "the model file's vocabulary is 4098"),
    (16, u16(34), "but its sizes need"),
    (18, u16(6), "the model file's width is 6; allowed are 4 to 128, multiples of 4"),
    (18, u16(132), "the model file's width is 132"),
    (20, u16(0), "the model file's layers is 0"),
    (20, u16(17), "the model file's layers is 17"),
    (22, u16(0), "the model file's heads is 0"),
    (22, u16(3), "the model file's width 4 is not a multiple of its heads 3"),
    (24, u16(1028), "the model file's hidden is 1028"),
    (26, u16(3), "the model file's context is 3"),
    (26, u16(258), "the model file's context is 258"),
    (28, b"\x19", "the model file's pre_logits is 25; allowed are 0 to 24"),
    (28, b"\0", "embedding has a pre of 0, under which sums leave 16 bits"),
    (29, b"\0", "the model file's post_logits is 0; allowed are 1 to 30"),
    (29, b"\x1f", "the model file's post_logits is 31"),
    (30, b"\0", "the model file's post_embedding is 0"),
    (31, b"\1", "the model file's header has unused bytes that are not 0"),
    (40, u16(32767), "exp table does not start with its largest entry, 32768"),
    (42, u16(32769), "exp table does not start with its largest entry, 32768"),
    (42, u16(32767), "the model file's tables are not those of FORMAT.md; export the model again"),
    (40 + 1408, u16(16384), "gelu table has entries beyond 16383"),
    (40 + 1408, u16(65536 - 16384), "gelu table has entries beyond 16383"),
    (TABLES + 0, b"\x19", "the model file's layer 1 pre_qkv is 25; allowed are 0 to 24"),
    (TABLES + 0, b"\0", "the model file's layer 1 qkv has a pre of 0"),
    (TABLES + 1, b"\0", "the model file's layer 1 post_q is 0; allowed are 1 to 30"),
    (TABLES + 4, b"\x19", "the model file's layer 1 pre_out is 25"),
    (TABLES + 6, b"\0", "the model file's layer 1 up has a pre of 0"),
    (TABLES + 9, b"\x1f", "the model file's layer 1 post_down is 31"),
    (TABLES + 11, b"\1", "the model file's layer 1 has unused bytes that are not 0"),
    (TABLES + 12, b"\0\0\0\1", "the model file's layer 1 qkv has a bias of 16777216; the most is 16777215"),
    (TABLES + 12 + 48, b"\0\0\0\xff", "the model file's layer 1 out has a bias of 16777216"),
    (TABLES + 12 + 48, b"\0\0\0\x80", "the model file's layer 1 out has a bias of 2147483648"),
    (TABLES + 12 + 96, b"\0\x80", "the model file's layer 1 qkv has a multiplier above 32767"),
    (TABLES + 12 + 96 + 48 + 8, b"\0", "the model file's layer 1 qkv has a weight of -128"),
    (-1, b"\0", "the model file's embedding has a weight of -128"),
]


@pytest.mark.parametrize(("offset", "new", "reason"), REFUSED_MODELS)
def test_a_model_file_out_of_the_limits_is_refused(offset, new, reason):
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refusal:
        layout.read_model(patched(model(), offset, new))
    assert reason in str(refusal.value)


REFUSED_VOCABULARIES = [
    (0, b"TTM1", "this is no vocabulary file: it does not start with TTV1"),
    (4, u16(0), "the vocabulary file is of version 0"),
    (6, u16(20), "the vocabulary file says its header has 20 bytes; version 1 has 24"),
    (16, u16(31), "the vocabulary file has 31 tokens; allowed are 4 to 4096, multiples of 2"),
    (18, u16(8193), "the vocabulary file has 8193 merges; the most is 8192"),
    (20, b"\0\0\1\0", "the vocabulary file has 65536 bytes of tokens; the most is 65535"),
    (20, b"\0\0\0\0", "but its sizes need"),
    (24, u16(32), "the vocabulary file's byte 0 has token 32, which is not that byte"),
    (24, u16(0), "the vocabulary file's byte 0 has token 0, which is not that byte"),
    (24, u16(2), "the vocabulary file's byte 0 has token 2, which is not that byte"),
    (536, u16(1), "the vocabulary file's merge 0 is not of tokens 2 to 31"),
    (540, u16(32), "the vocabulary file's merge 0 is not of tokens 2 to 31"),
    (536, u16(3) + u16(3), "the vocabulary file's merge 0 does not join the bytes of its parts"),
]


@pytest.mark.parametrize(("offset", "new", "reason"), REFUSED_VOCABULARIES)
def test_a_vocabulary_file_out_of_the_limits_is_refused(offset, new, reason):
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refusal:
        layout.read_vocabulary(patched(vocabulary(), offset, new))
    assert reason in str(refusal.value)


def starts_offset() -> int:
    return 24 + 512 + 6 * struct.unpack_from("<H", vocabulary(), 18)[0]


@pytest.mark.parametrize(
    ("token", "start", "reason"),
    [
        (0, 1, "the vocabulary file's token 0 ends before it starts"),
        (5, 4000, "the vocabulary file's token 5 ends before it starts"),
        (32, 4000, "tokens do not cover its"),
        (2, 1, "the vocabulary file's tokens 0 and 1 have bytes"),
    ],
)
def test_starts_of_tokens_have_to_cover_their_bytes(token, start, reason):
    with pytest.raises(ValueError, match=reason):
        layout.read_vocabulary(patched(vocabulary(), starts_offset() + 2 * token, u16(start)))


def test_padding_has_to_be_zeros():
    num_merges, num_bytes = struct.unpack_from("<HI", vocabulary(), 18)
    used = 24 + 512 + 6 * num_merges + 2 * 33 + num_bytes
    if used % 4 == 0:
        pytest.fail("this vocabulary has no padding; take another in trained_tokenizer")
    with pytest.raises(ValueError, match="unused bytes that are not 0"):
        layout.read_vocabulary(patched(vocabulary(), -1, b"\1"))


@pytest.mark.parametrize("read", [layout.read_model, layout.read_vocabulary])
def test_cut_and_damaged_files_are_refused(read):
    data = model() if read is layout.read_model else vocabulary()
    for length in (*range(45), len(data) // 2, len(data) - 1):
        with pytest.raises(ValueError, match=r"does not start with|bytes, but says|ends within its header"):
            read(data[:length])
        with pytest.raises(ValueError, match=r"does not start with|its sizes need|ends within its header"):
            read(with_sum(data[:length]))
    with pytest.raises(ValueError, match="bytes, but says"):
        read(data + b"\0")
    with pytest.raises(ValueError, match="its sizes need"):
        read(with_sum(data + bytes(4)))
    with pytest.raises(ValueError, match=r"is damaged \(its CRC-32 is another\); copy it again"):
        read(data[:-1] + bytes([data[-1] ^ 1]))


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
    with pytest.raises(ValueError, match="a value of multiplier that 2 bytes do not hold"):
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


@cache
def tokenizer_and_vocabulary(size: int) -> tuple[Tokenizer, inference.Vocabulary]:
    described = trained_tokenizer(size)
    return make_tokenizer(described), layout.read_vocabulary(layout.pack_vocabulary(described))


# Arbitrary text is mostly unknown to a small tokenizer, so half of it is of words, spaces and signs that it knows.
KNOWN = st.lists(st.sampled_from(["The", "cat", "at", "sat", " ", "  ", "\n", "dog", "12", "!", ".", "é", "<unk>"]))


@pytest.mark.parametrize("size", [32, 48])
@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), KNOWN.map("".join), st.text(alphabet="Thecatso .1\n<|>é\x00")))
def test_text_becomes_the_tokens_of_the_tokenizer(size, text):
    tokenizer, vocabulary = tokenizer_and_vocabulary(size)
    ids = vocabulary.encode(text.encode())
    assert ids == tokenizer.encode(text).ids
    known = bytes(byte for byte in text.encode() if vocabulary.of_byte[byte] != 1)
    assert vocabulary.decode(ids) == known


def test_merges_written_as_text_are_read_too():
    tokenizer = trained_tokenizer(48)
    packed = layout.pack_vocabulary(tokenizer)
    tokenizer["model"]["merges"] = [" ".join(pair) for pair in tokenizer["model"]["merges"]]
    assert layout.pack_vocabulary(tokenizer) == packed


def test_the_pieces_are_those_of_the_tokenizer():
    assert json.loads(make_tokenizer(trained_tokenizer(32)).to_str())["pre_tokenizer"] == layout.PRE_TOKENIZER


def test_tokens_out_of_the_vocabulary_have_no_text():
    _, vocabulary = tokenizer_and_vocabulary(32)
    for token in (-1, 32):
        with pytest.raises(ValueError, match=r"tokens must be 0 to 31 \(given"):
            vocabulary.decode([token])


def mutated(data: bytes, draw: random.Random) -> bytes:
    """A few bytes of `data` changed, of its first ones every other time; now and then cut or longer."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        place = draw.randrange(min(48, len(changed)) if draw.random() < 0.5 else len(changed))
        new = draw.choice((bytes([draw.randrange(256)]), b"\0", b"\xff", b"\xff\xff", b"\0\x80", b"\xff\xff\xff\x7f"))
        changed[place : place + len(new)] = new
    kind = draw.random()
    if kind < 0.05:
        changed = changed[: draw.randrange(len(changed))]
    elif kind < 0.1:
        changed += bytes(draw.randrange(1, 600))
    return bytes(changed)


def endure(data: bytes, kind: str, draw: random.Random) -> bool:
    """Read a file, with only a ValueError allowed, and use what was accepted; whether it was."""
    read = {"model": lambda data: inference.Model(io.BytesIO(data)), "vocabulary": layout.read_vocabulary}
    found, reason = tried(read.get(kind, uf2.split), data)
    if reason:
        return False
    if kind == "model":
        # Sums that leave 32 bits do not fit the arrays, and are an error.
        tokens = list(found.tokens([2], 2, 256, 3, seed=draw.randrange(2**32)))
        assert all(0 < token < found.vocabulary for token in tokens)
        reference, reason = tried(layout.read_model, data)
        assert "tables" in reason or not reason
        if reference and draw.random() < 0.1:
            assert list(found.tokens([3, 4], 3)) == list(reference.decode([3, 4], 3))
    elif kind == "vocabulary":
        text = b"The cat  sat\n12\xc3\xa9!"
        assert found.decode(found.encode(text)) == bytes(byte for byte in text if found.of_byte[byte] != 1)
    else:
        assert uf2.join(*found) == data
    return True


def tried(read, data: bytes):
    """(what `read` gives, "") or (None, why it refuses); any other exception passes."""
    try:
        return read(data), ""
    except ValueError as error:
        reason = str(error)
    assert reason.count("\n") == 0
    return None, reason


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["model", "vocabulary", "uf2"]), st.booleans(), st.integers(0, 2**32))
def test_a_changed_file_is_refused_or_works(kind, repaired, seed):
    original = {"model": model, "vocabulary": vocabulary, "uf2": uf2_file}[kind]()
    draw = random.Random(seed)
    changed = mutated(original, draw)
    endure(with_sum(changed) if repaired and kind != "uf2" else changed, kind, draw)


@pytest.mark.slow
def test_a_hundred_thousand_changed_files_are_refused_or_work():
    draw = random.Random(0)
    accepted = dict.fromkeys(("model", "vocabulary", "uf2"), 0)
    originals = {"model": model(), "vocabulary": vocabulary(), "uf2": uf2_file()}
    for number in range(100_000):
        kind = ("model", "vocabulary", "uf2")[number % 3]
        changed = mutated(originals[kind], draw)
        if number % 2 and kind != "uf2":
            changed = with_sum(changed)
        accepted[kind] += endure(changed, kind, draw)
    # So that the readers are tested behind their first checks.
    assert min(accepted.values()) > 1000, accepted


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_one_line(data):
    for start in (b"", b"TTM1\1\0\x28\0", b"TTV1\1\0\x18\0"):
        for read in (layout.read_model, layout.read_vocabulary, uf2.split):
            for whole in (start + data, with_sum(start + bytes(8) + data)):
                with pytest.raises(ValueError, match=r"^[^\n]+$"):
                    read(whole)
