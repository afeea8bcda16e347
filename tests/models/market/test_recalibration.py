"""Online recalibration: it helps where probabilities have drifted, looks at no later label and is the same anywhere."""

import numpy as np
import pytest

from models.market.recalibration import WINDOW, reach, recalibrated


def drawn(num, seed=0, bias=(0.0, 0.0, 0.0), sharpness=1.0):
    """Return logits (N, 3) and labels (N,) drawn from a distortion of them."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(num, 3))
    true = np.exp(logits * sharpness + np.array(bias))
    labels = (generator.random((num, 1)) > (true / true.sum(1, keepdims=True)).cumsum(1)[:, :2]).sum(1)
    return logits, labels


def log_loss(logs, labels):
    return -logs[np.arange(len(labels)), labels].mean()


@pytest.mark.parametrize("changes", [{"bias": (0.8, 0.0, 0.0)}, {"bias": (0.0, 0.0, 0.8)}, {"sharpness": 0.4}])
def test_a_bias_and_a_temperature_are_found(changes):
    logits, labels = drawn(3000, **changes)
    whole = [slice(0, 3000)]
    before, after = (recalibrated(logits, labels, whole, 1, window) for window in (0, WINDOW))
    assert log_loss(after[500:], labels[500:]) < log_loss(before[500:], labels[500:]) - 0.02
    np.testing.assert_allclose(np.exp(after).sum(1), 1)


def test_probabilities_that_are_right_stay_as_they_are_but_for_little():
    logits, labels = drawn(4000)
    before, after = (recalibrated(logits, labels, [slice(0, 4000)], 1, window) for window in (0, WINDOW))
    assert abs(log_loss(after, labels) - log_loss(before, labels)) < 0.005


def test_no_label_counts_before_it_is_known_nor_after_the_window_nor_beyond_a_gap():
    logits, labels = drawn(800)
    horizon, window = 3, WINDOW
    found = recalibrated(logits, labels, [slice(0, 700), slice(700, 800)], horizon, window)
    for row in (0, 2, 3, 450, 699, 700, 702, 740):
        own = 700 if row >= 700 else 0
        changed = np.where(np.arange(800) > row - horizon, (labels + 1) % 3, labels)
        changed[: max(row - reach(window, horizon), own)] = 0
        again = recalibrated(logits, changed, [slice(0, 700), slice(700, 800)], horizon, window)
        np.testing.assert_allclose(again[row], found[row])
    seen = np.arange(800) == 450 - horizon
    other = recalibrated(logits, np.where(seen, (labels + 1) % 3, labels), [slice(0, 800)], horizon, window)
    assert not np.allclose(other[450], found[450])


def test_the_candles_that_it_reaches_back_to_suffice():
    logits, labels = drawn(800)
    window, horizon = WINDOW, 3
    whole = recalibrated(logits, labels, [slice(0, 800)], horizon, window)
    newest = slice(799 - reach(window, horizon), 800)
    part = recalibrated(logits[newest], labels[newest], [slice(0, reach(window, horizon) + 1)], horizon, window)
    np.testing.assert_allclose(part[-1], whole[-1], atol=1e-9)


def test_rows_without_a_label_or_logits_teach_nothing():
    logits, labels = drawn(300)
    labels[50:60] = -1
    logits[100:110] = np.nan
    found = recalibrated(logits, labels, [slice(0, 300)], 1, 300)
    assert np.isnan(found[100:110]).all()
    taught = (labels >= 0) & np.isfinite(logits).all(1)
    alone = recalibrated(logits[taught], labels[taught], [slice(0, 280)], 1, 300)
    np.testing.assert_allclose(found[-1], alone[-1])
