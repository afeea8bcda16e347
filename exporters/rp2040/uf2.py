"""Joins the parts of a UF2 file, which a Pico in USB boot mode takes: runtime, settings, model and vocabulary.

https://github.com/microsoft/uf2 defines the blocks. The image has no holes: the boot ROM counts blocks to know when to
erase a sector, so it flashes files with holes wrongly (erratum RP2040-E14).
"""

import struct

from exporters.rp2040.settings import PAGE

FLASH = 0x10000000
MODEL_OFFSET = 0x10000  # offset of the model in flash; runtime and settings lie before it
BLOCK = 512
SETTINGS_OFFSET = MODEL_OFFSET - PAGE
MEGABYTE = 1024 * 1024
FAMILY, FAMILY_RP2350 = 0xE48BFF56, 0xE48BFF59  # RP2040; RP2350's ARM cores, secure
MAGIC = (0x0A324655, 0x9E5D5157)
MAGIC_END = 0x0AB16F30
HAS_FAMILY = 0x2000


def join(
    runtime: bytes, settings: bytes, model: bytes, vocabulary: bytes, megabytes: int = 2, family: int = FAMILY
) -> bytes:
    """The UF2 file of four parts; ValueError if they do not fit flash."""
    if len(runtime) > SETTINGS_OFFSET:
        raise ValueError(f"the runtime has {len(runtime):,} bytes; flash has {SETTINGS_OFFSET:,} for it")
    image = _padded(runtime, SETTINGS_OFFSET) + settings + _padded(model, PAGE) + _padded(vocabulary, PAGE)
    if len(image) > megabytes * MEGABYTE:
        needed = f"runtime, model and vocabulary need {len(image):,} bytes of flash"
        raise ValueError(f"{needed}; the board has {megabytes * MEGABYTE:,}")
    total = len(image) // PAGE
    return b"".join(
        struct.pack("<8I", *MAGIC, HAS_FAMILY, FLASH + PAGE * number, PAGE, number, total, family)
        + image[PAGE * number : PAGE * (number + 1)].ljust(476, b"\0")
        + struct.pack("<I", MAGIC_END)
        for number in range(total)
    )


def _padded(data: bytes, multiple: int) -> bytes:
    return data + bytes(-len(data) % multiple)
