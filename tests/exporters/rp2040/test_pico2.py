"""The firmware of a Pico 2 on an emulated RP2350: it boots, and tells the reference's stories on two Cortex-M33."""

import json
import random
import struct
import subprocess
import sys
from functools import cache

import pytest

from exporters import __main__ as exporters
from exporters import to_rp2040
from exporters.rp2040 import layout, uf2
from exporters.rp2040.settings import Settings
from models import io
from models.stories.integer_transformer import Sampler
from tests.exporters.rp2040 import chip, files, read_back
from tests.exporters.rp2040.chip import Chip, ChipError
from tests.exporters.rp2040.pico2 import PADS, TIMING, Pico2
from tests.exporters.rp2040.test_boot import called_in_the_rom
from tests.exporters.rp2040.test_readers import PROMPTS
from tests.models.tiny import make, trained_tokenizer

RUNTIME = to_rp2040.RUNTIME_RP2350.read_bytes()
GREEDY = Settings(temperature=0)
SHAPES = {
    "head size 1": files.SHAPES["head size 1"],
    "all at once": {"width": 36, "heads": 3, "hidden": 52, "context": 16, "memory": (64, 32), "counts": 100},
    "four tables": files.SHAPES["four tables"],
}
# 512 kB of SRAM have no room for these matrices.
STREAMED = {"width": 128, "heads": 4, "layers": 3, "hidden": 512, "context": 256}
TOKENS = 6
BOTH = [uf2.FAMILY, uf2.FAMILY_RP2350]


def joined(settings: Settings, model: bytes, vocabulary: bytes, runtime: bytes = RUNTIME) -> bytes:
    return uf2.join(runtime, settings.pack(), model, vocabulary, family=uf2.FAMILY_RP2350)


@cache
def smallest() -> bytes:
    return joined(GREEDY, files.model(), files.vocabulary())


def compare(prompts: list[str], tokens: int, **sizes: object) -> Pico2:
    """Tell stories on the board, greedy ones and drawn ones, and compare them with the reference's."""
    integers = files.quantized(-50.0, **sizes)
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    read = read_back.Vocabulary(vocabulary)
    lines = ["/ids on", f"/tokens {tokens}", *prompts, "/temperature 0.8", "/top_k 5", "/seed 3", *prompts]
    board = Pico2(joined(GREEDY, layout.pack_model(integers, vocabulary), vocabulary), lines)
    board.run(200)
    told = [list(map(int, line.split())) for line in board.text.splitlines() if line[:1].isdigit()]
    ids = [read.encode(prompt.encode()) for prompt in prompts]
    expected = [list(integers.decode(prompt, tokens)) for prompt in ids]
    expected += [list(integers.decode(prompt, tokens, Sampler(integers, 205, 5, 3))) for prompt in ids]
    assert told == expected
    assert "Cores: 2" in board.text
    assert "slowly" not in board.text
    for bank in (0x80000, 0x81000):  # each core's stack, 4 kB; what was never used is still painted
        painted = bytes(board.sram)[bank : bank + 512]
        assert painted == struct.pack("<I", 0x57ACC0DE) * 128
    return board


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_the_board_chooses_as_the_reference_does(shape):
    compare(PROMPTS if shape == "all at once" else PROMPTS[:4], TOKENS, **SHAPES[shape])


@pytest.mark.slow
def test_matrices_that_sram_cannot_hold_are_streamed():
    board = compare(["The cat"], 2, **STREAMED)
    assert board.interface.streamed * 4 > 2 * 500_000


def test_it_boots_with_both_cores_and_reads_the_flash_by_four_lines():
    board = Pico2(smallest(), ["/ids on", "/tokens 4", "The cat"])
    board.run(30)
    assert "Cores: 2" in board.text
    assert "slowly" not in board.text
    assert board.interface.continuous
    assert board.interface.readable
    written = {address: value for kind, address, value in board.trace if kind == "write"}
    feedback, dividers = written[0x40050008], written[0x4005000C]
    assert 12 * feedback / (dividers >> 16 & 7) / (dividers >> 12 & 7) == 150
    feedback, dividers = written[0x40058008], written[0x4005800C]
    assert 12 * feedback / (dividers >> 16 & 7) / (dividers >> 12 & 7) == 48
    whole, parts = board.registers[0x40070024], board.registers[0x40070028]
    assert 150e6 / 16 / (whole + parts / 64) == pytest.approx(115_200, rel=1e-3)
    assert [board.registers[PADS + 4 + 4 * pin] & 1 << 8 for pin in (0, 1, 25)] == [0, 0, 0]
    first = next(i for i, entry in enumerate(board.trace) if entry[:2] == ("write", 0x40050008))
    assert any(entry[:2] == ("write", 0x40010040) for entry in board.trace[:first])
    assert board.registers[0x40108034] == 12  # the watchdog's tick, in cycles of the crystal


def test_a_flash_of_one_line_is_read_slowly_and_tells_the_same():
    lines = ["/ids on", "/tokens 4", "The cat"]
    fast, slow = Pico2(smallest(), lines), Pico2(smallest(), lines, quad=False)
    for board in (fast, slow):
        board.run(30)
    assert "The flash is read slowly" in slow.text
    assert not slow.interface.continuous
    assert slow.interface.registers[TIMING] & 0xFF == 12
    assert fast.text.split("The cat")[1] == slow.text.split("The cat")[1]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_order_in_which_the_cores_run_changes_no_token(seed):
    lines = ["/ids on", "/tokens 4", "The cat"]
    alone, skewed = Pico2(smallest(), lines, answers=0), Pico2(smallest(), lines, random.Random(seed))
    for board in (alone, skewed):
        board.run(60)
    assert "Cores: 1" in alone.text
    assert alone.text.split("> The cat")[1] == skewed.text.split("> The cat")[1]


def test_a_word_leads_to_the_boot_roms_drive():
    """RP2350's data sheet 5.4: for good, in 10 ms, with the LED's pin."""
    look_up, start = called_in_the_rom(Pico2(smallest(), ["/bootsel"]), struct.pack("<3H", 0, 0x41, 0))
    assert look_up[:3] == [0x40, int.from_bytes(b"RB", "little"), 1 << 2]
    assert start == [0x100, 1 << 8 | 2, 10, 1 << 5, 25]


def test_damage_is_named():
    data = bytearray(smallest())
    data[512 * 40 + 32] ^= 1
    with pytest.raises(ChipError, match="the firmware is damaged: its CRC differs"):
        Pico2(bytes(data), []).run(0.2)
    for at in (512 + 32 + 0x10, 512 + 32 + 0x14):  # of the image definition, in the second block
        data = bytearray(smallest())
        data[at] ^= 1
        with pytest.raises(ValueError, match="no image definition"):
            Pico2(bytes(data), [])
    with pytest.raises(ValueError, match="have no image definition; build the runtime again"):
        read_back.check_boot(bytes(5000), uf2.FAMILY_RP2350)


def test_one_file_serves_both_boards_and_each_passes_over_the_others_blocks():
    pico = uf2.join(to_rp2040.RUNTIME.read_bytes(), GREEDY.pack(), files.model(), files.vocabulary())
    lines = ["/ids on", "/tokens 4", "The cat"]
    told = []
    for board in (Chip(pico + smallest(), lines), Pico2(pico + smallest(), lines)):
        board.run(30)
        told.append(board.text.split("> The cat")[1])
    assert told[0] == told[1]
    with pytest.raises(ValueError, match="no block is for the family 0xe48bff59"):
        Pico2(pico, [])
    with pytest.raises(ValueError, match="no block is for the family 0xe48bff56"):
        chip.run(smallest(), [])
    assert struct.unpack_from("<I", smallest(), 28) == (0xE48BFF59,)


def test_the_emulators_command_says_what_is_wrong_with_a_file(tmp_path):
    (tmp_path / "pico2.uf2").write_bytes(smallest())
    (tmp_path / "none.uf2").write_bytes(bytes(512))
    wrong = {
        "pico2.uf2": "no block is for the family 0xe48bff56 of this board; export the model with --board both",
        "none.uf2": "block 0 has no UF2 signature",
        "absent.uf2": "No such file or directory",
    }
    for name, said in wrong.items():
        done = subprocess.run(
            [sys.executable, chip.__file__, tmp_path / name], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"error: {tmp_path / name}: {said}")
        assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("words", "families"), [((), BOTH), (("pico",), BOTH[:1]), (("pico2",), BOTH[1:])])
def test_the_command_takes_the_board(tmp_path, words, families):
    run = tmp_path / "tiny"
    io.save(make(tokenizer=trained_tokenizer(32)), run / "model" / "best")
    exporters.export("rp2040", run, "best", None, **dict(zip(("board",), words, strict=False)))
    out = run / "exports" / "rp2040"
    data = (out / "story.uf2").read_bytes()
    found = [struct.unpack_from("<I", data, at + 28)[0] for at in range(0, len(data), 512)]
    assert list(dict.fromkeys(found)) == families
    assert json.loads((out / "manifest.json").read_text())["flash_bytes"] == len(found) // len(families) * 256
    with pytest.raises(ValueError, match="the format safetensors has no --board; leave it out"):
        exporters.export("safetensors", run, "best", None, board="pico")
