"""Images and exact scores from the embedded sources and from a user's files, however dirty these are."""

import csv
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from common.errors import UserError
from models.ranking import FIRST, SECOND, SIMILAR
from pipelines.workloads.lmol import sources


def data(source, **fields):
    section = {
        "source": str(source),
        "attribute": None,
        "theta": None,
        "size": 16,
        "photos_crops": 1,
        "maximum_pixels": 1_000_000,
        "seed": 0,
    }
    return SimpleNamespace(**{**section, **fields})


def picture(seed):
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)
    return Image.fromarray(coarse).resize((24, 24), Image.Resampling.BILINEAR)


def table(path, *rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def folder(path, scores):
    """A folder of images and its CSV, from {name: score as written}."""
    for seed, name in enumerate(scores):
        picture(seed).save(path / name)
    table(path / "scores.csv", ("image", "score"), *scores.items())
    return path


def refusal(source, **fields):
    with pytest.raises(UserError) as refused:
        sources.read(data(source, **fields))
    assert len(str(refused.value).splitlines()) <= 6
    return str(refused.value)


@pytest.fixture(scope="module")
def photos():
    return sources.read(data("photos", size=32, photos_crops=2))


def test_digits_are_all_there_each_a_group_of_its_own():
    found = sources.read(data("digits"))
    assert found.images.shape == (1797, 16, 16, 1)
    assert found.images.min() == 0
    assert found.images.max() > 240
    assert np.bincount(found.scores).min() > 170
    assert (found.unit, found.theta, found.attribute) == (1, 0, "value")
    assert len(set(found.groups)) == len(set(found.names)) == 1797
    assert found.facts["licences"][0]["attribution"]
    assert sources.read(data("digits", theta=1.5, attribute="size")).theta == 1


def test_photos_are_crops_and_each_is_spoilt_in_four_ways_to_four_degrees(photos):
    assert photos.images.shape == (len(sources.PHOTOS) * 2 * 17, 32, 32, 3)
    assert len(set(photos.names)) == len(photos.names)
    assert set(photos.groups) == set(sources.PHOTOS)
    assert {photos.families.count(family) for family in sources.FAMILIES} == {len(sources.PHOTOS) * 2 * 4}
    assert all(
        name.startswith(f"{group}-") and family in name
        for name, group, family in zip(photos.names, photos.groups, photos.families, strict=True)
    )


def test_photo_scores_are_one_scale_on_which_degrees_are_theta_apart(photos):
    by_kind = photos.facts["scores_by_kind"]
    assert by_kind["pristine"] == 1
    degrees = [[1000 * by_kind[f"{family} {degree}"] for family in sources.FAMILIES] for degree in range(1, 5)]
    for better, worse in zip([[1000], *degrees], degrees, strict=False):
        assert min(better) - max(worse) > photos.theta
    for kind, score in by_kind.items():
        rows = [row for row, name in enumerate(photos.names) if name.endswith("-" + kind.replace(" ", "-"))]
        assert len(rows) == 2 * len(sources.PHOTOS)
        assert {photos.scores[row] * photos.unit for row in rows} == {Fraction(round(score * 1000), 1000)}


@pytest.mark.parametrize("size", [8, 256])
def test_photos_are_refused_at_sizes_that_they_do_not_have(size):
    assert f"data.size={size}: for data.source=photos it must be 16 to 200" in refusal("photos", size=size)


def test_a_photo_crop_is_the_same_whatever_else_is_drawn(photos):
    again = sources.read(data("photos", size=32, photos_crops=1))
    of_name = dict(zip(photos.names, photos.images, strict=True))
    assert all((of_name[name] == image).all() for name, image in zip(again.names, again.images, strict=True))
    other = sources.read(data("photos", size=32, photos_crops=1, seed=1))
    assert (other.images != again.images).any()


def test_photos_have_licences_that_allow_it_and_show_no_people(photos):
    licences = {entry["name"]: entry for entry in photos.facts["licences"]}
    assert len(licences) == len(sources.PHOTOS)
    allowed = {"CC0 1.0", "CC BY 2.0", "public domain", "no known copyright restrictions"}
    assert {entry["licence"] for entry in licences.values()} == allowed
    assert all(entry["attribution"] for entry in licences.values())
    assert all(entry["url"] for entry in licences.values() if entry["licence"] == "CC BY 2.0")
    assert not any(person in name for name in licences for person in ("astronaut", "camera", "lfw", "retina", "face"))


def test_crops_of_photos_have_something_in_them(photos):
    pristine = photos.images[[family == "pristine" for family in photos.families]].astype(float)
    contrast = np.abs(np.diff(pristine.mean(-1), axis=2)).mean((1, 2))
    assert contrast.min() > 0.8 * sources.LEAST_CONTRAST


def test_a_folder_gives_its_images_and_exact_scores(tmp_path):
    folder(tmp_path, {"a.png": "3.25", "b.png": "-1", "c.png": "2.5"})
    found = sources.read(data(tmp_path, theta=0.7, attribute="ripeness"))
    assert found.names == found.groups == ["a.png", "b.png", "c.png"]
    assert found.scores.tolist() == [325, -100, 250]
    assert (found.unit, found.theta, found.attribute) == (Fraction(1, 100), 70, "ripeness")
    assert (found.images[1] == np.asarray(ImageOps.fit(picture(1), (16, 16), Image.Resampling.LANCZOS))).all()
    assert found.facts["quarantined"] == {}


def test_images_of_a_named_group_stay_together(tmp_path):
    folder(tmp_path, {"a.png": "1", "b.png": "2", "c.png": "3"})
    table(tmp_path / "scores.csv", ("image", "score", "group"), ("a.png", 1, "x"), ("b.png", 2, "x"), ("c.png", 3, ""))
    assert sources.read(data(tmp_path)).groups == ["x", "x", "c.png"]


@given(st.lists(st.integers(60, 300), min_size=12, max_size=60, unique=True), st.sampled_from([6, 10, 16]))
@settings(deadline=None)
def test_sixtieths_are_recognised_in_decimals(sixtieths, decimals):
    texts = [f"{value / 60:.{decimals}f}" for value in [*sixtieths, 61]]
    scores, unit = sources.whole(texts)
    assert (scores * int(60 * unit)).tolist() == [*sixtieths, 61]
    assert sources.in_units(0.2, unit) == 12 // int(60 * unit)


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=50), st.integers(0, 3))
@settings(deadline=None)
def test_a_few_decimals_are_taken_as_they_are(values, decimals):
    texts = [f"{'-' if value < 0 else ''}{abs(value) / 10**decimals:.{decimals}f}" for value in values]
    scores, unit = sources.whole(texts)
    assert [score * unit for score in scores.tolist()] == [Fraction(text) for text in texts]


@pytest.mark.parametrize(
    ("theta", "unit", "whole"), [(0.2, 60, 12), (0.3, 10, 3), (0.29, 100, 29), (1.1, 10, 11), (0.0999, 10, 0)]
)
def test_theta_is_what_was_typed(theta, unit, whole):
    assert sources.in_units(theta, Fraction(1, unit)) == whole


def test_scores_of_random_digits_keep_nine_of_them():
    texts = [repr(value) for value in np.random.default_rng(0).random(50).tolist()]
    scores, unit = sources.whole(texts)
    assert unit == Fraction(1, 10**9)
    assert np.abs(scores * 1e-9 - [float(text) for text in texts]).max() <= 0.5e-9


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
    bad |= {"word.png": "good", "nothing.png": "nan", "blank.png": "", "/etc/hostname": "1"}
    usable = {"cmyk.jpg": "4", "deep.png": "5", "moving.gif": "6"}
    table(tmp_path / "scores.csv", ("image", "score"), *{**good, **bad, **usable}.items())
    found = sources.read(data(tmp_path))
    assert found.names == [*good, *usable]
    assert found.scores.tolist() == [0, 1, 2, 4, 5, 6]
    reasons = found.facts["quarantined"]
    assert set(reasons) == set(bad)
    for name, reason in {
        "tiny.png": "too small: 1 x 1",
        "huge.png": "too large: 2,000 x 2,000",
        "cut.png": "damaged",
        "text.png": "not an image",
        "missing.png": "there is no such file",
        "../up.png": "not below",
        "/etc/hostname": "not below",
        "word.png": "'good', which is no number",
        "nothing.png": "'nan', which is no number",
        "blank.png": "'', which is no number",
    }.items():
        assert reason in reasons[name]
    assert found.facts["animated"] == ["moving.gif"]
    assert found.facts["listed"] == len(good) + len(bad) + len(usable)
    assert found.images.any(axis=(1, 2, 3)).all()  # none was replaced by zeros


def test_an_image_listed_twice_is_one_image_unless_its_scores_differ(tmp_path):
    folder(tmp_path, {"a.png": "1", "b.png": "2", "c.png": "3"})
    rows = [("a.png", 1), ("b.png", 2), ("c.png", 3), ("a.png", "1.0"), ("b.png", 5)]
    table(tmp_path / "scores.csv", ("image", "score"), *rows)
    found = sources.read(data(tmp_path))
    assert found.names == ["a.png", "c.png"]
    assert found.facts["quarantined"] == {"b.png": "it has the scores 2 and 5"}


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    (tmp_path / "in").mkdir()
    folder(tmp_path / "in", {"a.png": "1", "b.png": "2", "c.png": "3"})
    (tmp_path / "in" / "a.png").rename(tmp_path / "a.png")
    (tmp_path / "in" / "a.png").symlink_to(tmp_path / "a.png")
    assert "not below" in sources.read(data(tmp_path / "in")).facts["quarantined"]["a.png"]


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("picture,mark\na.png,1\n", ("picture, mark", "image,score", "img1,img2,score1,score2,label")),
        ("image,score,wear\na.png,1,2\n", ("image, score, wear",)),
        ("img1,img2,label\na.png,b.png,First\n", ("img1, img2, label",)),
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
    assert sources.read(data(tmp_path)).scores.tolist() == [1, 2]


def test_a_source_that_is_not_there_is_refused_with_what_to_give(tmp_path):
    assert "did you mean digits?" in refusal("digit")
    assert "img1,img2,score1,score2,label" in refusal(tmp_path / "none")
    assert "it has none" in refusal(tmp_path)
    folder(tmp_path, {"a.png": "1", "b.png": "2"})
    (tmp_path / "more.csv").write_text("image,score\na.png,1\nb.png,2\n")
    assert f"data.source={tmp_path / 'more.csv'}" in refusal(tmp_path)
    assert sources.read(data(tmp_path / "more.csv")).names == ["a.png", "b.png"]


def test_one_image_alone_is_refused_and_so_are_none(tmp_path):
    folder(tmp_path, {"a.png": "1"})
    assert "1 of the 1 images" in refusal(tmp_path)
    table(tmp_path / "scores.csv", ("image", "score"), ("b.png", 1), ("c.png", 2))
    message = refusal(tmp_path)
    assert "0 of the 2 images" in message
    assert "b.png: there is no such file" in message


def paired(path, scores, theta, wrong=()):
    """A folder and a CSV of all its pairs, the labels of some of them `wrong`."""
    folder(path, scores)
    (path / "scores.csv").unlink()
    names, rows = list(scores), []
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            difference = Fraction(scores[a]) - Fraction(scores[b])
            label = "Similar" if abs(difference) <= theta else "First" if difference > 0 else "Second"
            rows.append((a, b, scores[a], scores[b], label))
    for row in wrong:
        rows[row] = (*rows[row][:4], {"First": "Second", "Second": "First", "Similar": "First"}[rows[row][4]])
    return table(path / "pairs.csv", sources.PAIR_COLUMNS, *rows)


SCORES = {
    f"{name}.png": score for name, score in zip("abcdefg", ["1", "1.2", "1.7", "1.9", "2.5", "3", "4"], strict=True)
}


def test_pairs_in_a_table_give_images_scores_and_the_theta_of_the_labels(tmp_path):
    path = paired(tmp_path, SCORES, Fraction("0.2"))
    for source in (path, tmp_path):
        found = sources.read(data(source))
        assert found.names == list(SCORES)
        assert found.scores.tolist() == [10, 12, 17, 19, 25, 30, 40]
        assert found.theta == 2
        assert found.facts["labels"]["contradict_scores"] == 0
        assert found.facts["labels"]["count"]["Similar"] == 2
        assert found.facts["theta_from"] == "what agrees with most labels"


def test_labels_that_contradict_scores_are_named_and_counted(tmp_path):
    found = sources.read(data(paired(tmp_path, SCORES, Fraction("0.2"), wrong=(1, 5))))
    facts = found.facts["labels"]
    assert (facts["pairs"], facts["contradict_scores"]) == (21, 2)
    assert facts["examples"][0] == ("line 3: a.png (1), c.png (1.7) is labelled First, by its scores Second")
    assert found.theta == 2


def test_labels_that_mean_the_opposite_are_refused(tmp_path):
    path = paired(tmp_path, SCORES, Fraction("0.2"), wrong=range(21))
    message = refusal(path)
    assert "labels contradict the scores" in message
    assert "First means that img1 has the larger score" in message


def test_old_labels_with_a_full_stop_mean_the_same_and_others_are_refused(tmp_path):
    path = paired(tmp_path, SCORES, Fraction("0.2"))
    path.write_text(path.read_text().replace("First", "First.").replace("Similar", "similar."))
    assert sources.read(data(path)).facts["labels"]["contradict_scores"] == 0
    path.write_text(path.read_text().replace("similar.", "Same"))
    assert "line 2: the label is 'Same'; it must be First" in refusal(path)


def test_an_image_with_two_scores_in_pairs_is_set_aside(tmp_path):
    path = paired(tmp_path, SCORES, Fraction("0.2"))
    path.write_text(path.read_text().replace("a.png,d.png,1,1.9", "a.png,d.png,1,2.9"))
    found = sources.read(data(path))
    assert found.facts["quarantined"] == {"d.png": "it has the scores 2.9 and 1.9"}
    assert found.facts["labels"]["of_usable_images"] == 15


@given(st.lists(st.integers(0, 30), min_size=3, max_size=15), st.integers(0, 30))
@settings(deadline=None)
def test_theta_is_fitted_to_any_labels_made_with_one(scores, theta):
    score = {str(row): value for row, value in enumerate(scores)}
    asked = [
        (0, a, b, SIMILAR if abs(score[a] - score[b]) <= theta else FIRST if score[a] > score[b] else SECOND)
        for a in score
        for b in score
        if a < b
    ]
    found = sources.fit_theta(asked, score)
    for _, a, b, label in asked:
        assert (abs(score[a] - score[b]) <= found) == (label == SIMILAR)


def test_without_theta_up_to_a_fifth_of_the_pairs_are_similar(tmp_path):
    folder(tmp_path, {f"{row}.png": str(row * row) for row in range(9)})
    found = sources.read(data(tmp_path))
    differences = np.abs(found.scores[:, None] - found.scores)[np.triu_indices(9, 1)]
    assert (differences <= found.theta).mean() <= 0.2 < (differences <= found.theta + 2).mean()


def test_inputs_are_the_table_and_the_images_that_are_there(tmp_path):
    folder(tmp_path, {"a.png": "1", "b.png": "2"})
    table(tmp_path / "scores.csv", ("image", "score"), ("a.png", 1), ("b.png", 2), ("no.png", 3), ("../x.png", 3))
    assert sources.inputs(str(tmp_path)) == [tmp_path / name for name in ("scores.csv", "a.png", "b.png")]
    assert sources.inputs("digits") == sources.inputs("photos") == sources.inputs(str(tmp_path / "gone")) == []
