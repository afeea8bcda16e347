"""Prepared comparisons: parts without leaks, files read as they were written, refusals of unusable sources."""

import csv
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from common.disk.files import digests
from common.errors import UserError
from models.images import image_files
from models.images.ranking import FIRST, SECOND, SIMILAR
from pipelines.workloads.lmol import data, pairs, sources
from pipelines.workloads.lmol.config import Columns
from pipelines.workloads.lmol.pairs import PARTS, natural_shares
from pipelines.workloads.lmol.sources import finding
from pipelines.workloads.lmol.sources import photos as photo_source


def config(source="digits", **fields):
    """A stand-in for the workload's config."""
    section = {
        "source": str(source),
        "columns": Columns(),
        "attribute": None,
        "attributes": (),
        "theta": None,
        "folds": 5,
        "fold": 0,
        "size": 16,
        "fit": "crop",
        "train_pairs": 2000,
        "evaluation_pairs": 1500,
        "degree": 200,
        "photos_crops": 1,
        "maximum_pixels": 1_000_000,
        "seed": 0,
    }
    return SimpleNamespace(seed=0, data=SimpleNamespace(**{**section, **fields}))


def prepared(folder, *args, **fields):
    facts = data.prepare(config(*args, **fields), folder)
    return data.load(folder), facts


def picture(seed, side=24):
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)
    return Image.fromarray(coarse).resize((side, side), Image.Resampling.BILINEAR)


def user_folder(path, scores):
    """A folder with a picture for each name, and a CSV of {name: score}."""
    for seed, name in enumerate(scores):
        picture(seed).save(path / name)
    with (path / "scores.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("image", "score"), *scores.items()])
    return path


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("photos"), "photos", size=32)


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """A folder of 40 images with scores in sixtieths, the first three of which show one picture."""
    path = tmp_path_factory.mktemp("mine")
    user_folder(path, {f"{row:02d}.png": f"{(60 + 7 * row) / 60:.6f}" for row in range(40)})
    for row in (1, 2):
        picture(0, 24 + 10 * row).save(path / f"{row:02d}.png")
    return path, *prepared(tmp_path_factory.mktemp("prepared"), path, theta=0.2)


@pytest.fixture(params=["digits", "photos", "mine"])
def found(request):
    """Comparisons and facts of each kind of source."""
    return request.getfixturevalue(request.param)[-2:]


def test_no_image_and_no_group_is_in_two_parts(found):
    comparisons, _ = found
    assert sorted(np.concatenate(list(comparisons.parts.values())).tolist()) == list(range(len(comparisons.images)))
    groups = {part: {comparisons.groups[row] for row in rows} for part, rows in comparisons.parts.items()}
    assert not groups["train"] & groups["validation"]
    assert not groups["train"] & groups["test"]
    assert not groups["validation"] & groups["test"]


def test_pairs_stay_within_their_part_and_are_labelled_by_their_scores(found):
    comparisons, _ = found
    for part in PARTS:
        rows = comparisons.pairs[part]
        assert rows.dtype == np.int64
        assert set(rows[:, :2].ravel()) <= set(comparisons.parts[part])
        once = rows[rows[:, 2] != SIMILAR] if part == "train" else rows  # few similar ones come again in training
        assert len({frozenset(row) for row in once[:, :2].tolist()}) == len(once) > 0
        difference = comparisons.scores[rows[:, 0]] - comparisons.scores[rows[:, 1]]
        expected = np.where(abs(difference) <= comparisons.theta, SIMILAR, np.where(difference > 0, FIRST, SECOND))
        assert (rows[:, 2] == expected).all()
    counts = np.bincount(comparisons.pairs["train"][:, 2], minlength=3)
    assert counts.min() == counts.max()
    assert np.bincount(comparisons.pairs["train"][:, :2].ravel()).max() <= 200


def test_evaluation_has_the_natural_shares(found):
    comparisons, facts = found
    for part in ("validation", "test"):
        natural = natural_shares(comparisons.scores[comparisons.parts[part]], comparisons.theta)
        assert list(facts[part]["natural_shares"].values()) == natural
        rows = comparisons.pairs[part]
        counts = np.bincount(rows[:, 2], minlength=3)
        assert list(facts[part]["labels"].values()) == counts.tolist()
        assert abs(counts[SIMILAR] / len(rows) - natural[SIMILAR]) < 4 * (natural[SIMILAR] / len(rows)) ** 0.5


def test_references_are_training_images_that_cover_the_scale(found):
    comparisons, facts = found
    assert set(comparisons.references) <= set(comparisons.parts["train"])
    train = comparisons.scores[comparisons.parts["train"]]
    chosen = comparisons.scores[comparisons.references]
    assert (chosen.min(), chosen.max()) == (train.min(), train.max())
    assert facts["references"] == len(chosen) <= 10 * data.REFERENCES_PER_BIN


def test_facts_count_what_is_there(found):
    comparisons, facts = found
    json.dumps(facts, allow_nan=False)
    assert comparisons.facts == facts
    assert facts["images"] == sum(facts[part]["images"] for part in PARTS) == len(comparisons.images)
    assert facts["groups"] == sum(facts[part]["groups"] for part in PARTS)
    assert facts["theta"] == comparisons.theta * comparisons.unit
    for part in PARTS:
        assert facts[part]["pairs"] == len(comparisons.pairs[part])


def test_digits_are_split_and_balanced(digits):
    comparisons, facts = digits
    assert comparisons.images.shape == (1797, 16, 16, 1)
    assert np.bincount(comparisons.pairs["train"][:, 2]).tolist() == [2000] * 3
    assert [len(comparisons.parts[part]) for part in PARTS] == pytest.approx([1078, 360, 359], abs=8)
    assert [len(comparisons.pairs[part]) for part in PARTS] == [6000, 1500, 1500]
    assert len(comparisons.references) == 100
    assert np.bincount(comparisons.scores[comparisons.references]).tolist() == [10] * 10
    assert facts["licences"]


def test_photos_are_split_by_photo(photos):
    comparisons, facts = photos
    assert facts["groups"] == len(photo_source.PHOTOS)
    assert all(facts[part]["groups"] >= 2 for part in PARTS)
    assert (comparisons.unit, comparisons.theta) == (0.001, 65)
    assert set(comparisons.families) == {"pristine", *photo_source.FAMILIES}


def test_what_is_read_is_what_the_source_gave(mine, tmp_path):
    path, comparisons, facts = mine
    source = sources.read(config(path, theta=0.2).data, tmp_path / "images.npy")
    assert (comparisons.images == source.images).all()
    assert (comparisons.scores == source.scores).all()
    assert comparisons.names == source.names
    assert (facts["unit"], comparisons.unit, comparisons.theta) == ("1/60", 1 / 60, 12)
    assert comparisons.attribute == "score"
    comparisons.images[0, 0, 0] = 1  # the memory is writable, as torch expects


def test_near_duplicates_are_brought_to_one_side_and_named(mine):
    _, comparisons, facts = mine
    assert comparisons.groups[:3] == ["00.png"] * 3
    assert sorted(facts["near_duplicates"]) == [["00.png", "01.png"], ["00.png", "02.png"], ["01.png", "02.png"]]
    assert facts["groups"] == 38


def test_preparation_notes_that_images_are_too_few_for_a_verdict_and_how_many_would_do(mine, digits):
    _, comparisons, facts = mine
    assert facts["note"] == pairs.too_few(len(comparisons.parts["test"]), comparisons.pairs["test"][:, 2], 5)
    assert re.match(r"too few images for a verdict: \d+ are for testing, .*; give some \d{2,3} in all$", facts["note"])
    assert "note" not in digits[1]


def test_a_chain_of_duplicates_is_one_group(monkeypatch):
    source = SimpleNamespace(groups=["a", "b", "b", "c", "d"], names=list("vwxyz"), thumbnails=None)
    monkeypatch.setattr(image_files, "near_duplicates", lambda thumbnails: np.array([[0, 1], [1, 2], [2, 3]]))
    groups, merged = data.grouped(source)
    assert groups == ["a", "a", "a", "a", "d"]
    assert merged == [["v", "w"], ["x", "y"]]  # w and x are in one group already


def test_preparing_twice_gives_the_same_bytes_and_another_seed_or_fold_others(tmp_path):
    path = tmp_path / "mine"
    path.mkdir()
    user_folder(path, {f"{row:02d}.png": str(row % 9) for row in range(40)})
    made = {}
    for name, fields in {"a": {}, "b": {}, "seed": {"seed": 1}, "fold": {"fold": 1}}.items():
        made[name], _ = prepared(tmp_path / name, path, **fields)

    def tables(name):
        return {
            file: digest
            for file, digest in digests(tmp_path / name).items()
            if file.endswith(("arrow", "npy", "comparisons.json"))
        }

    assert tables("a") == tables("b")
    for name in ("seed", "fold"):
        assert set(made[name].parts["test"]) != set(made["a"].parts["test"])
    assert set(made["fold"].parts["test"]) == set(made["a"].parts["validation"])


def test_the_bounds_of_the_config_hold(tmp_path):
    comparisons, _ = prepared(tmp_path, train_pairs=100, evaluation_pairs=70, degree=3)
    assert np.bincount(comparisons.pairs["train"][:, 2]).tolist() == [100] * 3
    assert np.bincount(comparisons.pairs["train"][:, :2].ravel()).max() <= 3
    assert len(comparisons.pairs["validation"]) == len(comparisons.pairs["test"]) == 70


@pytest.mark.parametrize(
    ("scores", "fields", "texts"),
    [
        ([1, 2], {}, ("2 usable images in 2 groups", "data.folds=5")),
        ([1, 2, 3], {"folds": 3}, ("the train part has 1, but two are needed",)),
        ([4] * 20, {}, ("differ by 0 at most", "give images with different scores")),
        (
            [0, 1, 2] * 5,
            {"degree": 1, "folds": 3},
            ("data.degree=1: of 5 training images", "give a larger data.degree"),
        ),
        (range(20), {"theta": 50}, ("12 training images", "data.theta=50", "give a data.theta below")),
        (
            range(20),
            {"theta": 0.5},
            ("by data.theta=0.5 or less, so Similar could not be learned", "give a data.theta of 1 or more"),
        ),
    ],
)
def test_what_cannot_be_asked_about_is_refused_with_the_remedy(tmp_path, scores, fields, texts):
    path = user_folder(tmp_path, {f"{row:02d}.png": str(score) for row, score in enumerate(scores)})
    with pytest.raises(UserError) as refused:
        data.prepare(config(path, **fields), tmp_path / "out")
    for text in texts:
        assert text in str(refused.value)


def test_inputs_are_the_files_of_the_user(mine):
    path, *_ = mine
    found = finding.files_of(config(path).data.source, {})
    assert found[0] == path / "scores.csv"
    assert len(found) == 41
    assert finding.files_of("photos", {}) == []
