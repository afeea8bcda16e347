"""Model and vocabulary files that the runtime in C refuses, in its words, and on a chip too."""

import struct

import pytest

from exporters.rp2040 import layout
from models.stories.quantization import quantize
from tests.exporters.rp2040 import read_back
from tests.exporters.rp2040.c_reader import CReader
from tests.exporters.rp2040.files import (
    SMALLEST,
    TABLES,
    counting,
    model,
    patched,
    remembering,
    u16,
    vocabulary,
    with_sum,
)
from tests.models.tiny import make

SHIFT = "a shift of the model is out of range"
UNUSED = "an unused byte of the model is not 0"
BIAS = "a bias of the model is out of range"
LEAVE = "the model's sums may leave 16 bits"
WIDTH = "the model's width is not a multiple of 4 from 4 to 128"
LAYERS = "the model's number of layers is not 1 to 16"
HEADS = "the model's number of heads does not divide its width"
CONTEXT = "the model's context is not an even number from 2 to 256"
SIZE = "the model's vocabulary size is not an even number from 4 to 4096"
LENGTH = "the model file is not as long as its sizes say"
TABLE = "the model's table of exp is out of range"
# offset, new bytes, what is said
REFUSED_MODELS = [
    (0, b"TTV1", "there is no model: its file does not begin with TTM1"),
    (4, u16(0), "the model file is of another version"),
    (4, u16(4), "the model file is of another version"),
    (6, u16(44), "the model file is of another version"),
    (16, u16(3), SIZE),
    (16, u16(4098), SIZE),
    (16, u16(34), LENGTH),
    (18, u16(6), WIDTH),
    (18, u16(132), WIDTH),
    (20, u16(0), LAYERS),
    (20, u16(17), LAYERS),
    (22, u16(0), HEADS),
    (22, u16(3), HEADS),
    (24, u16(1028), "the model's hidden width is not a multiple of 4 from 4 to 1024"),
    (26, u16(3), CONTEXT),
    (26, u16(258), CONTEXT),
    (28, b"\x19", SHIFT),
    (28, b"\0", LEAVE),
    (29, b"\0", SHIFT),
    (29, b"\x1f", SHIFT),
    (30, b"\0", SHIFT),
    (31, b"\1", UNUSED),
    (40, u16(32767), TABLE),
    (42, u16(32769), TABLE),
    (62, u16(1), TABLE),
    (40 + 1408, u16(16384), "the model's table of gelu is out of range"),
    (40 + 1408, u16(65536 - 16384), "the model's table of gelu is out of range"),
    (TABLES + 0, b"\x19", SHIFT),
    (TABLES + 0, b"\0", LEAVE),
    (40 + 1408 + 2046, u16(16384), "the model's table of gelu is out of range"),
    *((TABLES + place, b"\0", SHIFT) for place in (1, 2, 3, 5, 7, 9)),
    (TABLES + 4, b"\x19", SHIFT),
    (TABLES + 6, b"\0", LEAVE),
    (TABLES + 9, b"\x1f", SHIFT),
    (TABLES + 11, b"\1", UNUSED),
    (TABLES + 12, b"\0\0\0\1", BIAS),
    (TABLES + 12 + 48, b"\0\0\0\xff", BIAS),
    (TABLES + 12 + 48, b"\0\0\0\x80", BIAS),
    (TABLES + 12 + 96, b"\0\x80", "a multiplier of the model is larger than 32767"),
    (TABLES + 12 + 96 + 46, b"\0\x80", "a multiplier of the model is larger than 32767"),
    (TABLES + 12 + 96 + 48 + 8, b"\0", "a weight of the model is -128"),
    (TABLES + 12 + 96 + 48 + 8 + 95, b"\0", "a weight of the model is -128"),
    (-1, b"\0", "a weight of the model is -128"),
]
MEMORY = "the sizes of the model's memory are out of range"
RECORD = 4 + 4  # bytes of a row of the memory
REFUSED_MEMORIES = [
    (4, u16(1), "the model file is of another version"),
    (40, b"\0", SHIFT),
    (41, b"\x11", MEMORY),
    (41, b"\0", MEMORY),
    (41, b"\0\0", MEMORY),
    (45, b"\1", MEMORY),
    (43, b"\1", LENGTH),
    (-RECORD + 1, b"\1", UNUSED),
    (-RECORD + 3, b"\x80", "a multiplier of the model is larger than 32767"),
    (-12 * RECORD + 4, b"\0", "a weight of the model is -128"),
]
COUNTS = "the sizes of the model's counts are out of range"
ENTRIES = "the model's counts are out of range"
REFUSED_COUNTS = [  # of 4 buckets and 24 entries
    (4, u16(2), "the model file is of another version"),
    (48, b"\x0f", COUNTS),
    (51, b"\1", COUNTS),
    (52, b"\0", COUNTS),
    (52, b"\x11", COUNTS),
    (41, b"\0", MEMORY),
    (29, b"\x15", SHIFT),
    (-4 * (24 + 5), b"\1", ENTRIES),
    (-4 * (24 + 1), b"\x19", ENTRIES),
    (-4 * (24 + 1), b"\0", ENTRIES),
    (-4 * 24, b"\x20\0", "the model's counts have a token that is not in the vocabulary"),
]
REFUSED = [(model, *case) for case in REFUSED_MODELS]
REFUSED += [(remembering, *case) for case in REFUSED_MEMORIES]
REFUSED += [(counting, *case) for case in REFUSED_COUNTS]


def refusal(model_file: bytes, vocabulary_file: bytes, streamed: bool = False) -> str:
    """Why the reader refuses two files."""
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
        CReader(model_file, vocabulary_file, streamed)
    return str(refused.value)


@pytest.mark.parametrize(("original", "offset", "new", "reason"), REFUSED)
def test_a_model_file_out_of_the_limits_is_refused(original, offset, new, reason):
    for streamed in (False, True):
        CReader(original(), vocabulary(), streamed)
        assert refusal(patched(original(), offset, new), vocabulary(), streamed) == reason


STARTS = 24 + 512 + 6 * struct.unpack_from("<H", vocabulary(), 18)[0]
BYTE, MERGE = "a byte's token is ", "a merge's "
REFUSED_VOCABULARIES = [
    (0, b"TTM1", "there is no vocabulary: its file does not begin with TTV1"),
    (4, u16(0), "the vocabulary file is of another version"),
    (6, u16(20), "the vocabulary file is of another version"),
    (16, u16(34), "the vocabulary belongs to another model"),
    (18, u16(8193), "the vocabulary is too large"),
    (20, b"\0\0\1\0", "the vocabulary is too large"),
    (20, b"\0\0\0\0", "the vocabulary file is not as long as its sizes say"),
    (24, u16(32), BYTE + "out of range"),
    (24, u16(0), BYTE + "out of range"),
    (24, u16(2), BYTE + "not that byte"),
    (536, u16(1), MERGE + "token is out of range"),
    (540, u16(32), MERGE + "token is out of range"),
    (536, u16(3) + u16(3), MERGE + "result is not its parts"),
    (STARTS, u16(1), "the vocabulary's tokens do not fill its bytes"),
    (STARTS + 2 * 5, u16(4000), "the vocabulary's tokens are not in order"),
    (STARTS + 2 * 31, u16(4000), "the vocabulary's tokens are not in order"),
    (STARTS + 2 * 32, u16(4000), "the vocabulary's tokens do not fill its bytes"),
    (STARTS + 2 * 2, u16(1), "the vocabulary's tokens 0 and 1 have bytes"),
    (-1, b"\1", "an unused byte of the vocabulary is not 0"),
]


def test_tokens_whose_bytes_only_begin_as_they_should_are_refused():
    read = read_back.Vocabulary(vocabulary())
    texts = [read.decode([token]) for token in range(read.size)]
    several = next(token for token, text in enumerate(texts) if len(text) > 1)
    wrong = patched(vocabulary(), 24 + 2 * texts[several][0], u16(several))
    assert refusal(belonging(wrong), wrong) == BYTE + "not that byte"
    left, right, result = struct.unpack_from("<3H", vocabulary(), 536)
    other = next(token for token, text in enumerate(texts) if len(text) == len(texts[right]) and token != right)
    wrong = patched(vocabulary(), 536, struct.pack("<3H", left, other, result))
    assert refusal(belonging(wrong), wrong) == MERGE + "result is not its parts"


def test_a_bucket_of_the_counts_has_64_entries_at_most():
    packed = layout.pack_model(quantize(make(**SMALLEST, counts=100)), vocabulary())
    buckets = 1 << packed[52]
    for most in (64, 65):
        starts = struct.pack(f"<{buckets + 1}I", 0, *[most] * buckets)
        changed = patched(packed, -4 * (100 + buckets + 1), starts)
        if most == 64:
            CReader(changed, vocabulary())
        else:
            assert refusal(changed, vocabulary()) == ENTRIES


def belonging(vocabulary_file: bytes) -> bytes:
    """The model file, to which this vocabulary belongs."""
    return patched(model(), 32, vocabulary_file[8:16])


@pytest.mark.parametrize(("offset", "new", "reason"), REFUSED_VOCABULARIES)
def test_a_vocabulary_file_out_of_the_limits_is_refused(offset, new, reason):
    changed = patched(vocabulary(), offset, new)
    assert refusal(belonging(changed), changed) == reason


def test_a_vocabulary_of_another_model_is_refused():
    assert refusal(belonging(b"TTV1" + bytes(12)), vocabulary()) == "the vocabulary belongs to another model"


def test_cut_and_damaged_files_are_refused():
    for data, model_of, cut in (
        (model(), lambda data: (data, vocabulary()), "the model file is cut short"),
        (counting(), lambda data: (data, vocabulary()), "the model file is cut short"),
        (vocabulary(), lambda data: (model(), data), "the vocabulary file is cut short"),
    ):
        for length in (*range(60), len(data) // 2, len(data) - 1):
            found = refusal(*model_of(data[:length]))
            assert found == cut or (length < 40 and "does not begin with" in found)
            assert "cut short" not in refusal(*model_of(with_sum(data[:length]))) or length < 60
        damaged = data[:-1] + bytes([data[-1] ^ 1])
        assert refusal(*model_of(damaged)).endswith("is damaged: its CRC differs")
        CReader(*model_of(data + bytes(4)))  # what follows in flash
    assert refusal(with_sum(model() + bytes(4)), vocabulary()) == LENGTH
