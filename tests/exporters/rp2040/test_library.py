"""The library in C that `--format c` writes: compiled here and for ARM, and run here and on an emulated Cortex-M33."""

import re
import struct
import subprocess
from functools import cache

import numpy as np
import pytest

from exporters import __main__ as exporters
from exporters.rp2040 import layout
from exporters.rp2040.settings import Settings
from models import io
from models.stories import rp2040
from models.stories.integer_transformer import Sampler
from tests.exporters.rp2040 import read_back
from tests.exporters.rp2040.files import SHAPES, quantized
from tests.exporters.rp2040.m33 import COMPILE, M33, Program
from tests.exporters.rp2040.test_readers import PROMPTS
from tests.models.tiny import make, trained_tokenizer

TOKENS = 8
# Of every kind, one with heads of 4 channels, and one whose matrices stay in the file.
BUILT = {
    **{name: (SHAPES[name], False) for name in ("head size 2", "head size 6", "four tables")},
    "all at once": ({"width": 36, "heads": 3, "hidden": 52, "context": 16, "memory": (64, 32), "counts": 100}, False),
    "in the file": (SHAPES["wide"], True),
}


@cache
def built(shape: str) -> tuple[dict[str, bytes], list[tuple[str, list[int], list[int]]]]:
    """(the library's files; prompts with the reference's likeliest and drawn tokens)."""
    sizes, streamed = BUILT[shape]
    integers = quantized(-50.0, **sizes)
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    read = read_back.Vocabulary(vocabulary)
    told = []
    for prompt in PROMPTS:
        ids = read.encode(prompt.encode())
        drawn = Sampler(integers, 205, 5, 3)
        told.append((prompt, list(integers.decode(ids, TOKENS)), list(integers.decode(ids, TOKENS, drawn))))
    arena = 20_000 if streamed else rp2040.arena_bytes(integers.config)
    packed = layout.pack_model(integers, vocabulary)
    return layout.library_files(packed, vocabulary, arena, integers.config.layers, Settings()), told


def write(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return sorted((folder / "src").glob("*.c"))


def test_the_library_holds_both_files_in_words_and_says_their_sizes_and_settings():
    model, vocabulary = struct.pack("<27I", *range(2**32 - 27, 2**32)), struct.pack("<3I", 1, 0x1234, 0)
    told = Settings(temperature=0.3, top_k=6, tokens=70, seed=8)
    files = {name: data.decode() for name, data in layout.library_files(model, vocabulary, 123, 4, told).items()}
    for name, data in (("model", model), ("vocabulary", vocabulary)):
        lines = re.search(rf"story_{name}\[\] = {{ ([^}}]*) }}", files["src/model.c"])[1].split(",\n")
        rows = [[int(word, 16) for word in line.split(",")] for line in lines]
        assert b"".join(struct.pack(f"<{len(row)}I", *row) for row in rows) == data
        assert [len(row) for row in rows] == [12] * (len(data) // 48) + [len(data) // 4 % 12]
    header = files["src/model.h"]
    for name, value in {"ARENA": 123, "LAYERS": 4, "TOP_K": 6, "TOKENS": 70, "SEED": 8}.items():
        assert f"#define STORY_{name} {value}\n" in header
    assert "#define STORY_TEMPERATURE 77 /* in 256ths */\n" in header
    assert "story_model[27], story_vocabulary[3];" in header
    assert set(re.findall(r"#include (.*)", files["src/runtime.c"])) == {'"runtime.h"', "<stdint.h>"}
    assert {"src/runtime.h", "library.json", "library.properties"} <= files.keys()


@pytest.mark.slow
def test_the_command_adds_the_library_with_the_models_words(tmp_path):
    run = tmp_path / "tiny"
    io.save(make(tokenizer=trained_tokenizer(32)), run / "model" / "best")
    (run / "config.yaml").write_text("evaluation:\n  temperature: 0.5\n  top_k: 7\n")
    exporters.export("rp2040", run, "best", None, format="c")
    out = run / "exports" / "rp2040"
    source = (out / "story/src/model.c").read_text()
    for name, file in (("model", "model_32p.bin"), ("vocabulary", "vocab_32p.bin")):
        words = re.search(rf"story_{name}\[\] = {{ ([^}}]*) }}", source)[1].split(",")
        assert struct.pack(f"<{len(words)}I", *(int(word, 16) for word in words)) == (out / file).read_bytes()
    header = (out / "story/src/model.h").read_text()
    assert "#define STORY_TEMPERATURE 128 " in header
    assert "#define STORY_TOP_K 7\n" in header
    included = set(re.findall(r"#include (.*)", (out / "story/src/runtime.c").read_text()))
    assert included == {'"runtime.h"', "<stdint.h>"}
    assert {"library.json", "library.properties"} <= {path.name for path in (out / "story").iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["all at once", "in the file"])
def test_it_tells_the_references_stories_on_this_computer(tmp_path, shape):
    files, told = built(shape)
    sources = [*write(tmp_path, files), tmp_path / "examples/host/main.c"]
    words = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-I", tmp_path / "src", "-o", tmp_path / "tell"]
    subprocess.run([*words, *sources], check=True)
    for prompt, *expected in told:
        for settings, tokens in zip((("0", "0"), ("205", "5")), expected, strict=True):
            options = [tmp_path / "tell", prompt, *settings, str(TOKENS), "3", "--ids"]
            done = subprocess.run(options, check=True, capture_output=True, text=True)
            assert list(map(int, done.stdout.split())) == tokens


@pytest.mark.slow
@pytest.mark.parametrize("shape", BUILT)
def test_it_tells_the_references_stories_on_a_cortex_m33(tmp_path, shape):
    files, told = built(shape)
    program = Program(tmp_path, files)
    program.open()
    for prompt, likeliest, drawn in told:
        assert program.tell(prompt, TOKENS) == likeliest
        assert program.tell(prompt, TOKENS, 205, 5, 3) == drawn


@pytest.mark.slow
def test_a_weight_takes_a_cortex_m33_two_cycles_at_most_from_64_columns_on(tmp_path):
    """Shapes of presets, of a portion of a matrix and of a core's half; inputs as large as they get."""
    program = Program(tmp_path, built("head size 2")[0])
    random = np.random.default_rng(1)
    # (rows, columns, most cycles a weight)
    shapes = (384, 128, 2), (128, 384, 2), (192, 64, 2), (64, 48, 2.05), (32, 128, 2), (42, 96, 2), (6, 20, 9)
    for rows, columns, most in shapes:
        weights = random.integers(1, 256, (rows, columns))
        x, bias = random.integers(-32768, 32768, columns), random.integers(-(2**24), 2**24, rows)
        pairs = weights.reshape(rows // 2, 2, columns).transpose(0, 2, 1).astype(np.uint8)
        parts = [part.tobytes() for part in (pairs, bias.astype("<i4"), x.astype("<i4"))]
        out, spent = program.product(parts, rows, columns, int(x.sum()))
        assert (out == ((weights - 128) @ x + bias).astype("<i4")).all()
        assert spent["tt_matvec"] / (rows * columns) < most


ARDUINO = """#include <stddef.h>
#include <stdint.h>
struct Port {
    void begin(long);
    explicit operator bool() const;
    void print(const char *);
    void println(const char * = "");
    void write(const uint8_t *, size_t);
    int available();
    int read();
};
extern Port Serial;
extern uint32_t micros();
"""
PICO = {
    "stdio.h": "int getchar(void); int puts(const char *); int printf(const char *, ...); int putchar_raw(int);\n"
    "#define NULL ((void *)0)\n",
    "pico/stdlib.h": "#include <stdint.h>\nint stdio_init_all(void); int stdio_usb_connected(void);\n"
    "void sleep_ms(uint32_t); uint32_t time_us_32(void); int getchar_timeout_us(uint32_t);\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("processor", [["-mcpu=cortex-m0plus", "-Os"], M33])
def test_the_library_and_its_examples_compile_for_both_boards(tmp_path, processor):
    """With declarations of what the examples call; neither pico-sdk nor Arduino is here."""
    sources = write(tmp_path, built("head size 2")[0])
    write(tmp_path / "stubs", {name: text.encode() for name, text in PICO.items()})
    to = ["-c", "-o", tmp_path / "object.o", "-I", tmp_path / "src"]
    for source in sources:
        subprocess.run([*COMPILE, *processor, *to, source], check=True)
    pico = tmp_path / "examples/pico-sdk/main.c"
    subprocess.run([*COMPILE, *processor, *to, "-I", tmp_path / "stubs", pico], check=True)
    sketch = tmp_path / "sketch.cpp"
    sketch.write_text(ARDUINO + (tmp_path / "examples/Story/Story.ino").read_text())
    words = ["arm-none-eabi-g++", "-Wall", "-Wextra", "-Werror", "-mthumb", "-ffreestanding", *processor]
    subprocess.run([*words, *to, sketch], check=True)
