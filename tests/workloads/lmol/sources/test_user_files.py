"""Images and exact scores from a user's files, including damaged and inconsistent ones."""

from fractions import Fraction

import numpy as np
from PIL import Image, ImageOps

from tests.workloads.lmol.sources.files import SCORES, data, folder, paired, picture, read, refusal, table


def test_a_folder_gives_its_images_and_exact_scores(tmp_path):
    folder(tmp_path, {"a.png": "3.25", "b.png": "-1", "c.png": "2.5"})
    found = read(data(tmp_path, theta=0.7, attribute="ripeness"))
    assert found.names == found.groups == ["a.png", "b.png", "c.png"]
    assert found.scores.tolist() == [325, -100, 250]
    assert (found.unit, found.theta, found.attribute) == (Fraction(1, 100), 70, "ripeness")
    assert (found.images[1] == np.asarray(ImageOps.fit(picture(1), (16, 16), Image.Resampling.LANCZOS))).all()
    assert found.facts["quarantined"] == {}


def test_images_of_a_named_group_stay_together(tmp_path):
    folder(tmp_path, {"a.png": "1", "b.png": "2", "c.png": "3"})
    table(tmp_path / "scores.csv", ("image", "score", "group"), ("a.png", 1, "x"), ("b.png", 2, "x"), ("c.png", 3, ""))
    assert read(data(tmp_path)).groups == ["x", "x", "c.png"]


def test_every_unusable_image_is_named_with_its_reason_and_the_rest_is_used(tmp_path):
    good = {f"good-{seed}.png": str(seed) for seed in range(3)}
    folder(tmp_path, good)
    Image.new("RGB", (1, 1)).save(tmp_path / "tiny.png")
    Image.new("1", (2000, 2000)).save(tmp_path / "huge.png")
    whole = (tmp_path / "good-0.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.png").write_text("not an image")
    picture(7).convert("CMYK").save(tmp_path / "cmyk.jpg")
    Image.fromarray(np.linspace(0, 65535, 24 * 24).reshape(24, 24).astype(np.uint16)).save(tmp_path / "deep.png")
    picture(8).save(tmp_path / "moving.gif", save_all=True, append_images=[picture(9)])
    bad = {"tiny.png": "1", "huge.png": "1", "cut.png": "1", "text.png": "1", "missing.png": "1", "../up.png": "1"}
    bad |= {"word.png": "good", "nothing.png": "nan", "blank.png": "", "/etc/hostname": "1", "": "1"}
    usable = {"cmyk.jpg": "4", "deep.png": "5", "moving.gif": "6"}
    table(tmp_path / "scores.csv", ("image", "score"), *{**good, **bad, **usable}.items())
    found = read(data(tmp_path))
    assert found.names == [*good, *usable]
    assert found.scores.tolist() == [0, 1, 2, 4, 5, 6]
    reasons = found.facts["quarantined"]
    assert set(reasons) == set(bad)
    for name, reason in {
        "tiny.png": "too small: 1 x 1",
        "huge.png": "1,000,000 are allowed; scale it down first, or raise data.maximum_pixels=1000000",
        "cut.png": "damaged",
        "text.png": "not an image",
        "missing.png": "there is no such file",
        "../up.png": "not below",
        "/etc/hostname": "not below",
        "": "no image is named in its row",
        "word.png": "'good', which is not a number",
        "nothing.png": "'nan', which is not a number",
        "blank.png": "'', which is not a number",
    }.items():
        assert reason in reasons[name]
    assert found.facts["animated"] == ["moving.gif"]
    assert found.facts["listed"] == len(good) + len(bad) + len(usable)
    assert found.images.any(axis=(1, 2, 3)).all()  # none was replaced by zeros


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    (tmp_path / "in").mkdir()
    folder(tmp_path / "in", {"a.png": "1", "b.png": "2", "c.png": "3"})
    (tmp_path / "in" / "a.png").rename(tmp_path / "a.png")
    (tmp_path / "in" / "a.png").symlink_to(tmp_path / "a.png")
    reason = read(data(tmp_path / "in")).facts["quarantined"]["a.png"]
    assert "move the CSV to a folder above all of its images" in reason


def test_one_image_alone_is_refused_and_so_are_none(tmp_path):
    folder(tmp_path, {"a.png": "1"})
    assert "1 of the 1 images" in refusal(tmp_path)
    table(tmp_path / "scores.csv", ("image", "score"), ("b.png", 1), ("c.png", 2))
    message = refusal(tmp_path)
    assert "0 of the 2 images" in message
    assert "b.png: there is no such file" in message


def test_pairs_in_a_table_give_images_scores_and_the_theta_of_the_labels(tmp_path):
    path = paired(tmp_path, SCORES, Fraction("0.2"))
    for source in (path, tmp_path):
        found = read(data(source))
        assert found.names == list(SCORES)
        assert found.scores.tolist() == [10, 12, 17, 19, 25, 30, 40]
        assert found.theta == 2
        assert found.facts["labels"]["contradict_scores"] == 0
        assert found.facts["labels"]["count"]["Similar"] == 2
        assert found.facts["theta_from"] == "the smallest that agrees with the most labels"


def test_labels_that_contradict_scores_are_named_and_counted(tmp_path):
    found = read(data(paired(tmp_path, SCORES, Fraction("0.2"), wrong=(1, 5))))
    facts = found.facts["labels"]
    assert (facts["pairs"], facts["contradict_scores"]) == (21, 2)
    assert facts["examples"][0] == ("line 3: a.png (1), c.png (1.7) is labelled First, but its scores say Second")
    assert found.theta == 2


def test_labels_that_mean_the_opposite_are_refused(tmp_path):
    path = paired(tmp_path, SCORES, Fraction("0.2"), wrong=range(21))
    message = refusal(path)
    assert "labels contradict the scores" in message
    assert "First means that img1 has the larger score" in message


def test_without_theta_up_to_a_fifth_of_the_pairs_are_similar(tmp_path):
    folder(tmp_path, {f"{row}.png": str(row * row) for row in range(9)})
    found = read(data(tmp_path))
    differences = np.abs(found.scores[:, None] - found.scores)[np.triu_indices(9, 1)]
    assert (differences <= found.theta).mean() <= 0.2 < (differences <= found.theta + 2).mean()
