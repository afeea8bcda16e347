"""What the firmware does to clocks, PLLs and resets before anything else, as a trace of registers."""

import re
import struct
import subprocess
from functools import cache
from zlib import crc32

import pytest
from unicorn import UC_HOOK_CODE, Uc
from unicorn.arm_const import UC_ARM_REG_R0, UC_ARM_REG_R1, UC_ARM_REG_R2, UC_ARM_REG_R3

from exporters import to_rp2040
from exporters.rp2040 import uf2
from exporters.rp2040.settings import Settings
from tests.exporters.rp2040 import files
from tests.exporters.rp2040.chip import DIVIDEND, FLASH, UART, UART_FLAGS, VOLTAGE, Chip, ChipError, Core, run

XOSC_CTRL, XOSC_STATUS, XOSC_STARTUP = 0x40024000, 0x40024004, 0x4002400C
REF_CTRL, REF_SELECTED, SYS_CTRL, SYS_SELECTED = 0x40008030, 0x40008038, 0x4000803C, 0x40008044
PLLS = {"system": 0x40028000, "USB": 0x4002C000}
CS, PWR, FEEDBACK, DIVIDERS = 0, 4, 8, 12
LOCK = 1 << 31
WATCHDOG_CTRL, WATCHDOG_LOAD, WATCHDOG_REASON, WATCHDOG_TICK = 0x40058000, 0x40058004, 0x40058008, 0x4005802C
WATCHDOG_SCRATCH4, WATCHDOG_RESETS = 0x4005801C, 0x40010008
UART_FULL, CYCLES, LED_TOGGLE = 1 << 5, 0xE000E018, 0xD000001C
UART_DIVISORS = 0x40034024, 0x40034028  # whole, 64ths


GREEDY = Settings(temperature=0)


@cache
def story_uf2(settings: Settings = GREEDY) -> bytes:
    return uf2.join(to_rp2040.RUNTIME.read_bytes(), settings.pack(), files.model(), files.vocabulary())


@cache
def trace() -> list[tuple[str, int, int]]:
    chip = Chip(story_uf2(), [])
    chip.run(30)
    return chip.trace


def place(what: str, address: int, bits: int) -> int:
    """The place in the trace of the first access of a kind to a register with these bits set."""
    return next(i for i, (kind, at, value) in enumerate(trace()) if (kind, at, value & bits) == (what, address, bits))


def values(address: int) -> list[int]:
    return [value for kind, at, value in trace() if (kind, at) == ("write", address)]


def test_the_crystal_has_64_ms_to_settle_and_is_waited_for():
    (delay,) = values(XOSC_STARTUP)
    assert delay < 1 << 14  # the field's width
    assert delay * 256 / 12e6 >= 0.064  # pico-sdk has 6 ms, boards of other makers ask for 64
    enabled = place("write", XOSC_CTRL, 0xFAB000)
    assert place("write", XOSC_STARTUP, 0) < enabled < place("read", XOSC_STATUS, 1 << 31)
    assert place("read", XOSC_STATUS, 1 << 31) < place("write", REF_CTRL, 2)


@pytest.mark.parametrize(("name", "megahertz"), [("system", 125), ("USB", 48)])
def test_a_pll_locks_before_its_dividers_are_on_and_its_frequency_is_right(name, megahertz):
    pll = PLLS[name]
    feedback, dividers = values(pll + FEEDBACK)[-1], values(pll + DIVIDERS)[-1]
    oscillator = 12 * feedback
    assert 750 <= oscillator <= 1600  # MHz, data sheet 2.18.2
    assert oscillator / (dividers >> 16 & 7) / (dividers >> 12 & 7) == megahertz
    powered = next(
        i for i, entry in enumerate(trace()) if entry[:2] == ("write", pll + PWR) and not entry[2] & (1 << 0 | 1 << 5)
    )
    locked = place("read", pll + CS, LOCK)
    divided = next(i for i, entry in enumerate(trace()) if entry[:2] == ("write", pll + PWR) and not entry[2] & 1 << 3)
    assert place("write", pll + FEEDBACK, 0) < powered < locked < place("write", pll + DIVIDERS, 0) < divided
    assert locked < place("write", SYS_CTRL, 1)


@pytest.mark.slow
def test_a_build_for_200_mhz_raises_the_voltage_first_and_tells_the_same_story(tmp_path):
    firmware = to_rp2040.FOLDER / "firmware"
    words = ["make", "-C", firmware, "MHZ=200", f"BUILD={tmp_path}", f"RUNTIME={tmp_path / 'runtime.bin'}"]
    subprocess.run(words, check=True, capture_output=True)
    faster = uf2.join((tmp_path / "runtime.bin").read_bytes(), GREEDY.pack(), files.model(), files.vocabulary())
    chip = Chip(faster, [])
    chip.run(30)
    written = [(at, value) for kind, at, value in chip.trace if kind == "write"]
    feedback, dividers = (dict(written)[PLLS["system"] + register] for register in (FEEDBACK, DIVIDERS))
    assert 750 <= 12 * feedback <= 1600
    assert 12 * feedback / (dividers >> 16 & 7) / (dividers >> 12 & 7) == 200
    raised = written.index((VOLTAGE, 0xC1))  # 1.15 V, data sheet 2.10.3
    assert raised < next(i for i, (at, _) in enumerate(written) if at == XOSC_CTRL)
    whole, parts = (chip.registers[register] for register in UART_DIVISORS)
    assert 200e6 / 16 / (whole + parts / 64) == pytest.approx(115_200, rel=1e-3)
    lines = ["/ids on", "/tokens 12", "The cat"]
    assert run(faster, lines).splitlines()[:4] == run(story_uf2(), lines).splitlines()[:4]
    assert not any(at == VOLTAGE for _, at, _ in trace())


def test_clocks_leave_the_plls_before_these_are_reset_and_come_back_after():
    left, back = place("read", SYS_SELECTED, 1 << 0), place("read", SYS_SELECTED, 1 << 1)
    reset = place("write", 0x4000C000, 1 << 12 | 1 << 13)
    assert place("read", REF_SELECTED, 1 << 0) < reset
    assert left < reset < place("write", SYS_CTRL, 1) < back
    auxiliary = [value for value in values(SYS_CTRL) if value & 1]
    assert auxiliary == [1]  # the source is chosen by one write that changes nothing else


def test_what_is_typed_while_a_story_is_told_is_kept():
    # Each story's prompt is answered by one line more, so the last one is not reached.
    lines = ["/ids on", "/tokens 12", "The cat\rA dog", "The cat", "A dog", "/sram"]
    output = run(story_uf2(), lines)
    told = [line for line in output.splitlines() if line[:1].isdigit()]
    assert len(told) == 4
    assert told[:2] == told[2:]
    assert told[0] != told[1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/ids maybe", "ids: on or off is allowed"),
        ("/ids", "ids: on or off is allowed"),
        ("/ids onn", "ids: on or off is allowed"),
        ("/temperature 1 2", "temperature: 0 or 0.05 to 10 is allowed"),
        ("/temperature .", "temperature: 0 or 0.05 to 10 is allowed"),
        ("/temperature -1", "temperature: 0 or 0.05 to 10 is allowed"),
        ("/top_k 4x", "top_k: 0 to 4096 is allowed"),
        ("/top_k 40 40", "top_k: 0 to 4096 is allowed"),
        ("/seed", "seed: 0 to 99999999 is allowed"),
        ("/tokens 0", "tokens: 1 to 99999 is allowed"),
        ("/sram now", "There are /temperature"),
        ("/helpme", "There are /temperature"),
        ("/", "There are /temperature"),
        ("/temperature  0.5 ", "temperature: 0.50"),
        ("/temperature 0.04", "temperature: 0 or 0.05 to 10 is allowed"),
        ("/temperature 0.05", "temperature: 0.05"),
        ("/temperature 0.29", "temperature: 0.29"),  # the nearest of its 256ths
        ("/temperature 0.123", "temperature: 0 or 0.05 to 10 is allowed"),
        ("/temperature 10", "temperature: 10.00"),
        ("/temperature 10.01", "temperature: 0 or 0.05 to 10 is allowed"),
        ("/seed 99999999", "seed: 99999999"),
        ("/seed 4294967299", "seed: 0 to 99999999 is allowed"),  # 3 in 32 bits
        ("/ids off ", "ids: off"),
        # What a terminal sends beside text.
        ("\x7f\b/tokens 7é\x7f", "tokens: 7"),  # the first two have nothing to erase, the last has two bytes
        ("/tok\x1bens 8", "tokens: 8"),
        ("\x1b[A/tok\x1b[1;5Cens 8\x1b[3~", "tokens: 8"),  # arrows, one with Ctrl, and the key that deletes
        ("/tok\x1b[", "There are /temperature"),  # the line ends all the same
        ("/seed\t7", "There are /temperature"),  # a tab is text
        ("/tokens 9" + " " * 231 + "xy", "tokens: 9"),  # a line has 240 bytes at most
    ],
)
def test_commands_refuse_what_they_do_not_understand(line, said):
    output = run(story_uf2(), [line])
    erased = re.sub("é?\x7f|\b|\x1b(\\[[\x20-?]*[@-~]?)?", lambda typed: "é\b \b" if "é" in typed[0] else "", line)
    assert f"> {erased[:240]}{chr(7) * (len(erased) - 240)}\n{said}\n" in output.replace(", /top_k", "\n")


class Person(Chip):
    """A chip with a person who types each of `pieces` as soon as what stands before it has been printed.

    With `busy`, the UART has room for a byte at one of three looks; between two looks at the counter pass `cycles`.
    `toggled` counts changes of the LED; `divisions` holds, for each time that the watchdog was fed, how many divisions
    came until the next.
    """

    busy, cycles, looks, toggled = False, 0, 0, 0

    def __init__(self, *pieces: tuple[bytes, bytes], settings: Settings = GREEDY):
        self.divisions, self.pieces = [0], list(pieces)
        super().__init__(story_uf2(settings), [])

    def read(self, address: int) -> int:
        if address == CYCLES:
            self.registers[CYCLES] = (self.registers.get(CYCLES, 0) - self.cycles) & 0xFFFFFF
        if address != UART + UART_FLAGS:
            return super().read(address)
        if self.pieces and not self.typed and self.output.endswith(self.pieces[0][0]):
            self.typed += self.pieces.pop(0)[1]
        self.looks += 1
        return super().read(address) | (UART_FULL if self.busy and self.looks % 3 else 0)

    def write(self, address: int, value: int) -> None:
        if address == UART and self.busy and self.looks % 3:
            self.stop("writes to a UART that is full")
        if address == WATCHDOG_LOAD:
            self.divisions.append(0)
        self.toggled += address == LED_TOGGLE and value == 1 << 25
        super().write(address, value)

    def _type(self) -> None:
        if not self.pieces:
            super()._type()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_each_end_of_a_line_ends_one_line(end):
    lines = b"/tokens 4" + end + b"/tokens 5" + end + b"/ids on" + end
    chip = Person((b"> ", lines), (b"ids: on\r\n> ", b""))
    chip.run(30)
    assert chip.text.endswith("> /tokens 4\ntokens: 4\n> /tokens 5\ntokens: 5\n> /ids on\nids: on\n> ")


def test_lines_end_for_terminals_that_need_a_carriage_return():
    chip = Chip(story_uf2(), ["/help", "The cat"])
    chip.run(30)
    assert not re.search(rb"(?<!\r)\n", chip.output)


def test_what_is_typed_ahead_is_kept_up_to_512_bytes():
    chip = Person((b"> ", b"/ids on\r" * 63 + b"/ids off" + b"X"), (b"/ids off", b"\r"), (b"ids: off\r\n> ", b""))
    chip.run(30)
    assert chip.text.count("> /ids on\nids: on\n") == 63
    assert chip.text.endswith("> /ids off\nids: off\n> ")  # the X was the 513th byte


def test_a_full_uart_is_waited_for():
    chip = Person((b"> ", b"/help\r"), (b"this\r\n> ", b""))
    chip.busy = True
    chip.run(30)
    assert "/seed 7            repeats a story, whose last line has its seed; 0: a new story each time\n" in chip.text


def test_control_c_ends_a_story_and_drops_what_was_typed_before_it():
    begun = (b"> ", b"/tokens 90000\r"), (b"> ", b"The cat\rA dog\r")
    chip = Person(*begun, (b"The cat\r\n", b"\x03/tokens 3\r"), (b"tokens: 3\r\n> ", b""))
    chip.run(30)
    assert "A dog" not in chip.text
    assert "90000 tokens" not in chip.text
    assert re.search(r"> The cat\n.*\n\[\d+ tokens.*\]\n> /tokens 3\ntokens: 3\n> $", chip.text, re.DOTALL)


def test_control_c_drops_the_line_that_has_begun():
    chip = Person((b"> ", b"/tok"), (b"/tok", b"\x03"), (b"^C\r\n> ", b"/tokens 3\r"), (b"3\r\n> ", b""))
    chip.run(30)
    assert chip.text.endswith("> /tok^C\n> /tokens 3\ntokens: 3\n> ")


def test_the_speed_of_a_story_of_minutes_is_that_of_its_cycles_and_the_led_flickers_with_each_token():
    chip = Person((b"> ", b"The cat\r"), (b"]\r\n> ", b""), settings=Settings(temperature=0, tokens=300))
    chip.cycles = 15_000_000  # which 300 times are more than 32 bits
    chip.run(30)
    assert chip.text.endswith("\n[300 tokens, 8 tokens/s, 15000000 cycles/token]\n> ")  # greedy, by no seed
    assert chip.toggled == 300


def test_each_token_of_a_prompt_and_of_a_story_feeds_the_watchdog(monkeypatch):
    write, prompt = Core._write, b"The cat " * 29

    def counted(core: Core, machine: object, offset: int, size: int, value: int, base: int) -> None:
        core.chip.divisions[-1] += base + offset == DIVIDEND
        write(core, machine, offset, size, value, base)

    monkeypatch.setattr(Core, "_write", counted)
    chip = Person((b"> ", prompt + b"\r"), (b"]\r\n> ", b""), settings=Settings(temperature=0, tokens=200))
    chip.run(30)
    assert len(chip.divisions) > 200 + len(prompt) / 4
    assert max(chip.divisions[2:]) < 30  # a step has some ten, and a prompt's steps together hundreds


def test_the_settings_of_the_export_hold_from_the_start():
    settings = Settings(temperature=0.8, top_k=3, tokens=7, prompt="The cat", seed=5)
    output = run(story_uf2(settings), ["", "The cat", "/settings", "/ids on", ""])
    for line in ("temperature: 0.80", "top_k: 3", "tokens: 7", "seed: 5", "an empty line tells: The cat"):
        assert output.count(line) == 2
    empty, typed = output.split("> \n")[1].split("> The cat\n")
    assert empty.split("]")[0] == "The cat" + typed.split("]")[0]  # nobody has typed how it begins
    assert re.match(r"\d+ \d+ ", output.split("> \n")[2])


@pytest.mark.parametrize(
    "place",
    [
        512 * 40 + 32,  # a page of the runtime behind its code that starts the chip
        512 + 32 + 4 * 7 + 3,  # the size of the runtime, which would go far beyond the flash
    ],
)
def test_firmware_that_is_damaged_says_so_and_again_at_every_key(place):
    data = bytearray(story_uf2())
    data[place] ^= 255
    chip = Chip(bytes(data), [])
    chip.typed += b"x"
    with pytest.raises(ChipError, match="the firmware is damaged: its CRC differs"):
        chip.run(0.3)
    assert chip.text.count("Cannot start: the firmware is damaged: its CRC differs.") == 2


def test_a_chip_that_hung_is_restarted_and_says_so():
    left = 0  # in the scratch register, by the boot ROM, which restarts the chip by its watchdog after it took a file
    for hung in (False, True):
        chip = Chip(story_uf2(), ["/ids on"])
        chip.registers |= {WATCHDOG_REASON: 1, WATCHDOG_SCRATCH4: left}  # its timer, not a person
        chip.run(30)
        assert ("The chip hung and was restarted by its watchdog." in chip.text) is hung
        left = chip.registers[WATCHDOG_SCRATCH4]
    again = Chip(story_uf2(), [])
    again.registers[WATCHDOG_SCRATCH4] = left  # and a person, by a button that keeps it
    again.run(30)
    assert "restarted" not in again.text
    assert chip.registers[WATCHDOG_RESETS] == 0x1FFFC  # all but the oscillators
    assert chip.registers[WATCHDOG_CTRL] & 1 << 30
    assert chip.registers[WATCHDOG_LOAD] == 2_000_000  # half microseconds, by erratum RP2040-E1
    assert chip.registers[WATCHDOG_TICK] == 1 << 9 | 12


def called_in_the_rom(chip: Chip, table: bytes) -> list[list[int]]:
    """What a boot ROM with this table, whose look-up is at 0x40 and finds what is at 0x100, was called with."""
    machine, calls = chip.cores[0].machine, []
    machine.mem_map(0, 0x1000)
    look_up = struct.pack("<4H", 0x2001, 0x0200, 0x3001, 0x4770)  # r0 = 1 << 8; r0 += 1; return
    for place, content in ((0x14, table), (0x40, look_up), (0x100, b"\xfe\xe7")):
        machine.mem_write(place, content)

    def called(machine: Uc, place: int, *_: object) -> None:
        calls.append([place, *map(machine.reg_read, (UC_ARM_REG_R0, UC_ARM_REG_R1, UC_ARM_REG_R2, UC_ARM_REG_R3))])
        if place == 0x100:
            machine.emu_stop()

    for place in (0x40, 0x100):
        machine.hook_add(UC_HOOK_CODE, called, begin=place, end=place)
    with pytest.raises(ChipError):
        chip.run(30)
    return calls


def test_a_word_leads_to_the_boot_roms_drive():
    """Data sheet 2.8.3, with the LED's pin and no interface that is off."""
    look_up, start = called_in_the_rom(Chip(story_uf2(), ["/bootsel"]), struct.pack("<3H", 0x200, 0, 0x41))
    assert look_up[:3] == [0x40, 0x200, int.from_bytes(b"UB", "little")]
    assert start[:3] == [0x100, 1 << 25, 0]
    with pytest.raises(ChipError, match="where the boot ROM is, which is not emulated"):
        run(story_uf2(), ["/bootsel"])


def test_interrupts_come_from_usb_and_of_the_first_byte_that_the_uart_takes():
    chip = Chip(story_uf2(), [])
    chip.run(30)
    assert chip.registers[0xE000E100] == 1 << 20 | 1 << 5  # data sheet 2.3.2
    assert chip.registers[UART + 0x38] == 1 << 6 | 1 << 4  # of a FIFO that fills, and of bytes that wait there
    assert chip.registers[0x40008054] == 1 << 11  # the clock of USB
    assert chip.registers[0xE000ED08] == 0x20000000  # by a table in SRAM, as flash cannot always be read


def test_picotool_finds_the_programs_name():
    image = to_rp2040.RUNTIME.read_bytes()
    start, first, end, _, stop = struct.unpack_from("<5I", image, 0x1C0)
    assert (start, stop) == (0x7188EBF2, 0xE71AA390)
    found = {}
    for (fact,) in struct.iter_unpack("<I", image[first - FLASH : end - FLASH]):
        kind, tag, name, text = struct.unpack_from("<2s2sII", image, fact - FLASH)
        assert (kind, tag) == (b"\6\0", b"RP")
        found[name] = image[text - FLASH :].partition(b"\0")[0]
    assert found[0x02031C86] == b"Story teller"


def test_each_line_tells_a_new_story_and_a_seed_repeats_it():
    def told(noise: int, *lines: str) -> list[tuple[str, str]]:
        chip = Chip(story_uf2(Settings(temperature=1.5)), ["/ids on", *lines], noise=noise)
        chip.run(30)
        return re.findall(r"> (?:The)?\n([\d ]*)\n\[.* seed (\d+)\]", chip.text)

    stories = told(1, *[""] * 10)
    assert len({seed for _, seed in stories}) == len(stories) == 10
    assert len({story for story, _ in stories}) == 10
    assert {seed for _, seed in stories}.isdisjoint(seed for _, seed in told(2, "", ""))
    assert told(3, f"/seed {stories[4][1]}", "", "", "/seed 0", "")[:2] == [stories[4]] * 2


def test_a_quotient_has_its_eight_cycles():
    """Data sheet 2.3.1.5: four branches to what follows, of two cycles each, which no emulator counts here."""
    assert to_rp2040.RUNTIME.read_bytes().count(b"\xff\xe7" * 4) == 1


def page_of(*numbers: int) -> bytes:
    """A page of settings that nobody has looked at: temperature, top_k, tokens, seed, bytes of the prompt."""
    page = struct.pack("<HHIIBxxx", *numbers).ljust(248, b"x")
    return b"TTS1" + struct.pack("<I", crc32(page)) + page


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (bytes(256), "there are no settings where they should be"),
        (Settings().pack()[:100] + b"x" + Settings().pack()[101:], "the settings are damaged: their CRC differs"),
        *(
            (page_of(*numbers), "a setting is out of range")
            for numbers in (
                (12, 40, 200, 0, 0),
                (2561, 40, 200, 0, 0),
                (205, 4097, 200, 0, 0),
                (205, 40, 0, 0, 0),
                (205, 40, 100_000, 0, 0),
                (205, 40, 200, 100_000_000, 0),
                (205, 40, 200, 0, 233),
            )
        ),
    ],
)
def test_settings_that_are_damaged_are_named(page, said):
    data = uf2.join(to_rp2040.RUNTIME.read_bytes(), page, files.model(), files.vocabulary())
    with pytest.raises(ChipError, match=said):
        run(data, [], timeout=0.5)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(temperature=0.02), r"evaluation.temperature=0.02 .* takes 0 or 0.05 to 10"),
        (Settings(top_k=5000), "evaluation.top_k=5000 .* takes 0 to 4096"),
        (Settings(tokens=100_000), "evaluation.sample_tokens=100000 .* takes 1 to 99999"),
        (Settings(prompt="x" * 233), r"evaluation.prompts\[0\]=x+ .* up to 232 bytes"),
    ],
)
def test_settings_that_the_board_does_not_take_are_refused_and_those_at_its_limits_taken(settings, said):
    with pytest.raises(ValueError, match=said):
        settings.pack()
    for temperature in (0, 0.05, 10):
        assert len(Settings(temperature, top_k=4096, tokens=99_999, prompt="x" * 232).pack()) == 256
