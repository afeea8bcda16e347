"""Counts the instructions that MicroPython takes for a token of exported models, with and without machine code.

    python tests/exporters/rp2040/machine_code.py runs/tinystories/NAME/exports/rp2040 ...

MicroPython's port for 32-bit ARM (Debian 13's package, fetched from Debian's mirror) runs on qemu-arm (Debian's
qemu-user), and a plugin (cc) counts. Its loops are Thumb-2 code, of which the RP2040 knows the 16-bit part, so a chip
needs somewhat more instructions. Tokens are compared with those in the export's manifest. tokens/s at 125 MHz are
estimated with CYCLES per instruction: on a Cortex-M0+ an operation takes 1, a load, a store or a taken branch 2.
"""

import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

MIRROR = "http://deb.debian.org/debian"
PACKAGES = ("micropython", "libc6", "libffi8", "libmbedcrypto16", "libmbedtls21", "libmbedx509-7", "libgcc-s1")
TOOLS = {"qemu-arm": "qemu-user", "cc": "gcc", "dpkg": "dpkg"}
CYCLES = 1.5
LENGTHS = 40, 60  # tokens of two stories; what the second takes longer is the cost of the tokens between them
COUNTER = """
#include <stdint.h>
#include <stdio.h>
#include <stddef.h>
typedef uint64_t id;
struct qemu_plugin_tb;
void qemu_plugin_register_vcpu_tb_trans_cb(id, void (*)(id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
void qemu_plugin_register_atexit_cb(id, void (*)(id, void *), void *);
int qemu_plugin_version = 1;
static uint64_t count;
static void translated(id self, struct qemu_plugin_tb *block) {
  qemu_plugin_register_vcpu_tb_exec_inline(block, 0, &count, qemu_plugin_tb_n_insns(block));
}
static void ended(id self, void *unused) { fprintf(stderr, "%llu instructions\\n", (unsigned long long)count); }
int qemu_plugin_install(id self, const void *info, int argc, char **argv) {
  qemu_plugin_register_vcpu_tb_trans_cb(self, translated);
  qemu_plugin_register_atexit_cb(self, ended, NULL);
  return 0;
}
"""
STORY = """
import json, gc, sys
gc.collect()
empty = gc.mem_alloc()
import inference
gc.collect()
story = inference.Story(MODEL, VOCABULARY)
gc.collect()
print(json.dumps([gc.mem_alloc() - empty, list(story.model.tokens(IDS, LENGTH))]))
"""


def fetch(folder: Path) -> None:
    """Unpack MicroPython for ARM and its libraries into a folder."""
    with urllib.request.urlopen(f"{MIRROR}/dists/trixie/main/binary-armhf/Packages.xz") as answer:
        index = lzma.decompress(answer.read()).decode()
    for package in PACKAGES:
        entry = re.search(rf"^Package: {re.escape(package)}\n(?:.+\n)*?Filename: (.+)$", index, re.MULTILINE)
        if entry is None:
            raise SystemExit(f"{MIRROR} has no package {package} for Debian 13 on armhf")
        archive = folder / f"{package}.deb"
        urllib.request.urlretrieve(f"{MIRROR}/{entry[1]}", archive)
        subprocess.run(["dpkg", "-x", archive, folder / "root"], check=True)


class Emulator:
    """MicroPython on an emulated ARM processor that counts its instructions."""

    def __init__(self, folder: Path):
        """Build what is needed in an empty folder."""
        for tool, package in TOOLS.items():
            if not shutil.which(tool):
                raise SystemExit(f"{tool} is not installed; with Debian: apt-get install {package}")
        fetch(folder)
        (folder / "count.c").write_text(COUNTER)
        plugin, libraries = folder / "count.so", folder / "root/usr/lib/arm-linux-gnueabihf"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", plugin, folder / "count.c"], check=True)
        loader = [libraries / "ld-linux-armhf.so.3", "--library-path", libraries, folder / "root/usr/bin/micropython"]
        self.command = ["qemu-arm", "-plugin", plugin, *loader, "-X", "heapsize=1m"]

    def run(self, folder: Path, code: str) -> tuple[str, int]:
        """(output of `code` among the files of a folder, number of instructions)."""
        (folder / "measured.py").write_text(code)
        done = subprocess.run(
            [*self.command, "measured.py"], cwd=folder, capture_output=True, text=True, check=False, env=os.environ
        )
        counted = re.search(r"(\d+) instructions", done.stderr)
        if done.returncode or counted is None:
            raise SystemExit(f"MicroPython failed in {folder}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
        return done.stdout, int(counted[1])


def per_token(emulator: Emulator, folder: Path, expected: dict) -> tuple[float, int]:
    """(instructions per token at a full cache, bytes of heap of code and story)."""
    config = json.loads(next(folder.glob("config_*p.json")).read_text())
    counts = []
    for length in LENGTHS:
        values = {"MODEL": config["files"]["model"], "VOCABULARY": config["files"]["vocabulary"]}
        values |= {"IDS": expected["prompt_tokens"], "LENGTH": length}
        code = re.sub("|".join(values), lambda word, values=values: repr(values[word[0]]), STORY)
        output, count = emulator.run(folder, code)
        heap, tokens = json.loads(output)
        known = expected["tokens"][:length]
        if tokens[: len(known)] != known or len(tokens) < length:
            raise SystemExit(f"{folder}: the story differs from the manifest's, or ends before {length} tokens")
        counts.append(count)
    return (counts[1] - counts[0]) / (LENGTHS[1] - LENGTHS[0]), heap


def main(exports: list[str]) -> None:
    """Print a row for each export."""
    with tempfile.TemporaryDirectory() as scratch:
        emulator = Emulator(Path(scratch))
        print(
            "export: instructions/token in bytecode, in machine code; times faster; tokens/s at 125 MHz; bytes of heap"
        )
        for number, export in enumerate(map(Path, exports)):
            native, plain = (Path(scratch) / f"{kind}{number}" for kind in ("native", "plain"))
            shutil.copytree(export, native)
            shutil.copytree(export, plain)
            kernels = plain / "inference_kernels.py"
            kernels.write_text(kernels.read_text().replace("@micropython.viper", ""))
            expected = json.loads((export / "manifest.json").read_text())["expected"]
            slow, _ = per_token(emulator, plain, expected)
            fast, heap = per_token(emulator, native, expected)
            speed = 125e6 / (fast * CYCLES)
            print(f"{export}: {slow:,.0f}, {fast:,.0f}; {slow / fast:.1f}; {speed:.1f}; {heap:,}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
