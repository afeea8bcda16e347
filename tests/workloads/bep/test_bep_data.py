"""A folder of documents becomes tokens in three parts that share nothing, or is refused as a whole."""

import csv
import io
import json
import re
import shutil
import textwrap
import zipfile

import datasets
import docx
import numpy as np
import pypdf
import pytest

from common.disk.files import digests, sha256
from common.errors import UserError
from models.plans.characters import MASKS, SPECIAL_TOKENS
from pipelines import loading
from pipelines.workloads.bep import data
from pipelines.workloads.bep.documents import sources
from pipelines.workloads.bep.splits import PARTS
from tests.stages import refused, stage
from tests.workloads.bep.firm import config, part_of, prose, read, written


def test_documents_come_back_from_their_tokens(firm, tmp_path):
    facts = data.prepare(config(firm), tmp_path / "out")
    texts = read(tmp_path / "out")
    assert set(texts) == set(facts["files"])
    for name, pieces in texts.items():
        assert pieces == [(firm / name).read_text().replace("  ", " ").replace(" \n", "\n")]


def test_the_folder_holds_a_dataset_of_names_families_parts_texts_and_outlines(firm, tmp_path):
    data.prepare(config(firm), tmp_path / "out")
    table = datasets.load_from_disk(tmp_path / "out")
    assert set(table.features) == {"name", "family", "part", "text", "outline"}
    assert table.features["outline"] == datasets.List(datasets.Value("int32"))
    corpus = data.load(tmp_path / "out")
    assert {part: [text.name for text in texts] for part, texts in corpus.parts.items()} == {
        part: [row["name"] for row in table if row["part"] == part] for part in PARTS
    }
    assert all(text.tokens.dtype == np.uint8 for texts in corpus.parts.values() for text in texts)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_versions_stay_together_and_are_reported(firm, tmp_path, seed):
    versions = ["old/plan-a-rev0.txt", "plan-a-rev2.md", "plan-a.txt"]
    facts = data.prepare(config(firm, seed=seed), tmp_path / "out")
    assert facts["families"] == 8
    assert [each["documents"] for each in facts["families_of_several"]] == [versions]
    assert 0.9 < facts["families_of_several"][0]["similarity"] < 1
    assert len({part_of(tmp_path / "out")[name] for name in versions}) == 1
    assert facts["overlap"]["share"] <= 0.01
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
    facts = data.prepare(config(firm), tmp_path / "out")
    masked = {kind: count for kind, count in facts["masked"].items() if count}
    assert masked == {"email": 10, "telephone": 10, "url": 10}
    for texts in data.load(tmp_path / "out").parts.values():
        for text in texts:
            special = text.tokens[text.tokens < len(SPECIAL_TOKENS)].tolist()
            assert [number for number in special if number != 1] == list(MASKS.values())
    for pieces in read(tmp_path / "out").values():
        assert "A literal <unk> and <end>, <pad>, <email> ." in pieces[0]
        assert pieces[0].endswith("Ask <email> or call <telephone>: <url>")


def test_names_of_persons_are_masked_in_the_users_documents(firm, tmp_path):
    (firm / "roles.txt").write_text("The lead is Priya Sharma. Sharma signs.\n" * 40)
    facts = data.prepare(config(firm, mask_names=True), tmp_path / "out")
    assert facts["masked"]["name"] == 80


def test_a_reviewed_line_is_kept(firm, tmp_path):
    (firm / "roles.txt").write_text("The lead is Priya Sharma. Tom Barlow signs.\n" * 40)
    facts = data.prepare(config(firm), tmp_path / "out")
    assert facts["review"].startswith("masked.csv, in the folder below: in a copy, say keep or add lines, ")
    table = (tmp_path / "out" / "masked.csv").read_text(encoding="utf-8-sig")
    assert "roles.txt,name,Priya Sharma,40,1," in table
    reviewed = tmp_path / "reviewed.csv"
    reviewed.write_text(re.sub("(?m)^(.*Priya Sharma,40,.*),mask$", r"\1,keep", table))
    data.prepare(config(firm, reviewed=str(reviewed)), tmp_path / "again")
    assert read(tmp_path / "again")["roles.txt"][0].startswith("The lead is Priya Sharma. <name> signs.")
    rows = list(csv.reader(io.StringIO(table.replace(",mask", ",perhaps"))))
    with reviewed.open("w", encoding="cp1252", newline="") as file:  # as some spreadsheets save it
        csv.writer(file, delimiter=";").writerows(rows)
    with pytest.raises(UserError, match="a decision is mask, keep or add, not 'perhaps'"):
        data.prepare(config(firm, reviewed=str(reviewed)), tmp_path / "wrong")


def test_no_spreadsheet_runs_what_was_masked_and_a_review_finds_it_again(firm, tmp_path):
    (firm / "roles.txt").write_text("+44 20 7946 0123 is the desk.\n=HYPERLINK(1) by Tom Barlow.\n" * 40)
    data.prepare(config(firm), tmp_path / "out")
    table = (tmp_path / "out" / "masked.csv").read_text(encoding="utf-8-sig")
    listed = [row for row in csv.reader(io.StringIO(table)) if row[0] == "roles.txt"]
    assert [row[2] for row in listed] == ["'+44 20 7946 0123", "Tom Barlow"]
    assert [row[5][:2] for row in listed] == ["[+", "'="]
    reviewed = tmp_path / "reviewed.csv"
    reviewed.write_text(re.sub("(?m)^(.*7946.*),mask$", r"\1,keep", table))
    facts = data.prepare(config(firm, reviewed=str(reviewed)), tmp_path / "again")
    assert read(tmp_path / "again")["roles.txt"][0].startswith("+44 20 7946 0123 is the desk.")
    assert "reviewed" not in (facts["note"] or "")


def test_decisions_that_keep_nothing_are_told(firm, tmp_path):
    (firm / "roles.txt").write_text("The lead is Priya Sharma. Tom Barlow signs.\n" * 40)
    reviewed = tmp_path / "reviewed.csv"
    rows = ["roles.txt,name,Priya Sharma,keep", "old.txt,name,Tom Barlow,keep", ",telephone,4.42E+11,keep"]
    reviewed.write_text("\n".join(["document,kind,text,decision", *rows]))
    facts = data.prepare(config(firm, reviewed=str(reviewed), lower_case=True), tmp_path / "out")
    said = f"data.reviewed={reviewed}: decisions to keep text that no document has: 2, such as 4.42E+11, Tom Barlow"
    assert said in facts["note"].split("\n")


def test_what_a_review_adds_is_masked_in_all_documents_or_in_one(firm, tmp_path):
    said = "Price signs, asked by Mark Price; PRICE, MARK and mp check the price of Ramp Q7. PQR-0815 is old.\n"
    for name in ("one.txt", "two.txt"):
        (firm / name).write_text(f"About {name}.\n" + said * 40)
    reviewed = tmp_path / "reviewed.csv"
    rows = [",name,Mark Price,add", ",name,mp,add", "two.txt,site,ramp  q7,add", ",project,PQR-0815,add"]
    reviewed.write_text("\n".join(["document,kind,text,decision", *rows]))
    data.prepare(config(firm, reviewed=str(reviewed)), tmp_path / "out")
    texts = read(tmp_path / "out")
    masked = "<name> signs, asked by <name>; <name> and <name> check the price of {}. <project> is old."
    assert texts["one.txt"][0].split("\n")[1] == masked.format("Ramp Q7")
    assert texts["two.txt"][0].split("\n")[1] == masked.format("<site>")
    table = (tmp_path / "out" / "masked.csv").read_text(encoding="utf-8-sig")
    listed = list(csv.DictReader(io.StringIO(table)))
    assert {("two.txt", "site", "Ramp Q7", "40")} <= {(r["document"], r["kind"], r["text"], r["times"]) for r in listed}
    reviewed.write_text("kind,text,decision\nperson,Mark Price,add\n")
    with pytest.raises(UserError, match=r"a kind to add is one of key, .*name, not 'person'"):
        data.prepare(config(firm, reviewed=str(reviewed)), tmp_path / "wrong")


def test_hidden_sources_leave_no_name_of_a_file(firm, tmp_path):
    facts = data.prepare(config(firm, labels="hidden", projects="folder"), tmp_path / "out")
    corpus = data.load(tmp_path / "out")
    names = {text.name for texts in corpus.parts.values() for text in texts}
    assert all(re.fullmatch(r"document \d+", name) for name in names)
    assert all(re.fullmatch(r"document \d+", text.family) for texts in corpus.parts.values() for text in texts)
    assert set(facts["labels"]) == set(facts["files"])


def test_without_masking_addresses_stay(firm, tmp_path):
    for path in firm.rglob("*.*"):
        path.write_text(f"{path.read_text()} bim@firm.com")
    facts = data.prepare(config(firm, mask=False, mask_names=False), tmp_path / "out")
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
        "contents.txt": "has no text besides page headers, footers and tables of contents",
        "drawings.docx": "is a zip archive but not a Word document",
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
    assert facts["ignored"] == {"table.xlsx": "tables are not read; save their prose as .docx or .txt"}
    assert "not read: table.xlsx: tables are not read; " in facts["note"]
    assert all(f"not read: {name}: " in facts["note"] for name in expected)
    assert facts["files"] == clean["files"]
    assert facts["train"] == clean["train"]


def test_encodings_may_be_mixed(firm, tmp_path):
    (firm / "plan-b.txt").write_bytes(((firm / "plan-b.txt").read_text() + " gr\u00fcner").encode("cp1252"))
    (firm / "plan-c.txt").write_bytes(((firm / "plan-c.txt").read_text() + " gr\u00fcner").encode("utf-16"))
    (firm / "plan-d.txt").write_bytes(((firm / "plan-d.txt").read_text() + " gr\u00fcner").encode("utf-8-sig"))
    facts = data.prepare(config(firm), tmp_path / "out")
    texts = datasets.load_from_disk(tmp_path / "out")
    endings = {row["name"]: row["text"][-7:] for row in texts}
    assert [endings[f"plan-{letter}.txt"] for letter in "bcd"] == [" gr\u00fcner"] * 3
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
        ({}, r"it contains no documents that can be read; give a folder of documents"),
        ({"a.xlsx": "x", ".b.txt": "y"}, r"embedded ones\n  not read: \.b\.txt: hidden\n  not read: a\.xlsx: tables"),
        ({"a": prose(1, 900)}, r"9\d\d characters are too few .*; give documents with 10,000 or more"),
        ({"a": "x" * 5000, "b": "y" * 4000}, r"9,000 characters are too few"),
    ],
)
def test_a_folder_with_too_little_is_refused_in_a_line_and_one_for_each_kind_of_file(tmp_path, texts, message):
    (tmp_path / "in").mkdir()
    with pytest.raises(UserError, match=message) as error:
        data.prepare(config(written(tmp_path / "in", texts)), tmp_path / "out")
    assert len(str(error.value).splitlines()) == (3 if "a.xlsx" in texts else 1)
    assert not (tmp_path / "out").exists()


def test_the_embedded_documents_are_the_default(tmp_path, monkeypatch, firm):
    monkeypatch.setattr(data, "EMBEDDED", firm)
    facts = data.prepare(config(None), tmp_path / "out")
    assert facts["source"] == "embedded documents"
    assert len(facts["files"]) == 10
    assert sources.readable(None) == []


def test_inputs_are_the_files_that_are_read(firm):
    dirty(firm)
    found = {path.relative_to(firm).as_posix() for path in sources.readable(str(firm))}
    assert {"plan-a.txt", "old/plan-a-rev0.txt", "empty.txt"} < found
    assert not {"link.txt", "table.xlsx"} & found
    assert sources.readable(str(firm / "plan-b.txt")) == [firm / "plan-b.txt"]
    assert sources.readable(str(firm / "gone")) == []


def test_a_refusal_exits_with_2_and_leaves_nothing(firm, tmp_path):
    (firm / "empty.txt").write_text("")
    refused(
        stage(tmp_path, "prepare.py", "--workload", "bep", f"data.sources={firm}"),
        "1 of 11 files cannot be used",
        "  empty.txt: is empty",
    )
    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert not (tmp_path / "data").exists()


def test_a_file_added_later_is_noticed(firm, tmp_path, monkeypatch):
    from pipelines.workloads.bep import WORKLOAD
    from pipelines.workloads.bep.config import Config, Data

    monkeypatch.chdir(tmp_path)
    settings = Config(data=Data(sources="firm"))
    folder, manifest = loading.prepare("bep", WORKLOAD, settings)
    assert manifest["vocabulary"] == data.load(folder).facts["vocabulary"]
    assert loading.prepare("bep", WORKLOAD, settings)[1] == manifest
    shutil.copy(firm / "plan-b.txt", firm / "plan-z.txt")
    with pytest.raises(UserError, match=r"plan-z\.txt has changed since"):
        loading.prepare("bep", WORKLOAD, settings)
