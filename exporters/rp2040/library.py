"""The model, its vocabulary and the runtime as a library in C, for programs of one's own with pico-sdk or Arduino."""

import re
import struct
from pathlib import Path

from exporters.rp2040.settings import Settings

FOLDER = Path(__file__).parent
LIBRARY, FIRMWARE = FOLDER / "library", FOLDER / "firmware"
# The arena holds parts of several types.
BEFORE = '#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC optimize("O2", "no-strict-aliasing")\n#endif\n'


def files(model: bytes, vocabulary: bytes, arena: int, layers: int, settings: Settings) -> dict[str, bytes]:
    """Return the library's files by their names; the runtime is one translation unit and its header."""
    numbers = {
        "ARENA": arena,
        "LAYERS": layers,
        "TEMPERATURE": round(256 * settings.temperature),
        "TOP_K": settings.top_k,
        "TOKENS": settings.tokens,
        "SEED": settings.seed,
    }
    arrays = {"model": model, "vocabulary": vocabulary}
    header = "#include <stdint.h>\n" + "".join(
        f"#ifndef STORY_{name}\n#define STORY_{name} {number}\n#endif\n" for name, number in numbers.items()
    )
    header += "".join(f"extern const uint32_t story_{name}[{len(data) // 4}];\n" for name, data in arrays.items())
    made = {
        "src/model.h": header,
        "src/model.c": '#include "model.h"\n' + "".join(_array(name, data) for name, data in arrays.items()),
        "src/runtime.h": _source("runtime.h"),
        "src/runtime.c": BEFORE + _whole(_source("kernels.c") + _source("runtime.c")),
    }
    fixed = {path.relative_to(LIBRARY).as_posix(): path.read_bytes() for path in LIBRARY.rglob("*.*") if path.is_file()}
    return fixed | {name: text.encode() for name, text in made.items()}


def _source(name: str) -> str:
    return (FIRMWARE / name).read_text()


def _whole(text: str) -> str:
    """The text of a source file with what it includes in its place, but for the header that the library has."""
    return re.sub(r'#include "(?!runtime\.h)([\w.]+)"\n', lambda found: _whole(_source(found[1])), text)


def _array(name: str, data: bytes) -> str:
    """Words, as both files consist of them and the runtime reads some in place."""
    words = [f"{word:#x}" for (word,) in struct.iter_unpack("<I", data)]
    lines = [",".join(words[at : at + 12]) for at in range(0, len(words), 12)]
    return f"const uint32_t story_{name}[{len(words)}] = {{\n" + ",\n".join(lines) + "};\n"
