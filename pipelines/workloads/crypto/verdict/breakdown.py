"""Figures of a coin by month, and the parts of a window that a model relies on."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from pipelines.workloads.crypto.trading.backtest import Trades
from pipelines.workloads.crypto.trading.performance import max_drawdown

LAGS = (0, 1, 2, 3, 6, 12, 24)  # candles before a window's last at which a group of lags begins
Logits = Callable[[np.ndarray], np.ndarray]


def by_month(
    times: np.ndarray, equity: np.ndarray, held: np.ndarray, trades: Trades, window_times: np.ndarray, saved: np.ndarray
) -> list[dict[str, object]]:
    """Return a row for each month (UTC): the nats gained on the prior, and what the accounts did from start to end.

    `times` (m,) ms are those of the candles that are traded, `equity` and `held` (m,) the accounts of the model and of
    buy-and-hold at their closes; `saved` (n,) the nats that the model saves in windows that end at `window_times`.
    """
    months, of_window = (each.astype("datetime64[ms]").astype("datetime64[M]") for each in (times, window_times))
    rows: list[dict[str, object]] = []
    for month in np.unique(months):
        first, last = np.flatnonzero(months == month)[[0, -1]]
        inside, entered = of_window == month, trades.entry[(trades.entry >= first) & (trades.entry <= last)]
        before = {name: curve[first - 1] if first else 1.0 for name, curve in (("model", equity), ("held", held))}
        rows.append(
            {
                "month": str(month),
                "n": int(inside.sum()),
                "log_loss_gain": float(saved[inside].mean()) if inside.any() else None,
                "net_return": _growth(before["model"], equity[last]),
                "buy_and_hold_return": _growth(before["held"], held[last]),
                "max_drawdown": max_drawdown(equity[first : last + 1], before["model"]),
                "num_trades": len(entered),
            }
        )
    return rows


def _growth(before: float, after: float) -> float | None:
    return float(after / before - 1) if before > 0 else None


def importance(
    logits: Logits, windows: np.ndarray, labels: np.ndarray, names: tuple[str, ...], seed: int
) -> list[dict[str, object]]:
    """Return by how many nats the log loss rises when a part of the windows (n, L, F) is shuffled among them.

    Parts are each feature, over all candles, and groups of lags, of all features (Breiman 2001); the largest first. The
    error is the standard error of the mean over windows. `logits` maps windows to (n, 3), `names` are of the features.
    """
    order = np.random.default_rng(seed).permutation(len(windows))
    own, length = _log_losses(logits(windows), labels), windows.shape[1]
    edges = [lag for lag in LAGS if lag < length] + [length]
    parts: list[tuple[str, str, tuple[slice, ...]]]
    parts = [("feature", name, np.s_[:, :, number : number + 1]) for number, name in enumerate(names)]
    for start, stop in pairwise(edges):
        lags = str(start) if stop == start + 1 else f"{start} to {stop - 1}"
        parts.append(("candles back", lags, np.s_[:, length - stop : length - start, :]))
    found = []
    for kind, name, place in parts:
        mixed = windows.copy()
        mixed[place] = windows[order][place]
        risen = _log_losses(logits(mixed), labels) - own
        error = float(risen.std(ddof=1) / len(risen) ** 0.5)
        found.append((float(risen.mean()), error, kind, name))
    ranked = sorted(found, key=lambda each: -each[0])
    return [{"part": kind, "of": name, "nats": nats, "error": error} for nats, error, kind, name in ranked]


def _log_losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.asarray(np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(labels)), labels])
