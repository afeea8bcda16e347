"""Joins and splits UF2 files, which a Pico in USB boot mode takes: runtime, settings, model and vocabulary.

https://github.com/microsoft/uf2 defines the blocks. The image has no holes: the boot ROM counts blocks to know when to
erase a sector, so it flashes files with holes wrongly (erratum RP2040-E14).
"""

import struct

from exporters.rp2040.firmware.checksum import crc32_mpeg2

FLASH = 0x10000000
MODEL_OFFSET = 0x10000  # offset of the model in flash; runtime and settings lie before it
PAGE, BLOCK = 256, 512
SETTINGS_OFFSET = MODEL_OFFSET - PAGE
FLASH_BYTES = 2 * 1024 * 1024
FAMILY = 0xE48BFF56  # RP2040
MAGIC = (0x0A324655, 0x9E5D5157)
MAGIC_END = 0x0AB16F30
HAS_FAMILY = 0x2000


def join(runtime: bytes, settings: bytes, model: bytes, vocabulary: bytes) -> bytes:
    """The UF2 file of four parts; ValueError if they do not fit flash or the chip would not boot the runtime."""
    _check_boot(runtime)
    if len(runtime) > SETTINGS_OFFSET:
        raise ValueError(f"the runtime has {len(runtime):,} bytes; flash has {SETTINGS_OFFSET:,} for it")
    if len(settings) != PAGE:
        raise ValueError(f"the settings have {len(settings)} bytes, not {PAGE}")
    image = _padded(runtime, SETTINGS_OFFSET) + settings + _padded(model, PAGE) + _padded(vocabulary, PAGE)
    if len(image) > FLASH_BYTES:
        raise ValueError(
            f"runtime, model and vocabulary need {len(image):,} bytes of flash; the Pico has {FLASH_BYTES:,}"
        )
    total = len(image) // PAGE
    return b"".join(
        struct.pack("<8I", *MAGIC, HAS_FAMILY, FLASH + PAGE * number, PAGE, number, total, FAMILY)
        + image[PAGE * number : PAGE * (number + 1)].ljust(476, b"\0")
        + struct.pack("<I", MAGIC_END)
        for number in range(total)
    )


def split(data: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """(runtime with the zeros behind it, settings, model, vocabulary) of a UF2 file.

    Raises ValueError, in one line, for a file that `join` could not have written. Of model and vocabulary it checks
    only their magic and their size.
    """
    if not data or len(data) % BLOCK:
        raise ValueError(f"the UF2 file has {len(data):,} bytes, not a multiple of {BLOCK}; copy it again")
    total = len(data) // BLOCK
    if total * PAGE > FLASH_BYTES:
        raise ValueError(f"the UF2 file holds {total * PAGE:,} bytes of flash; the Pico has {FLASH_BYTES:,}")
    pages = []
    for number in range(total):
        block = data[BLOCK * number : BLOCK * (number + 1)]
        fields = struct.unpack_from("<8I", block)
        expected = (*MAGIC, HAS_FAMILY, FLASH + PAGE * number, PAGE, number, total, FAMILY)
        end = struct.unpack_from("<I", block, BLOCK - 4)[0]
        if fields != expected or end != MAGIC_END or any(block[32 + PAGE : BLOCK - 4]):
            raise ValueError(f"the UF2 file is damaged in block {number} of {total}; copy it again")
        pages.append(block[32 : 32 + PAGE])
    image = b"".join(pages)
    _check_boot(image)
    runtime, settings = image[:SETTINGS_OFFSET], image[SETTINGS_OFFSET:MODEL_OFFSET]
    model, behind = _first_file(image[MODEL_OFFSET:], b"TTM1", "model")
    vocabulary, behind = _first_file(behind, b"TTV1", "vocabulary")
    if behind:
        raise ValueError(f"the UF2 file goes on for {len(behind)} bytes after the vocabulary; copy it again")
    return runtime, settings, model, vocabulary


def _check_boot(image: bytes) -> None:
    if len(image) < PAGE or struct.unpack_from("<I", image, 252)[0] != crc32_mpeg2(image[:252]):
        raise ValueError(
            "the runtime's first 256 bytes are no second boot stage with a valid sum; build the runtime again"
        )


def _padded(data: bytes, multiple: int) -> bytes:
    return data + bytes(-len(data) % multiple)


def _first_file(data: bytes, magic: bytes, what: str) -> tuple[bytes, bytes]:
    """(the file at the start of `data`, the whole pages after it)."""
    if data[:4] != magic:
        raise ValueError(f"the UF2 file has no {what} where it should be; export it again")
    size = int.from_bytes(data[8:12], "little")
    end = size + -size % PAGE
    if size < 16 or end > len(data) or any(data[size:end]):
        raise ValueError(f"the UF2 file's {what} does not fill its place; copy it again")
    return data[:size], data[end:]
