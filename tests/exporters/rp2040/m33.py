"""The exported library on the Cortex-M33 of the package unicorn, and the cycles of its loops by a stated table."""

import re
import struct
import subprocess
from pathlib import Path

import numpy as np
from unicorn import UC_ARCH_ARM, UC_HOOK_BLOCK, UC_MODE_MCLASS, UC_MODE_THUMB, Uc
from unicorn.arm_const import (
    UC_ARM_REG_LR,
    UC_ARM_REG_PC,
    UC_ARM_REG_R0,
    UC_ARM_REG_R1,
    UC_ARM_REG_R2,
    UC_ARM_REG_R3,
    UC_ARM_REG_SP,
    UC_CPU_ARM_CORTEX_M33,
)

CROSS = "arm-none-eabi-"
COMPILE = [f"{CROSS}gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-mthumb", "-ffreestanding"]
M33 = ["-mcpu=cortex-m33", "-O2", "-fno-tree-loop-distribute-patterns"]
REGISTERS = UC_ARM_REG_R0, UC_ARM_REG_R1, UC_ARM_REG_R2, UC_ARM_REG_R3
BASE, SIZE, STACK, RETURN = 0x20000000, 16 << 20, 0x20FF0000, 0x20FF8000
TEXT = 0x20FE0000  # where a prompt is put
HARNESS = """
#include "story.h"
uint16_t ids[4096];
static int keep(uint32_t token, const uint8_t *bytes, size_t size, void *where) {
    (void)bytes, (void)size;
    uint32_t *count = where;
    ids[(*count)++] = (uint16_t)token;
    return 1;
}
uint32_t tell(const char *prompt, const struct story_settings *settings);
uint32_t tell(const char *prompt, const struct story_settings *settings) {
    uint32_t count = 0;
    return story_tell(prompt, settings, keep, &count);
}
"""


def cost(mnemonic: str, operands: str) -> int:
    """Cycles of an instruction but for a branch taken, which costs TAKEN more.

    Arm publishes no table for the Cortex-M33. These are meant to be too many rather than too few: no two instructions
    are issued together, every load or store waits, and n registers of one take n + 1.
    """
    if mnemonic.startswith(("ldm", "stm", "push", "pop")):
        registers = operands[operands.index("{") :]
        spans = [(int(b) - int(a)) if a and b else 0 for a, b in re.findall(r"r(\d+)-r(\d+)", registers)]
        return 1 + registers.count(",") + 1 + sum(spans)
    if mnemonic.startswith(("ldrd", "strd")):
        return 3
    if mnemonic.startswith(("ldr", "str")):
        return 2
    if mnemonic.startswith(("udiv", "sdiv")):
        return 12
    return 1


TAKEN = 2


class Program:
    """A library of these files, compiled and loaded."""

    def __init__(self, folder: Path, files: dict[str, bytes]):
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        (folder / "harness.c").write_text(HARNESS)
        elf, image = folder / "program.elf", folder / "program.bin"
        sources = [folder / "harness.c", *sorted((folder / "src").glob("*.c"))]
        link = ["-nostdlib", f"-Wl,-Ttext={BASE:#x},-e,tell", "-o", elf, *sources, "-lgcc"]
        subprocess.run([*COMPILE, *M33, "-I", folder / "src", *link], check=True)
        subprocess.run([f"{CROSS}objcopy", "-O", "binary", elf, image], check=True)
        names = subprocess.run([f"{CROSS}nm", elf], check=True, capture_output=True, text=True).stdout
        self.places = {name: int(place, 16) for place, _, name in re.findall(r"(\w+) (\w) (\w+)", names)}
        listing = subprocess.run([f"{CROSS}objdump", "-d", elf], check=True, capture_output=True, text=True).stdout
        lines = re.findall(r"^(\w+):\t[\w ]+\t(\S+)\t?(.*)$", listing, re.MULTILINE)
        self.cycles = {int(place, 16): cost(mnemonic, operands) for place, mnemonic, operands in lines}
        functions = re.findall(r"^(\w+) <(\w+)>:$", listing, re.MULTILINE)
        self.functions = sorted((int(place, 16), name) for place, name in functions)
        self.machine = machine = Uc(UC_ARCH_ARM, UC_MODE_THUMB | UC_MODE_MCLASS)
        machine.ctl_set_cpu_model(UC_CPU_ARM_CORTEX_M33)
        machine.mem_map(BASE, SIZE)
        machine.mem_write(BASE, image.read_bytes())

    def call(self, name: str, *given: int, stack: int = STACK) -> int:
        """Run a function to its end and return what it returns."""
        for register, value in zip(REGISTERS, given, strict=False):
            self.machine.reg_write(register, value)
        self.machine.reg_write(UC_ARM_REG_SP, stack)
        self.machine.reg_write(UC_ARM_REG_LR, RETURN | 1)
        self.machine.emu_start(self.places[name] | 1, RETURN)
        assert self.machine.reg_read(UC_ARM_REG_PC) == RETURN
        return self.machine.reg_read(UC_ARM_REG_R0)

    def open(self) -> None:
        reason = self.call("story_open")
        assert reason == 0, bytes(self.machine.mem_read(reason, 80))

    def tell(self, prompt: str, tokens: int, temperature: int = 0, top_k: int = 0, seed: int = 1) -> list[int]:
        """The tokens of a story."""
        self.machine.mem_write(TEXT, prompt.encode() + b"\0")
        self.machine.mem_write(TEXT + 1024, struct.pack("<HHII", temperature, top_k, tokens, seed))
        count = self.call("tell", TEXT, TEXT + 1024)
        return list(struct.unpack(f"<{count}H", self.machine.mem_read(self.places["ids"], 2 * count)))

    def product(self, parts: list[bytes], rows: int, columns: int, total: int) -> tuple[np.ndarray, dict[str, int]]:
        """A matrix times a vector by the library's loop: (sums, cycles by function).

        `parts` are weights, biases and the vector.
        """
        places = [BASE + SIZE // 2 + (i << 18) for i in range(4)]
        for place, part in zip(places, parts, strict=False):
            self.machine.mem_write(place, part)
        self.machine.mem_write(STACK - 12, struct.pack("<IIi", rows, columns, total))
        given = [places[3], places[0], places[1], places[2]]
        spent = self.count("tt_matvec", *given, stack=STACK - 12)
        return np.frombuffer(bytes(self.machine.mem_read(places[3], 4 * rows)), "<i4"), spent

    def count(self, name: str, *given: int, stack: int = STACK) -> dict[str, int]:
        """Cycles by function, of one call."""
        spent: dict[str, int] = {}
        starts = [place for place, _ in self.functions]
        expected = [0]
        known: dict[tuple[int, int], tuple[str, int]] = {}

        def block(machine: Uc, address: int, size: int, _: object) -> None:
            if (address, size) not in known:
                name = self.functions[max(i for i, start in enumerate(starts) if start <= address)][1]
                inside = range(address, address + size, 2)
                known[address, size] = name, sum(self.cycles.get(place, 0) for place in inside)
            name, cycles = known[address, size]
            spent[name] = spent.get(name, 0) + cycles + (TAKEN if address != expected[0] else 0)
            expected[0] = address + size

        self.machine.ctl_flush_tb()  # what was translated before would not be counted
        hook = self.machine.hook_add(UC_HOOK_BLOCK, block)
        self.call(name, *given, stack=stack)
        self.machine.hook_del(hook)
        return spent
