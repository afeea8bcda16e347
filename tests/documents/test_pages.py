"""README and docs: length, links, pictures, and figures that are those of their sources."""

import re

import pytest

from common import config
from pipelines import workloads
from tests.documents.figures import ROOT, log_entries, unsourced
from tests.pictures.house import BOXES
from tests.pictures.make import MOST_BYTES, PICTURES
from tests.rooms import ROOMS

README = (ROOT / "README.md").read_text()
MONTHS = sorted((ROOT / "docs/log").glob("20*.md"), reverse=True)
PAGES = [
    "README.md",
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")) if path.name != "configuration.md"),
]
LINKED = [
    *PAGES,
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *(f"docs/log/{path.name}" for path in (ROOT / "docs/log").iterdir()),
]


def words(text):
    return [word for word in re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).split() if re.search(r"\w", word)]


def test_the_readme_is_short_and_no_table_of_figures():
    found = words(README)
    assert len(found) <= 1000
    assert sum(bool(re.search(r"\d", word)) for word in found) <= 0.07 * len(found)


def test_the_readme_has_pictures():
    assert len(re.findall(r"!\[[^\]]{20,}\]\(docs/pictures/", README)) >= 3


@pytest.mark.parametrize("page", PAGES)
def test_no_cell_of_a_table_is_empty(page):
    for line in (ROOT / page).read_text().splitlines():
        if line.startswith("|") and not re.match(r"\|[-| :]+\|$", line):
            cells = line.strip().strip("|").split("|")[1:]  # the first may be without a head
            assert all(cell.strip() for cell in cells), line


@pytest.mark.parametrize("page", LINKED)
def test_every_link_leads_somewhere(page):
    text = re.sub(r"`[^`\n]*`", "", (ROOT / page).read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, place = target.partition("#")
        if path.startswith(("http", "../../actions")):
            continue
        file = ((ROOT / page).parent / path) if path else ROOT / page
        assert file.exists(), target
        if place:
            heads = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert place in {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}, target


def test_the_map_of_changes_names_files_that_exist():
    rows = (ROOT / "docs/architecture.md").read_text().partition("| to change | begin in |")[2].partition("\n\n")[0]
    paths = re.findall(r"`([\w.]+/[\w./]*)`", rows)
    assert len(paths) > 50
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_the_logs_index_has_a_line_for_every_entry_the_newest_first():
    index = re.findall(r"^- (\S+): \[(.*)\]\((\S+\.md)#\S+\)$", (ROOT / "docs/log/README.md").read_text(), re.MULTILINE)
    entries = [(path, entry.splitlines()[0]) for path in MONTHS for entry in log_entries(path.read_text())]
    assert index == [(*head.split(": ", 1), path.name) for path, head in entries]
    assert all(head.startswith(path.stem) for path, head in entries)
    assert [head[:10] for _, head in entries] == sorted((head[:10] for _, head in entries), reverse=True)


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_is_one_of_its_source(page):
    faults = unsourced((ROOT / page).read_text())
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", [name for name, picture in PICTURES.items() if picture.ending == "svg"])
def test_a_picture_is_small_described_and_shown_somewhere(name):
    svg = (ROOT / f"docs/pictures/{name}.svg").read_text()
    assert len(svg.encode()) <= MOST_BYTES
    assert re.search(r'role="img" aria-label="[^"]{40,}', svg)
    assert "prefers-color-scheme: dark" in svg
    assert any(f"pictures/{name}.svg" in (ROOT / page).read_text() for page in PAGES)


def test_the_picture_of_the_rooms_has_them_all_each_on_those_that_it_rests_on():
    boxes = {room: box for box in BOXES for room in box[6]}

    def box_of(room):
        return boxes[next(each for each in sorted(boxes, reverse=True) if f"{room}.".startswith(f"{each}."))]

    for room, below in ROOMS.items():
        assert all(box_of(room)[1] <= box_of(each)[1] for each in below if each in ROOMS), room
        parts = room.split(".")
        if parts[0] == "pipelines" and len(parts) == 2:
            assert any(parts[1] in text for text in (box_of(room)[4], *box_of(room)[5])), room


def test_every_picture_comes_from_the_command():
    named = {f"{name}.{picture.ending}" for name, picture in PICTURES.items()}
    assert {path.name for path in (ROOT / "docs/pictures").iterdir()} == named
    assert (ROOT / "docs/pictures/site.png").stat().st_size <= MOST_BYTES
    assert any("pictures/site.png" in (ROOT / page).read_text() for page in PAGES)
    assert (ROOT / "docs/pictures/house.svg").read_text() == PICTURES["house"].draw(ROOT)


@pytest.mark.parametrize("name", [name for name, picture in PICTURES.items() if picture.workload])
def test_the_run_of_a_picture_is_one_that_can_be_trained(name):
    workload, words = PICTURES[name].workload, PICTURES[name].words.split()
    config.load(ROOT / f"pipelines/configs/{workload}.yaml", workloads.find(workload).config, words)


def test_a_picture_without_its_run_is_refused_with_the_command(capsys):
    from tests.pictures.make import main

    with pytest.raises(SystemExit):
        main(["tours"])
    assert "no picture tours; there are house" in capsys.readouterr().err
    main(["routes", "--list"])
    assert "pipelines/train.py --workload cvrp --name picture" in capsys.readouterr().out


SOURCES = """# What was measured

## 2026-01-01: a day

Model 0.12345, rival 0.2 in 1,300 ms, 1.26e-7.

## 2026-01-02: another

0.9
"""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("It has 0.123 <!-- figures: log 2026-01-01 -->", None),
        ("It has 12.3 %, 1,300 ms and 1.3e-7.\n<!-- figures: log 2026-01-01 -->", None),
        ("| a | b |\n|---|---|\n| 9 | 0.12 |\n\n<!-- figures: log 2026-01-01: a day -->", None),
        ("Names such as `0.77`, RP2040 and 20 customers are none.\n\n    run 0.5 s", None),
        ("<!-- gpu: routing -->\n0.7 s\n<!-- end -->", None),
        ("It has 0.124 <!-- figures: log 2026-01-01 -->", "0.124 is not in log 2026-01-01"),
        ("# One\n\n<!-- figures: log 2026-01-01 -->\n\n# Two\n\n0.123", "# Two: 0.123 is not in a source"),
        ("It has 0.9 <!-- figures: log 2026-01-01 -->", "0.9 is not in"),
        ("It took 7 minutes.", "7 is not in a source"),
        ("| a | b |\n|---|---|\n| 9 | 5 |", "5 is not in a source"),
        ("It has 0.45 <!-- figures: evidence part.cost -->", None),
        ("It has 0.46 <!-- figures: evidence part -->", "0.46 is not in"),
    ],
)
def test_a_figure_needs_a_source_that_rounds_to_it(tmp_path, text, fault):
    (tmp_path / "docs/log").mkdir(parents=True)
    (tmp_path / "docs/log/2026-01.md").write_text(SOURCES)
    (tmp_path / "docs/evidence.json").write_text('{"part": {"figures": {"cost": 0.4512, "table": [{"n": 3}]}}}')
    faults = unsourced(text + "\n", tmp_path)
    assert (fault in faults[0]) if fault else not faults


@pytest.mark.parametrize("source", ["log 2030-01-01", "nowhere.yaml", "evidence none"])
def test_a_source_that_is_not_there_is_an_error(tmp_path, source):
    (tmp_path / "docs/log").mkdir(parents=True)
    (tmp_path / "docs/log/2026-01.md").write_text(SOURCES)
    (tmp_path / "docs/evidence.json").write_text("{}")
    with pytest.raises(LookupError):
        unsourced(f"It has 0.123\n<!-- figures: {source} -->\n", tmp_path)
