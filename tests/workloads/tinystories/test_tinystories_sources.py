"""Stories are read from files, folders and datasets, and a source that is of no use is refused by name."""

import csv
import io
import json
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import PurePath

import datasets
import pytest

from common.errors import UserError
from pipelines.workloads.tinystories import data, sources, story_blocks
from pipelines.workloads.tinystories.generated_stories import generate
from tests.workloads.tinystories.texts import STORIES, both, config, parts, written


def test_blank_lines_separate_stories_only_where_no_marker_does(tmp_path):
    stories = [f"{story}\n\nMore of number {number}." for number, story in enumerate(STORIES)]
    facts = data.prepare(config(written(tmp_path / "marked.txt", stories)), tmp_path / "marked")
    assert facts["note"] == ""
    assert sorted(both(tmp_path / "marked")) == sorted(stories)
    data.prepare(config(written(tmp_path / "blank.txt", stories, "\r\n \t\r\n")), tmp_path / "blank")
    assert sorted(both(tmp_path / "blank")) == sorted("\n\n".join(stories).split("\n\n"))


def test_blank_lines_between_paragraphs_are_noted(tmp_path):
    paragraphs = [" ".join(story.split()[:20]) + f" That was {number}." for number, story in enumerate(STORIES)]
    facts = data.prepare(config(written(tmp_path / "blank.txt", paragraphs, "\n\n")), tmp_path / "blank")
    assert facts["note"].startswith(f"blank lines separate {len(paragraphs)} stories of 1")
    assert facts["note"].endswith("; if these are paragraphs, put a line <|endoftext|> between stories")
    facts = data.prepare(config(written(tmp_path / "marked.txt", paragraphs)), tmp_path / "marked")
    assert facts["note"] == ""


@pytest.mark.parametrize("folder", [False, True])
def test_a_story_a_line_is_a_book_and_said_to_be_one_with_what_to_type(tmp_path, folder):
    (tmp_path / "my texts").mkdir()
    file, told = tmp_path / "my texts/lines.txt", [" ".join(story.split()) for story in STORIES]
    file.write_text("".join(f"{story}\n" for story in told))
    facts = data.prepare(config(file.parent if folder else file), tmp_path / "book")
    assert f"{file.parent if folder else file} is taken for a book and cut into passages" in facts["note"]
    command = facts["note"].partition(" (where each line is a story: ")[2].removesuffix(")")
    given = f"'{file.parent}'/*.txt" if folder else f"'{file}'"
    assert command == f"sed G {given} > stories.txt"
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert data.prepare(config(tmp_path / "stories.txt"), tmp_path / "parted")["note"] == ""
    assert set(both(tmp_path / "parted")) == set(told)


def test_few_marked_stories_are_cut_as_a_book_is_and_said_to_be(tmp_path):
    for number, said in ((19, "taken for a book and cut into passages: 19 stories are too few"), (20, "")):
        path = written(tmp_path / f"{number}.txt", [f"{story} {story}" for story in STORIES[:number]])
        note = data.prepare(config(path), tmp_path / str(number))["note"]
        assert said in note
        assert bool(note) == bool(said)


def test_of_columns_that_differ_in_capitals_the_one_called_text_is_read(tmp_path):
    table = io.StringIO()
    csv.writer(table).writerows([["text", "Text"], *([story, "a title"] for story in STORIES)])
    (tmp_path / "a.csv").write_text(table.getvalue())
    data.prepare(config(tmp_path / "a.csv"), tmp_path / "out")
    assert set(both(tmp_path / "out")) == set(STORIES)


def test_a_column_of_stories_may_be_called_so_in_capitals(tmp_path):
    table = io.StringIO()
    csv.writer(table).writerows([["ID", "Text"], *enumerate(STORIES)])
    (tmp_path / "a.csv").write_text(table.getvalue())
    data.prepare(config(tmp_path / "a.csv"), tmp_path / "out")
    assert set(both(tmp_path / "out")) == set(STORIES)


def test_a_marker_within_a_line_separates_and_never_stays(tmp_path):
    data.prepare(config(written(tmp_path / "line.txt", STORIES, "<|endoftext|>")), tmp_path / "line")
    assert set(both(tmp_path / "line")) == set(STORIES)


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
    assert config(folder).data.inputs() == [first, second]
    assert set(both(tmp_path / "out")) == set(STORIES)


@pytest.mark.parametrize("count", [20, 19])
def test_each_of_many_small_files_is_a_story_with_all_its_paragraphs(tmp_path, count):
    (tmp_path / "own").mkdir()
    own = [f"{story}\n\nThe end of {number}." for number, story in enumerate(STORIES[:count])]
    for number, story in enumerate(own):
        (tmp_path / "own" / f"{number}.txt").write_text(story)
    facts = data.prepare(config(tmp_path / "own"), tmp_path / "out")
    assert set(own).isdisjoint(both(tmp_path / "out")) == (count < 20)
    if count == 20:
        assert set(both(tmp_path / "out")) == set(own)
        assert facts["note"] == "each file is a story, but for those with markers"


def test_large_files_are_no_stories(tmp_path):
    (tmp_path / "own").mkdir()
    for number in range(20):
        (tmp_path / "own" / f"{number}.txt").write_text("\n\n".join(f"{story} {number}" * 2 for story in STORIES))
    assert data.prepare(config(tmp_path / "own"), tmp_path / "out")["train"]["stories"] > 100


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_lines_of_a_percent_sign_part_fortunes(tmp_path, line_end):
    (tmp_path / "fortunes.txt").write_bytes(f"{line_end}%{line_end}".join(STORIES).encode())
    facts = data.prepare(config(tmp_path / "fortunes.txt"), tmp_path / "out")
    assert set(both(tmp_path / "out")) == set(STORIES)
    assert not facts["note"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_saved_dataset_is_a_source(tmp_path, whole):
    stories = datasets.Dataset.from_dict({"id": list(range(31)), "text": [*STORIES, None]})
    saved = datasets.DatasetDict({"train": stories, "test": stories.select([0])}) if whole else stories
    saved.save_to_disk(tmp_path / "saved")
    facts = data.prepare(config(tmp_path / "saved"), tmp_path / "out")
    assert set(both(tmp_path / "out")) == set(STORIES)
    assert facts["files"]
    assert all(path.is_file() for path in config(tmp_path / "saved").data.inputs())


def test_parquet_files_are_a_source_and_what_else_lies_there_is_named(tmp_path):
    folder = tmp_path / "cloned"
    (folder / "data").mkdir(parents=True)
    for name, texts in (("train-00000", STORIES[:20]), ("train-00001", [*STORIES[20:], None]), ("validation", ["No."])):
        datasets.Dataset.from_dict({"id": list(range(len(texts))), "text": texts}).to_parquet(
            folder / "data" / f"{name}.parquet"
        )
    for name in ("README.md", "a.odt", "b.odt", "data/below.txt", ".gitattributes"):
        (folder / name).write_text("Not this.")
    (folder / "data" / "other.parquet").write_bytes((folder / "data" / "validation.parquet").read_bytes())
    facts = data.prepare(config(folder), tmp_path / "out")
    assert set(both(tmp_path / "out")) == {*STORIES, "No."}
    assert facts["source"] == f"folder {folder}, .parquet files: 2"
    assert facts["files"] == ["train-00000.parquet", "train-00001.parquet", "validation.parquet"]
    other = "stories are read from .txt, .jsonl and .parquet files; save it as one of them"
    assert facts["note"].splitlines() == [
        f"left out of {folder}: 1 .md ({other})",
        f"left out of {folder}: 2 .odt ({other})",
        f"left out of {folder}: 1 .parquet (only the files named train are read, and those of a test)",
        f"left out of {folder}: 1 .txt (those in subfolders are not read; move them, or give their folder)",
    ]
    data.prepare(config(folder / "data" / "train-00000.parquet"), tmp_path / "one")
    assert set(both(tmp_path / "one")) == set(STORIES[:20])


def test_a_parquet_file_without_stories_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no table")
    with pytest.raises(UserError, match=r"a\.parquet is no Parquet file"):
        data.prepare(config(tmp_path), tmp_path / "out")
    datasets.Dataset.from_dict({"story": ["a"]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet needs a column `text` of strings; it has story; rename one"):
        data.prepare(config(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out/scratch").exists()


def lines_of(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_json_lines_are_stories_and_not_text_to_learn(tmp_path):
    half = len(STORIES) // 2
    (tmp_path / "a.jsonl").write_text(lines_of({"id": 1, "text": story} for story in STORIES[:half]) + "\n")
    (tmp_path / "b.txt").write_text("\n<|endoftext|>\n".join(STORIES[half:]))
    facts = data.prepare(config(tmp_path), tmp_path / "out")
    assert set(both(tmp_path / "out")) == set(STORIES)
    assert facts["source"] == f"folder {tmp_path}, .txt files: 1, .jsonl files: 1"
    (tmp_path / "a.jsonl").write_text(lines_of({"text": story} for story in STORIES))
    data.prepare(config(tmp_path / "a.jsonl"), tmp_path / "one")
    assert set(both(tmp_path / "one")) == set(STORIES)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", lines_of([{"title": "A", "body": "Once."}]), "line 1, needs a column `text` of strings; it has ti"),
        ("a.jsonl", lines_of([{"text": "Once."}]) + "{", r"a\.jsonl: line 2 is not JSON"),
        ("a.jsonl", "[1]\n", "line 1, needs a column `text` of strings; it has none"),
        ("a.JSONL", "[1]\n", "line 1, needs a column `text` of strings; it has none"),
        ("a.json", json.dumps({"1": "Once."}), "line 1, needs a column `text` of strings; it has 1;"),
        ("a.json", "[1", r"a\.json: not a JSON list"),
        ("a.csv", "id,text\n1,Once, twice.\n", r"a\.csv: line 2 has 3 cells under 2 columns; put quotes around texts"),
        ("a.csv", "id,story\n1,Once.\n", r"a\.csv: its first row, which names the columns, needs a column `text` of s"),
        ("a.csv", "id,story\n1,Once.\n2,Twice, thrice\n", "needs a column `text` of strings; it has id, story; rename"),
        ("a.xlsx", "PK", r"stories are not read from \.xlsx files; give a text file \(\.txt, \.jsonl or"),
        ("a.docx", "PK", r"stories are not read from \.docx files"),
    ],
)
def test_what_would_be_learnt_as_its_bytes_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        data.prepare(config(tmp_path / name), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))


@pytest.mark.parametrize(
    ("name", "encoding"),
    [("a.json", "utf-8"), ("texts.json", "utf-8"), ("a.ndjson", "utf-8"), ("a.csv", "cp1252"), ("a.tsv", "utf-16")],
)
def test_lists_of_stories_are_stories_and_not_text_to_learn(tmp_path, name, encoding):
    stories = [f'{story}\n\n"Schön, {number}; said the end."' for number, story in enumerate(STORIES)]
    rows = [{"id": number, "text": story} for number, story in enumerate(stories)]
    table = io.StringIO()
    writer = csv.DictWriter(table, rows[0], delimiter=";" if name == "a.csv" else "\t")
    writer.writeheader()
    writer.writerows(rows)
    whole = {"a.json": json.dumps(rows), "texts.json": json.dumps(stories), "a.ndjson": lines_of(rows)}
    (tmp_path / name).write_bytes(whole.get(name, table.getvalue()).encode(encoding))
    data.prepare(config(tmp_path / name), tmp_path / "out")
    assert set(both(tmp_path / "out")) == set(stories)


def test_of_a_folder_endings_count_in_any_case_and_lists_are_named(tmp_path):
    (folder := tmp_path / "texts").mkdir()
    written(folder / "A.TXT", STORIES)
    (folder / "b.csv").write_text("id,text\n1,Once.\n")
    facts = data.prepare(config(folder), tmp_path / "out")
    assert set(both(tmp_path / "out")) == set(STORIES)
    why = "may hold no stories; name the one to read, as in data.source=FOLDER/FILE"
    assert facts["note"] == f"left out of {folder}: 1 .csv ({why})"


@pytest.mark.parametrize("through", ["hub", "folder"])
def test_a_dataset_with_a_split_of_its_own_to_validate_is_judged_on_that_one(tmp_path, monkeypatch, through):
    repository, load = tmp_path / "cloned", datasets.load_dataset
    own = [*generate(5, 4_000), STORIES[0]]  # one of which it would train on
    marked = ["<|endoftext|>".join(STORIES[:2]), *STORIES[2:]]
    for name, texts in (
        ("train-00000-of-00002", marked[:9]),
        ("train-00001-of-00002", marked[9:]),
        ("validation-00000-of-00001", own),
    ):
        datasets.Dataset.from_dict({"text": texts}).to_parquet(repository / "data" / f"{name}.parquet")
    monkeypatch.setattr(datasets, "load_dataset", lambda name: load(str(repository), cache_dir=str(tmp_path / "cache")))
    monkeypatch.setattr(urllib.request, "urlopen", lambda request, timeout: None)
    facts = data.prepare(config("owner/stories" if through == "hub" else repository), tmp_path / "out")
    train, held_out = parts(tmp_path / "out")
    assert set(held_out) == set(own)
    assert {*train, *data.stories(tmp_path / "out", "validation")} == set(STORIES[1:])
    assert "its own test split held out" in facts["split"]


@pytest.mark.parametrize("network", ["none", "silent"])
def test_without_a_network_a_dataset_id_is_refused_at_once_with_the_ways_out(tmp_path, monkeypatch, network):
    """The library by itself tries again for minutes, in which it would reach for the network that tests have not."""
    asked, over, waited, began = threading.Event(), threading.Event(), [], time.monotonic()

    def urlopen(request, timeout):
        assert request.get_method() == "HEAD"
        assert timeout == 0.5
        asked.set()
        if network == "silent":  # a name server that does not answer is waited for without a limit
            waited.append(not over.wait(60))
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    monkeypatch.setattr(sources, "PATIENCE", 0.5)
    try:
        with pytest.raises(UserError) as refusal:
            data.prepare(config("owner/stories"), tmp_path)
        assert not waited
        assert time.monotonic() - began < 9  # less than the usual patience, which is 10 seconds
    finally:
        over.set()
    assert asked.is_set()
    assert not datasets.config.HF_HUB_OFFLINE
    assert "data.source=owner/stories is not a file or folder here" in str(refusal.value)
    assert "Couldn't reach 'owner/stories'" in str(refusal.value)
    assert "Without a network, leave data.source out for the embedded stories" in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"file .*s\.txt: there is no text in it \(it is empty"),
        (b" \r\n\t\n", r"file .*s\.txt: there is no text in it"),
        (b"<|endoftext|>\n<|endoftext|>", r"there is no text in it .*; give a text file"),
        (b"Once \xc3\xa4 m\xe4rchen.", r"s\.txt is not UTF-8: byte 9 is 0xe4; convert it first .*: iconv -f cp1252"),
        (b"\xff\xfeO\0n\0\0", r"s\.txt is not UTF-8: byte 0 is 0xff; convert it first"),
        (
            b"One short story.",
            r"1 passages of up to 500 characters are too few to hold one out, 10 are needed; give a longer text, or "
            r"lower data\.passage_characters=500",
        ),
    ],
)
def test_a_file_that_is_no_use_is_refused_by_name(tmp_path, content, message):
    (tmp_path / "s.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        data.prepare(config(tmp_path / "s.txt"), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))


def test_texts_in_windows_encodings_are_read_as_what_they_are(tmp_path):
    story = "“Once” there was a Märchen."
    for number, name in enumerate(("utf-8", "utf-8-sig", "cp1252", "utf-16")):
        (tmp_path / f"{number}.txt").write_bytes(f"{number} {story}".encode(name))
    said, files, _ = sources.text_files(config(tmp_path).data, tmp_path / "out")
    found, _ = story_blocks.find(files, 0)
    assert sorted(found.stories()) == [f"{number} {story}" for number in range(4)]
    assert said.endswith(".txt files: 4, 2 converted from Windows-1252 or UTF-16")


def test_half_a_character_in_json_is_a_question_mark_as_in_cut_emoji(tmp_path):
    rows = [json.dumps({"text": f"{number} smiled \ud83d"}) for number in range(30)]
    (tmp_path / "cut.jsonl").write_text("\n".join(rows), encoding="ascii")
    _, files, _ = sources.text_files(config(tmp_path / "cut.jsonl").data, tmp_path / "out")
    assert sorted(story_blocks.find(files, 0)[0].stories()) == sorted(f"{number} smiled ?" for number in range(30))


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_a_row_whose_text_is_null_is_passed_over_as_in_parquet(tmp_path, name):
    rows = [{"text": None}, *({"text": f"Story {number}."} for number in range(30)), {"text": None, "id": 3}]
    (tmp_path / name).write_text(json.dumps(rows) if name.endswith(".json") else lines_of(rows))
    _, files, _ = sources.text_files(config(tmp_path / name).data, tmp_path / "out")
    assert sorted(story_blocks.find(files, 0)[0].stories()) == sorted(f"Story {number}." for number in range(30))


def test_files_of_a_large_folder_are_not_compared_with_each_other(tmp_path, monkeypatch):
    for number in range(200):
        (tmp_path / f"{number}.txt").write_text("Once.")
    compared, equal = [], PurePath.__eq__
    monkeypatch.setattr(PurePath, "__eq__", lambda *pair: compared.append(pair) or equal(*pair))
    sources.text_files(config(tmp_path).data, tmp_path / "out")
    assert len(compared) < 2000


@pytest.mark.parametrize("source", ["nowhere.txt", "no/where.txt", "/no/where/at/all", "a/b/c", "./stories", ""])
def test_a_path_that_does_not_exist_is_refused_without_asking_the_network(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: pytest.fail("asked"))
    with pytest.raises(UserError, match=r"no such file or folder; give a text file|no \.txt files in this folder"):
        data.prepare(config(source), tmp_path / "out")


def test_a_folder_without_text_files_is_refused(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a.txt").write_text("Text.")
    (tmp_path / "b.docx").write_text("Text.")
    with pytest.raises(UserError, match=r"no \.txt files in this folder \(subfolders are not read\)") as error:
        data.prepare(config(tmp_path), tmp_path / "out")
    assert "1 .docx (stories are read from .txt, .jsonl and .parquet" in str(error.value)


@pytest.mark.parametrize(
    "columns", [{"story": ["a"]}, {"text": [1]}, {"train": {"story": ["a"]}}, {"test": {"text": ["a"]}}]
)
def test_a_dataset_without_stories_is_refused(tmp_path, columns):
    if isinstance(next(iter(columns.values())), dict):
        saved = datasets.DatasetDict({name: datasets.Dataset.from_dict(each) for name, each in columns.items()})
    else:
        saved = datasets.Dataset.from_dict(columns)
    saved.save_to_disk(tmp_path / "saved")
    with pytest.raises(UserError, match=r"a column `text` of strings; it has (story|text|test);"):
        data.prepare(config(tmp_path / "saved"), tmp_path / "out")
