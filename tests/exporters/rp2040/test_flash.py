"""Weights that stay in flash: the chip streams them for each token, whatever the flash can do, and chooses as ever."""

import random
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from exporters import to_rp2040
from exporters.rp2040 import layout, uf2
from exporters.rp2040.settings import Settings
from models.stories import rp2040
from models.stories.config import PRESETS
from models.stories.integer_transformer import Sampler
from tests.exporters.rp2040 import files, read_back
from tests.exporters.rp2040.chip import Chip, ChipError
from tests.exporters.rp2040.test_boot import story_uf2
from tests.models.tiny import trained_tokenizer

FOLDER = Path(__file__).parent
PROMPT, TOKENS = "The cat", 6
LINES = ["/ids on", f"/tokens {TOKENS}", PROMPT, "/temperature 0", PROMPT]
LARGE = {"width": 128, "heads": 4, "layers": 2, "hidden": 384, "context": 4, "memory": (16, 64)}


@cache
def large() -> tuple[bytes, list[str]]:
    """(UF2 file of a model that does not fit SRAM, what it chooses by chance and greedily)."""
    integers = files.quantized(-50.0, **LARGE)
    assert rp2040.streams(integers.config)
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    ids = read_back.Vocabulary(vocabulary).encode(PROMPT.encode())
    told = [integers.decode(ids, TOKENS, choose) for choose in (Sampler(integers, 205, 5, 1), None)]
    runtime, settings = to_rp2040.RUNTIME.read_bytes(), Settings(top_k=5, seed=1)
    data = uf2.join(runtime, settings.pack(), layout.pack_model(integers, vocabulary), vocabulary)
    return data, [" ".join(map(str, tokens)) for tokens in told]


def test_a_model_of_more_bytes_than_a_transfer_has_is_taken_and_flash_can_be_read_after_each_story():
    data, _ = large()
    assert len(data) // 2 > 4 * 65536 + 0x10000
    chip = Chip(data, ["/tokens 1", ""])
    chip.run(60)
    assert "slowly" not in chip.text
    assert chip.interface.streamed
    assert chip.interface.readable


@pytest.mark.slow
@pytest.mark.parametrize(("quad", "skew"), [(True, None), (False, None), (True, 1)])
def test_a_model_larger_than_sram_tells_the_story_of_the_reference(quad, skew):
    data, told = large()
    chip = Chip(data, LINES, skew and random.Random(skew), quad=quad)
    chip.run(120)
    assert re.findall(r"^\d+(?: \d+)+$", chip.text, re.MULTILINE) == told
    words = rp2040.model_bytes(files.quantized(-50.0, **LARGE).config) // 4
    assert (chip.interface.streamed > TOKENS * words) == quad


@pytest.mark.slow
@pytest.mark.parametrize("quad", [True, False])
def test_a_damaged_model_is_refused_by_its_sum(quad):
    data = bytearray(story_uf2())
    data[512 * 258 + 40] ^= 1  # the third page of the model
    with pytest.raises(ChipError, match="the model file is damaged: its CRC differs"):
        Chip(bytes(data), [], quad=quad).run(0.5)


@pytest.mark.slow
def test_the_reader_is_as_fast_as_computed_and_its_story_is_that_of_the_reference(tmp_path):
    """The full model has six layers and a context of 128, which would take the emulator minutes."""
    sizes = {**vars(PRESETS["rp2040-reader"]), "layers": 2, "context": 8, "vocabulary": 32}
    integers = files.quantized(-50.0, **{name: sizes[name] for name in (*LARGE, "vocabulary")})
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    path = tmp_path / "story.uf2"
    model = layout.pack_model(integers, vocabulary)
    path.write_bytes(uf2.join(to_rp2040.RUNTIME.read_bytes(), Settings(temperature=0).pack(), model, vocabulary))
    command = ["node", str(FOLDER / "run.mjs"), path, "--seconds", "100", "--charge", "--contend"]
    lines = ["/ids on", "/tokens 10", "The", "/sram"]
    done = subprocess.run([*command, *lines], capture_output=True, text=True, check=True)
    ids = read_back.Vocabulary(vocabulary).encode(b"The")
    assert " ".join(map(str, integers.decode(ids, 10))) in done.stdout
    cycles = int(re.findall(r"(\d+) cycles/token", done.stdout)[0])
    assert rp2040.cycles_per_token(integers.config) == pytest.approx(cycles, rel=0.1)
    assert f"arena {rp2040.arena_bytes(integers.config)}," in done.stdout
    assert rp2040.CLOCK_HZ / rp2040.cycles_per_token(PRESETS["rp2040-reader"]) >= 15
