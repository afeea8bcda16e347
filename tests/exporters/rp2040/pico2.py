"""The parts of an RP2350 that the firmware needs, on two Cortex-M33 of the package unicorn.

python tests/exporters/rp2040/pico2.py story.uf2 "/temperature 0.8" "Once upon a time"
"""

import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from zlib import crc32

from unicorn.arm_const import UC_CPU_ARM_CORTEX_M33

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from tests.exporters.rp2040.chip import SRAM, Chip, main
from tests.exporters.rp2040.flash import DMA, FLASH, FlashError, Winbond

QMI, XIP, STREAM = 0x400D0000, 0x400C8000, 0x50500000
DIRECT_CSR, DIRECT_TX, DIRECT_RX, TIMING, FORMAT, COMMAND = (QMI + 4 * i for i in range(6))
STREAM_ADDR, STREAM_COUNT = XIP + 0x14, XIP + 0x18
READ_ADDR, WRITE_ADDR, COUNT, CONTROL = (DMA + 4 * i for i in range(4))
SNIFF_CONTROL, SNIFF_DATA = DMA + 0x454, DMA + 0x458
ENABLED, SELECTED, BUSY, ONWARD, SNIFFED, SWAPPED = 1, 1 << 2, 1 << 26, 1 << 6, 1 << 25, 1 << 24
BY_STREAM = 49 << 17 | 2 << 2 | 1
WITH_COMMAND, WITHOUT_COMMAND, EBH = 0x492A8, 0x482A8, 0xA0EB
BOOTED = {TIMING: 6, FORMAT: 0x1000, COMMAND: 0x03}  # 03h on one line
UNCACHED = 0x14000000
RESETS, RESET_DONE, ALL = 0x40020000, 0x40020008, 0x1FFFFFFF
PADS = 0x40038000


class Flash(Winbond):
    """A flash chip on the QMI, and channel 0 of the DMA.

    What the firmware reads directly is not checked here: the chip's memory holds it in each mode. `readable` says when.
    """

    def __init__(self, content: bytes, sram: bytearray | memoryview, quad: bool = True):
        super().__init__(content, sram, quad)
        self.registers = dict(BOOTED)
        self.answered: int | None = None
        self.streamed = 0  # words so far

    @property
    def continuous(self) -> bool:
        """Whether reads go by four lines without a command."""
        return (self.registers[FORMAT], self.registers[COMMAND]) == (WITHOUT_COMMAND, EBH)

    @property
    def readable(self) -> bool:
        """Whether memory-mapped reads give what the flash has."""
        if self.registers.get(DIRECT_CSR, 0) & ENABLED:
            return False
        known = self.registers[FORMAT] == BOOTED[FORMAT] or (self.quad and bool(self.status[1] & 2))
        return known and self.registers[TIMING] & 0xFF >= 2

    def read(self, address: int) -> int:
        """A register of QMI, XIP or DMA."""
        if address == DIRECT_RX:
            if self.answered is None:
                raise FlashError("the flash interface is read while it is empty")
            value, self.answered = self.answered, None
            return value
        value = self.registers.get(address, 0)
        if address == CONTROL and value & BUSY:
            self._complete()
            return value & ~BUSY
        inverted = address == SNIFF_DATA and self.registers.get(SNIFF_CONTROL, 0) >> 10 & 3 == 3
        return value ^ 0xFFFFFFFF if inverted else value

    def write(self, address: int, value: int) -> None:
        """Change a register, or send a byte."""
        if address == DIRECT_TX:
            if self.registers.get(DIRECT_CSR, 0) & (ENABLED | SELECTED) != ENABLED | SELECTED:
                raise FlashError("a byte is sent to a flash that is not selected")
            self.sent.append(value)
            self.answered = self._answer()
            return
        busy = self.registers.get(CONTROL, 0) & BUSY
        if busy and address & 0xFFFFF000 == DMA:
            raise FlashError("the DMA is changed during a transfer")
        before = self.registers.get(address, 0)
        self.registers[address] = value
        if address == DIRECT_CSR and before & SELECTED and not value & SELECTED:
            self._end()
        if address == CONTROL and value & 1:
            self.registers[CONTROL] = value | BUSY
            if value & 0x7E000D != BY_STREAM or self.registers[READ_ADDR] != STREAM:
                raise FlashError("the DMA takes something else than the stream")
        if address == STREAM_COUNT and value:
            if not self.continuous or not self.readable:
                raise FlashError("a stream in a mode that is not fast")
            if not busy or self.registers[COUNT] != value:
                raise FlashError("no DMA waits for the flash")
            if self.registers[CONTROL] & ONWARD:
                self._store(b"\xff" * (4 * value))  # until it has come

    def _store(self, data: bytes) -> None:
        start = self.registers[WRITE_ADDR] - SRAM
        self.sram[start : start + len(data)] = data

    def _complete(self) -> None:
        control, words = self.registers[CONTROL], self.registers[STREAM_COUNT]
        start = self.registers[STREAM_ADDR] - FLASH
        data = self.content[start : start + 4 * words]
        if control & ONWARD and not control & SWAPPED:
            self._store(data)
        if control & SNIFFED:
            self.registers[SNIFF_DATA] = crc32(data, self.registers[SNIFF_DATA] ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
        self.streamed += words
        self.registers[STREAM_COUNT] = 0
        self.registers[CONTROL] &= ~BUSY


def _locked(pll: int, bit: int) -> Callable[[Mapping[int, int]], int]:
    return lambda r: 0 if r.get(pll + 4, 0x2D) & (1 << 0 | 1 << 5) or r.get(RESETS, ALL) & 1 << bit else 1 << 31


STATES = {
    0x40048004: lambda r: 1 << 31 if r.get(0x40048000, 0) & 0xFFF000 == 0xFAB000 else 0,
    0x40010038: lambda r: 1 << (r.get(0x40010030, 0) & 3),
    0x40010044: lambda r: 1 << (r.get(0x4001003C, 0) & 1),
    RESET_DONE: lambda r: ~r.get(RESETS, ALL) & ALL,
    0x40050000: _locked(0x40050000, 14),
    0x40058000: _locked(0x40058000, 15),
}
PLAIN = {0x400D8008: 0, 0x400D801C: 0, 0x50110050: 0, 0x50110058: 0, 0xE000E018: 0, 0xE000ED08: FLASH}
RESET_VALUES = {RESETS: ALL, 0x40050004: 0x2D, 0x40058004: 0x2D} | {PADS + 4 * i: 0x116 for i in range(1, 49)}


class Pico2(Chip):
    """An RP2350 with its two Cortex-M33; the RISC-V cores are not there, nor is anybody at the USB cable."""

    processor, family, uncached, sram_bytes = UC_CPU_ARM_CORTEX_M33, 0xE48BFF59, UNCACHED, 520 * 1024
    peripherals = (
        (0x40000000, 0x120000),
        (DMA, 0x1000),
        (0x50110000, 0x4000),
        (STREAM, 0x1000),
        (0xD0000000, 0x1000),
        (0xE000E000, 0x1000),
    )
    states, plain, reset_values = STATES, PLAIN, RESET_VALUES
    uart, ring_bit, force_off, second_core = 0x40070000, 0x400E8020, 0x40018004, 1 << 24
    flash_parts = QMI, XIP, DMA
    pin_functions, system_pll = 0x40028004, 0x40050000
    flash_interface = Flash

    def boot(self, image: bytes) -> None:
        """Look for the block in the first 4 kB that says what the image is, and start by the vectors before it."""
        words = struct.unpack("<1024I", image[:4096])
        at = words.index(0xFFFFDED3) if 0xFFFFDED3 in words else -1
        # an image type of one word: a program, secure, for ARM, on RP2350; the last item, of one word; no other block
        if at < 0 or words[at + 1 : at + 5] != (0x10210142, 0x000001FF, 0, 0xAB123579):
            raise ValueError("there is no image definition: the boot ROM would not start it")
        self.cores[0].start(words[0], words[1])

    @property
    def connected(self) -> bool:
        """As on the RP2040, and with pads that are not isolated and the receiver's input on."""
        pads = [self.registers.get(PADS + 4 + 4 * pin, 0x116) for pin in range(2)]
        return super().connected and not (pads[0] | pads[1]) & 1 << 8 and bool(pads[1] & 1 << 6)


if __name__ == "__main__":
    main(Pico2)
