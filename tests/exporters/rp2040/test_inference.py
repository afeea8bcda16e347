"""Stories, text to tokens, and the command of inference.py."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from exporters.rp2040 import inference, layout
from models.stories.integer_transformer import Sampler
from models.stories.tiny_transformer import make_tokenizer
from tests.exporters.rp2040.files import PROMPTS, SHAPES, inner, written
from tests.models.tiny import trained_tokenizer


@pytest.mark.parametrize("sizes", SHAPES.values(), ids=SHAPES.keys())
def test_tokens_are_those_of_the_reference(tmp_path, sizes):
    integers, *paths = written(tmp_path, **sizes)
    story = inference.Story(*paths)
    stories = set()
    for prompt in PROMPTS:
        ids = story.vocabulary.encode(prompt.encode())
        assert list(story.model.tokens(ids, 16)) == list(integers.decode(ids, 16))
        for temperature, top_k, seed in ((256, 0, 1), (2560, 5, 2**32 - 1)):
            found = list(story.model.tokens(ids, 16, temperature, top_k, seed))
            assert found == list(integers.decode(ids, 16, Sampler(integers, temperature, top_k, seed)))
            stories.add(tuple(found))
    story.close()
    assert len(stories) > 4  # the models are not so dull that any two would agree


def test_files_of_two_exports_are_not_mixed(tmp_path):
    _, model_path, vocabulary_path = written(tmp_path)
    other = layout.pack_vocabulary(trained_tokenizer(48))
    vocabulary_path.write_bytes(other)
    with pytest.raises(ValueError, match="the vocabulary file belongs to another model; copy both files of one export"):
        inference.Story(model_path, vocabulary_path)


def command(*words: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, inference.__file__, *map(str, words)], capture_output=True, check=False)


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
        ((paths[1], paths[0], "The"), b"error: this is not a model file: it does not start with TTM1\n"),
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
        pending = inner(inference, "print")(pending + whole[i : i + 1])
        printed += capsys.readouterr().out
        assert whole[: i + 1].decode(errors="ignore") == printed
    assert pending == b""
    assert inner(inference, "print")(b"a\xff\xfe\xfdbcde") == b""
    assert capsys.readouterr().out == "a???bcde"


@cache
def tokenizer_and_vocabulary(size: int) -> tuple[Tokenizer, inference.Vocabulary]:
    described = trained_tokenizer(size)
    return make_tokenizer(described), layout.read_vocabulary(layout.pack_vocabulary(described))


# Arbitrary text is mostly unknown to a small tokenizer, so half of it is of words, spaces and signs that it knows.
KNOWN = st.lists(st.sampled_from(["The", "cat", "at", "sat", " ", "  ", "\n", "dog", "12", "!", ".", "é", "<unk>"]))


@pytest.mark.parametrize("size", [32, 48])
@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), KNOWN.map("".join), st.text(alphabet="Thecatso .1\n<|>é\x00")))
def test_text_becomes_the_tokens_of_the_tokenizer(size, text):
    tokenizer, vocabulary = tokenizer_and_vocabulary(size)
    ids = vocabulary.encode(text.encode())
    assert ids == tokenizer.encode(text).ids
    known = bytes(byte for byte in text.encode() if vocabulary.of_byte[byte] != 1)
    assert vocabulary.decode(ids) == known


def test_tokens_out_of_the_vocabulary_have_no_text():
    _, vocabulary = tokenizer_and_vocabulary(32)
    for token in (-1, 32):
        with pytest.raises(ValueError, match=r"tokens must be 0 to 31 \(given"):
            vocabulary.decode([token])
