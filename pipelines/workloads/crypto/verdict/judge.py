"""Verdict on classifiers of the next move, with reasons: skill in three grades, none, a bounce, or a suspected leak.

    predictive             the side that the model leans to goes with the return that follows
    beyond simple models   its log loss is lower than that of every simple model
    pays its costs         its account grows after all costs

Each grade is a one-sided test by the mean of a column and its block standard error; over the coins of an evaluation
each is corrected by Holm's procedure (1979), with all earlier looks at the same test among them (`looks`), so the
chance that any coin without skill gets it is at most LEVEL. The second and third grade require the first as well.
"""

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from common.statistics import CONFIDENCE
from models.market.labels import LONG, NO_TRADE, SHORT
from pipelines.workloads.crypto.verdict import classification
from pipelines.workloads.crypto.verdict.classification import Metrics, direction_log_losses, log_losses, metrics
from pipelines.workloads.crypto.verdict.significance import Gain, block_bootstrap, holm, p_value

PREDICTIVE, BEYOND, PAYS = "predictive", "beyond simple models", "pays its costs"
GRADES = (PREDICTIVE, BEYOND, PAYS)  # from the lowest
SKILL, NO_SKILL, LEAK = "skill", "no skill shown", "leak suspected"
COPY = "a copy of"  # another coin's candles
BOUNCE = "bid-ask bounce"
PRIOR, AUTOREGRESSION, ROLLING, BLENDED = "prior", "autoregression", "rolling prior", "rolling priors, blended"
BASES = (PRIOR, AUTOREGRESSION, ROLLING, BLENDED)  # a gain is over the best of them
NOT_TRADABLE = "predictable, not tradable"
LEVEL = 0.025  # chance that any of the coins without skill gets a grade
LARGEST_MOVE = 4.0  # volatilities at which a return is clipped
ACCOUNT_BLOCK = 60  # candles at least; a position is held for several
# Too good to be true for moves a few candles ahead. Published models of six coins that predicted 45 minutes ahead had a
# balanced accuracy of 0.33 to 0.41 (guessing: 1/3) and the right sign in 48 to 53 % of cases. Only a future that leaked
# into the features removes most of the uncertainty.
LEAK_BALANCED_ACCURACY = 0.8  # at or above
LEAK_LOG_LOSS = 0.4  # at or below this share of the prior's log loss
LEAK_HIT_RATE = 0.8  # lower end of the interval of the directional hit rate, at or above,
LEAK_HIT_SHARE = 0.5  # if it covers this share of the moves: a model may be right about the few it is surest of
LEAK_CORRELATION = 0.15  # above, of a feature's rank with that of what comes,
LEAK_RATIO = 1.5  # and more than this many times that with what was,
LEAK_PAST = 24  # candles back
LEAK_ROWS = 30  # fewer rows prove nothing


class Finding(TypedDict):
    """The test of a grade: its p-value, before any correction, and a sentence."""

    p: float
    found: str


class Comparison(Gain):
    """A gain in a figure against another predictor."""

    figure: str
    against: str
    rival: bool  # True against the strongest of all simple models, False against the best of BASES


class Judged(TypedDict):
    """Tests of a coin by itself."""

    tests: dict[str, Finding]
    leaks: list[str]
    bounce: str  # why the signal is the bounce of prices between bid and ask, if it is
    comparisons: list[Comparison]


class Verdict(TypedDict):
    """The verdict on a coin among others."""

    verdict: str
    grades: dict[str, bool]
    reasons: list[str]


def judge(
    probabilities: np.ndarray,
    labels: np.ndarray,
    prior: np.ndarray,
    baselines: Mapping[str, np.ndarray],
    moves: np.ndarray,
    equity: np.ndarray,
    *,
    horizon: int,
    later: np.ndarray,
    last: np.ndarray,
    resamples: int = 1000,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Judged:
    """Compare a model with the baselines (N, 3), for `verdicts` to decide.

    The p-values in `tests` are without any correction for the number of coins; `comparisons` are gains over the best of
    BASES and over the best baseline. `moves` (N,) are the returns that followed, in units of the volatility, `later`
    those from one candle later on, `last` the newest candle's, and `equity` (M,) is the account. `prior` is as in
    `metrics`; `horizon`, `resamples`, `confidence` and `seed` are as in `block_bootstrap`.
    """
    own = metrics(probabilities, labels, prior)
    theirs = {name: metrics(rows, labels, prior) for name, rows in baselines.items()}
    rival = min(theirs, key=lambda name: theirs[name]["log_loss"])
    predictors = {PRIOR: classification.prior_rows(prior, len(labels)), **baselines}
    bases = [name for name in BASES if name in predictors]
    base = min(bases, key=lambda name: log_losses(predictors[name], labels).mean())
    differences = {
        name: block_bootstrap(probabilities, predictors[name], labels, horizon, resamples, confidence, seed)
        for name in {base, rival}
    }
    p = p_value(np.diff(np.log(np.maximum(equity, 1e-9))), max(horizon, ACCOUNT_BLOCK // 3))  # of growth per candle
    pairs = (("log_loss", base, False), ("log_loss", rival, True), ("direction_log_loss", base, False))
    return {
        "tests": {
            PREDICTIVE: _predictive(probabilities, labels, predictors[PRIOR], moves, horizon),
            BEYOND: _beyond(probabilities, labels, baselines, horizon),
            PAYS: {"p": p, "found": f"account {100 * (equity[-1] - 1):+.2f} % after all costs: p = {_shown(p)}"},
        },
        "leaks": [reason for name, found in {"the model": own, **theirs}.items() for reason in _leaks(name, found)],
        "bounce": _bounce(_lean(probabilities, predictors[PRIOR]), moves, later, last, horizon),
        "comparisons": [
            {"figure": metric, "against": name, "rival": rival, **differences[name][metric]}
            for metric, name, rival in pairs
        ],
    }


def leaking(
    names: Sequence[str],
    features: np.ndarray,
    returns: np.ndarray,
    ends: np.ndarray,
    horizon: int,
    theirs: Sequence[np.ndarray] = (),
) -> list[str]:
    """Describe each of the features (N, F) at the rows `ends` (N,) that correlates more with the future than the past.

    A feature computed from past candles knows them better than the next. Correlations are of ranks, with the move over
    the horizon and with single `returns` (M,): a leak of the next candle alone is small in a long move. The past
    includes the returns of other coins that features are of, `theirs`, (M,) each.
    """
    own, series = _ranks(features), (returns, *theirs)
    sums = [each.cumsum() for each in series]
    coming = sums[0][ends + horizon] - sums[0][ends]
    gone = np.stack([each[ends] - each[np.maximum(ends - horizon, 0)] for each in sums], 1)
    before = np.maximum(ends[:, None] + np.arange(1 - LEAK_PAST, 1), 0)
    alone = _ranks(returns)[ends[:, None] + np.arange(1, horizon + 1)]
    past = np.concatenate([_ranks(each)[before] for each in series], 1)
    found = {}
    for candles, columns in {horizon: (_ranks(coming[:, None]), _ranks(gone)), 1: (alone, past)}.items():
        ahead, behind = (np.abs(12 * own.T @ each / len(ends)).max(1) for each in columns)
        least = max(LEAK_CORRELATION, 5 * np.sqrt(candles / len(ends)))  # by chance there is more in a short test
        for place in np.flatnonzero(ahead > np.maximum(least, LEAK_RATIO * behind)).tolist():
            said = f"{names[place]} correlates with the coming {'move' if candles > 1 else 'candle'} (by ranks,"
            found[names[place]] = f"{said} {ahead[place]:.2f}) more than with the last ones ({behind[place]:.2f})"
    return list(found.values())


def _ranks(columns: np.ndarray) -> np.ndarray:
    """Return the ranks of each column, from -0.5 to 0.5."""
    return np.asarray((columns.argsort(0).argsort(0) + 0.5) / len(columns) - 0.5)


def _lean(probabilities: np.ndarray, priors: np.ndarray) -> np.ndarray:
    """Return how much more a model than the priors expects LONG over SHORT (N,), less the mean."""
    lean = (probabilities - priors)[:, LONG] - (probabilities - priors)[:, SHORT]
    return np.asarray(lean - lean.mean())


def _bounce(lean: np.ndarray, moves: np.ndarray, later: np.ndarray, last: np.ndarray, horizon: int) -> str:
    """Say why a lean against the newest candle is no more than the bounce between bid and ask; "" where it is more.

    A trade prints at one of the two prices, so the next print is likely to undo what looks like a move (Roll 1984).
    """
    now, after = (lean * np.clip(each, -LARGEST_MOVE, LARGEST_MOVE) for each in (moves, later))
    if (lean * last).mean() >= 0:
        return ""
    if (p := p_value(after, horizon)) > LEVEL and after.mean() < now.mean() / 2:
        return f"the signal vanishes where entries are taken one candle later (p = {_shown(p)})"
    inputs = np.stack([np.ones(len(last)), last, np.sign(last)], 1)
    known = inputs @ np.linalg.lstsq(inputs, np.clip(moves, -LARGEST_MOVE, LARGEST_MOVE), rcond=None)[0]
    p = p_value(now - lean * known, horizon)
    return f"the autocorrelation of one candle alone explains the signal (beside it p = {_shown(p)})" * (p > LEVEL)


def _predictive(
    probabilities: np.ndarray, labels: np.ndarray, priors: np.ndarray, moves: np.ndarray, horizon: int
) -> Finding:
    """Score test of the direction against the return that followed; the gains on the prior must be above 0 as well.

    The score is the first derivative of the log likelihood in the weight of the model's lean beside the prior's, as in
    tests of forecast encompassing (Harvey, Leybourne and Newbold 1998): it needs no estimate of that weight.
    """
    p = p_value(_lean(probabilities, priors) * np.clip(moves, -LARGEST_MOVE, LARGEST_MOVE), horizon)
    gained = log_losses(priors, labels).mean() - log_losses(probabilities, labels).mean()
    sides = direction_log_losses(priors, labels) - direction_log_losses(probabilities, labels)
    of_direction = float(sides.sum() / max((labels != NO_TRADE).sum(), 1))
    found = f"direction against the return that followed: p = {_shown(p)}; "
    found += f"log loss {gained:+.4f} nats below the prior's, of the direction {of_direction:+.4f}"
    return {"p": p if gained > 0 and of_direction > 0 else 1.0, "found": found}


def _beyond(
    probabilities: np.ndarray, labels: np.ndarray, baselines: Mapping[str, np.ndarray], horizon: int
) -> Finding:
    """Compare log losses with those of each rival; all differences must be above 0, so the largest p-value counts."""
    own = log_losses(probabilities, labels)
    saved = {name: log_losses(rows, labels) - own for name, rows in baselines.items()}
    p_values = {name: p_value(each, horizon) for name, each in saved.items()}
    hardest = max(p_values, key=lambda name: (p_values[name], -saved[name].mean()))
    found = f"log loss {saved[hardest].mean():+.4f} nats below that of {hardest}: p = {_shown(p_values[hardest])}"
    return {"p": p_values[hardest], "found": found}


def _shown(p: float) -> str:
    return "none, too few rows or no difference" if p == 1 else f"{p:.2g}"


def verdicts(found: Mapping[str, Judged], family: int = 0) -> dict[str, Verdict]:
    """Return for each coin {"verdict", "grades", "reasons"}, from what `judge` found out about all of them.

    `family` is the number of forecasts that were ever tested on these candles, those in `found` among them.
    """
    held = {
        grade: dict(zip(found, holm([each["tests"][grade]["p"] for each in found.values()], family), strict=True))
        for grade in GRADES
    }
    among = max(family, len(found))
    return {coin: _verdict(each, {grade: held[grade][coin] for grade in GRADES}, among) for coin, each in found.items()}


def _verdict(found: Judged, p_values: Mapping[str, float], among: int) -> Verdict:
    grades = {grade: bool(p_values[grade] <= LEVEL and p_values[PREDICTIVE] <= LEVEL) for grade in GRADES}
    reasons = [
        f"{'' if grades[grade] else 'not '}{grade}: {found['tests'][grade]['found']}"
        f" ({p_values[grade]:.2g} among {among} forecasts looked at, at most {LEVEL} needed)"
        for grade in GRADES
    ]
    if found["leaks"]:
        return {"verdict": LEAK, "grades": dict.fromkeys(GRADES, False), "reasons": found["leaks"]}
    if not grades[PREDICTIVE]:
        return {"verdict": NO_SKILL, "grades": grades, "reasons": reasons}
    if found["bounce"] and not grades[PAYS]:
        return {"verdict": BOUNCE, "grades": dict.fromkeys(GRADES, False), "reasons": [found["bounce"], *reasons]}
    if not grades[PAYS]:
        reasons.insert(0, f"{NOT_TRADABLE}: no gain is shown after all costs")
    reached = [grade for grade in GRADES if grades[grade]][-1]
    return {"verdict": f"{SKILL}: {reached}", "grades": grades, "reasons": reasons}


def _leaks(name: str, found: Metrics) -> list[str]:
    """Return in words each LEAK_ bound that a predictor's metrics exceed."""
    if found["n"] < LEAK_ROWS or found["balanced_accuracy"] is None:
        return []
    balanced, interval = found["balanced_accuracy"], found["directional_hit_rate_interval"]
    share = found["log_loss"] / found["prior_log_loss"]
    reasons = []
    if balanced >= LEAK_BALANCED_ACCURACY:
        reasons.append(f"balanced accuracy of {name} is {balanced:.3f}, at or above {LEAK_BALANCED_ACCURACY}")
    if share <= LEAK_LOG_LOSS:
        reasons.append(f"log loss of {name} is {share:.3f} of the prior's, at or below {LEAK_LOG_LOSS}")
    enough = max(LEAK_ROWS, LEAK_HIT_SHARE * sum(sum(found["confusion"][k]) for k in (SHORT, LONG)))
    if interval and interval[0] >= LEAK_HIT_RATE and found["directional_n"] >= enough:
        reasons.append(f"{name} has the sign right in {found['directional_hit_rate']:.1%} of {found['directional_n']}")
    return reasons
