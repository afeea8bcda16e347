"""Tests for drift: false alarms no oftener than stated, whatever the outcomes depend on, and real changes found."""

import numpy as np
import pytest

from pipelines.following import drift
from pipelines.following.drift import BLOCK, Answered, advanced, begun

CLASSES = ("SHORT", "NO_TRADE", "LONG")
LAG = 3  # outcomes overlap


def alarms(count, seed, shift=0.0, overconfident=1.0, strange=1.0):
    """The tests that alarm, with the moment, over answers whose truth differs from what they say by a log odds."""
    generator = np.random.default_rng(seed)
    logits = np.cumsum(generator.normal(0, 0.2, (count, 3)), 0)  # forecasts wander, as those of a market
    logits = np.tanh(logits - logits.mean(1, keepdims=True))
    claimed = np.exp(overconfident * logits)
    claimed /= claimed.sum(1, keepdims=True)
    true = np.exp(logits + shift * np.eye(3)[2])
    true /= true.sum(1, keepdims=True)
    outcomes = (generator.random(count)[:, None] > true.cumsum(1)).sum(1)
    strangeness = strange * generator.lognormal(0, 0.5, count)
    state, found = begun(generator.lognormal(0, 0.5, 100 * BLOCK).tolist()), []
    for now in range(count):
        outcome = (now - LAG, CLASSES[outcomes[now - LAG]]) if now >= LAG else None
        probabilities = dict(zip(CLASSES, claimed[now].tolist(), strict=True))
        answer = Answered(
            source="A", time=now, probabilities=probabilities, outcome=outcome, strangeness=strangeness[now]
        )
        state, now_found = advanced(state, answer, 1)
        found += [(each, now) for each in now_found]
    return found


@pytest.mark.parametrize(
    ("change", "test", "within"),
    [
        ({"shift": 1.0}, "calibration", 700),
        ({"overconfident": 2.5}, "calibration", 300),
        pytest.param({"overconfident": 2.5}, "hits", 3000, marks=pytest.mark.slow),
        pytest.param({"strange": 2.0}, "features", 8 * BLOCK, marks=pytest.mark.slow),
        ({"strange": 0.5}, "features", 8 * BLOCK),
    ],
)
def test_a_change_is_found(change, test, within):
    assert test in [name for name, _ in alarms(within, 1, **change)]
    assert not alarms(within, 1)


def test_bets_on_classes_are_fair_and_go_on_from_no_less_than_they_began_with():
    claimed = {"SHORT": 0.2, "NO_TRADE": 0.7, "LONG": 0.1}

    def capital(*outcomes):
        state = begun([])
        for now, outcome in enumerate((None, *outcomes)):
            known = (now - 1, outcome) if outcome else None
            state, _ = advanced(state, Answered(source="A", time=now, probabilities=claimed, outcome=known), 1)
        return {name: np.exp(each) for name, each in state.capital.items()}

    once = {name: capital(name) for name in CLASSES}
    assert set(once["LONG"]) == {"calibration 0", "hits 0"}
    for test in once["LONG"]:
        np.testing.assert_allclose(sum(claimed[name] * once[name][test] for name in CLASSES), 1)
        assert (once["NO_TRADE"][test] < 1).any()
        twice = capital("NO_TRADE", "LONG")[test]
        np.testing.assert_allclose(twice, np.maximum(once["NO_TRADE"][test], 1) * once["LONG"][test])


def test_bets_on_strange_blocks_win_only_at_the_extremes_and_no_more_than_they_lose_elsewhere():
    found = []
    for place in range(10):
        before = np.delete(np.arange(10.0), place)
        state = begun(np.repeat(before, BLOCK).tolist())
        for now in range(BLOCK):
            state, _ = advanced(state, Answered(source="A", time=now, strangeness=place), 1)
        found += np.exp(state.capital["features"]).tolist()
    assert np.mean(found) <= 1
    assert [place for place, won in enumerate(found) if won > 1] == [0, 9]


def test_outcomes_that_overlap_are_bet_on_apart_and_a_test_that_alarms_begins_anew(monkeypatch):
    monkeypatch.setattr(drift, "CALM", 2)
    state, step, sequences, alarmed = begun([]), 900_000, [], []
    for now in range(12):
        outcome = ((now - LAG) * step, "LONG") if now >= LAG else None
        claimed = {"SHORT": 0.2, "NO_TRADE": 0.7, "LONG": 0.1}
        answer = Answered(source="A", time=now * step, probabilities=claimed, outcome=outcome)
        state, found = advanced(state, answer, step)
        assert len(state.pending) <= LAG
        sequences.append({name for name in state.capital if name.startswith("calibration")})
        alarmed += [now] if "calibration" in found else []
    assert sequences[LAG + 2] == {"calibration 0", "calibration 1", "calibration 2"}
    assert alarmed
    assert all(sequences[now] == set() and len(sequences[now + 1]) == 1 for now in alarmed if now < 11)


@pytest.mark.slow
def test_false_alarms_are_no_oftener_than_stated(monkeypatch):
    monkeypatch.setattr(drift, "CALM", 300)
    names = [name for seed in range(10) for name, _ in alarms(4000, seed)]
    for test in ("calibration", "hits", "features"):
        assert names.count(test) <= 10 * 4000 / 300
    assert len(alarms(4000, 0, shift=0.5)) > 4000 / 300  # which are not false
