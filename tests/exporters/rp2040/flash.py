"""What reads the flash of the emulated chip: the serial interface (SSI) and channel 0 of the DMA with its sniffer.

The same as exporters/web/flash.js, without its counting of time: a transfer ends when the firmware asks whether it has.
"""

import struct
from zlib import crc32

FLASH, FLASH_BYTES = 0x10000000, 16 * 1024 * 1024
SSI, DMA = 0x18000000, 0x50000000
CTRLR0, CTRLR1, ENABLED, STATUS, DMACR, DATA, SPI_CTRLR0 = (SSI + at for at in (0, 4, 8, 0x28, 0x4C, 0x60, 0xF4))
WRITE_ADDR, COUNT, CONTROL, SNIFF_CONTROL, SNIFF_DATA = (DMA + at for at in (4, 8, 0xC, 0x434, 0x438))
QUAD_FRAMES, COMMAND_FRAMES = 0x5F0300, 0x70000
EXPECTING_COMMAND, CONTINUOUS, MODE = 0x2221, 0xA0002022, 0xA0
ON, ONWARD, SWAPPED, SNIFFED, BUSY = 1 << 0, 1 << 5, 1 << 22, 1 << 23, 1 << 24
SERIAL = {CTRLR0: 0x1F0300, CTRLR1: 0, ENABLED: 1, SPI_CTRLR0: 0x03000218}  # as the second stage of the boot leaves it
IDENTITY = bytes.fromhex("e6613821abcd1234")


def read_uf2(uf2: bytes, family: int) -> bytes:
    """The 16 MB of the largest flash, erased where the UF2 has no block for this family; others are passed over."""
    if not uf2 or len(uf2) % 512:
        raise ValueError(f"a UF2 is a multiple of 512 bytes (given {len(uf2)})")
    flash, own = bytearray(b"\xff" * FLASH_BYTES), []
    for at in range(0, len(uf2), 512):
        first, second, *fields, of = struct.unpack_from("<8I", uf2, at)
        if (first, second, *struct.unpack_from("<I", uf2, at + 508)) != (0x0A324655, 0x9E5D5157, 0x0AB16F30):
            raise ValueError(f"block {at // 512} has no UF2 signature")
        if of == family:
            own.append((fields, uf2[at + 32 : at + 288]))
    for i, ((_flags, address, size, number, count), page) in enumerate(own):
        if (size, number, count) != (256, i, len(own)):
            raise ValueError(f"block {i} has size {size}, number {number} of {count}")
        if not FLASH <= address <= FLASH + FLASH_BYTES - size:
            raise ValueError(f"block {i} is for {address:#x}, outside of the flash")
        flash[address - FLASH : address - FLASH + size] = page
    if not own:
        other = "export the model with --board both, or use the emulator of the other board"
        raise ValueError(f"no block is for the family {family:#x} of this board; {other}")
    return bytes(flash)


def check_stage2(flash: bytes) -> None:
    """Raise ValueError if the RP2040's boot ROM would not start the second stage."""
    crc = 0xFFFFFFFF
    for byte in flash[:252]:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc >> 31 else 0)) & 0xFFFFFFFF
    if crc != int.from_bytes(flash[252:256], "little"):
        raise ValueError("the checksum of the second stage of the boot is wrong: the boot ROM would not start it")


class FlashError(Exception):
    """The firmware used the flash in a way that hangs a chip, or that is not emulated."""


class Winbond:
    """A flash chip of this maker's kind, fresh from the factory; without `quad`, one that knows a single line."""

    def __init__(self, content: bytes, sram: bytearray | memoryview, quad: bool = True):
        self.content, self.sram, self.quad = content, sram, quad
        self.status = bytes(2)  # bit 1 of the second is QE
        self.writing: list[bytes] = []  # what the status is after each look at it, for as long as it is being written
        self.writable = False
        self.sent: list[int] = []

    def _answer(self) -> int:
        command, place = self.sent[0], len(self.sent) - 1
        if command == 0x05 and place == 1 and self.writing:
            self.status = self.writing.pop(0)
        answers = {0x05: (1, self.status[:1]), 0x35: (1, self.status[1:]), 0x4B: (5, IDENTITY)}
        first, answer = answers.get(command, (0, b""))
        return answer[place - first] if first <= place < first + len(answer) else 0

    def _end(self) -> None:
        """The chip is no longer selected."""
        if self.sent[:1] == [0x01] and self.writable and self.quad:
            self.writing = [b"\1" + self.status[1:]] * 3 + [bytes(self.sent[1:3])]  # busy at first
        self.writable = self.sent[:1] == [0x06]
        self.sent = []


class Flash(Winbond):
    """Such a chip at the RP2040's serial interface."""

    def __init__(self, content: bytes, sram: bytearray | memoryview, quad: bool = True):
        super().__init__(content, sram, quad)
        self.registers = dict(SERIAL)
        self.continuous = False
        self.received: list[int] = []
        self.pending: tuple[int, int] | None = None  # first byte and number of words
        self.streamed = 0  # words so far

    def read(self, address: int) -> int:
        """A register of the interface or of the DMA."""
        if address == STATUS:
            return 6 | (8 if self.received else 0)
        if address == DATA:
            if not self.received:
                raise FlashError("the flash interface is read while it is empty")
            value = self.received.pop(0)
            if not self.received and self.registers[CTRLR0] == COMMAND_FRAMES:
                self._end()
            elif not self.received:
                self.sent = []
            return value
        if address == CONTROL and self.pending:
            self._complete(*self.pending)
        value = self.registers.get(address, 0)
        inverted = address == SNIFF_DATA and self.registers.get(SNIFF_CONTROL, 0) >> 10 & 3 == 3
        return value ^ 0xFFFFFFFF if inverted else value

    def write(self, address: int, value: int) -> None:
        """Change a register, or send a word."""
        if address != DATA:
            if self.pending:
                raise FlashError("the DMA is changed during a transfer")
            self.registers[address] = value
            return
        self.sent.append(value)
        frames, spi = self.registers[CTRLR0], self.registers[SPI_CTRLR0]
        if frames == COMMAND_FRAMES:
            self.received.append(self._answer())
        elif (frames, spi) == (QUAD_FRAMES, EXPECTING_COMMAND):
            if len(self.sent) == 2:
                works = self.quad and bool(self.status[1] & 2)
                self.continuous = works and self.sent[0] == 0xEB and value & 255 == MODE
                self.received.append(0)
        elif (frames, spi) == (QUAD_FRAMES, CONTINUOUS):
            self._address(value)
        else:
            raise FlashError("a transfer in a mode that is not emulated")

    @property
    def readable(self) -> bool:
        """Whether memory-mapped reads give what the flash has."""
        frames, spi = self.registers[CTRLR0], self.registers[SPI_CTRLR0]
        mode = (QUAD_FRAMES, CONTINUOUS) if self.continuous else (SERIAL[CTRLR0], SERIAL[SPI_CTRLR0])
        return (frames, spi) == mode and not self.pending and not self.registers[CTRLR1]

    def _address(self, value: int) -> None:
        self.sent = []
        if value & 255 != MODE or not self.continuous:
            self.continuous = False
            self.received.append(0)
            return
        words = self.registers[CTRLR1] + 1
        waiting = self.registers.get(DMACR, 0) & 1 and self.registers.get(CONTROL, 0) & ON
        if not waiting or self.registers.get(COUNT) != words or self.pending:
            raise FlashError("no DMA waits for the flash")
        self.pending = value >> 8, words
        if self.registers[CONTROL] & ONWARD:
            self._store(b"\xff" * (4 * words))  # until it has come

    def _store(self, data: bytes) -> None:
        start = self.registers[WRITE_ADDR] - 0x20000000
        self.sram[start : start + len(data)] = data

    def _complete(self, start: int, words: int) -> None:
        control, data = self.registers[CONTROL], self.content[start : start + 4 * words]
        if control & ONWARD and control & SWAPPED:
            self._store(data)
        if control & SNIFFED:
            self.registers[SNIFF_DATA] = crc32(data, self.registers[SNIFF_DATA] ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
        self.streamed += words
        self.pending = None
