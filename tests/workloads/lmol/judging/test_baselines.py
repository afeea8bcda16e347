"""Baselines: they learn from the training part alone, and the sharpness rule fails on noise."""

from dataclasses import replace

import numpy as np
from scipy.ndimage import gaussian_filter

from pipelines.workloads.lmol.judging.baselines import SHARPNESS, baselines
from pipelines.workloads.lmol.judging.figures import by_family
from tests.workloads.lmol.brightness import comparisons, labelled, one_hot


def test_baselines_do_not_learn_from_the_test_part():
    found = comparisons()
    scores, pairs = found.scores.copy(), dict(found.pairs)
    scores[found.parts["test"]] = 0
    pairs["test"] = pairs["test"] * [1, 1, 0]
    blind = replace(found, scores=scores, pairs=pairs)
    first, second, _ = found.pairs["test"].T
    for one, other in zip(baselines(found, 0), baselines(blind, 0), strict=True):
        assert one.name == other.name
        np.testing.assert_array_equal(one.answer(first, second), other.answer(first, second))


def test_the_sharpness_rule_ranks_blurred_images_and_is_fooled_by_noise():
    generator = np.random.default_rng(0)
    found = comparisons(theta=0, levels=5, families=("blur", "noise"))
    plain = 255 * (gaussian_filter(generator.normal(size=(len(found.scores), 16, 16)), (0, 1, 1)) * 1.5 + 0.5).clip(
        0, 1
    )
    images = np.array(
        [
            gaussian_filter(image, 0.4 * (4 - level))
            if family == "blur"
            else image + generator.normal(0, 20 * (4 - level), image.shape)
            for image, level, family in zip(plain, found.scores, found.families, strict=True)
        ]
    )
    # Fitted to blur alone.
    fitted = found.parts["validation"]
    blurred = fitted[np.array(found.families)[fitted] == "blur"]
    pairs = {**found.pairs, "validation": labelled(found.scores, blurred, 0, 300, generator)}
    found = replace(found, images=images.clip(0, 255).astype(np.uint8)[..., None], pairs=pairs)
    rule = next(baseline for baseline in baselines(found, 0) if baseline.name == SHARPNESS)
    first, second, labels = found.pairs["test"].T
    truth = one_hot(labels)
    families = by_family(found, {"rule": rule.answer(first, second), "truth": truth})
    assert families["blur"]["rule"] > 0.7
    assert families["noise"]["rule"] < 0.45
    assert {family["truth"] for family in families.values()} == {1.0}
    assert sum(family["n"] for family in families.values()) == len(labels)
    assert by_family(comparisons(), {"truth": truth}) == {}


def test_predictors_of_fewer_images_than_neighbours_are_fitted_all_the_same():
    found = comparisons()
    for count in (4, 10):
        few = replace(found, parts={**found.parts, "train": found.parts["train"][:count]})
        neighbours = next(each for each in baselines(few, 0) if each.name == "nearest neighbours")
        assert np.isfinite(neighbours.scores).all()
