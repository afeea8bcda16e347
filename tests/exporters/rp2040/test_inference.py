"""inference.py against the reference: on this computer, and in MicroPython."""

import ast
import importlib.util
import io
import json
import shutil
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.rp2040 import inference, layout
from models.integer_transformer import IntegerTransformer, Sampler, quantize
from models.tiny_transformer import END
from tests.models.tiny import make, trained_tokenizer

HERE = Path(__file__).parent
SOURCE = Path(inference.__file__)
PROMPTS = ["", "The cat sat on", "A dog met 12 cats. The dog", "é <unk>\n\n"]
SHAPES = {
    "head size 1": {"heads": 8},
    "head size 2": {"heads": 4},
    "head size 8": {"heads": 1, "layers": 1},
    "head size 6": {"width": 12, "heads": 2, "hidden": 20, "layers": 3},
    "context 2": {"context": 2},
    "context longer than the text": {"context": 200},
    "wide": {"width": 32, "heads": 4, "hidden": 64, "context": 16},
}


def quantized(end: float, **sizes: int) -> IntegerTransformer:
    """A model in integers, with a bias of `end` for the end of the story."""
    model = make(**sizes)
    with torch.no_grad():
        model.output_bias[END] = end
    return quantize(model)


def written(folder: Path, **sizes: int) -> tuple[IntegerTransformer, Path, Path]:
    """A model whose stories do not end, and the paths of its files."""
    integers = quantized(-50.0, **sizes)
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    paths = folder / "model.bin", folder / "vocab.bin"
    paths[0].write_bytes(layout.pack_model(integers, vocabulary))
    paths[1].write_bytes(vocabulary)
    return integers, *paths


@pytest.mark.parametrize("sizes", SHAPES.values(), ids=SHAPES.keys())
def test_tokens_are_those_of_the_reference(tmp_path, sizes):
    integers, *paths = written(tmp_path, **sizes)
    story = inference.Story(*paths)
    stories = set()
    for prompt in PROMPTS:
        ids = story.encode(prompt.encode())
        assert list(story.tokens(ids, 16)) == list(integers.decode(ids, 16))
        for temperature, top_k, seed in ((256, 0, 1), (2560, 5, 2**32 - 1)):
            found = list(story.tokens(ids, 16, temperature, top_k, seed))
            assert found == list(integers.decode(ids, 16, Sampler(integers, temperature, top_k, seed)))
            stories.add(tuple(found))
    assert len(stories) > 4  # the models are not so dull that any two would agree


@cache
def models() -> tuple[IntegerTransformer, inference.Model]:
    integers = quantized(-12.0)
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    return integers, inference.Model(io.BytesIO(layout.pack_model(integers, vocabulary)))


def test_a_story_ends_where_the_reference_ends_it():
    integers, model = models()
    lengths = set()
    for seed in range(1, 9):
        found = list(model.tokens([5], 20, 2560, 0, seed))
        assert found == list(integers.decode([5], 20, Sampler(integers, 2560, 0, seed)))
        lengths.add(len(found))
    assert len(lengths) > 2


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-(2**10), 2**10).map(lambda x: x // 300 * 2**20), min_size=32, max_size=32),
    st.integers(13, 2560),
    st.integers(0, 40),
    st.integers(0, 2**32 - 1),
)
def test_choices_among_equal_logits_are_those_of_the_reference(logits, temperature, top_k, seed):
    integers, model = models()
    sampler = Sampler(integers, temperature, top_k, seed)
    for i, logit in enumerate(logits):
        model._y[i] = logit
    assert model._greedy() == int(np.argmax(logits))
    expected = sampler(np.array(logits))
    assert model._sample(temperature, top_k, sampler.state) == expected


def test_a_second_story_does_not_remember_the_first():
    _, model = models()
    first = list(model.tokens([7, 8], 30, 256))
    list(model.tokens(list(range(2, 30)), 30, 256, 0, 9))
    assert list(model.tokens([7, 8], 30, 256)) == first
    assert list(model.tokens([7, 8], 0)) == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (([32], 1), r"tokens must be 0 to 31 \(given 32\)"),
        (([-1], 1), r"tokens must be 0 to 31 \(given -1\)"),
        (([], 1, 12), r"temperature must be 13 to 2560 in 256ths, or 0 for greedy \(given 12\)"),
        (([], 1, 2561), r"temperature must be 13 to 2560"),
        (([], 1, 256, -1), r"top_k must be 1 or more, or 0 for all tokens \(given -1\)"),
        (([], 1, 256, 0, 2**32), r"seed must be 0 to 4294967295 \(given 4294967296\)"),
    ],
)
def test_settings_out_of_range_are_refused(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        next(models()[1].tokens(*arguments))


def test_files_of_two_exports_are_not_mixed(tmp_path):
    _, model_path, vocabulary_path = written(tmp_path)
    other = layout.pack_vocabulary(trained_tokenizer(48))
    vocabulary_path.write_bytes(other)
    with pytest.raises(ValueError, match="the vocabulary file belongs to another model; copy both files of one export"):
        inference.Story(model_path, vocabulary_path)


def command(*words: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, SOURCE, *map(str, words)], capture_output=True, check=False)


def test_the_command_tells_the_story(tmp_path):
    integers, *paths = written(tmp_path)
    vocabulary = layout.read_vocabulary(paths[1].read_bytes())
    ids = vocabulary.encode(b"The cat")
    done = command(*paths, "The cat", 30)
    assert (done.returncode, done.stderr) == (0, b"")
    story, timing = done.stdout.rsplit(b"\n(", 1)
    assert story == b"The cat" + vocabulary.decode(integers.decode(ids, 30))
    assert timing.startswith(b"30 tokens, ")
    done = command(*paths, "The cat", 30, 512, 8, 5)
    expected = vocabulary.decode(integers.decode(ids, 30, Sampler(integers, 512, 8, 5)))
    assert done.stdout.rsplit(b"\n(", 1)[0] == b"The cat" + expected


def test_the_command_says_what_is_wrong_and_exits_with_2(tmp_path):
    _, *paths = written(tmp_path)
    for words, said in (
        ((), b"usage: python inference.py MODEL VOCABULARY PROMPT"),
        ((*paths, "The", "many"), b"usage: python inference.py MODEL VOCABULARY PROMPT"),
        ((paths[1], paths[0], "The"), b"error: this is no model file: it does not start with TTM1\n"),
        ((*paths, "The", 10, 5000), b"error: temperature must be 13 to 2560"),
        ((tmp_path / "nothing.bin", paths[1], ""), b"No such file"),
    ):
        done = command(*words)
        assert done.returncode == 2
        assert said in done.stdout + done.stderr
        assert (done.stdout + done.stderr).count(b"\n") <= 2


def test_characters_are_printed_when_all_their_bytes_are_there(capsys):
    whole = "é猫🐈!".encode()
    pending, printed = b"", ""
    for i in range(len(whole)):
        pending = inference._print(pending + whole[i : i + 1])
        printed += capsys.readouterr().out
        assert whole[: i + 1].decode(errors="ignore") == printed
    assert pending == b""
    assert inference._print(b"a\xff\xfe\xfdbcde") == b""
    assert capsys.readouterr().out == "a???bcde"


def test_nothing_in_it_is_a_float_or_missing_from_micropython():
    imported = set()
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float | complex))
        assert not isinstance(node, ast.Div)
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    assert imported == {"array", "binascii", "gc", "struct", "sys", "time"}


def test_the_sum_is_right_without_the_module_for_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "binascii", None)
    spec = importlib.util.spec_from_file_location("inference_without_binascii", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    data = bytes(range(256)) * 3
    assert module.crc32 is not zlib.crc32
    assert module.crc32(data[99:], module.crc32(data[:99])) == zlib.crc32(data)


def in_micropython(folder: Path, code: str) -> str:
    """What code prints in MicroPython, with the files of a folder at hand."""
    if not shutil.which("node") or not (HERE / "node_modules" / "@micropython").is_dir():
        pytest.fail("MicroPython is not installed; with node 18 or later: npm ci --prefix tests/exporters/rp2040")
    words = ["node", HERE / "micropython.mjs", folder]
    done = subprocess.run(words, input=code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


STORIES = """
import gc, json
import inference
#--
before = gc.mem_alloc()
#--
story = inference.Story("model.bin", "vocab.bin")
#--
print(gc.mem_alloc() - before)
for prompt, settings in json.loads('''JOBS'''):
    print(json.dumps(list(story.tokens(story.encode(prompt.encode()), 64, *settings))))
"""


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [SHAPES["head size 1"], SHAPES["head size 6"], SHAPES["wide"]])
def test_micropython_tells_the_stories_of_the_reference(tmp_path, sizes):
    integers, *paths = written(tmp_path, **sizes)
    shutil.copy(SOURCE, tmp_path)
    vocabulary = layout.read_vocabulary(paths[1].read_bytes())
    jobs = [*((prompt, []) for prompt in PROMPTS[:3]), (PROMPTS[1], [205, 8, 7])]
    memory, *stories = in_micropython(tmp_path, STORIES.replace("JOBS", json.dumps(jobs))).splitlines()
    for (prompt, sampling), story in zip(jobs, stories, strict=True):
        choose = Sampler(integers, *sampling) if sampling else None
        expected = list(integers.decode(vocabulary.encode(prompt.encode()), 64, choose))
        assert json.loads(story) == expected
        assert len(expected) == 64
    # What a story takes beside the files: keys, values, activations, and little else.
    config = integers.config
    cache = 2 * config.layers * config.context * config.width
    activations = 4 * (3 * config.width + 2 * config.hidden + config.context + 3 * config.width + 32)
    assert int(memory) < sum(path.stat().st_size for path in paths) + cache + activations + 4096


@pytest.mark.slow
def test_micropython_refuses_with_the_same_words(tmp_path):
    _, *paths = written(tmp_path)
    shutil.copy(SOURCE, tmp_path)
    damaged = bytearray(paths[0].read_bytes())
    damaged[100] ^= 1
    (tmp_path / "damaged.bin").write_bytes(damaged)
    code = """
import inference
for model, vocabulary in (("damaged.bin", "vocab.bin"), ("vocab.bin", "vocab.bin"), ("model.bin", "model.bin")):
    try:
        inference.Story(model, vocabulary)
    except ValueError as error:
        print(error)
inference.tell("model.bin", "vocab.bin", "The \\u732b", 5)
"""
    *reasons, story, timing = in_micropython(tmp_path, code).splitlines()
    for reason, names in zip(
        reasons, (("damaged.bin", "vocab.bin"), ("vocab.bin", "vocab.bin"), ("model.bin", "model.bin")), strict=True
    ):
        with pytest.raises(ValueError) as refusal:  # noqa: PT011 the words are compared below
            inference.Story(*(tmp_path / name for name in names))
        assert str(refusal.value) == reason
    assert story.startswith("The 猫")
    assert timing.startswith("(5 tokens, ")
