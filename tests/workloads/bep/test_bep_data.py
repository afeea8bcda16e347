"""A folder of documents becomes tokens in three parts that share nothing, or is refused as a whole."""

import json
import os
import random
import shutil
import textwrap
import zipfile
from types import SimpleNamespace

import datasets
import docx
import numpy as np
import pypdf
import pytest

from common.errors import UserError
from common.files import digests, sha256
from models.char_lstm import MASKS, SPECIAL_TOKENS, Characters
from pipelines import cli
from pipelines.workloads.bep import data
from tests.stages import refused, stage, stage_here

WORDS = "plan model information container status review issue role lead team asset space level zone grid room wall door"
WORDS = (WORDS + " exchange delivery appointed party client survey cost programme risk method code field").split()


def prose(seed, characters=2500):
    """Sentences that no other seed has."""
    generator, text = random.Random(seed), ""
    while len(text) < characters:
        text += " ".join(generator.choices(WORDS, k=9)).capitalize() + generator.choice([". ", ".\n", ".\n\n"])
    return text.strip()


def config(sources, **fields):
    section = {
        "sources": None if sources is None else str(sources),
        "skip_bad": False,
        "mask": True,
        "lower_case": False,
        "duplicates": 0.8,
        "validation": 0.1,
        "test": 0.1,
        "maximum_overlap": 0.01,
        "force": False,
        "guard": 100,
        "maximum_bytes": 1_000_000,
        "seed": 0,
    }
    return SimpleNamespace(seed=0, data=SimpleNamespace(**{**section, **fields}))


def written(folder, texts):
    """A folder of text files; a key without an ending gets .txt."""
    for name, text in texts.items():
        path = folder / (name if "." in name else f"{name}.txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def read(folder):
    """{name: decoded text}, all blocks of a document in their order."""
    corpus = data.load(folder)
    characters = Characters(corpus.vocabulary, corpus.facts["lower_case"])
    texts = {}
    for part in data.PARTS:
        for text in corpus.parts[part]:
            texts.setdefault(text.name, []).append(characters.decode(text.tokens.tolist()))
    return texts


def part_of(folder):
    return {text.name: part for part, texts in data.load(folder).parts.items() for text in texts}


@pytest.fixture
def firm(tmp_path):
    """Ten documents, three of them versions of one."""
    texts = {f"plan-{letter}": prose(seed) for seed, letter in enumerate("abcdefgh")}
    texts["plan-a-rev2.md"] = texts["plan-a"].replace("Plan", "Program", 1) + "\n\nA new last sentence."
    texts["old/plan-a-rev0"] = texts["plan-a"].replace(". ", ".  ")
    return written(tmp_path / "firm", texts)


def test_documents_come_back_from_their_tokens(firm, tmp_path):
    facts = data.prepare(config(firm), tmp_path / "out")
    texts = read(tmp_path / "out")
    assert set(texts) == set(facts["files"])
    for name, pieces in texts.items():
        assert pieces == [(firm / name).read_text().replace("  ", " ").replace(" \n", "\n")]


def test_the_folder_holds_a_dataset_of_names_families_parts_texts_and_tokens(firm, tmp_path):
    data.prepare(config(firm), tmp_path / "out")
    table = datasets.load_from_disk(tmp_path / "out")
    assert set(table.features) == {"name", "family", "part", "text", "tokens"}
    assert table.features["tokens"] == datasets.List(datasets.Value("uint8"))
    corpus = data.load(tmp_path / "out")
    assert {part: [text.name for text in texts] for part, texts in corpus.parts.items()} == {
        part: [row["name"] for row in table if row["part"] == part] for part in data.PARTS
    }
    assert all(text.tokens.dtype == np.uint8 for texts in corpus.parts.values() for text in texts)


def test_versions_stay_together_and_are_reported(firm, tmp_path):
    versions = ["old/plan-a-rev0.txt", "plan-a-rev2.md", "plan-a.txt"]
    for seed in range(3):
        facts = data.prepare(config(firm, seed=seed), tmp_path / str(seed))
        assert facts["families"] == 8
        assert [each["documents"] for each in facts["families_of_several"]] == [versions]
        assert 0.9 < facts["families_of_several"][0]["similarity"] < 1
        assert len({part_of(tmp_path / str(seed))[name] for name in versions}) == 1
        assert facts["overlap"]["share"] <= 0.01
        assert facts["duplicate_lines"]["share_of_characters"] > 0.1
        assert facts["note"] is None


def test_the_facts_count_what_is_there(firm, tmp_path):
    facts = data.prepare(config(firm), tmp_path / "out")
    corpus = data.load(tmp_path / "out")
    assert corpus.facts == json.loads(json.dumps(facts, allow_nan=False))
    for part, texts in corpus.parts.items():
        assert facts[part]["documents"] == len(texts) >= 1
        assert facts[part]["characters"] == sum(len(text.tokens) for text in texts)
        assert facts[part]["names"] == sorted(text.name for text in texts)
    assert facts["vocabulary"] == len(SPECIAL_TOKENS) + len(corpus.vocabulary)
    report = facts["files"]["plan-b.txt"]
    assert report["sha256"] == sha256(firm / "plan-b.txt")
    assert report["characters"] == len((firm / "plan-b.txt").read_text())
    assert (report["pages"], report["warnings"]) == (None, [])


def test_two_preparations_write_the_same_bytes(firm, tmp_path):
    facts = data.prepare(config(firm), tmp_path / "one")
    assert data.prepare(config(firm), tmp_path / "two") == facts
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


@pytest.mark.slow
def test_another_process_writes_the_same_bytes_and_says_what_it_read(firm, tmp_path):
    data.prepare(config(firm), tmp_path / "one")
    done = stage(tmp_path, "prepare.py", "--workload", "bep", f"data.sources={firm}", PYTHONHASHSEED="1")
    assert done.returncode == 0, done.stderr
    assert "plan-a-rev2.md" in done.stdout
    folder = next((tmp_path / "data" / "bep").iterdir())
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["sha256"] == digests(tmp_path / "one")
    assert manifest["inputs"] == {str(path): sha256(path) for path in firm.rglob("*.*")}


def test_the_vocabulary_is_that_of_training_and_unknown_characters_are_counted(firm, tmp_path):
    for path in firm.rglob("*.*"):
        path.write_text(f"{path.read_text()} {chr(0x410 + len(path.name) + ord(path.stem[-1]))}")
    facts = data.prepare(config(firm), tmp_path / "out")
    corpus = data.load(tmp_path / "out")
    table = datasets.load_from_disk(tmp_path / "out")
    training = set("".join(row["text"] for row in table if row["part"] == "train"))
    held_out = "".join(row["text"] for row in table if row["part"] != "train")
    assert corpus.vocabulary == tuple(sorted(training))
    unknown = sum(character not in training for character in held_out)
    assert facts["unknown_share"] == unknown / len(held_out) > 0
    tokens = np.concatenate([text.tokens for part in ("validation", "test") for text in corpus.parts[part]])
    assert (tokens == SPECIAL_TOKENS.index("<unk>")).sum() == unknown


def test_special_tokens_are_ids_that_no_text_has(firm, tmp_path):
    typed = "A literal <unk> and <end>, <pad>, <email> \ue000 \ue001."
    for path in firm.rglob("*.*"):
        path.write_text(f"{path.read_text()}\n{typed} Ask {path.stem}@firm.com or call 020 7946 0123: www.firm.com")
    facts = data.prepare(config(firm, force=True), tmp_path / "out")
    assert facts["masked"] == {"email": 10, "telephone": 10, "url": 10}
    for texts in data.load(tmp_path / "out").parts.values():
        for text in texts:
            special = text.tokens[text.tokens < len(SPECIAL_TOKENS)].tolist()
            assert [number for number in special if number != 1] == list(MASKS.values())
    for pieces in read(tmp_path / "out").values():
        assert "A literal <unk> and <end>, <pad>, <email> ." in pieces[0]
        assert pieces[0].endswith("Ask <email> or call <telephone>: <url>")


def test_without_masking_addresses_stay(firm, tmp_path):
    for path in firm.rglob("*.*"):
        path.write_text(f"{path.read_text()} bim@firm.com")
    facts = data.prepare(config(firm, mask=False), tmp_path / "out")
    assert facts["masked"] == {}
    assert all(pieces[0].endswith("bim@firm.com") for pieces in read(tmp_path / "out").values())


def test_lower_case_is_recorded_and_leaves_no_capital(firm, tmp_path):
    facts = data.prepare(config(firm, lower_case=True), tmp_path / "out")
    assert facts["lower_case"] is True
    assert not any(character.isupper() for character in data.load(tmp_path / "out").vocabulary)
    assert all(pieces[0].islower() for pieces in read(tmp_path / "out").values())
    assert data.prepare(config(firm), tmp_path / "cased")["vocabulary"] > facts["vocabulary"]


def test_a_large_vocabulary_takes_two_bytes(firm, tmp_path):
    for number, path in enumerate(sorted(firm.rglob("*.*"))):
        path.write_text(path.read_text() + "".join(chr(0x4E00 + 40 * number + n) for n in range(40)))
    data.prepare(config(firm), tmp_path / "out")
    texts = [text for part in data.load(tmp_path / "out").parts.values() for text in part]
    assert {text.tokens.dtype for text in texts} == {np.dtype(np.uint16)}
    assert max(text.tokens.max() for text in texts) > 255


def test_one_document_is_cut_into_blocks_and_a_note_says_so(tmp_path):
    whole = prose(1, 20_000)
    source = written(tmp_path / "in", {"plan": whole}) / "plan.txt"
    facts = data.prepare(config(source, validation=0.1, test=0.2), tmp_path / "out")
    assert "successive blocks" in facts["split"]
    assert "the figures do not speak for a document the model has not seen: give more documents" in facts["note"]
    train, validation, test = read(tmp_path / "out")["plan.txt"]
    assert whole.startswith(train)
    assert whole.endswith(test)
    assert whole.index(validation) == len(train) + 100
    assert whole.index(test) == len(train) + len(validation) + 200


def test_of_two_families_only_one_version_each_is_cut_into_blocks(tmp_path):
    one = prose(1, 9_000)
    texts = {"a": one, "a-long": f"{one} And more.", "b": prose(2, 6_000)}
    facts = data.prepare(config(written(tmp_path / "in", texts)), tmp_path / "out")
    assert facts["note"].endswith("(left out as versions of others: a.txt)")
    assert set(read(tmp_path / "out")) == {"a-long.txt", "b.txt"}
    assert facts["overlap"]["share"] == 0


@pytest.fixture
def copied(tmp_path):
    """Families that share a long passage."""
    texts = {letter: prose(seed) for seed, letter in enumerate("abcdef")}
    passage = prose(99, 1000)
    return written(tmp_path / "copied", {name: f"{text}\n\n{passage}" for name, text in texts.items()})


def test_held_out_text_that_training_has_is_refused_with_the_documents(copied, tmp_path):
    with pytest.raises(UserError) as error:
        data.prepare(config(copied), tmp_path / "out")
    said = str(error.value)
    assert "\n" not in said
    assert (
        "of the held-out text stands in training in pieces of 50 characters, more than data.maximum_overlap=0.01"
        in said
    )
    assert "% (most of it in " in said
    assert "lower data.duplicates=0.8" in said
    assert "data.force=true" in said
    assert not (tmp_path / "out").exists()


def test_overlap_is_recorded_where_it_is_forced_or_allowed(copied, tmp_path):
    facts = data.prepare(config(copied, force=True), tmp_path / "forced")
    assert 0.2 < facts["overlap"]["share"] < 0.4
    assert set(facts["overlap"]["worst"]) == {*facts["validation"]["names"], *facts["test"]["names"]}
    assert data.prepare(config(copied, maximum_overlap=0.5), tmp_path / "allowed")["overlap"] == facts["overlap"]


def dirty(folder):
    """Ten documents and all that can be wrong; returns {name: what is said}."""
    written(folder.parent, {"outside.txt": "secret"})
    (folder / "link.txt").symlink_to("../outside.txt")
    (folder / "empty.txt").write_text("")
    (folder / "contents.txt").write_text("Contents\n1 Scope ....... 3\n")
    with zipfile.ZipFile(folder / "drawings.docx", "w") as archive:
        archive.writestr("a.dwg", "x")
    docx.Document().save(folder / "bomb.docx")
    with zipfile.ZipFile(folder / "bomb.docx", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/media/zeros.bin", bytes(5_000_000))
    locked = pypdf.PdfWriter()
    locked.add_blank_page(100, 100)
    locked.encrypt("secret", algorithm="RC4-128")
    locked.write(folder / "locked.pdf")
    (folder / "table.xlsx").write_text("ignored")
    return {
        "link.txt": "is a symbolic link that leads out of",
        "empty.txt": "is empty",
        "contents.txt": "has no text but page headers, footers and tables of contents",
        "drawings.docx": "is a zip archive, but no Word document",
        "locked.pdf": "is encrypted; save it without a password",
        "bomb.docx": "bytes when expanded, more than data.maximum_bytes=1000000",
    }


def test_all_files_that_cannot_be_used_are_named_at_once(firm, tmp_path):
    expected = dirty(firm)
    with pytest.raises(UserError, match=r"6 of 16 files cannot be used; .* data\.skip_bad=true") as error:
        data.prepare(config(firm), tmp_path / "out")
    lines = str(error.value).splitlines()[1:]
    assert len(lines) == 6
    for name, reason in expected.items():
        assert any(line.startswith(f"  {name}: ") and reason in line for line in lines)
    assert not (tmp_path / "out").exists()


def test_files_that_cannot_be_used_are_left_out_on_demand(firm, tmp_path):
    clean = data.prepare(config(firm), tmp_path / "clean")
    expected = dirty(firm)
    facts = data.prepare(config(firm, skip_bad=True), tmp_path / "out")
    assert set(facts["skipped"]) == set(expected)
    assert all(reason in facts["skipped"][name] for name, reason in expected.items())
    assert facts["ignored"] == {"table.xlsx": "not a kind of file that is read"}
    assert facts["files"] == clean["files"]
    assert facts["train"] == clean["train"]


def test_encodings_may_be_mixed(firm, tmp_path):
    (firm / "plan-b.txt").write_bytes(((firm / "plan-b.txt").read_text() + " M\u00fcller").encode("cp1252"))
    (firm / "plan-c.txt").write_bytes(((firm / "plan-c.txt").read_text() + " M\u00fcller").encode("utf-16"))
    (firm / "plan-d.txt").write_bytes(((firm / "plan-d.txt").read_text() + " M\u00fcller").encode("utf-8-sig"))
    facts = data.prepare(config(firm), tmp_path / "out")
    texts = datasets.load_from_disk(tmp_path / "out")
    endings = {row["name"]: row["text"][-7:] for row in texts}
    assert [endings[f"plan-{letter}.txt"] for letter in "bcd"] == [" M\u00fcller"] * 3
    warned = {name: each["warnings"] for name, each in facts["files"].items() if each["warnings"]}
    assert warned == {"plan-b.txt": ["lines that are not UTF-8 and were read as cp1252: 1"]}


def test_lines_of_a_text_with_pages_are_joined(firm, tmp_path):
    page = "The appointed party checks each information container\nbefore it is shared with the other task teams.\n"
    (firm / "plan-b.txt").write_text("\f".join([page, "\n".join(textwrap.wrap(prose(50), 54)), page]))
    facts = data.prepare(config(firm), tmp_path / "out")
    assert facts["files"]["plan-b.txt"]["pages"] == 3
    assert facts["cleaned"]["lines_joined"] >= 2
    assert "container before it is shared" in read(tmp_path / "out")["plan-b.txt"][0]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({}, r"there are no documents in it that can be read; give a folder of documents"),
        ({"a.xlsx": "x", ".b.txt": "y"}, r"no documents in it that can be read \(ignored: \.b\.txt, a\.xlsx\)"),
        ({"a": prose(1, 900)}, r"9\d\d characters are too few .*; give documents with 10,000 or more"),
        ({"a": "x" * 5000, "b": "y" * 4000}, r"9,000 characters are too few"),
    ],
)
def test_a_folder_with_too_little_is_refused_in_a_line(tmp_path, texts, message):
    (tmp_path / "in").mkdir()
    with pytest.raises(UserError, match=message) as error:
        data.prepare(config(written(tmp_path / "in", texts)), tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("texts", "fields"),
    [
        ({"a": prose(1, 12_000)}, {"validation": 0.01}),
        ({"a": prose(1, 12_000)}, {"guard": 9_800}),
        ({"a": prose(1, 12_000), "b": prose(2, 3_000), "c": "Short."}, {}),
    ],
)
def test_a_part_with_too_little_is_refused_with_the_keys(tmp_path, texts, fields):
    with pytest.raises(UserError, match=r"characters for \w+ are too few, 500 are needed; .*data\.guard="):
        data.prepare(config(written(tmp_path / "in", texts), **fields), tmp_path / "out")


def test_the_embedded_documents_are_the_default(tmp_path, monkeypatch, firm):
    monkeypatch.setattr(data, "EMBEDDED", firm)
    facts = data.prepare(config(None), tmp_path / "out")
    assert facts["source"] == "embedded documents"
    assert len(facts["files"]) == 10
    assert data.inputs(config(None)) == []


def test_inputs_are_the_files_that_are_read(firm):
    dirty(firm)
    found = {path.relative_to(firm).as_posix() for path in data.inputs(config(firm))}
    assert {"plan-a.txt", "old/plan-a-rev0.txt", "empty.txt"} < found
    assert not {"link.txt", "table.xlsx"} & found
    assert data.inputs(config(firm / "plan-b.txt")) == [firm / "plan-b.txt"]
    assert data.inputs(config(firm / "gone")) == []


def test_a_refusal_exits_with_2_and_leaves_nothing(firm, tmp_path):
    small = written(tmp_path / "small", {"plan": prose(1, 1000)})
    refused(stage_here(tmp_path, "prepare.py", "--workload", "bep", f"data.sources={small}"), "10,000 or more")
    (firm / "empty.txt").write_text("")
    refused(
        stage_here(tmp_path, "prepare.py", "--workload", "bep", f"data.sources={firm}"),
        "1 of 11 files cannot be used",
        "  empty.txt: is empty",
    )
    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert os.listdir(tmp_path / "data" / "bep") == []


def test_a_file_added_later_is_noticed(firm, tmp_path, monkeypatch):
    from pipelines.workloads.bep import WORKLOAD, Config, Data

    monkeypatch.chdir(tmp_path)
    settings = Config(data=Data(sources="firm"))
    folder, manifest = cli.prepare("bep", WORKLOAD, settings)
    assert manifest["vocabulary"] == data.load(folder).facts["vocabulary"]
    assert cli.prepare("bep", WORKLOAD, settings)[1] == manifest
    shutil.copy(firm / "plan-b.txt", firm / "plan-z.txt")
    with pytest.raises(UserError, match=r"plan-z\.txt has changed since"):
        cli.prepare("bep", WORKLOAD, settings)
