"""Agreement of scores with known ones, by hand."""

import numpy as np
import pytest

from common import statistics
from pipelines.workloads.lmol.judging.figures import score_figures

EACH = [f"{image}.png" for image in range(50)]  # a group of its own


@pytest.fixture(autouse=True, scope="module")
def few_resamples():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "RESAMPLES", 200)
        yield


def test_figures_of_scores_by_hand():
    known = np.arange(50.0)
    found = score_figures(known + np.tile([1.0, -1.0], 25), known, EACH, 0)
    assert (found["mae"], found["rmse"]) == (1.0, 1.0)
    assert found["mae_interval"] == [1.0, 1.0]
    assert found["pearson"] == pytest.approx(np.corrcoef(known, known + np.tile([1.0, -1.0], 25))[0, 1])
    reverse = score_figures(-known, known, EACH, 0)
    assert [reverse[name] for name in ("pearson", "spearman", "kendall")] == pytest.approx([-1, -1, -1])
    noisy = score_figures(known + np.random.default_rng(0).normal(0, 20, 50), known, EACH, 0)
    for name in ("pearson", "spearman", "kendall", "mae", "rmse"):
        low, high = noisy[f"{name}_interval"]
        assert low < noisy[name] < high
    assert noisy["kendall"] < noisy["spearman"]


def test_scores_that_are_all_the_same_have_no_correlation():
    found = score_figures(np.ones(20), np.arange(20.0), EACH[:20], 0)
    assert found["pearson"] is found["spearman_interval"] is found["kendall"] is None
    assert found["mae"] == pytest.approx(8.6)


def test_intervals_allow_for_errors_that_images_of_a_group_share():
    generator = np.random.default_rng(0)
    groups = [str(image // 25) for image in range(1000)]
    known = generator.normal(size=1000)
    scores = known + np.repeat(generator.normal(size=40), 25)
    apart, together = (score_figures(scores, known, each, 0) for each in ([str(i) for i in range(1000)], groups))
    for name in ("rmse", "pearson"):
        alone, shared = (np.ptp(found[f"{name}_interval"]) for found in (apart, together))
        assert shared > 2 * alone
