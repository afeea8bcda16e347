"""Model and vocabulary files that are refused."""

import struct

import pytest

from exporters.rp2040 import layout
from tests.exporters.rp2040 import read_back
from tests.exporters.rp2040.files import TABLES, counting, model, patched, remembering, u16, vocabulary, with_sum

# offset, new bytes, what is said
REFUSED_MODELS = [
    (0, b"TTV1", "this is not a model file: it does not start with TTM1"),
    (4, u16(4), "the model file has version 4; this reader knows [1, 2, 3]"),
    (6, u16(44), "the model file says its header has 44 bytes; version 1 has 40"),
    (16, u16(3), "the model file's vocabulary is 3; allowed: 4 to 4096, multiples of 2"),
    (16, u16(4098), "the model file's vocabulary is 4098"),
    (16, u16(34), "but its sizes need"),
    (18, u16(6), "the model file's width is 6; allowed: 4 to 128, multiples of 4"),
    (18, u16(132), "the model file's width is 132"),
    (20, u16(0), "the model file's layers is 0"),
    (20, u16(17), "the model file's layers is 17"),
    (22, u16(0), "the model file's heads is 0"),
    (22, u16(3), "the model file's width 4 is not a multiple of its heads 3"),
    (24, u16(1028), "the model file's hidden is 1028"),
    (26, u16(3), "the model file's context is 3"),
    (26, u16(258), "the model file's context is 258"),
    (28, b"\x19", "the model file's pre_logits is 25; allowed: 0 to 24"),
    (28, b"\0", "embedding has a pre of 0, which lets sums leave 16 bits"),
    (29, b"\0", "the model file's post_logits is 0; allowed: 1 to 30"),
    (29, b"\x1f", "the model file's post_logits is 31"),
    (30, b"\0", "the model file's post_embedding is 0"),
    (31, b"\1", "the model file's header has unused bytes that are not 0"),
    (40, u16(32767), "exp table does not fall from 32768 on"),
    (42, u16(32769), "exp table does not fall from 32768 on"),
    (62, u16(1), "exp table does not fall from 32768 on"),
    (42, u16(32767), "the model file's tables are not those of FORMAT.md; export the model again"),
    (40 + 1408, u16(16384), "gelu table has entries beyond 16383"),
    (40 + 1408, u16(65536 - 16384), "gelu table has entries beyond 16383"),
    (TABLES + 0, b"\x19", "the model file's layer 1 pre_qkv is 25; allowed: 0 to 24"),
    (TABLES + 0, b"\0", "the model file's layer 1 qkv has a pre of 0"),
    (TABLES + 1, b"\0", "the model file's layer 1 post_q is 0; allowed: 1 to 30"),
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
        read_back.read_model(patched(model(), offset, new))
    assert reason in str(refusal.value)


REFUSED_VOCABULARIES = [
    (0, b"TTM1", "this is not a vocabulary file: it does not start with TTV1"),
    (4, u16(0), "the vocabulary file has version 0"),
    (6, u16(20), "the vocabulary file says its header has 20 bytes; version 1 has 24"),
    (16, u16(31), "the vocabulary file has 31 tokens; allowed: 4 to 4096, multiples of 2"),
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


RECORD = 4 + 4  # bytes of a row of the memory
REFUSED_MEMORIES = [
    (4, u16(1), "the model file says its header has 48 bytes; version 1 has 40"),
    (40, b"\0", "the model file's post_memory is 0; allowed: 1 to 30"),
    (41, b"\x11", "bits; allowed: up to 4 of 1 to 16"),
    (41, b"\0", "bits; allowed: up to 4 of 1 to 16"),
    (41, b"\0\0", "bits; allowed: up to 4 of 1 to 16"),
    (45, b"\1", "bits; allowed: up to 4 of 1 to 16"),
    (43, b"\1", "but its sizes need"),
    (-RECORD + 1, b"\1", "has a row with an unused byte or a multiplier above 32767"),
    (-RECORD + 3, b"\x80", "has a row with an unused byte or a multiplier above 32767"),
    (-12 * RECORD + 4, b"\0", "the model file's memory has a weight of -128"),
]


REFUSED_COUNTS = [  # of 4 buckets and 24 entries
    (4, u16(2), "the model file says its header has 56 bytes; version 2 has 48"),
    (48, b"\x0f", "has 15 counts in buckets of 2 bits; allowed: 16 to 262144 and 1 to 16"),
    (51, b"\1", "counts in buckets of 2 bits; allowed: 16 to 262144 and 1 to 16"),
    (52, b"\0", "counts in buckets of 0 bits; allowed: 16 to 262144 and 1 to 16"),
    (52, b"\x11", "counts in buckets of 17 bits; allowed: 16 to 262144 and 1 to 16"),
    (41, b"\0", "the model file's header has unused bytes that are not 0"),
    (29, b"\x15", "the model file's post_logits is 21; the most is 20"),
    (-4 * (24 + 5), b"\1", "the model file's counts do not begin with the first entry"),
    (-4 * (24 + 1), b"\x19", "to 25; the most is 64"),
    (-4 * (24 + 1), b"\0", "to 0; the most is 64"),
    (-4 * 24, b"\x20\0", "the model file's counts have a token that is not in the vocabulary"),
]


@pytest.mark.parametrize(("offset", "new", "reason"), REFUSED_COUNTS)
def test_counts_out_of_the_limits_are_refused(offset, new, reason):
    read_back.read_model(counting())
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refusal:
        read_back.read_model(patched(counting(), offset, new))
    assert reason in str(refusal.value)


@pytest.mark.parametrize(("offset", "new", "reason"), REFUSED_MEMORIES)
def test_a_memory_out_of_the_limits_is_refused(offset, new, reason):
    read_back.read_model(remembering())
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refusal:
        read_back.read_model(patched(remembering(), offset, new))
    assert reason in str(refusal.value)


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


@pytest.mark.parametrize("read", [read_back.read_model, layout.read_vocabulary])
def test_cut_and_damaged_files_are_refused(read):
    data = model() if read is read_back.read_model else vocabulary()
    for length in (*range(45), len(data) // 2, len(data) - 1):
        with pytest.raises(ValueError, match=r"does not start with|bytes, but says it has|ends within its header"):
            read(data[:length])
        with pytest.raises(ValueError, match=r"does not start with|its sizes need|ends within its header"):
            read(with_sum(data[:length]))
    with pytest.raises(ValueError, match="bytes, but says it has"):
        read(data + b"\0")
    with pytest.raises(ValueError, match="its sizes need"):
        read(with_sum(data + bytes(4)))
    with pytest.raises(ValueError, match=r"is damaged \(its CRC-32 does not match\); copy it again"):
        read(data[:-1] + bytes([data[-1] ^ 1]))
