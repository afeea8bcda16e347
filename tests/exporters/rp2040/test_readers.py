"""The readers of the files choose the same tokens, and the chip is as fast and small as documented.

By default the UF2 runs on the package unicorn. Slow tests add the host program and rp2040js, which counts
cycles; they fail if their tools (cc, node, `npm ci` in tests/exporters/rp2040) are missing.
"""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from exporters import to_rp2040
from exporters.rp2040.layout import pack_model, pack_vocabulary
from models import io
from models.stories import rp2040
from models.stories.config import PRESETS
from models.stories.integer_transformer import Sampler
from models.stories.quantization import quantize
from models.stories.tiny_transformer import TinyTransformer
from pipelines.workloads.tinystories import data
from pipelines.workloads.tinystories.generated_stories import generate
from pipelines.workloads.tinystories.tokenization import train_tokenizer
from tests.exporters.rp2040 import read_back
from tests.exporters.rp2040.c_reader import CReader
from tests.exporters.rp2040.chip import run

FOLDER = Path(__file__).parent
FIRMWARE = FOLDER.parents[2] / "exporters/rp2040/firmware"
TOKENS = 64
PROMPTS = [
    "",
    "Once upon a time",
    "One day, a small fox",
    "The",
    "Lily and Tom went to the park. They saw a big, red ball",
    "It was  dark.   Very dark",
    '"Hello," said the bear. "',
    "Mia",
    "a",
    "z z z z z",
    "He ran and ran and ran and ran and ran and ran and ran and ran and ran and ran and ran and ran and ran and ran",
    "1234 and 5",
    "What? No! Yes; (so) [it] {goes}",
    "There was a rabbit who lived near the river. Every morning it went",
    "THE END",
    "The king was sad because",
    "tail\tand tab",
    "Sam's dog didn't",
    "caf\u00e9 and \u20ac",
    "In the end, everybody was happy and they all went home to",
]
SOME = PROMPTS[::3]
# The host program reads every prompt and the package unicorn some; a chip whose cycles are counted takes a second for
# a few tokens.
PROMPTED = pytest.mark.parametrize(
    "prompts",
    [pytest.param(PROMPTS[4::12], marks=pytest.mark.slow), pytest.param(PROMPTS, marks=pytest.mark.exhaustive)],
    ids=["two", "all"],
)
# Most cycles per token of both cores at a full cache, and most bytes of SRAM with the stacks.
CEILINGS = {
    "rp2040-speed": (125_000_000 // 2700, 32 * 1024),
    "rp2040-optimized": (125_000_000 // 1400, 50 * 1024),
    "rp2040-quality": (125_000_000 // 530, 114 * 1024),
    "rp2040-story": (125_000_000 // 205, 213_000),
}


def untrained(preset):
    """A model with random weights, a memory, and stories that do not end."""
    sizes = PRESETS[preset]
    tokenizer = json.loads(train_tokenizer(generate(0, 60_000), sizes.vocabulary).to_str())
    torch.manual_seed(1)
    model = TinyTransformer(replace(sizes, tokenizer=tokenizer)).eval()
    with torch.no_grad():  # logits as far apart as a trained model's; and no story ends early
        model.embedding.weight.mul_(3)
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
        model.output_bias[0] = -30.0
    if model.memory is not None:
        stream = [0] + [token for text in generate(2, 60_000) for token in (*model.tokenizer.encode(text).ids, 0, 0)]
        tokens = np.array(stream[:-1])
        model.memory.count(tokens, data.numbers(tokens))
        model.memory.refit()
    return model


READ = [name for name in PRESETS if not rp2040.streams(PRESETS[name])]
RARE = {"rp2040-quality": pytest.mark.exhaustive}  # what it has alone are its sizes
SLOW = [pytest.param(name, marks=RARE.get(name, pytest.mark.slow)) for name in READ if name != "rp2040-speed"]


@pytest.fixture(scope="module", params=["rp2040-speed", *SLOW])
def exported(request, tmp_path_factory):
    """(preset, folder of an export, a function from prompts to the tokens that the reference chooses for each)."""
    folder = tmp_path_factory.mktemp(request.param)
    sizes = PRESETS[request.param]
    model = untrained(request.param)
    io.save(model, folder / "model/best")
    to_rp2040.export(folder, folder / "model/best", folder / "out")
    vocabulary = read_back.Vocabulary((folder / f"out/vocab_{sizes.vocabulary}p.bin").read_bytes())
    integers = quantize(model)

    @cache
    def chosen(prompt):
        tokens = list(integers.decode(vocabulary.encode(prompt.encode()), TOKENS))
        assert len(tokens) == TOKENS
        return tokens

    return request.param, folder / "out", lambda prompts: list(map(chosen, prompts))


def told(output):
    """The lines of ids in the output of the firmware."""
    return [list(map(int, line.split())) for line in re.findall(r"^(\d+(?: \d+)+) *$", output, re.MULTILINE)]


def test_the_firmware_chooses_as_the_reference_does_and_takes_the_memory_that_is_computed(exported):
    preset, folder, chosen = exported
    lines = ["/temperature 0", "/ids on", f"/tokens {TOKENS}", *SOME, "/sram"]
    output = run((folder / "story.uf2").read_bytes(), lines, timeout=200)
    assert told(output) == chosen(SOME)
    image, arena = map(int, re.findall(r"image (\d+), arena (\d+)", output)[-1])
    assert arena == rp2040.arena_bytes(PRESETS[preset])
    assert image <= rp2040.RUNTIME_SRAM_BYTES


@pytest.mark.slow
def test_the_host_program_chooses_as_the_reference_does(exported, tmp_path):
    preset, folder, chosen = exported
    assert shutil.which("cc"), "apt-get install gcc make"
    subprocess.run(["make", "-C", FIRMWARE, f"BUILD={tmp_path}", "host"], check=True, stdout=subprocess.DEVNULL)
    size = PRESETS[preset].vocabulary
    files = [folder / f"model_{size}p.bin", folder / f"vocab_{size}p.bin"]
    lines = "".join(prompt.replace("\t", "\\t") + "\n" for prompt in PROMPTS)
    command = [tmp_path / "host", *files, "--tokens", str(TOKENS), "--ids"]
    for options in ([], ["--stream"]):  # with it, `rp2040-story` leaves its matrices in the file
        done = subprocess.run([*command, *options], input=lines, capture_output=True, text=True, check=True)
        assert [list(map(int, line.split())) for line in done.stdout.splitlines()] == chosen(PROMPTS)


@pytest.mark.slow
def test_the_preset_that_a_chip_streams_from_flash_chooses_as_the_reference_does():
    integers = quantize(untrained("rp2040-reader"))
    assert rp2040.streams(integers.config)
    vocabulary = pack_vocabulary(integers.config.tokenizer)
    reader = CReader(pack_model(integers, vocabulary), vocabulary, streamed=True)
    for prompt in PROMPTS:
        ids = reader.encode(prompt.encode())
        assert ids == read_back.Vocabulary(vocabulary).encode(prompt.encode())
        assert list(reader.tokens(ids, TOKENS)) == list(integers.decode(ids, TOKENS))
    drawn = Sampler(integers, 205, 40, 3)
    assert list(reader.tokens(ids, TOKENS, 205, 40, 3)) == list(integers.decode(ids, TOKENS, drawn))


@PROMPTED
def test_the_chip_chooses_as_the_reference_does_and_keeps_its_speed_and_size(exported, prompts):
    preset, folder, chosen = exported
    assert shutil.which("node"), "apt-get install nodejs npm"
    assert (FOLDER / "node_modules/rp2040js").is_dir(), f"npm ci --prefix {FOLDER}"
    uf2 = str(folder / "story.uf2")
    command = ["node", str(FOLDER / "run.mjs"), uf2, "--seconds", "500", "--cycles", "40000000000", "--charge"]
    # At last stories of twice the context: in its second half the cache is full.
    lines = [
        "/temperature 0",
        "/ids on",
        f"/tokens {TOKENS}",
        *prompts,
        f"/tokens {2 * PRESETS[preset].context}",
        "",
        "/temperature 0.8",
        "/seed 3",
        "",
        "/sram",
    ]
    done = subprocess.run([*command, *lines], capture_output=True, text=True, check=True)
    assert told(done.stdout)[: len(prompts)] == chosen(prompts)
    *cycles, sampled = [int(found) for found in re.findall(r"(\d+) cycles/token", done.stdout)]
    sram = int(re.findall(r"total (\d+) bytes", done.stdout)[-1])
    most_cycles, most_bytes = CEILINGS[preset]
    print(f"{preset}: {cycles} cycles/token, {sampled} drawn from 40, {sram} bytes of SRAM")
    assert max(cycles) <= most_cycles
    assert sampled <= cycles[-1] / 0.9
    booted = int(re.findall(r"first prompt after (\d+) cycles", done.stderr)[0])
    assert booted <= 0.8 * rp2040.CLOCK_HZ  # crystal and code, at the clock of the ring oscillator, take 0.2 s more
    assert sram <= most_bytes
    assert rp2040.cycles_per_token(PRESETS[preset]) == pytest.approx(max(cycles), rel=0.1)
