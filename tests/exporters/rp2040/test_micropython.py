"""inference.py and its modules in MicroPython: the same stories, the same refusals, and the memory they take."""

import ast
import json
import shutil

import pytest

from exporters import to_rp2040
from exporters.rp2040 import inference, layout
from exporters.rp2040.inference_files import LIMITS
from exporters.rp2040.inference_model import OBJECTS, heap_bytes
from models.stories.integer_transformer import Sampler
from tests.exporters.rp2040.files import PROMPTS, SHAPES, SOURCES, written
from tests.exporters.rp2040.micropython import in_micropython


def test_nothing_in_the_code_is_a_float_or_missing_from_micropython():
    imported = set()
    for node in (node for source in SOURCES for node in ast.walk(ast.parse(source.read_text()))):
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float | complex))
        assert not isinstance(node, ast.Div)
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    assert imported - {source.stem for source in SOURCES} - {"exporters.rp2040.inference_kernels"} == {
        "array",
        "binascii",
        "gc",
        "micropython",
        "struct",
        "sys",
        "time",
    }


STORIES = """
import gc, json
#--
start = gc.mem_alloc()
#--
import inference
#--
before = gc.mem_alloc()
print(before - start)
#--
story = inference.Story("model.bin", "vocab.bin")
#--
print(gc.mem_alloc() - before)
for prompt, settings in json.loads('''JOBS'''):
    print(json.dumps(list(story.model.tokens(story.vocabulary.encode(prompt.encode()), 64, *settings))))
"""


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [SHAPES[name] for name in ("head size 1", "counts", "wide")])
def test_micropython_tells_the_stories_of_the_reference(tmp_path, sizes):
    integers, *paths = written(tmp_path, **sizes)
    for source in SOURCES:
        shutil.copy(source, tmp_path)
    vocabulary = layout.read_vocabulary(paths[1].read_bytes())
    jobs = [*((prompt, []) for prompt in PROMPTS[:3]), (PROMPTS[1], [205, 8, 7])]
    code, memory, *stories = in_micropython(tmp_path, STORIES.replace("JOBS", json.dumps(jobs))).splitlines()
    for (prompt, sampling), story in zip(jobs, stories, strict=True):
        choose = Sampler(integers, *sampling) if sampling else None
        expected = list(integers.decode(vocabulary.encode(prompt.encode()), 64, choose))
        assert json.loads(story) == expected
        assert len(expected) == 64
    assert int(code) < to_rp2040.CODE_BYTES
    # What is refused for want of heap is what a story takes.
    needed = heap_bytes(*(getattr(integers.config, name) for name, *_ in LIMITS))
    assert needed - OBJECTS - 1024 < int(memory) - paths[1].stat().st_size < needed


@pytest.mark.slow
def test_micropython_refuses_with_the_same_words(tmp_path):
    _, *paths = written(tmp_path)
    for source in SOURCES:
        shutil.copy(source, tmp_path)
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
