"""Model, vocabulary and UF2 files for tests."""

import struct
from functools import cache
from typing import Any
from zlib import crc32

import torch

from exporters.rp2040 import layout, uf2
from exporters.rp2040.firmware.checksum import crc32_mpeg2
from exporters.rp2040.settings import Settings
from models.stories.integer_transformer import IntegerTransformer
from models.stories.quantization import quantize
from models.stories.tokens import END
from tests.exporters.rp2040.c_reader import CReader
from tests.models.tiny import make, trained_tokenizer

SMALLEST = {"vocabulary": 32, "width": 4, "layers": 1, "heads": 2, "hidden": 4, "context": 2}
TABLES = 40 + 2 * 704 + 2 * 1024  # where the first layer starts
PROMPTS = ["", "The cat sat on", "A dog met 12 cats. The dog", "é <unk>\n\n"]
SHAPES: dict[str, dict[str, Any]] = {
    "head size 1": {"heads": 8},
    "head size 2": {"heads": 4},
    "head size 8": {"heads": 1, "layers": 1},
    "head size 6": {"width": 12, "heads": 2, "hidden": 20, "layers": 3},
    "context 2": {"context": 2},
    "context longer than the text": {"context": 200},
    "wide": {"width": 32, "heads": 4, "hidden": 64, "context": 16},
    "memory": {"memory": (16, 64)},
    "counts": {"counts": 100},
    "counts beside a memory": {"counts": 40, "memory": (16,), "context": 2},
    "four tables": {"memory": (64, 2, 16, 32), "width": 12, "heads": 2},
}
# Those of them that tests take each time: together they have whatever the others have one by one.
SOME = ("head size 2", "context 2", "counts beside a memory")


@cache
def vocabulary() -> bytes:
    return layout.pack_vocabulary(trained_tokenizer(32))


@cache
def model() -> bytes:
    return layout.pack_model(quantize(make(**SMALLEST)), vocabulary())


@cache
def remembering() -> bytes:
    """A model file with a memory, of version 2."""
    return layout.pack_model(quantize(make(**SMALLEST, memory=(4, 8))), vocabulary())


@cache
def counting() -> bytes:
    """A model file with counts, of version 3."""
    return layout.pack_model(quantize(make(**SMALLEST, memory=(4,), counts=24)), vocabulary())


@cache
def uf2_file() -> bytes:
    return uf2.join(bootable(), Settings().pack(), model(), vocabulary())


def bootable(code: bytes = b"runtime") -> bytes:
    """A runtime that the boot ROM would start."""
    stage = bytes(range(252))
    return stage + struct.pack("<I", crc32_mpeg2(stage)) + code


def with_sum(data: bytes) -> bytes:
    """`data` with the size and the CRC-32 that it should have."""
    return data[:8] + struct.pack("<II", len(data), crc32(data[16:])) + data[16:] if len(data) >= 16 else data


def patched(data: bytes, offset: int, new: bytes) -> bytes:
    """`data` with other bytes at an offset, and with a sum that fits."""
    offset %= len(data)
    return with_sum(data[:offset] + new + data[offset + len(new) :])


def u16(number: int) -> bytes:
    return struct.pack("<H", number)


def quantized(end: float, **sizes: Any) -> IntegerTransformer:
    """A model in integers, with a bias of `end` for the end of the story."""
    model = make(**sizes)
    with torch.no_grad():
        model.output_bias[END] = end
    return quantize(model)


def read_in_c(**sizes: Any) -> tuple[IntegerTransformer, CReader]:
    """A model whose stories do not end, and the reader of its files."""
    integers = quantized(-50.0, **sizes)
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    return integers, CReader(layout.pack_model(integers, vocabulary), vocabulary)
