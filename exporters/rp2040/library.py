"""The model, its vocabulary and the runtime as a library in C, for programs of one's own with pico-sdk or Arduino."""

import re
import struct
from pathlib import Path

from exporters.rp2040.settings import Settings

LIBRARY = Path(__file__).parent / "library"
FIRMWARE = LIBRARY.with_name("firmware")
# The arena holds parts of several types.
BEFORE = '#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC optimize("O2", "no-strict-aliasing")\n#endif\n'


def files(model: bytes, vocabulary: bytes, arena: int, layers: int, told: Settings) -> dict[str, bytes]:
    """Return the library's files by their names; the runtime is one translation unit and its header."""
    made = {path.relative_to(LIBRARY).as_posix(): path.read_text() for path in LIBRARY.rglob("*.*") if path.is_file()}
    words = {"model_words": len(model) // 4, "vocabulary_words": len(vocabulary) // 4}
    sizes = {"arena": arena, "layers": layers, "temperature": round(256 * told.temperature), "told": told}
    made["src/model.h"] = made["src/model.h"].format(**words, **sizes)
    made["src/model.c"] = made["src/model.c"].format(model=_words(model), vocabulary=_words(vocabulary))
    made["src/runtime.h"] = (FIRMWARE / "runtime.h").read_text()
    made["src/runtime.c"] = BEFORE + _whole("kernels.c") + _whole("runtime.c")
    return {name: text.encode() for name, text in made.items()}


def _whole(name: str) -> str:
    """The text of a source file with what it includes in its place, but for the header that the library has."""
    text = (FIRMWARE / name).read_text()
    return re.sub(r'#include "(?!runtime\.h)([\w.]+)"\n', lambda found: _whole(found[1]), text)


def _words(data: bytes) -> str:
    words = [f"{word:#x}" for (word,) in struct.iter_unpack("<I", data)]
    return ",\n".join(",".join(words[at : at + 12]) for at in range(0, len(words), 12))
