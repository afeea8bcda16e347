"""Prepared stories come back letter by letter, and the manifest's facts are true."""

import json
import os
from pathlib import Path

import datasets
import numpy as np
import pytest
import tokenizers

from common.disk.files import digests
from models.stories.tiny_transformer import make_tokenizer
from pipelines.workloads.tinystories import data
from pipelines.workloads.tinystories.data import SPLITS
from pipelines.workloads.tinystories.generated_stories import generate
from tests.workloads.tinystories.texts import STORIES, both, config, written


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The embedded stories, prepared, and the facts."""
    folder = tmp_path_factory.mktemp("stories")
    return folder, data.prepare(config(), folder)


def bpe(folder: Path) -> tokenizers.Tokenizer:
    return make_tokenizer(data.tokenizer(folder))


def test_texts_that_cannot_be_removed_do_not_stay_among_the_data_unsaid(tmp_path, monkeypatch):
    def refuse(path, **_):
        raise PermissionError(f"pretended: {path}")

    monkeypatch.setattr(os, "rmdir", refuse)
    with pytest.raises(PermissionError, match="scratch"):
        data.prepare(config(), tmp_path)


def test_the_folder_holds_a_dataset_and_a_tokenizer(prepared):
    folder, facts = prepared
    found = datasets.load_from_disk(folder)
    assert set(found) == {"train", "validation", "held_out"}
    assert found["train"].features == {"text": datasets.Value("string")}
    assert {path.name for path in (folder / "train").glob("*.uint16")} == {data.STREAM}
    assert tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size() == 160
    assert data.stories(folder, "train") == found["train"]["text"][:]
    json.dumps(facts, allow_nan=False)


def test_the_facts_count_what_is_there(prepared):
    folder, facts = prepared
    assert facts["source"] == "embedded story generator, seed 0"
    assert facts["duplicates_removed"] == facts["nul_characters_removed"] == 0
    assert facts["vocabulary"] == 160
    for name in SPLITS:
        texts, stream = data.stories(folder, name), data.tokens(folder, name)
        assert facts[name]["stories"] == len(texts) == data.numbers(stream)[-1] + 1
        assert facts[name]["characters"] == sum(map(len, texts))
        assert facts[name]["bytes"] == sum(len(text.encode()) for text in texts)
        assert facts[name]["tokens"] == len(stream) - 2 * len(texts)
        assert facts[name]["characters_per_token"] == facts[name]["characters"] / facts[name]["tokens"]
    assert facts["train"]["unknown_bytes"] == 0


def test_a_story_stands_between_zeros_and_decodes_to_its_text(prepared):
    folder, _ = prepared
    tokenizer = bpe(folder)
    for name in SPLITS:
        texts, stream = data.stories(folder, name), data.tokens(folder, name)
        story = data.numbers(stream)
        assert stream.dtype == np.uint16
        assert stream.shape == story.shape
        for number, text in enumerate(texts):
            row = stream[story == number]
            assert row[0] == row[-1] == 0
            assert row[1:-1].all()
            assert tokenizer.decode(row[1:-1].tolist()) == text
        assert (np.diff(story) >= 0).all()


def test_two_preparations_write_the_same_bytes(prepared, tmp_path):
    folder, facts = prepared
    assert data.prepare(config(), tmp_path) == facts
    assert digests(tmp_path) == digests(folder)


def test_names_of_special_tokens_and_nul_characters_do_no_harm(tmp_path):
    stories = [f"{story} He wrote <unk> and <|endo|>.\0" for story in STORIES]
    facts = data.prepare(config(written(tmp_path / "odd.txt", stories)), tmp_path / "odd")
    assert facts["nul_characters_removed"] == 30
    assert facts["train"]["unknown_bytes"] == facts["held_out"]["unknown_bytes"] == 0
    stream = data.tokens(tmp_path / "odd", "train")
    assert (stream == 0).sum() == 2 * (data.numbers(stream)[-1] + 1)
    assert "\0" not in "".join(data.stories(tmp_path / "odd", "train"))
    tokenizer = bpe(tmp_path / "odd")
    ids = tokenizer.encode("<|endoftext|> and <unk>").ids
    assert min(ids) > 1
    assert tokenizer.decode(ids) == "<|endoftext|> and <unk>"


def test_the_embedded_stories_follow_the_seed_of_the_data(tmp_path):
    facts = data.prepare(config(seed=7), tmp_path)
    assert facts["source"] == "embedded story generator, seed 7"
    assert set(both(tmp_path)) == set(generate(7, 30_000))
    assert config().data.inputs() == []


def test_the_held_out_text_leaves_no_trace_in_the_tokenizer(tmp_path):
    """Nineteen blocks keep their order, so that the last is the one held out."""
    found = []
    for name, ending, unknown in [("a", "An end.", 0), ("b", "An é 9 end.", 3)]:
        source = written(tmp_path / f"{name}.txt", [*STORIES[:18], ending])
        facts = data.prepare(config(source, passage_characters=2000), tmp_path / name)
        assert data.stories(tmp_path / name, "held_out") == [ending]
        assert facts["held_out"]["unknown_bytes"] == unknown
        assert (data.tokens(tmp_path / name, "held_out") == 1).sum() == unknown
        found.append(data.tokenizer(tmp_path / name))
    assert found[0] == found[1]
