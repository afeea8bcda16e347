"""Readers of the files that the export writes: the parts of a UF2 file, and a model as the quantiser made it."""

import io
import struct

import numpy as np

from exporters.rp2040 import inference_files, uf2
from exporters.rp2040.inference_files import LIMITS, SHIFTS
from exporters.rp2040.inference_model import Model
from models.stories.config import TinyTransformerConfig
from models.stories.integer_transformer import EXP, GELU, Entries, IntegerTransformer, Layer, Matrix, Table

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
    uf2.check_boot(image)
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
    """The model in a file's bytes, without a tokenizer; ValueError, in one line, for what the format does not allow."""
    stored = Model(io.BytesIO(data))
    # An IntegerTransformer has no tables of its own, so a file with others cannot become one.
    if not (np.array_equal(stored.exp, EXP) and np.array_equal(np.array(stored.gelu, np.int64) - 32768, GELU)):
        raise ValueError("the model file's tables are not those of FORMAT.md; export the model again")
    sizes = {name: getattr(stored, name) for name, *_ in LIMITS}
    config = TinyTransformerConfig(**sizes, memory=tuple(stored.memory), counts=stored.counts)
    memory: list[Table] = []
    end = len(data) - stored.counts_bytes
    counts = _entries(data[end:], stored.buckets) if stored.counts else None
    for rows in reversed(config.memory):  # they are the end of the file
        start = end - rows * (4 + config.width)
        memory.insert(0, _table(data[start:end], config.width))
        end = start
    layers = tuple(
        Layer(
            qkv=_matrix(block.qkv),
            out=_matrix(block.out),
            up=_matrix(block.up),
            down=_matrix(block.down),
            distance_bias=np.array(block.distance_bias, np.int64).reshape(config.heads, config.context)[:, ::-1]
            - 32768,
            shifts=dict(zip(SHIFTS, block.shifts, strict=False)),
        )
        for block in stored.blocks
    )
    shifts = stored.pre_logits, stored.post_logits, stored.post_embedding
    return IntegerTransformer(
        config, layers, _matrix(stored.embedding), *shifts, tuple(memory), stored.post_memory, counts
    )


def _entries(data: bytes, buckets: int) -> Entries:
    """The counts that `pack_model` stored."""
    numbers = np.frombuffer(data, "<u4").astype(np.int64)
    starts, entries = numbers[: buckets + 1], numbers[buckets + 1 :]
    return Entries(starts, entries & 4095, entries >> 12 & 1023, entries >> 22)


def _table(data: bytes, width: int) -> Table:
    """The table that `_records` stored."""
    records = np.frombuffer(data, np.uint8).reshape(-1, 4 + width).astype(np.int64)
    return Table(records[:, 4:] - 128, records[:, 2] + 256 * records[:, 3], records[:, 0])


def _matrix(stored: inference_files.Matrix) -> Matrix:
    """The matrix that `_interleaved` and its neighbours stored."""
    pairs = np.frombuffer(stored.weights, np.uint8).reshape(stored.rows // 2, stored.columns, 2)
    weights = pairs.swapaxes(1, 2).reshape(stored.rows, stored.columns).astype(np.int64) - 128
    return Matrix(weights, np.array(stored.bias, np.int64), np.array(stored.multiplier, np.int64))
