"""The UF2 file."""

import struct

import pytest

from exporters.rp2040 import layout, uf2
from exporters.rp2040.firmware.checksum import crc32_mpeg2
from exporters.rp2040.settings import Settings
from models.stories.quantization import quantize
from tests.exporters.rp2040 import read_back
from tests.exporters.rp2040.files import bootable
from tests.models.tiny import make, trained_tokenizer

SETTINGS = Settings().pack()


def small_parts() -> tuple[bytes, bytes, bytes, bytes]:
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    return bootable(), SETTINGS, layout.pack_model(quantize(make()), vocabulary), vocabulary


def test_a_uf2_file_has_the_bytes_that_its_specification_says():
    runtime, settings, model, vocabulary = small_parts()
    data = uf2.join(runtime, settings, model, vocabulary)
    total = 256 + -(-len(model) // 256) + -(-len(vocabulary) // 256)
    assert len(data) == 512 * total
    first, second = data[:512], data[512:1024]
    start = struct.pack("<8I", 0x0A324655, 0x9E5D5157, 0x2000, 0x10000000, 256, 0, total, 0xE48BFF56)
    assert first == start + runtime[:256] + bytes(220) + b"\x30\x6f\xb1\x0a"
    assert struct.unpack_from("<6I", second, 8) == (0x2000, 0x10000100, 256, 1, total, 0xE48BFF56)
    assert second[32:288] == b"runtime" + bytes(249)
    assert data[512 * 255 :][32:288] == settings
    of_model = data[512 * 256 :]
    assert struct.unpack_from("<I", of_model, 12) == (0x10010000,)
    assert of_model[32:288] == model[:256]


def test_the_sum_of_the_boot_stage_is_that_of_the_catalogue():
    assert crc32_mpeg2(b"123456789") == 0x0376E6E7  # the check value of CRC-32/MPEG-2


def test_what_does_not_fit_flash_is_not_joined():
    runtime, settings, model, vocabulary = small_parts()
    most = 2**16 - 256
    assert read_back.split(uf2.join(runtime.ljust(most, b"x"), settings, model, vocabulary))[:2] == (
        runtime.ljust(most, b"x"),
        settings,
    )
    with pytest.raises(ValueError, match="the runtime has 65,281 bytes; flash has 65,280 for it"):
        uf2.join(runtime.ljust(most + 1, b"x"), settings, model, vocabulary)
    most = 2**21 - 2**16 - -(-len(vocabulary) // 256) * 256
    assert len(uf2.join(runtime, settings, bytes(most), vocabulary)) == 2 * 2**21
    with pytest.raises(ValueError, match="need 2,097,408 bytes of flash; the board has 2,097,152"):
        uf2.join(runtime, settings, bytes(most + 1), vocabulary)
    for short in (b"", runtime[:255], b"x" + runtime[1:]):
        with pytest.raises(ValueError, match="no second boot stage with a valid sum"):
            read_back.split(uf2.join(short, settings, model, vocabulary))


def test_a_damaged_uf2_file_is_refused():
    data = uf2.join(*small_parts())
    blocks = len(data) // 512
    model_block = 512 * 256
    for place, new, said in (
        (0, b"V", "damaged in block 0"),
        (512 + 4, b"\0", "damaged in block 1"),
        (512 + 8, b"\1", "damaged in block 1"),
        (512 + 13, b"\2", "damaged in block 1"),
        (512 + 16, b"\xff", "damaged in block 1"),
        (512 + 20, b"\2", "damaged in block 1"),
        (512 + 24, b"\0\0", "damaged in block 1"),
        (512 + 28, b"\x57", "damaged in block 1"),
        (512 + 300, b"\1", "damaged in block 1"),
        (512 + 511, b"\0", "damaged in block 1"),
        (32 + 7, b"\xff", "no second boot stage with a valid sum"),
        (model_block + 32, b"X", "has no model where it should be"),
        (model_block + 32 + 8, b"\0\0\0\0", "model does not fill its place"),
        (model_block + 32 + 8, b"\xff\xff\xff\xff", "model does not fill its place"),
        (len(data) - 512 + 32 + 255, b"\1", "vocabulary does not fill its place"),
    ):
        with pytest.raises(ValueError, match=said):
            read_back.split(data[:place] + new + data[place + len(new) :])
    for cut, said in ((data[:-1], "not a multiple of 512"), (b"", "has 0 bytes"), (data[:-512], f"of {blocks - 1}")):
        with pytest.raises(ValueError, match=said):
            read_back.split(cut)
    with pytest.raises(ValueError, match="holds 16,777,472 bytes of flash"):
        read_back.split(bytes(512 * 65537))
    with pytest.raises(ValueError, match="goes on for 256 bytes after the vocabulary"):
        read_back.split(renumbered(data + data[-512:]))


def renumbered(data: bytes) -> bytes:
    total = len(data) // 512
    blocks = [data[512 * i : 512 * (i + 1)] for i in range(total)]
    return b"".join(
        block[:12] + struct.pack("<4I", 0x10000000 + 256 * i, 256, i, total) + block[28:]
        for i, block in enumerate(blocks)
    )
