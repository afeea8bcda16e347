"""Put checksums into a flash image: python3 checksum.py IN OUT [rp2350]

An RP2040's first 252 bytes are the second stage of the boot, the next 4 their CRC-32/MPEG-2. The image is padded to 256
bytes, and the firmware finds its own size and CRC-32 in two words of the vector table without vectors.
"""

import struct
import sys
from pathlib import Path
from zlib import crc32


def main() -> None:
    """Write OUT."""
    source, target, *board = sys.argv[1:]
    image = bytearray(Path(source).read_bytes())
    if not board:
        if any(image[252:256]):
            sys.exit(f"{source}: the second stage of the boot is larger than 252 bytes")
        image[252:256] = crc32_mpeg2(bytes(image[:252])).to_bytes(4, "little")
    image += bytes(-len(image) % 256)
    place = 4 * 8 if board else 256 + 4 * 7
    struct.pack_into("<II", image, place, len(image) - place - 8, crc32(image[place + 8 :]))
    if len(image) > 64 * 1024 - 256:
        sys.exit(f"{source}: {len(image)} bytes, but the settings begin 256 bytes before 64 kB")
    Path(target).write_bytes(image)


def crc32_mpeg2(data: bytes) -> int:
    """CRC-32/MPEG-2, with which the boot ROM checks the second stage: zlib's of mirrored bytes, mirrored, inverted."""
    mirrored = bytes(int(f"{byte:08b}"[::-1], 2) for byte in data)
    return int(f"{crc32(mirrored) ^ 0xFFFFFFFF:032b}"[::-1], 2)


if __name__ == "__main__":
    main()
