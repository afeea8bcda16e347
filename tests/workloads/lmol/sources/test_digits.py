"""The embedded digits."""

import numpy as np

from tests.workloads.lmol.sources.files import data, read


def test_digits_are_all_there_each_a_group_of_its_own():
    found = read(data("digits"))
    assert found.images.shape == (1797, 16, 16, 1)
    assert found.images.min() == 0
    assert found.images.max() > 240
    assert np.bincount(found.scores).min() > 170
    assert (found.unit, found.theta, found.attribute) == (1, 0, "value")
    assert len(set(found.groups)) == len(set(found.names)) == 1797
    assert found.facts["licences"][0]["attribution"]
    assert read(data("digits", theta=1.5, attribute="size")).theta == 1
