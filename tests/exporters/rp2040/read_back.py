"""Readers of the files that the export writes: the parts of a UF2 file, a model, and a vocabulary."""

import io
import re
import struct
from collections.abc import Sequence
from itertools import pairwise, starmap

import numpy as np

from exporters.rp2040 import uf2
from exporters.rp2040.firmware.checksum import crc32_mpeg2
from exporters.rp2040.layout import SHIFTS
from models.stories.config import TinyTransformerConfig
from models.stories.integer_transformer import EXP, GELU, Entries, IntegerTransformer, Layer, Matrix, Table
from models.stories.rp2040 import FORMAT_LIMITS
from models.stories.tokens import PIECES, UNKNOWN

BYTE_PIECES = re.compile(PIECES.replace("\U0010ffff", "\xff").encode("latin-1"))
# What the RP2350's boot ROM looks for: an image type (a program, secure, ARM, RP2350), the last item, no other block.
IMAGE_DEFINITION = struct.pack("<5I", 0xFFFFDED3, 0x10210142, 0x000001FF, 0, 0xAB123579)
LARGEST_FLASH = 16 * uf2.MEGABYTE  # of which the chip can read all directly


def split(data: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """(runtime with the zeros behind it, settings, model, vocabulary) of a UF2 file, or of the Pico's half of one.

    Raises ValueError, in one line, for a file that `join` could not have written. Of model and vocabulary it checks
    only their magic and their size.
    """
    if not data or len(data) % uf2.BLOCK:
        raise ValueError(f"the UF2 file has {len(data):,} bytes, not a multiple of {uf2.BLOCK}; copy it again")
    half = len(data) // 2
    if data[half + 28 : half + 32] == struct.pack("<I", uf2.FAMILY_RP2350):
        data = data[:half]
    total = len(data) // uf2.BLOCK
    if total * uf2.PAGE > LARGEST_FLASH:
        raise ValueError(f"the UF2 file holds {total * uf2.PAGE:,} bytes of flash; the most is {LARGEST_FLASH:,}")
    pages = []
    for number in range(total):
        block = data[uf2.BLOCK * number : uf2.BLOCK * (number + 1)]
        fields = struct.unpack_from("<8I", block)
        expected = (*uf2.MAGIC, uf2.HAS_FAMILY, uf2.FLASH + uf2.PAGE * number, uf2.PAGE, number, total, uf2.FAMILY)
        end = struct.unpack_from("<I", block, uf2.BLOCK - 4)[0]
        if fields != expected or end != uf2.MAGIC_END or any(block[32 + uf2.PAGE : uf2.BLOCK - 4]):
            raise ValueError(f"the UF2 file is damaged in block {number} of {total}; copy it again")
        pages.append(block[32 : 32 + uf2.PAGE])
    image = b"".join(pages)
    check_boot(image)
    runtime, settings = image[: uf2.SETTINGS_OFFSET], image[uf2.SETTINGS_OFFSET : uf2.MODEL_OFFSET]
    model, behind = _first_file(image[uf2.MODEL_OFFSET :], b"TTM1", "model")
    vocabulary, behind = _first_file(behind, b"TTV1", "vocabulary")
    if behind:
        raise ValueError(f"the UF2 file goes on for {len(behind)} bytes after the vocabulary; copy it again")
    return runtime, settings, model, vocabulary


def _first_file(data: bytes, magic: bytes, what: str) -> tuple[bytes, bytes]:
    """(the file at the start of `data`, the whole pages after it)."""
    if data[:4] != magic:
        raise ValueError(f"the UF2 file has no {what} where it should be; export it again")
    size = int.from_bytes(data[8:12], "little")
    end = size + -size % uf2.PAGE
    if size < 16 or end > len(data) or any(data[size:end]):
        raise ValueError(f"the UF2 file's {what} does not fill its place; copy it again")
    return data[:size], data[end:]


def read_model(data: bytes) -> IntegerTransformer:
    """The model in a file that a device would not refuse, without its tokenizer."""
    sizes = dict(zip(FORMAT_LIMITS, struct.unpack_from("<6H", data, 16), strict=True))
    version, header = struct.unpack_from("<HH", data, 4)
    memory = tuple(1 << bits for bits in data[41:45] if bits) if version > 1 else ()
    entries, bits = struct.unpack_from("<II", data, 48) if version > 2 else (0, 0)
    config = TinyTransformerConfig(**sizes, memory=memory, counts=entries)
    width, hidden, context = config.width, config.hidden, config.context
    file = io.BytesIO(data)
    file.seek(header)

    def numbers(kind: str, *shape: int) -> np.ndarray:
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        return np.frombuffer(file.read(size), kind).reshape(shape).astype(np.int64)

    # An IntegerTransformer has no tables of its own, so a file with others cannot become one.
    if not (np.array_equal(numbers("<u2", len(EXP)), EXP) and np.array_equal(numbers("<i2", len(GELU)), GELU)):
        raise ValueError("the model file's tables are not those of FORMAT.md; export the model again")

    def weights(rows: int, columns: int) -> np.ndarray:
        return numbers("u1", rows // 2, columns, 2).swapaxes(1, 2).reshape(rows, columns) - 128

    def layer() -> Layer:
        shifts = dict(zip(SHIFTS, numbers("u1", 12).tolist(), strict=False))
        shapes = (3 * width, width), (width, width), (hidden, width), (width, hidden)
        biases = [numbers("<i4", rows) for rows, _ in shapes]
        multipliers = [numbers("<u2", rows) for rows, _ in shapes]
        distance_bias = numbers("<i2", config.heads, context)[:, ::-1]
        matrices = zip(starmap(weights, shapes), biases, multipliers, strict=True)
        return Layer(*starmap(Matrix, matrices), distance_bias=distance_bias, shifts=shifts)

    layers = tuple(layer() for _ in range(config.layers))
    multiplier, bias = numbers("<u2", config.vocabulary), numbers("<i4", config.vocabulary)
    embedding = Matrix(weights(config.vocabulary, width), bias, multiplier)
    records = [numbers("u1", rows, 4 + width) for rows in memory]
    tables = tuple(Table(rows[:, 4:] - 128, rows[:, 2] + 256 * rows[:, 3], rows[:, 0]) for rows in records)
    counts = None
    if entries:
        starts, stored = numbers("<u4", (1 << bits) + 1), numbers("<u4", entries)
        counts = Entries(starts, stored & 4095, stored >> 12 & 1023, stored >> 22)
    return IntegerTransformer(
        config, layers, embedding, *data[28:31], tables, data[40] if version > 1 and memory else 0, counts
    )


def check_boot(image: bytes, family: int = uf2.FAMILY) -> None:
    """Raise ValueError unless the chip would boot an image."""
    if family == uf2.FAMILY_RP2350:
        if IMAGE_DEFINITION not in image[:4096]:
            raise ValueError("the runtime's first 4,096 bytes have no image definition; build the runtime again")
    elif len(image) < uf2.PAGE or struct.unpack_from("<I", image, 252)[0] != crc32_mpeg2(image[:252]):
        raise ValueError(
            "the runtime's first 256 bytes are no second boot stage with a valid sum; build the runtime again"
        )


class Vocabulary:
    """A vocabulary file that `pack_vocabulary` wrote, which turns bytes into tokens and back as a device does."""

    def __init__(self, data: bytes) -> None:
        self.size, num_merges, num_bytes = struct.unpack_from("<HHI", data, 16)
        self.of_byte = struct.unpack_from("<256H", data, 24)
        place = 24 + 512 + 6 * num_merges
        merges = enumerate(struct.iter_unpack("<HHH", data[24 + 512 : place]))
        self._merges = {(left, right): (rank, result) for rank, (left, right, result) in merges}
        starts = struct.unpack_from(f"<{self.size + 1}H", data, place)
        place += 2 * len(starts)
        text = data[place : place + num_bytes]
        self._texts = [text[start:end] for start, end in pairwise(starts)]

    def encode(self, text: bytes) -> list[int]:
        """Return the tokens of bytes; within a piece the earliest merge comes first, of its places the leftmost."""
        capitals = bytes(range(ord("A"), ord("Z") + 1))
        if {self.of_byte[byte] for byte in capitals} == {UNKNOWN}:
            text = text.lower()  # of bytes: ASCII alone
        ids = []
        for piece in BYTE_PIECES.findall(text):
            tokens = [self.of_byte[byte] for byte in piece]
            while found := [
                (*self._merges[pair], i) for i, pair in enumerate(pairwise(tokens)) if pair in self._merges
            ]:
                _, result, i = min(found)
                tokens[i : i + 2] = [result]
            ids += tokens
        return ids

    def decode(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of tokens."""
        return b"".join(self._texts[token] for token in ids)
