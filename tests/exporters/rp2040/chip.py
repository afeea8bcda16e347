"""The parts of an RP2040 that the firmware needs, on the Cortex-M0 of the package unicorn: no toolchain, no node.

python tests/exporters/rp2040/chip.py story.uf2 "/temperature 0.8" "Once upon a time"
"""

import ctypes
import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from unicorn import UC_ARCH_ARM, UC_HOOK_MEM_INVALID, UC_MODE_MCLASS, UC_MODE_THUMB, Uc, UcError
from unicorn.arm_const import UC_ARM_REG_LR, UC_ARM_REG_PC, UC_ARM_REG_SP, UC_CPU_ARM_CORTEX_M0

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from tests.exporters.rp2040.flash import DMA, FLASH, FLASH_BYTES, SSI, Flash, FlashError, check_stage2, read_uf2

UNCACHED = 0x13000000  # the same flash
SRAM = 0x20000000
STAGE2 = 0x20041F00  # where the boot ROM copies the second stage
PROMPT = b"\n> "

UART, UART_FLAGS, WHOLE_DIVISOR, DIVISOR_64THS, LINE, CONTROL = 0x40034000, 0x18, 0x24, 0x28, 0x2C, 0x30
VOLTAGE = 0x40064000
RECEIVE_EMPTY, TRANSMIT_EMPTY = 1 << 4, 1 << 7
CPUID, FIFO_STATUS, FIFO_WRITE, FIFO_READ = 0xD0000000, 0xD0000050, 0xD0000054, 0xD0000058
FIFO_READY = 1 << 1
DIVIDEND, DIVISOR, QUOTIENT = 0xD0000060, 0xD0000064, 0xD0000070
RESETS, RESET_DONE = 0x4000C000, 0x4000C008
RESET_VALUES = {RESETS: 0x1FFFFFF, 0x40028004: 0x2D, 0x4002C004: 0x2D}
SLOW = 3  # reads for which a state that the firmware waits for is not reached yet


def _locked(pll: int) -> Callable[[Mapping[int, int]], int]:
    # It locks once it and its oscillator have power and it is out of reset.
    needed = 1 << (12 if pll == 0x40028000 else 13)
    return lambda r: 0 if r.get(pll + 4, 0x2D) & (1 << 0 | 1 << 5) or r.get(RESETS, 0x1FFFFFF) & needed else 1 << 31


# Registers that tell what a change has come to: crystal, clocks, resets, PLLs.
STATES: dict[int, Callable[[Mapping[int, int]], int]] = {
    0x40024004: lambda r: 1 << 31 if r.get(0x40024000, 0) & 0xFFF000 == 0xFAB000 else 0,
    0x40008038: lambda r: 1 << (r.get(0x40008030, 0) & 3),
    0x40008044: lambda r: 1 << (r.get(0x4000803C, 0) & 1),
    RESET_DONE: lambda r: ~r.get(RESETS, 0x1FFFFFF) & 0x1FFFFFF,
    0x40028000: _locked(0x40028000),
    0x4002C000: _locked(0x4002C000),
}
# Nobody is at the other end of the USB cable; the cycle counter stands still.
PLAIN = dict.fromkeys((0x40058008, 0x4005801C, 0x50110050, 0x50110058, 0xE000E018), 0)
PLAIN |= {0x40000000: 2 << 28, 0xE000ED08: 0x10000100}
DPRAM = 0x50100000
PERIPHERALS = (
    (SSI, 0x1000),
    (0x40000000, 0x80000),
    (DMA, 0x1000),
    (0x50110000, 0x4000),
    (0xD0000000, 0x1000),
    (0xE000E000, 0x1000),
)


class ChipError(Exception):
    """The firmware did something forbidden, or did not finish. The message ends with its output so far."""


def run(uf2: bytes, lines: list[str], timeout: float = 60) -> str:
    """Return the output of the UART from boot to the prompt after the last of `lines`.

    Each line is typed when a prompt appears. Raises ValueError for a UF2 that the boot ROM would not accept or start,
    ChipError if the firmware accesses addresses that do not exist, halts, or takes more than `timeout` seconds.
    """
    chip = Chip(uf2, lines)
    chip.run(timeout)
    return chip.text


class Core:
    """One of the two Cortex-M0+: a machine of its own over the memory of both."""

    def __init__(self, chip: "Chip", number: int):
        self.chip, self.number = chip, number
        self.machine = machine = Uc(UC_ARCH_ARM, UC_MODE_THUMB | UC_MODE_MCLASS)
        machine.ctl_set_cpu_model(chip.processor)
        for base in (FLASH, chip.uncached):
            machine.mem_map_ptr(base, FLASH_BYTES, 5, ctypes.addressof(chip.flash))  # read and execute
        machine.mem_map_ptr(SRAM, chip.sram_bytes, 7, ctypes.addressof(chip.sram))
        machine.mem_map_ptr(DPRAM, 0x1000, 3, ctypes.addressof(chip.dpram))
        for base, size in chip.peripherals:
            machine.mmio_map(base, size, self._read, base, self._write, base)
        machine.hook_add(UC_HOOK_MEM_INVALID, self._invalid)
        self.dividend, self.divisor = 0, 1
        self.inbox: list[int] = []  # words from the other core
        self.waiting = False  # for a word

    def start(self, stack: int, place: int) -> None:
        self.machine.reg_write(UC_ARM_REG_SP, stack)
        self.machine.reg_write(UC_ARM_REG_LR, 0)
        self.place = place & ~1

    def run(self, count: int = 0, timeout: float = 0) -> None:
        """Run `count` instructions (0: until something stops it), for at most `timeout` seconds."""
        self.waiting = False
        try:
            self.machine.emu_start(self.place | 1, 0, timeout=int(timeout * 1e6), count=count)
        except UcError as error:
            self.chip.problem = self.chip.problem or str(error)
        self.place = self.machine.reg_read(UC_ARM_REG_PC)

    def _read(self, machine: Uc, offset: int, size: int, base: int) -> int:
        address = base + offset
        if address == QUOTIENT:
            return self.dividend // self.divisor if self.divisor else 0xFFFFFFFF
        if address == CPUID:
            return self.number
        if address == FIFO_STATUS:
            self.waiting = not self.inbox
            if self.waiting and self.number == 1:
                machine.emu_stop()  # until it is its turn again
            return FIFO_READY | bool(self.inbox)
        if address == FIFO_READ:
            if self.inbox:
                return self.inbox.pop(0)
            self.chip.stop("reads from an empty FIFO")
            return 0
        return self.chip.read(address)

    def _write(self, machine: Uc, offset: int, size: int, value: int, base: int) -> None:
        address = base + offset
        if address == DIVIDEND:
            self.dividend = value
        elif address == DIVISOR:
            self.divisor = value
        elif address == FIFO_WRITE:
            self.chip.post(1 - self.number, value)
        else:
            self.chip.write(address, value)

    def _invalid(self, machine: Uc, access: int, address: int, size: int, value: int, _: object) -> bool:
        where = "the boot ROM is, which is not emulated" if address < FLASH else "nothing is"
        self.chip.problem = self.chip.problem or f"touches {address:#x}, where {where}"
        return False


class Chip:
    """Memory, both cores, the registers of peripherals, and a person who types a line at every prompt.

    With `skew`, a source of random numbers, the cores run in turns of random length; without it, the second does its
    work as soon as it is there. `answers` is how many words the second core's program sends before it dies; -1: all.
    Its boot ROM counts as absent with 0. Without `quad` the flash knows a single line. `noise` is a seed of
    the ring oscillator's bits.
    """

    processor, family, uncached, sram_bytes = UC_CPU_ARM_CORTEX_M0, 0xE48BFF56, UNCACHED, 264 * 1024
    peripherals, states, plain, reset_values = PERIPHERALS, STATES, PLAIN, RESET_VALUES
    uart, ring_bit, force_off, second_core, flash_parts = UART, 0x4006001C, 0x40010004, 1 << 16, (SSI, DMA)
    pin_functions, system_pll = 0x40014004, 0x40028000
    flash_interface: type[Flash] = Flash

    def __init__(
        self,
        uf2: bytes,
        lines: list[str],
        skew: random.Random | None = None,
        answers: int = -1,
        quad: bool = True,
        noise: int | None = None,
    ):
        image = read_uf2(uf2, self.family)
        self.flash, self.sram, self.dpram = ((ctypes.c_ubyte * n)() for n in (FLASH_BYTES, self.sram_bytes, 0x1000))
        ctypes.memmove(self.flash, image, FLASH_BYTES)
        ctypes.memset(self.sram, 0xA5, self.sram_bytes)  # what power leaves there
        self.interface = self.flash_interface(image, memoryview(self.sram).cast("B"), quad)
        self.cores = Core(self, 0), Core(self, 1)
        self.boot(image)
        self.skew, self.answers, self.ring = skew, answers, random.Random(noise)
        self.rom: list[int] | None = None  # words that core 1's boot ROM has taken; None while it is held in reset
        self.launched = False
        self.registers: dict[int, int] = {}
        self.asked: dict[int, int] = {}  # how often a state was read since it began to change
        self.trace: list[tuple[str, int, int]] = []  # ("write" or "read", register, value) of clocks, resets, voltage
        self.lines, self.typed, self.output = list(lines), bytearray(), bytearray()
        self.answered = 0  # length of the output when the last line was typed
        self.problem: str | None = None
        self.finished = False

    def boot(self, image: bytes) -> None:
        """Do what the boot ROM does."""
        check_stage2(image)
        ctypes.memmove(ctypes.addressof(self.sram) + STAGE2 - SRAM, image, 256)
        self.cores[0].start(STAGE2, STAGE2)

    def run(self, timeout: float) -> None:
        """Run until the last line is answered; ChipError if that does not happen."""
        began = time.monotonic()
        while not (self.finished or self.problem) and (left := timeout - (time.monotonic() - began)) > 0:
            if self.skew is None:
                self.cores[0].run(timeout=left)
                break
            self.cores[0].run(self._turn())
            if self.launched:
                self.cores[1].run(self._turn())
        if self.finished:
            return
        seconds = time.monotonic() - began
        problem = self.problem or (f"no prompt after {timeout} s" if seconds >= timeout else "the firmware has halted")
        place = self.cores[0].place
        raise ChipError(f"{problem}, at {place:#x}; output: {self.output.decode('utf-8', 'replace')!r}")

    @property
    def text(self) -> str:
        return self.output.decode("utf-8", "replace").replace("\r\n", "\n")

    def _turn(self) -> int:
        """A number of instructions: mostly few, at times so many that one core is far ahead."""
        assert self.skew
        return int(2 ** self.skew.uniform(0, 11))

    def post(self, to: int, word: int) -> None:
        """Take a word that one core sends to the other."""
        if to == 0:
            if self.answers == 0:
                return
            self.answers -= 1
            self.cores[0].inbox.append(word)
        elif self.launched:
            self.cores[1].inbox.append(word)
            if self.skew is None:
                self.cores[1].run()
        elif self.rom is not None:
            self._boot_second(word)

    def _boot_second(self, word: int) -> None:
        """Boot ROM of core 1, chapter 2.8.2: it echoes words and starts once 0, 0, 1, vectors, stack, entry came."""
        assert self.rom is not None
        self.cores[0].inbox.append(word)
        expected = (0, 0, 1)
        if len(self.rom) < 3 and word != expected[len(self.rom)]:
            self.rom = []
        else:
            self.rom.append(word)
        if len(self.rom) == 6:
            self.launched = True
            self.cores[1].start(self.rom[4], self.rom[5])
            if self.skew is None:
                self.cores[1].run()

    def read(self, address: int) -> int:
        """A register that is the same for both cores."""
        if address == self.uart + UART_FLAGS:
            # A line already typed leaves its prompt at the end until it is echoed.
            if not self.typed and len(self.output) > self.answered and self.output.endswith(PROMPT):
                self._type()
            return TRANSMIT_EMPTY | (0 if self.typed else RECEIVE_EMPTY)
        if address == self.uart:
            return self.typed.pop(0) if self.typed else 0
        if address & 0xFFFFF000 in self.flash_parts:
            return self._flash(self.interface.read, address) or 0
        if address in self.states:
            self.asked[address] = self.asked.get(address, 0) + 1
            value = self.states[address](self.registers) if self.asked[address] > SLOW else 0
            self.trace.append(("read", address, value))
            return value
        if address == self.ring_bit:
            return self.ring.getrandbits(1)
        if address in self.plain or address in self.registers:
            return self.registers.get(address, self.plain.get(address, 0))
        self.stop(f"reads the register {address:#x}, which is not emulated")
        return 0

    def write(self, address: int, value: int) -> None:
        """Write a register, which for addresses of peripherals may mean to set or clear bits."""
        if address == self.uart:
            if not self.connected:
                self.stop("a byte is sent by a UART that no terminal understands")
            self.output.append(value & 255)
            return
        if 0x40000000 <= address < 0x60000000:
            register, how = address & ~0x3000, address >> 12 & 3
            old = self.registers.get(register, self.reset_values.get(register, 0))
            address, value = register, (value, old ^ value, old | value, old & ~value)[how]
        if address & 0xFFFFF000 in self.flash_parts:
            self._flash(self.interface.write, address, value)
            return
        self.registers[address] = value
        if 0x40008000 <= address < 0x40060000 or address == VOLTAGE:
            self.trace.append(("write", address, value))
            self.asked.clear()
        if address == self.force_off:
            self._reset_second(bool(value & self.second_core))

    @property
    def connected(self) -> bool:
        """Whether the UART sends and takes 8 bits at 115,200 baud, give or take 1 %, on GPIO 0 and 1."""
        registers = self.registers
        feedback, dividers = (registers.get(self.system_pll + at, 1 << 16 | 1 << 12) for at in (8, 12))
        clock = 12e6 * feedback / (dividers >> 16 & 7) / (dividers >> 12 & 7)
        sixteenths = registers.get(self.uart + WHOLE_DIVISOR, 0) + registers.get(self.uart + DIVISOR_64THS, 0) / 64
        chosen = [registers.get(self.pin_functions + 8 * pin, 31) for pin in range(2)]
        on = registers.get(self.uart + CONTROL, 0) & 0x301, registers.get(self.uart + LINE, 0) & 0x7E
        return on == (0x301, 0x70) and chosen == [2, 2] and abs(clock / 16 / 115_200 / (sixteenths or 1) - 1) < 0.01

    def _flash(self, use: Callable[..., int | None], *given: int) -> int | None:
        try:
            return use(*given)
        except FlashError as error:
            self.stop(str(error))
            return 0

    def _reset_second(self, held: bool) -> None:
        self.rom, self.launched = None, False
        self.cores[1].inbox.clear()
        if not held and self.answers:
            self.rom = []
            self.cores[0].inbox.append(0)

    def _type(self) -> None:
        self.answered = len(self.output)
        if self.lines:
            self.typed += self.lines.pop(0).encode() + b"\r"
        else:
            self.finished = True
            self.cores[0].machine.emu_stop()

    def stop(self, problem: str) -> None:
        """End the run with a ChipError."""
        self.problem = self.problem or problem
        for core in self.cores:
            core.machine.emu_stop()


def main(board: type[Chip]) -> None:
    """Type the lines of the command line to a board with the UF2 file that it names, and print what the board says."""
    if len(sys.argv) < 2:
        sys.exit(f"usage: python {sys.argv[0]} story.uf2 [LINE...]; /help lists the settings")
    try:
        chip = board(Path(sys.argv[1]).read_bytes(), sys.argv[2:] or [""])
        chip.run(600)
    except (OSError, ValueError, ChipError) as error:
        print(f"error: {sys.argv[1]}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        sys.exit(2)
    print(chip.text.removesuffix("> "))


if __name__ == "__main__":
    main(Chip)
