"""Alarms on drift by sequential tests, each of which bets that something has changed.

A bet multiplies a capital by a factor that is never negative and at most 1 on average, whatever came before, as long as
nothing has changed. A test multiplies max(capital, 1) by each factor and alarms at CALM: within n answers of a series
it does so falsely with a probability of at most n / CALM (an e-detector: Shin, Ramdas and Rinaldo 2022; by Markov's
inequality, as the capital of Shiryaev and Roberts is larger and n on average). Classes that are known `lag` moments
later are judged in as many interleaved sequences (Henzi and Ziegel 2022), whose chances add up to the same.
"""

import math
from collections.abc import Sequence

import numpy as np

from common.config import Section

CALM = 20_000  # answers
BLOCK = 96  # moments whose mean strangeness is compared; blocks, unlike moments, count as exchangeable
SHARPER, TILT = 2.0, 0.7  # bets on a temperature, and on the log odds of a class
STAKE = 0.5  # on misses


class Answered(Section):
    """The fields of a line of the log that the tests use."""

    source: str
    time: int
    probabilities: dict[str, float] | None = None  # of classes
    outcome: tuple[int, str] | None = None  # an earlier moment and its class, known by now
    strangeness: float | None = None


class Drift(Section):
    """State of a series' tests: plain numbers."""

    capital: dict[str, tuple[float, ...]]  # logarithms, of the bets of each test and sequence
    pending: dict[int, dict[str, float]]  # moment -> probabilities of its class, which is not yet known
    block: tuple[float, ...]  # strangeness of the moments of an unfinished block
    blocks: tuple[float, ...]  # means of earlier ones, first those before the model began to answer


def begun(strangeness: Sequence[float]) -> Drift:
    """Return the state before the first answer, given the strangeness of the moments before it, in order of time."""
    whole = len(strangeness) // BLOCK
    blocks = np.reshape(strangeness[len(strangeness) - whole * BLOCK :], (whole, BLOCK))
    return Drift(capital={}, pending={}, block=(), blocks=tuple(blocks.mean(1).tolist()))


def advanced(drift: Drift, answer: Answered, step: int) -> tuple[Drift, list[str]]:
    """Return the state after an answer, and the tests that alarm and restart; `step`: ms between moments."""
    capital, pending = dict(drift.capital), dict(drift.pending)
    block, blocks, factors = drift.block, drift.blocks, dict[str, tuple[np.ndarray, float]]()
    if answer.outcome and (claimed := pending.get(answer.outcome[0])):
        begin, name = answer.outcome
        place = begin // step % max((answer.time - begin) // step, 1)
        p, known = np.maximum(list(claimed.values()), 1e-9), list(claimed).index(name)
        p = p / p.sum()
        logs, tilts = np.log(p), TILT * np.eye(len(p))
        # Alternatives (2 + 2 K, K) to p (K,): sharper, flatter, one class more or less likely.
        others = np.exp(np.vstack([logs * SHARPER, logs / SHARPER, logs + tilts, logs - tilts]))
        factors[f"calibration {place}"] = (others / others.sum(1, keepdims=True))[:, known] / p[known], CALM
        factors[f"hits {place}"] = np.array([1 - STAKE * ((known == p.argmax()) - p.max())]), CALM
        pending = {time: each for time, each in pending.items() if time > begin}
    if answer.probabilities:
        pending[answer.time] = answer.probabilities
    if answer.strangeness is not None and len(block := (*block, answer.strangeness)) == BLOCK:
        mean, block = sum(block) / BLOCK, ()
        blocks = (*blocks, mean)
        ranks = (sum(other <= mean for other in blocks), sum(other >= mean for other in blocks))
        chance = min(1.0, 2 * min(ranks) / len(blocks))  # p-value of the block (Vovk, Nouretdinov and Gammerman 2003)
        factors["features"] = np.array([0.5 / math.sqrt(chance)]), CALM / BLOCK
    alarms = []
    for name, (factor, most) in factors.items():
        logs = np.maximum(capital.get(name, np.zeros(len(factor))), 0) + np.log(factor)
        capital[name] = tuple(logs.tolist())
        if np.exp(logs).mean() >= most:
            test = name.split()[0]
            alarms.append(test)
            capital = {other: each for other, each in capital.items() if other.split()[0] != test}
    return Drift(capital=capital, pending=pending, block=block, blocks=blocks), alarms
