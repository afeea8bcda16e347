"""The parts of an RP2040 that the firmware needs, on the Cortex-M0 of the package unicorn: no toolchain, no node.

python tests/exporters/rp2040/chip.py story.uf2 "/temperature 0.8" "Once upon a time"
"""

import struct
import sys
import time
from pathlib import Path

from unicorn import UC_ARCH_ARM, UC_HOOK_MEM_INVALID, UC_MODE_MCLASS, UC_MODE_THUMB, Uc, UcError
from unicorn.arm_const import UC_ARM_REG_LR, UC_ARM_REG_PC, UC_ARM_REG_SP, UC_CPU_ARM_CORTEX_M0

FLASH, FLASH_BYTES = 0x10000000, 2 * 1024 * 1024
SRAM, SRAM_BYTES = 0x20000000, 264 * 1024
STAGE2 = 0x20041F00  # where the boot ROM copies the second stage
PROMPT = b"\n> "

UART_DATA, UART_FLAGS = 0x40034000, 0x40034018
RECEIVE_EMPTY, TRANSMIT_EMPTY = 1 << 4, 1 << 7
DIVIDEND, DIVISOR, QUOTIENT, REMAINDER = 0xD0000060, 0xD0000064, 0xD0000070, 0xD0000074
SYSTICK_VALUE = 0xE000E018
READY = {  # bits that the firmware waits for at boot: crystal stable, clocks selected, out of reset, PLL locked
    0x40024004: 1 << 31,
    0x40008038: 1 << 2,
    0x40008044: 3,
    0x4000C008: 0xFFFFFFFF,
    0x40028000: 1 << 31,
}
PERIPHERALS = ((0x18000000, 0x1000), (0x40000000, 0x80000), (0xD0000000, 0x1000), (0xE000E000, 0x1000))


class ChipError(Exception):
    """The firmware did something forbidden, or did not finish. The message ends with its output so far."""


def run(uf2: bytes, lines: list[str], timeout: float = 60) -> str:
    """Return the output of the UART from boot to the prompt after the last of `lines`.

    Each line is typed when a prompt appears. Raises ValueError for a UF2 that the boot ROM would not accept or start,
    ChipError if the firmware accesses addresses that do not exist, halts, or takes more than `timeout` seconds.
    """
    chip = _Chip(lines)
    image = read_uf2(uf2)
    _check_stage2(image)
    chip.machine.mem_write(FLASH, image)
    chip.machine.mem_write(STAGE2, image[:256])
    chip.machine.reg_write(UC_ARM_REG_SP, STAGE2)
    chip.machine.reg_write(UC_ARM_REG_LR, 0)
    chip.run(STAGE2, timeout)
    return chip.output.decode("utf-8", "replace").replace("\r\n", "\n")


def read_uf2(uf2: bytes) -> bytes:
    """The 2 MB of flash, erased where the UF2 has no block."""
    if not uf2 or len(uf2) % 512:
        raise ValueError(f"a UF2 is a multiple of 512 bytes (given {len(uf2)})")
    flash = bytearray(b"\xff" * FLASH_BYTES)
    for at in range(0, len(uf2), 512):
        first, second, _flags, address, size, number, count, family = struct.unpack_from("<8I", uf2, at)
        if (first, second, *struct.unpack_from("<I", uf2, at + 508)) != (0x0A324655, 0x9E5D5157, 0x0AB16F30):
            raise ValueError(f"block {at // 512} has no UF2 signature")
        if family != 0xE48BFF56:
            raise ValueError(f"block {at // 512} is for the family {family:#x}, not for the RP2040")
        if (size, number, count) != (256, at // 512, len(uf2) // 512):
            raise ValueError(f"block {at // 512} has size {size}, number {number} of {count}")
        if not FLASH <= address <= FLASH + FLASH_BYTES - size:
            raise ValueError(f"block {at // 512} is for {address:#x}, outside of the flash")
        flash[address - FLASH : address - FLASH + size] = uf2[at + 32 : at + 32 + size]
    return bytes(flash)


def _check_stage2(flash: bytes) -> None:
    crc = 0xFFFFFFFF
    for byte in flash[:252]:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc >> 31 else 0)) & 0xFFFFFFFF
    if crc != int.from_bytes(flash[252:256], "little"):
        raise ValueError("the checksum of the second stage of the boot is wrong: the boot ROM would not start it")


class _Chip:
    """Memory, the registers of peripherals, and a person who types a line at every prompt."""

    def __init__(self, lines: list[str]):
        self.machine = machine = Uc(UC_ARCH_ARM, UC_MODE_THUMB | UC_MODE_MCLASS)
        machine.ctl_set_cpu_model(UC_CPU_ARM_CORTEX_M0)
        machine.mem_map(FLASH, FLASH_BYTES, 5)  # read and execute
        machine.mem_map(SRAM, SRAM_BYTES)
        for base, size in PERIPHERALS:
            machine.mmio_map(base, size, self._read, base, self._write, base)
        machine.hook_add(UC_HOOK_MEM_INVALID, self._invalid)
        self.lines, self.typed, self.output = list(lines), bytearray(), bytearray()
        self.dividend, self.divisor = 0, 1
        self.answered = 0  # length of the output when the last line was typed
        self.problem: str | None = None
        self.finished = False

    def run(self, start: int, timeout: float) -> None:
        began = time.monotonic()
        try:
            self.machine.emu_start(start | 1, 0, timeout=int(timeout * 1e6))
        except UcError as error:
            self.problem = self.problem or str(error)
        if self.finished:
            return
        seconds = time.monotonic() - began
        problem = self.problem or (f"no prompt after {timeout} s" if seconds >= timeout else "the firmware has halted")
        place = self.machine.reg_read(UC_ARM_REG_PC)
        raise ChipError(f"{problem}, at {place:#x}; output: {self.output.decode('utf-8', 'replace')!r}")

    def _read(self, machine: Uc, offset: int, size: int, base: int) -> int:
        address = base + offset
        if address == UART_FLAGS:
            # A line already typed leaves its prompt at the end until it is echoed.
            if not self.typed and len(self.output) > self.answered and self.output.endswith(PROMPT):
                self._type()
            return TRANSMIT_EMPTY | (0 if self.typed else RECEIVE_EMPTY)
        if address == UART_DATA:
            return self.typed.pop(0) if self.typed else 0
        if address == QUOTIENT:
            return self.dividend // self.divisor if self.divisor else 0xFFFFFFFF
        if address == REMAINDER:
            return self.dividend % self.divisor if self.divisor else self.dividend
        if address == SYSTICK_VALUE:
            return 0
        if address in READY:
            return READY[address]
        self._stop(f"reads the register {address:#x}, which is not emulated")
        return 0

    def _write(self, machine: Uc, offset: int, size: int, value: int, base: int) -> None:
        address = base + offset
        if address == UART_DATA:
            self.output.append(value & 255)
        elif address == DIVIDEND:
            self.dividend = value
        elif address == DIVISOR:
            self.divisor = value

    def _type(self) -> None:
        self.answered = len(self.output)
        if self.lines:
            self.typed += self.lines.pop(0).encode() + b"\r"
        else:
            self.finished = True
            self.machine.emu_stop()

    def _invalid(self, machine: Uc, access: int, address: int, size: int, value: int, _: object) -> bool:
        self.problem = self.problem or f"touches {address:#x}, where nothing is"
        return False

    def _stop(self, problem: str) -> None:
        self.problem = self.problem or problem
        self.machine.emu_stop()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(f"usage: python {sys.argv[0]} story.uf2 [LINE...]; /help lists the settings")
    print(run(Path(sys.argv[1]).read_bytes(), sys.argv[2:] or [""]).removesuffix("> "))
