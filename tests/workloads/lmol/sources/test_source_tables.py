"""A user's CSV: columns, encodings, labels, images listed twice, and refusals."""

from fractions import Fraction

import pytest

from pipelines.workloads.lmol.sources import tables
from tests.workloads.lmol.sources.files import SCORES, data, folder, paired, read, refusal, table


def test_an_image_listed_twice_is_one_image_unless_its_scores_differ(tmp_path):
    folder(tmp_path, {"a.png": "1", "b.png": "2", "c.png": "3"})
    rows = [("a.png", 1), ("b.png", 2), ("c.png", 3), ("a.png", "1.0"), ("b.png", 5)]
    table(tmp_path / "scores.csv", ("image", "score"), *rows)
    found = read(data(tmp_path))
    assert found.names == ["a.png", "c.png"]
    assert found.facts["quarantined"] == {"b.png": "it has the scores 2 and 5"}


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("picture,mark\na.png,1\n", ("picture, mark", "image,score", "img1,img2,score1,score2,label")),
        ("img1,img2,wear\na.png,b.png,First\n", ("img1, img2, wear",)),
        ("image,score\na.png\n", ("line 2 has 1 values", "2 columns")),
        ("image,score\na.png,3,5\n", ("line 2 has 3 values",)),
        ("image,score,score\na.png,3,3\n", ("one of them twice",)),
        ("", ("an empty file",)),
        ("image,score\n", ("lists no image",)),
        ('image,score\n"a.png,3\n', ("not CSV",)),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_by_what_it_has(tmp_path, content, texts):
    (tmp_path / "scores.csv").write_text(content)
    message = refusal(tmp_path)
    for text in (str(tmp_path / "scores.csv"), *texts):
        assert text in message


def test_a_table_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "scores.csv").write_bytes("image,score\nété.png,1\n".encode("latin1"))
    assert "not UTF-8" in refusal(tmp_path)


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path):
    folder(tmp_path, {"a.png": "1", "b.png": "2"})
    (tmp_path / "scores.csv").write_bytes("\ufeffimage, score\r\na.png, 1\r\n\r\nb.png,2\r\n".encode())
    assert read(data(tmp_path)).scores.tolist() == [1, 2]


def test_a_source_that_is_not_there_is_refused_with_what_to_give(tmp_path):
    assert "did you mean digits?" in refusal("digit")
    assert "img1,img2,score1,score2,label" in refusal(tmp_path / "none")
    assert "it has none" in refusal(tmp_path)
    folder(tmp_path, {"a.png": "1", "b.png": "2"})
    (tmp_path / "more.csv").write_text("image,score\na.png,1\nb.png,2\n")
    assert f"data.source={tmp_path / 'more.csv'}" in refusal(tmp_path)
    assert read(data(tmp_path / "more.csv")).names == ["a.png", "b.png"]


def test_inputs_are_the_table_and_the_images_that_are_there(tmp_path):
    folder(tmp_path, {"a.png": "1", "b.png": "2"})
    table(tmp_path / "scores.csv", ("image", "score"), ("a.png", 1), ("b.png", 2), ("no.png", 3), ("../x.png", 3))
    assert tables.files_of(str(tmp_path), {}) == [tmp_path / name for name in ("scores.csv", "a.png", "b.png")]
    assert tables.files_of("digits", {}) == tables.files_of(str(tmp_path / "gone"), {}) == []


def test_old_labels_with_a_full_stop_mean_the_same_and_others_are_refused(tmp_path):
    path = paired(tmp_path, SCORES, Fraction("0.2"))
    path.write_text(path.read_text().replace("First", "First.").replace("Similar", "similar."))
    assert read(data(path)).facts["labels"]["contradict_scores"] == 0
    path.write_text(path.read_text().replace("similar.", "Perhaps"))
    assert "line 2: the label is 'Perhaps'; it must be First" in refusal(path)


def test_an_image_with_two_scores_in_pairs_is_set_aside(tmp_path):
    path = paired(tmp_path, SCORES, Fraction("0.2"))
    path.write_text(path.read_text().replace("a.png,d.png,1,1.9", "a.png,d.png,1,2.9"))
    found = read(data(path))
    assert found.facts["quarantined"] == {"d.png": "it has the scores 2.9 and 1.9"}
    assert found.facts["labels"]["of_usable_images"] == 15
