"""Put the boot ROM's checksum into a flash image: python3 checksum.py IN OUT

The first 252 bytes are the second stage of the boot, the next 4 their CRC-32/MPEG-2. The image is padded to 256 bytes,
and the firmware finds its own size and CRC-32 in it.
"""

import struct
import sys
from pathlib import Path
from zlib import crc32

SIZE, SUMMED = 0x11C, 0x124  # two words of the vector table without vectors, and what their CRC-32 is of


def main() -> None:
    """Write OUT."""
    source, target = sys.argv[1:]
    image = bytearray(Path(source).read_bytes())
    if any(image[252:256]):
        sys.exit(f"{source}: the second stage of the boot is larger than 252 bytes")
    image[252:256] = crc32_mpeg2(bytes(image[:252])).to_bytes(4, "little")
    image += bytes(-len(image) % 256)
    struct.pack_into("<II", image, SIZE, len(image) - SUMMED, crc32(image[SUMMED:]))
    if len(image) > 64 * 1024 - 256:
        sys.exit(f"{source}: {len(image)} bytes, but the settings begin 256 bytes before 64 kB")
    Path(target).write_bytes(image)


def crc32_mpeg2(data: bytes) -> int:
    """CRC-32/MPEG-2, with which the boot ROM checks the second stage."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc >> 31 else 0)) & 0xFFFFFFFF
    return crc


if __name__ == "__main__":
    main()
