"""Tables that surveys and labelling tools export: ratings side by side, labels by name, names from the web."""

import unicodedata

import pytest

from models.images.ranking import FIRST, SECOND, SIMILAR
from pipelines.workloads.lmol.sources.tables import read_table
from tests.workloads.lmol.sources.files import folder, picture, refusal, table


def votes(path, *rows):
    return table(path / "votes.csv", ("img1", "img2", "winner"), *rows)


@pytest.mark.parametrize("name", ["rating_", "score", "Rating "])
def test_ratings_side_by_side_are_not_taken_for_counts_of_votes(tmp_path, name):
    folder(tmp_path, {"a.png": "1", "b.png": "2"})
    rows = [("a.png", 5, 4, 5), ("b.png", 3, 3, 2)]
    table(tmp_path / "scores.csv", ("image", *(f"{name}{rater}" for rater in (1, 2, 3))), *rows)
    assert "several ratings of an image are a row each" in refusal(tmp_path / "scores.csv")


def test_counts_of_votes_are_read_by_their_names(tmp_path):
    folder(tmp_path, {"a.png": "1", "b.png": "2"})
    counted = table(tmp_path / "scores.csv", ("image", "ratings_1", "ratings_2", "ratings_3"), ("a.png", 2, 0, 2))
    assert read_table(counted, {}).scores == {"a.png": "2.000000"}


def test_labels_that_are_names_without_endings_are_names(tmp_path):
    rows = [("b.png", "a.png", "a"), ("c.png", "b.png", "B"), ("c.png", "a.png", "c")]
    assert [label for *_, label in read_table(votes(tmp_path, *rows), {}).pairs] == [SECOND, SECOND, FIRST]
    numbered = [("2.jpg", "1.jpg", "1"), ("17.jpg", "2.jpg", "17")]
    assert [label for *_, label in read_table(votes(tmp_path, *numbered), {}).pairs] == [SECOND, FIRST]


@pytest.mark.parametrize(
    ("header", "labels"),
    [(("links", "rechts", "Gewinner"), "links rechts gleich"), (("img1", "img2", "label"), "> < =")],
)
def test_labels_in_german_and_by_signs_are_read(tmp_path, header, labels):
    rows = [("a.png", "b.png", label) for label in labels.split()]
    found = read_table(table(tmp_path / "votes.csv", header, *rows), {})
    assert [label for *_, label in found.pairs] == [FIRST, SECOND, SIMILAR]


@pytest.mark.parametrize("who", ["Voter", "voter_id", "participant", "Participant ID"])
def test_who_voted_is_who_answered(tmp_path, who):
    rows = [("a.png", "b.png", "left", "ann"), ("b.png", "a.png", "right", "bob")]
    found = read_table(table(tmp_path / "votes.csv", ("left", "right", "choice", who), *rows), {})
    assert found.answered_by == ["ann", "bob"]


def test_labels_that_may_be_names_or_sides_are_refused(tmp_path):
    folder(tmp_path, {"1.png": "1", "2.png": "2"})
    said = refusal(votes(tmp_path, ("1.png", "2.png", "2"), ("2.png", "1.png", "1")))
    assert "line 3: the label '1' may be either image; write First or Second" in said


def test_labels_that_name_no_image_of_some_row_are_sides(tmp_path):
    rows = [("2.png", "1.png", "1"), ("1.png", "5.png", "2"), ("2.png", "1.png", "2")]
    assert [label for *_, label in read_table(votes(tmp_path, *rows), {}).pairs] == [FIRST, SECOND, SECOND]


@pytest.mark.parametrize(
    ("listed", "stored"),
    [
        (unicodedata.normalize("NFD", "grün.png"), "grün.png"),
        ("grün.png", unicodedata.normalize("NFD", "grün.png")),
        ("my%20photo%201.png", "my photo 1.png"),
        ("https://example.com/pictures/a.png?size=large", "a.png"),
        ("/data/upload/1/3f2a1b4c-a.png", "a.png"),
    ],
)
def test_names_of_the_web_of_macs_and_of_label_studio_are_found(tmp_path, listed, stored):
    for name in (stored, "other.png"):
        picture(1).save(tmp_path / name)
    (tmp_path / "scores.csv").write_text(f"image,score\n{listed},1\nother.png,2\n")
    assert read_table(tmp_path / "scores.csv", {}).scores == {stored: "1", "other.png": "2"}


def test_thousands_with_points_are_not_taken_for_decimals(tmp_path):
    folder(tmp_path, {"a.png": "1", "b.png": "2"})
    (tmp_path / "scores.csv").write_text("image;score\na.png;1.523\nb.png;980\n")
    assert "1.523 among whole numbers may be thousands; write numbers without separators" in refusal(tmp_path)
    (tmp_path / "scores.csv").write_text("image;score\na.png;1.523\nb.png;2\n")
    assert read_table(tmp_path / "scores.csv", {}).scores == {"a.png": "1.523", "b.png": "2"}
