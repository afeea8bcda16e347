"""Stories are read from anywhere, split without leaks, and come back from their tokens letter by letter."""

import json
from pathlib import Path
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from common.errors import UserError
from common.files import digests
from models.tiny_transformer import make_tokenizer
from pipelines.workloads.tinystories import data
from pipelines.workloads.tinystories.stories import generate

STORIES = generate(0, 30_000)[:30]
BOOK = "".join(f"On day {day} the fox ran {day * day} steps,\nand then it slept.\n" for day in range(300))
ODD = 'Été à la "mer": 12 € 7\n\t- ok?'


def config(source: Path | str | None = None, **fields) -> SimpleNamespace:
    """A stand-in for the workload's config."""
    section = {
        "source": None if source is None else str(source),
        "percent": 100,
        "vocabulary": 160,
        "passage_characters": 500,
        "generated_characters": 30_000,
        "seed": 0,
    }
    return SimpleNamespace(seed=0, data=SimpleNamespace(**{**section, **fields}))


def written(path: Path, blocks: list[str], between: str = "\n<|endoftext|>\n") -> Path:
    path.write_text(between.join(blocks), encoding="utf-8", newline="")
    return path


def parts(folder: Path) -> tuple[list[str], list[str]]:
    return data.stories(folder, "train"), data.stories(folder, "held_out")


def both(folder: Path) -> list[str]:
    train, held_out = parts(folder)
    return [*train, *held_out]


def pieces(text: bytes) -> list[bytes]:
    """The rule as a microcontroller would follow it."""

    def kind(byte: int) -> str:
        if byte >= 0x80 or chr(byte).isalpha():
            return "letter"
        return "digit" if chr(byte).isdigit() else "space" if byte in b" \t\n\r" else "other"

    found, start = [], 0
    while start < len(text):
        first = start + (text[start] == 0x20)
        end = start + 1
        if first < len(text) and kind(text[first]) != "space":
            end = first + 1
            while end < len(text) and kind(text[end]) == kind(text[first]):
                end += 1
        found.append(text[start:end])
        start = end
    return found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The embedded stories, prepared, and the facts."""
    folder = tmp_path_factory.mktemp("stories")
    return folder, data.prepare(config(), folder)


def bpe(folder: Path) -> tokenizers.Tokenizer:
    return make_tokenizer(data.tokenizer(folder))


@pytest.fixture(scope="module")
def odd():
    """A tokenizer whose alphabet has bytes of all kinds."""
    return data.train_tokenizer([ODD, *STORIES], 200)


@pytest.fixture(scope="module")
def tagged():
    """A tokenizer that has learned the names of its special tokens as text."""
    return data.train_tokenizer(["fox <|endoftext|> <unk>\n<|endoftext|><unk>"] * 9, 33)


def test_the_folder_holds_a_dataset_and_a_tokenizer(prepared):
    folder, facts = prepared
    found = datasets.load_from_disk(folder)
    assert set(found) == {"train", "held_out"}
    assert found["train"].features == {
        "text": datasets.Value("string"),
        "tokens": datasets.List(datasets.Value("uint16")),
    }
    assert tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size() == 160
    assert data.stories(folder, "train") == found["train"]["text"][:]
    json.dumps(facts, allow_nan=False)


def test_the_facts_count_what_is_there(prepared):
    folder, facts = prepared
    assert facts["source"] == "embedded story generator, seed 0"
    assert facts["duplicates_removed"] == facts["nul_characters_removed"] == 0
    assert facts["vocabulary"] == 160
    for name, texts in zip(data.SPLITS, parts(folder), strict=True):
        stream, story = data.tokens(folder, name)
        assert facts[name]["stories"] == len(texts) == story[-1] + 1
        assert facts[name]["characters"] == sum(map(len, texts))
        assert facts[name]["bytes"] == sum(len(text.encode()) for text in texts)
        assert facts[name]["tokens"] == len(stream) - 2 * len(texts)
        assert facts[name]["characters_per_token"] == facts[name]["characters"] / facts[name]["tokens"]
    assert facts["train"]["unknown_bytes"] == 0
    assert facts["alphabet"] == len(set("".join(data.stories(folder, "train"))))


def test_a_story_stands_between_zeros_and_decodes_to_its_text(prepared):
    folder, _ = prepared
    tokenizer = bpe(folder)
    for name, texts in zip(data.SPLITS, parts(folder), strict=True):
        stream, story = data.tokens(folder, name)
        assert stream.dtype == story.dtype == np.int64
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


def test_one_story_in_ten_is_held_out_and_none_is_on_both_sides(prepared):
    train, held_out = parts(prepared[0])
    assert len(held_out) == (len(train) + len(held_out)) // 10
    assert not set(train) & set(held_out)
    assert set(train) | set(held_out) == set(generate(0, 30_000))


def test_the_split_depends_on_the_seed_and_not_on_the_order_of_the_file(tmp_path):
    found = []
    for name, blocks, seed in [("a", STORIES, 0), ("b", STORIES[::-1], 0), ("c", STORIES, 1)]:
        data.prepare(config(written(tmp_path / f"{name}.txt", blocks), seed=seed), tmp_path / name)
        found.append(parts(tmp_path / name))
    assert found[0] == found[1]
    assert set(found[0][1]) != set(found[2][1])


@pytest.mark.parametrize("book", [False, True])
def test_a_larger_share_contains_a_smaller_one_on_the_same_side(tmp_path, book):
    source = written(tmp_path / "stories.txt", [BOOK] if book else STORIES)
    found = {}
    for percent in (1, 10, 20, 55, 100):
        facts = data.prepare(config(source, percent=percent, vocabulary=60), tmp_path / str(percent))
        assert (f"first {percent} %" in facts["split"]) == (percent < 100)
        found[percent] = parts(tmp_path / str(percent))
    whole = found[100]
    for percent, some in found.items():
        for side, all_of_side in zip(some, whole, strict=True):
            count = -(-len(all_of_side) * percent // 100)
            assert side == all_of_side[:count]
            assert count >= 1


def test_duplicates_are_removed_before_the_split(tmp_path):
    twice = [*STORIES, *(f" {story}  \n" for story in STORIES), *(story.replace("\n", "\r\n") for story in STORIES)]
    facts = data.prepare(config(written(tmp_path / "twice.txt", twice)), tmp_path / "twice")
    data.prepare(config(written(tmp_path / "once.txt", STORIES)), tmp_path / "once")
    assert facts["duplicates_removed"] == 60
    assert parts(tmp_path / "twice") == parts(tmp_path / "once")


def test_blank_lines_separate_stories_only_where_no_marker_does(tmp_path):
    stories = [f"{story}\n\nMore of number {number}." for number, story in enumerate(STORIES)]
    data.prepare(config(written(tmp_path / "marked.txt", stories)), tmp_path / "marked")
    assert sorted(both(tmp_path / "marked")) == sorted(stories)
    data.prepare(config(written(tmp_path / "blank.txt", stories, "\r\n \t\r\n")), tmp_path / "blank")
    assert sorted(both(tmp_path / "blank")) == sorted("\n\n".join(stories).split("\n\n"))


def test_a_marker_within_a_line_separates_and_never_stays(tmp_path):
    data.prepare(config(written(tmp_path / "line.txt", STORIES, "<|endoftext|>")), tmp_path / "line")
    assert set(both(tmp_path / "line")) == set(STORIES)


def test_names_of_special_tokens_and_nul_characters_do_no_harm(tmp_path):
    stories = [f"{story} He wrote <unk> and <|endo|>.\0" for story in STORIES]
    facts = data.prepare(config(written(tmp_path / "odd.txt", stories)), tmp_path / "odd")
    assert facts["nul_characters_removed"] == 30
    assert facts["train"]["unknown_bytes"] == facts["held_out"]["unknown_bytes"] == 0
    stream, story = data.tokens(tmp_path / "odd", "train")
    assert (stream == 0).sum() == 2 * (story[-1] + 1)
    assert "\0" not in "".join(data.stories(tmp_path / "odd", "train"))
    tokenizer = bpe(tmp_path / "odd")
    ids = tokenizer.encode("<|endoftext|> and <unk>").ids
    assert min(ids) > 1
    assert tokenizer.decode(ids) == "<|endoftext|> and <unk>"


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    (tmp_path / "bom.txt").write_bytes(b"\xef\xbb\xbf" + "\n\n".join(STORIES).encode())
    data.prepare(config(tmp_path / "bom.txt"), tmp_path / "bom")
    assert "\ufeff" not in "".join(both(tmp_path / "bom"))


def test_a_folder_stands_for_the_text_files_directly_in_it(tmp_path):
    folder = tmp_path / "texts"
    (folder / "below").mkdir(parents=True)
    second, first = written(folder / "b.txt", STORIES[15:]), written(folder / "a.txt", STORIES[:15], "\n\n")
    written(folder / "notes.md", ["Not this."])
    written(folder / "below" / "c.txt", ["Nor this."])
    facts = data.prepare(config(folder), tmp_path / "out")
    assert facts["files"] == ["a.txt", "b.txt"]
    assert facts["source"] == f"folder {folder}, .txt files: 2"
    assert data.inputs(config(folder)) == [first, second]
    assert set(both(tmp_path / "out")) == set(STORIES)


def test_a_book_is_cut_at_ends_of_sentences_and_its_end_is_held_out(tmp_path):
    source = written(tmp_path / "book.txt", [BOOK])
    facts = data.prepare(config(source, vocabulary=60), tmp_path / "out")
    train, held_out = parts(tmp_path / "out")
    assert "\n".join([*train, *held_out]) == BOOK.strip()
    assert len(held_out) == (len(train) + len(held_out)) // 10
    assert facts["split"] == "passages of up to 500 characters in their order, the last tenth held out"
    for passage in [*train, *held_out]:
        assert len(passage) <= 500
        assert passage.startswith("On day")
        assert passage.endswith("slept.")


def test_passages_end_where_they_can():
    assert data.cut("one two\nthree four five six", 12) == ["one two", "three four", "five six"]
    assert data.cut("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
    assert data.cut('He said\n"No."\nand then\nhe ran', 18) == ['He said\n"No."', "and then\nhe ran"]
    assert data.cut("short", 10) == ["short"]


@settings(deadline=None)
@given(st.text(st.sampled_from("ab.! \n"), max_size=80), st.integers(1, 20))
def test_passages_hold_all_of_the_text(text, characters):
    passages = data.cut(text, characters)
    assert "".join("".join(passages).split()) == "".join(text.split())
    assert all(0 < len(passage) <= characters for passage in passages)


def test_the_embedded_stories_follow_the_seed_of_the_data(tmp_path):
    facts = data.prepare(config(seed=7), tmp_path)
    assert facts["source"] == "embedded story generator, seed 7"
    assert set(both(tmp_path)) == set(generate(7, 30_000))
    assert data.inputs(config()) == []


@pytest.mark.parametrize("whole", [True, False])
def test_a_saved_dataset_is_a_source(tmp_path, whole):
    stories = datasets.Dataset.from_dict({"id": list(range(31)), "text": [*STORIES, None]})
    saved = datasets.DatasetDict({"train": stories, "test": stories.select([0])}) if whole else stories
    saved.save_to_disk(tmp_path / "saved")
    facts = data.prepare(config(tmp_path / "saved"), tmp_path / "out")
    assert set(both(tmp_path / "out")) == set(STORIES)
    assert facts["files"]
    assert all(path.is_file() for path in data.inputs(config(tmp_path / "saved")))


def test_a_dataset_id_is_asked_for_its_training_split(tmp_path, monkeypatch):
    asked = []

    def load_dataset(name, split):
        asked.append((name, split))
        return datasets.Dataset.from_dict({"text": ["<|endoftext|>".join(STORIES[:2]), *STORIES[2:]]})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    facts = data.prepare(config("owner/stories"), tmp_path)
    assert asked == [("owner/stories", "train")]
    assert facts["source"] == "Hugging Face dataset owner/stories, split train"
    assert set(both(tmp_path)) == set(STORIES)


def test_without_a_network_a_dataset_id_is_refused_with_the_ways_out(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError) as refusal:
        data.prepare(config("owner/stories"), tmp_path)
    assert "data.source=owner/stories is no file or folder here" in str(refusal.value)
    assert "Couldn't reach 'owner/stories'" in str(refusal.value)
    assert "Without a network, leave data.source out for the embedded stories" in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"file .*s\.txt: there is no text in it \(it is empty"),
        (b" \r\n\t\n", r"file .*s\.txt: there is no text in it"),
        (b"<|endoftext|>\n<|endoftext|>", r"there is no text in it .*; give a text file, a folder of \.txt files"),
        (b"Once a m\xe4rchen.", r"s\.txt is not UTF-8: byte 8 is 0xe4; convert it first, as in: iconv"),
        (
            b"One short story.",
            r"of 1 passages of up to 500 characters none can be held out, 10 are needed; give a longer text, or lower "
            r"data\.passage_characters=500",
        ),
    ],
)
def test_a_file_that_is_no_use_is_refused_by_name(tmp_path, content, message):
    (tmp_path / "s.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        data.prepare(config(tmp_path / "s.txt"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("source", ["nowhere.txt", "no/where.txt", "/no/where/at/all", "a/b/c", "./stories", ""])
def test_a_path_that_does_not_exist_is_refused_without_asking_the_network(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: pytest.fail("asked"))
    with pytest.raises(UserError, match=r"no such file or folder; give a text file|no \.txt files in this folder"):
        data.prepare(config(source), tmp_path / "out")


def test_a_folder_without_text_files_is_refused(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a.txt").write_text("Text.")
    with pytest.raises(UserError, match=r"no \.txt files in this folder \(folders below it are not read\)"):
        data.prepare(config(tmp_path), tmp_path / "out")


@pytest.mark.parametrize(
    "columns", [{"story": ["a"]}, {"text": [1]}, {"train": {"story": ["a"]}}, {"test": {"text": ["a"]}}]
)
def test_a_dataset_without_stories_is_refused(tmp_path, columns):
    if isinstance(next(iter(columns.values())), dict):
        saved = datasets.DatasetDict({name: datasets.Dataset.from_dict(each) for name, each in columns.items()})
    else:
        saved = datasets.Dataset.from_dict(columns)
    saved.save_to_disk(tmp_path / "saved")
    with pytest.raises(UserError, match=r"a column `text` of strings is needed, this one has (story|text|test);"):
        data.prepare(config(tmp_path / "saved"), tmp_path / "out")


def test_too_few_embedded_stories_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"seed 0: of \d passages .* raise data\.generated_characters"):
        data.prepare(config(generated_characters=3_000), tmp_path)


@pytest.mark.parametrize("vocabulary", [63, 64, 100, 256, 600])
def test_the_vocabulary_has_exactly_the_size_asked_for(vocabulary):
    assert data.train_tokenizer(STORIES, vocabulary).get_vocab_size() == vocabulary


def test_a_vocabulary_that_the_text_does_not_allow_is_refused_with_the_one_that_works():
    texts = ["aab aab", "abc"]
    with pytest.raises(UserError, match=r"model\.vocabulary=5 is too small: the 4 different bytes .* give "):
        data.train_tokenizer(texts, 5)
    assert data.train_tokenizer(texts, 6).get_vocab_size() == 6
    with pytest.raises(UserError, match=r"model\.vocabulary=999 is more .* it gives (\d+) tokens") as refusal:
        data.train_tokenizer(texts, 999)
    largest = int(str(refusal.value).split("gives ")[1].split()[0])
    assert data.train_tokenizer(texts, largest).get_vocab_size() == largest
    with pytest.raises(UserError):
        data.train_tokenizer(texts, largest + 1)


def test_the_first_tokens_are_the_special_ones_and_the_bytes_of_the_training_text(odd):
    vocabulary = odd.get_vocab()
    assert vocabulary["<|endoftext|>"] == 0
    assert vocabulary["<unk>"] == 1
    singles = [token for token in vocabulary if len(token) == 1]
    assert sorted(vocabulary[token] for token in singles) == list(range(2, 2 + len(singles)))
    assert len(singles) == len(set((ODD + "".join(STORIES)).encode()))


def test_the_held_out_text_leaves_no_trace_in_the_tokenizer(tmp_path):
    """Nineteen blocks keep their order, so that the last is the one held out."""
    found = []
    for name, ending, unknown in [("a", "An end.", 0), ("b", "An é 9 end.", 3)]:
        source = written(tmp_path / f"{name}.txt", [*STORIES[:18], ending])
        facts = data.prepare(config(source, passage_characters=2000), tmp_path / name)
        assert data.stories(tmp_path / name, "held_out") == [ending]
        assert facts["held_out"]["unknown_bytes"] == unknown
        assert (data.tokens(tmp_path / name, "held_out")[0] == 1).sum() == unknown
        found.append(data.tokenizer(tmp_path / name))
    assert found[0] == found[1]


@settings(deadline=None)
@given(text=st.text(st.sampled_from(sorted(set(ODD + "".join(STORIES))))))
def test_text_over_the_alphabet_comes_back_unchanged(odd, text):
    assert odd.decode(odd.encode(text).ids) == text


@settings(deadline=None)
@given(text=st.text())
def test_every_unknown_byte_becomes_one_unknown_token(odd, text):
    known = set((ODD + "".join(STORIES)).encode())
    ids = odd.encode(text).ids
    assert ids.count(1) == sum(byte not in known for byte in text.encode())
    assert 0 not in ids


@settings(deadline=None)
@given(text=st.lists(st.sampled_from(["<|endoftext|>", "<unk>", " ", "\n", "fox", "<|", "|>"])).map("".join))
def test_the_names_of_special_tokens_within_a_text_are_text(tagged, text):
    ids = tagged.encode(text).ids
    assert not {0, 1} & set(ids)
    assert tagged.decode(ids) == text


@settings(deadline=None, max_examples=300)
@given(text=st.text() | st.text(st.sampled_from('aZé 7\n\t\r\x0b\xa0\u2028\u3000\x85-."<|_`[@{/:^')).filter(bool))
def test_pieces_are_those_of_the_rule_on_bytes(odd, text):
    decode = decoders.ByteLevel().decode
    found = [decode([piece]) for piece, _ in odd.pre_tokenizer.pre_tokenize_str(text)]
    assert [piece.encode() for piece in found] == pieces(text.encode())


def test_no_token_crosses_a_piece(odd):
    decode = decoders.ByteLevel().decode
    for token, number in odd.get_vocab().items():
        if number > 1 and len(token) > 1 and "\ufffd" not in (text := decode([token])):
            assert len(pieces(text.encode())) == 1
