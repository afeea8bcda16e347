"""A user's CSV: columns, encodings, labels, images listed twice, and refusals."""

from fractions import Fraction

import pytest

from pipelines.workloads.lmol.sources import finding, tables
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


def test_a_table_in_two_encodings_is_refused(tmp_path):
    (tmp_path / "scores.csv").write_bytes("image,score\nété.png,1\n".encode() + "été.png,2\n".encode("latin1"))
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
    (tmp_path / "more.csv").write_text("image,score\na.png,1\nb.png,2\nb.png,2\n")
    assert f"data.source={tmp_path / 'more.csv'}" in refusal(tmp_path)
    assert read(data(tmp_path / "more.csv")).names == ["a.png", "b.png"]


def test_what_ask_wrote_into_a_folder_is_not_taken_for_its_table(tmp_path):
    folder(tmp_path, {"a.png": "1", "b.png": "2"})
    (tmp_path / "scores.csv").rename(tmp_path / "votes.csv")
    (tmp_path / "next.csv").write_text("img1,img2,label\na.png,b.png,\n")
    (tmp_path / "next2.csv").write_text("img1,img2,label\n")
    (tmp_path / "my-ranking.csv").write_text("image,score,low,high,answers\na.png,1,0,2,3\nb.png,2,1,3,3\n")
    (tmp_path / "camera.csv").write_text("size,lens\n3,f2\n")
    assert read(data(tmp_path)).scores.tolist() == [1, 2]
    (tmp_path / "next.csv").write_text("img1,img2,label\na.png,b.png,First\n")
    (tmp_path / "votes.csv").write_text("img1,img2,label\na.png,b.png,First\nb.png,a.png,First\n")
    said = refusal(tmp_path)  # of the one with more answers
    assert f"it has 2: next.csv, votes.csv; name the one to use, as in data.source={tmp_path / 'votes.csv'}" in said
    (tmp_path / "votes.csv").unlink()
    (tmp_path / "next.csv").write_text("img1,img2,label\na.png,b.png,\n")
    (tmp_path / "next2.csv").unlink()
    assert read(data(tmp_path)).scores.tolist() == [1, 2]  # a ranking alone is what there is to learn from


def test_inputs_are_the_table_and_the_images_that_are_there(tmp_path):
    folder(tmp_path, {"a.png": "1", "b.png": "2"})
    table(tmp_path / "scores.csv", ("image", "score"), ("a.png", 1), ("b.png", 2), ("no.png", 3), ("../x.png", 3))
    assert finding.files_of(str(tmp_path), {}) == [tmp_path / name for name in ("scores.csv", "a.png", "b.png")]
    assert finding.files_of("digits", {}) == finding.files_of(str(tmp_path / "gone"), {}) == []


def test_images_are_found_anywhere_below_the_folder_of_their_table(tmp_path):
    folder(tmp_path, {f"{name}.png": "1" for name in "abcde"})
    images = tmp_path / "images" / "raw"
    images.mkdir(parents=True)
    for name in ("a.png", "b.png"):
        (tmp_path / name).rename(images / name)
    elsewhere = "/home/somebody/images/raw/b.png"  # as on the machine where the table was made
    names = ("a.png", elsewhere, "c.png", "../d.png", "e.png")
    table(tmp_path / "scores.csv", ("image", "score"), *((name, i) for i, name in enumerate(names)))
    found = read(data(tmp_path))
    assert found.names == ["images/raw/a.png", "images/raw/b.png", "c.png", "e.png"]
    assert "not below" in found.facts["quarantined"]["../d.png"]
    assert f"images are found below {tmp_path}, such as images/raw/a.png" in found.facts["columns"]
    (tmp_path / "a.png").write_bytes(b"")
    (images.parent / "c.png").write_bytes((tmp_path / "c.png").read_bytes())
    (tmp_path / "c.png").rename(images / "c.png")
    found = read(data(tmp_path))
    assert found.facts["quarantined"].keys() == {"a.png", "c.png", "../d.png"}  # where the table says comes first
    unclear = "names that fit several files are not used: c.png (images/c.png, images/raw/c.png)"
    assert unclear in found.facts["columns"]
    assert f"passed over in {tmp_path}: images that scores.csv does not list (4)" in found.facts["columns"]


def test_a_file_that_names_of_two_images_fit_is_neither_of_them(tmp_path):
    folder(tmp_path, {"a.png": "1", "b.png": "2"})
    rows = [("x/a.png", 1), ("y/a.png", 5), ("y/b.png", 2), ("B.PNG", 2), ("http://here/y/b.png?size=9", 2)]
    listed = tables.read_table(table(tmp_path / "scores.csv", ("image", "score"), *rows), None)
    assert listed.scores == {"x/a.png": "1", "y/a.png": "5", "b.png": "2"}  # b.png is written in three ways
    assert "files that several names fit are not used: a.png" in listed.notes
    assert "y/a.png: there is no such file" in refusal(tmp_path / "scores.csv")


def test_the_table_may_lie_one_folder_above_its_images(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    folder(images, {"a.png": "1", "b.png": "2"})
    (images / "scores.csv").rename(tmp_path / "votes.csv")
    (tmp_path / "camera.csv").write_text("size,lens\n3,f2\n")
    (tmp_path / "others.csv").write_text("image,score\nx.png,3\n")
    (tmp_path / "damaged.csv").write_text("img1,img2,label\na.png\n")
    (images / "notes.txt").write_text("of no concern")
    (images / "more.png").write_bytes((images / "a.png").read_bytes())
    found = read(data(images))
    assert found.names == ["images/a.png", "images/b.png"]
    assert found.scores.tolist() == [1, 2]
    others = f"passed over in {images}: .txt (1), images that votes.csv does not list (1)"
    assert others in found.facts["columns"]
    assert finding.files_of(str(images), {}) == [tmp_path / "votes.csv", images / "a.png", images / "b.png"]
    (tmp_path / "others.csv").write_text("image,score\nimages/a.png,3\n")
    assert "2: others.csv, votes.csv" in refusal(images)


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
