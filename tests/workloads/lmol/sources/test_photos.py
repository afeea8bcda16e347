"""The embedded photos: degraded crops, one scale of scores, licences."""

from fractions import Fraction

import numpy as np
import pytest

from pipelines.workloads.lmol.sources import photos
from tests.workloads.lmol.sources.files import data, read, refusal


@pytest.fixture(scope="module")
def found():
    return read(data("photos", size=32, photos_crops=2))


def test_photos_are_crops_and_each_is_spoilt_in_four_ways_to_four_degrees(found):
    assert found.images.shape == (len(photos.PHOTOS) * 2 * 17, 32, 32, 3)
    assert len(set(found.names)) == len(found.names)
    assert set(found.groups) == set(photos.PHOTOS)
    assert {found.families.count(family) for family in photos.FAMILIES} == {len(photos.PHOTOS) * 2 * 4}
    assert all(
        name.startswith(f"{group}-") and family in name
        for name, group, family in zip(found.names, found.groups, found.families, strict=True)
    )


def test_photo_scores_are_one_scale_on_which_degrees_are_theta_apart(found):
    by_kind = found.facts["scores_by_kind"]
    assert by_kind["pristine"] == 1
    degrees = [[1000 * by_kind[f"{family} {degree}"] for family in photos.FAMILIES] for degree in range(1, 5)]
    for better, worse in zip([[1000], *degrees], degrees, strict=False):
        assert min(better) - max(worse) > found.theta
    for kind, score in by_kind.items():
        rows = [row for row, name in enumerate(found.names) if name.endswith("-" + kind.replace(" ", "-"))]
        assert len(rows) == 2 * len(photos.PHOTOS)
        assert {found.scores[row] * found.unit for row in rows} == {Fraction(round(score * 1000), 1000)}


@pytest.mark.parametrize("size", [8, 256])
def test_photos_are_refused_at_sizes_that_they_do_not_have(size):
    assert f"data.size={size}: for data.source=photos it must be 16 to 200" in refusal("photos", size=size)


def test_a_photo_crop_is_the_same_whatever_else_is_drawn(found):
    again = read(data("photos", size=32, photos_crops=1))
    of_name = dict(zip(found.names, found.images, strict=True))
    assert all((of_name[name] == image).all() for name, image in zip(again.names, again.images, strict=True))
    other = read(data("photos", size=32, photos_crops=1, seed=1))
    assert (other.images != again.images).any()


def test_photos_have_licences_that_allow_it_and_show_no_people(found):
    licences = {entry["name"]: entry for entry in found.facts["licences"]}
    assert len(licences) == len(photos.PHOTOS)
    allowed = {"CC0 1.0", "CC BY 2.0", "public domain", "no known copyright restrictions"}
    assert {entry["licence"] for entry in licences.values()} == allowed
    assert all(entry["attribution"] for entry in licences.values())
    assert all(entry["url"] for entry in licences.values() if entry["licence"] == "CC BY 2.0")
    assert not any(person in name for name in licences for person in ("astronaut", "camera", "lfw", "retina", "face"))


def test_crops_of_photos_have_something_in_them(found):
    pristine = found.images[[family == "pristine" for family in found.families]].astype(float)
    contrast = np.abs(np.diff(pristine.mean(-1), axis=2)).mean((1, 2))
    assert contrast.min() > 0.8 * photos.LEAST_CONTRAST
