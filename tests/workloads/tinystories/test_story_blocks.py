"""Stories are found in files of any size as if the text had been read whole, in pieces of any size."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common import workers
from common.disk.files import digests
from common.errors import UserError
from pipelines.workloads.tinystories import data, story_blocks
from tests.properties import examples
from tests.workloads.tinystories.texts import STORIES, config, written

MARKER = "<|endoftext|>"


def read_whole(content: bytes) -> list[str]:
    """The stories of a file, by the rules alone."""
    text = content.decode().removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    percent = r"(?:\A|(?<=\n))%[ \t]*(?=\n|\Z)"
    fortunes = len(re.findall(percent, text)) > 1
    between = re.escape(MARKER) if MARKER in text else percent if fortunes else r"\n[ \t]*(?=\n)"
    parts = re.split(between, text)
    return [story for part in parts if (story := part.replace("\0", "").strip())]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("blocks") / "text.txt"


@pytest.mark.parametrize(
    "separators",
    [
        [MARKER, "\n"],
        ["\n\n", "\r\n\r\n", "\r", "\n", "\r\n", "\n \t\r\n"],
        ["\n%\n", "\r\n%\t\r\n", "\r%\r", "%", "\n\n"],
    ],
)
def test_stories_are_those_of_the_text_read_whole(path, monkeypatch, separators):
    pieces = st.lists(st.sampled_from([*separators, " ", "\t", "a", "é", "\0", "<|endof", "text|>", "\x85", "\ufeff"]))

    @settings(max_examples=examples(300))
    @given(pieces.map("".join), st.integers(1, 9), st.integers(1, 30))
    def check(text, chunk, stretch):
        monkeypatch.setattr(story_blocks, "CHUNK", chunk)
        monkeypatch.setattr(story_blocks, "STRETCH", stretch)
        path.write_bytes(text.encode())
        found, num_nuls = story_blocks.find([path], 0)
        assert list(found.stories()) == read_whole(text.encode())
        assert num_nuls == text.count("\0")

    check()


def test_the_byte_that_is_not_utf8_is_named_wherever_it_is_read(path, monkeypatch):
    for chunk in (3, 7, 1 << 20):
        monkeypatch.setattr(story_blocks, "CHUNK", chunk)
        path.write_bytes("Été.\n\nHé".encode() + b"\xe4 a\n\nEnd.")
        with pytest.raises(UserError, match="is not UTF-8: byte 11 is 0xe4"):
            story_blocks.find([path], 0)
        path.write_bytes("Été.\n\nHé".encode()[:-1])
        with pytest.raises(UserError, match="is not UTF-8: byte 9 is 0xc3"):
            story_blocks.find([path], 0)


def test_a_file_that_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"cannot read data\.source=.*: No such file"):
        story_blocks.find([tmp_path / "gone.txt"], 0)


def test_blocks_are_dealt_out_by_their_size(tmp_path, monkeypatch):
    monkeypatch.setattr(story_blocks, "SHARD", 3000)
    found, _ = story_blocks.find(
        [written(tmp_path / "a.txt", STORIES[:10]), written(tmp_path / "b.txt", STORIES[10:])], 0
    )
    found = found.take(np.argsort(found.digest))
    shards = found.shards()
    assert len(shards) > 5
    assert all(shard.length.sum() < 3000 + max(map(len, STORIES)) + 9 for shard in shards)
    assert [story for shard in shards for story in shard.stories()] == list(found.stories())
    assert sorted(found.stories()) == sorted(STORIES)


@pytest.mark.slow
def test_the_result_does_not_depend_on_the_number_of_processes(tmp_path, monkeypatch):
    for name, size in {"WORTH": -1, "STRETCH": 4000, "SHARD": 3000}.items():
        monkeypatch.setattr(workers if name == "WORTH" else story_blocks, name, size)
    source = written(tmp_path / "stories.txt", STORIES)
    monkeypatch.setattr(workers, "cores", lambda: 2)
    facts = data.prepare(config(source), tmp_path / "two")
    monkeypatch.setattr(workers, "cores", lambda: 1)
    assert data.prepare(config(source), tmp_path / "one") == facts
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert len(list((tmp_path / "one/train").glob("*.arrow"))) > 5
    train = data.stories(tmp_path / "one", "train")
    assert len(train) == 25
    assert data.ending(tmp_path / "one", "train", 10**9) == "\n".join(train)
    last = data.ending(tmp_path / "one", "train", len(train[-1]))
    assert "\n".join(train).endswith(last)
    assert len(train[-1]) < len(last) < 4000


def test_stories_that_differ_by_capitals_alone_are_one_where_asked(tmp_path):
    file = story_blocks.write(tmp_path / "two.txt", ["A dog ran.", "a dog ran."])
    for asked, different in (({}, 2), ({"lower": True}, 1)):
        assert len(set(story_blocks.find([file], 0, **asked)[0].digest.tolist())) == different
