"""What trading on a classifier's signals would have paid, costs and gaps included.

Own code: vectorbt (Apache 2.0 with Commons Clause, numba, plotly) has no time exit and no gaps, backtesting.py is AGPL,
backtrader GPL, nautilus-trader and zipline are whole trading systems, and bt rebalances at closes without stops.

Rules
- The signal of candle t is known at its close and filled at the open of candle t + 1; one position at a time.
- A signal speaks of `horizon` candles: its position is kept for as many, and for as many again whenever the signal
  comes again, so that a forecast that lasts does not pay its costs twice. No signal (0) is no order to leave.
- A trade is as large as the account at its entry. With x = exit price / entry price and side +1 or -1,
      gross = side (x - 1),    net = gross - (fee + slippage) (1 + x),
  so each side costs its own notional times (fee + slippage), as on a margin account, and costs are linear in the fee:
  a fee higher by d lowers the trade by exactly d (1 + x). A short earns minus the long's gross and pays the same costs.
- A position ends at the first of: the open after the opposite signal, or after the horizon of the last one; the stop
  or the target, both looked for from the candle of the entry on (in a candle that holds both, the stop); the last close
  before a gap; the last close. A stop that the open has jumped is filled at that open, a target never better than
  itself. After any exit the signal of the candle before may enter again, an older one does not.
- A gap cancels the order that would be filled behind it.
- An account that has lost everything is closed (`ruin`): net is never below -1.
- The equity of candle t is what the account holds once closed at its close, exit cost included. It depends on no later
  candle, not even on whether a gap follows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.workloads.crypto.labels import LONG, SHORT

DAYS_PER_YEAR = 365  # these markets do not close
THRESHOLDS = tuple(round(0.35 + 0.05 * i, 2) for i in range(12))  # 0.35 to 0.90; three classes make 1/3 no choice
REPETITIONS_AT_ONCE = 64  # bounds the memory of random_trades


@dataclass(frozen=True)
class Trades:
    """K trades in order of time, a column each."""

    entry: np.ndarray  # (K,) candle whose open was paid
    exit: np.ndarray  # (K,) candle in which the exit was filled
    held: np.ndarray  # (K,) candles from the entry on that the position was open in
    side: np.ndarray  # (K,) +1 long, -1 short
    ratio: np.ndarray  # (K,) exit price / entry price
    gross: np.ndarray  # (K,) return on the account before costs
    net: np.ndarray  # (K,) and after them
    reason: Sequence[str]  # K of signal, stop, target, gap, end, ruin

    def __len__(self) -> int:
        return len(self.entry)


@dataclass(frozen=True)
class Result:
    """One backtest."""

    equity: np.ndarray  # (N,) the account at each close, 1 at the start
    trades: Trades
    fee: float  # share of the notional, per side
    slippage: float  # likewise
    buy_and_hold: float  # net return from the second open to the last close, gaps held through


@dataclass(frozen=True)
class Choice:
    """The threshold that did best on validation."""

    threshold: float | None  # None: not trading was best
    net_return: float
    num_trades: int
    table: Sequence[Mapping[str, Any]]  # every threshold tried


def run(
    open: np.ndarray,
    high: np.ndarray,
    low: np.ndarray,
    close: np.ndarray,
    signal: np.ndarray,
    gap: np.ndarray,
    fee: float = 0.001,
    slippage: float = 0.0005,
    stop: float | None = None,
    target: float | None = None,
    horizon: int = 1,
) -> Result:
    """Trade `signal` (N,) in -1, 0, +1 by the rules at the head of this file.

    `gap` (N,) bool says that candles are missing between t - 1 and t. `fee` and `slippage` are shares of the notional
    per side, `stop` and `target` distances as shares of the entry price (None: without), `horizon` the candles that a
    signal speaks of. ValueError for arrays that do not fit together and values out of range.
    """
    prices = [np.asarray(column, dtype=np.float64) for column in (open, high, low, close)]
    signal, gap = np.asarray(signal), np.asarray(gap, dtype=bool)
    _check(prices, signal, gap, fee, slippage, stop, target, horizon)
    # Plain Python numbers: one pass over lists is several times faster than indexing arrays.
    opens, highs, lows, closes = (column.tolist() for column in prices)
    gaps = gap.tolist()
    orders = [0, *np.where(gap[1:], 0, signal[:-1]).tolist()]  # for this open
    final, cost = len(closes) - 1, fee + slippage

    equity = [1.0] * len(closes)
    rows: list[tuple[int, int, int, int, float, float, str]] = []
    account, side, entry, until, price, stop_price, target_price = 1.0, 0, 0, 0, 0.0, 0.0, 0.0
    for t in range(1, len(closes)):
        if orders[t] == side:
            until = t + horizon
        if side and (orders[t] == -side or t == until):
            rows.append(_trade(entry, t, t - entry, side, opens[t] / price, cost, "signal"))
            account, side = account * (1.0 + rows[-1][5]), 0
        if not side:
            side = orders[t] if account > 0 else 0
            if not side:
                equity[t] = account
                continue
            entry, until, price = t, t + horizon, opens[t]
            stop_price = price * (1 - side * stop) if stop else None
            target_price = price * (1 + side * target) if target else None
        long, exit_price = side > 0, closes[t]
        worth = 1.0 + _net(side, exit_price / price, cost)
        if stop and (lows[t] <= stop_price if long else highs[t] >= stop_price):
            # An open beyond the stop is where it is filled.
            exit_price = min(opens[t], stop_price) if long else max(opens[t], stop_price)
            reason = "stop"
        elif target and (highs[t] >= target_price if long else lows[t] <= target_price):
            exit_price, reason = target_price, "target"
        elif worth <= 0:
            reason = "ruin"
        elif t == final:
            reason = "end"
        elif gaps[t + 1]:
            reason = "gap"
        else:
            equity[t] = account * worth
            continue
        rows.append(_trade(entry, t, t - entry + 1, side, exit_price / price, cost, reason))
        account, side = account * (1.0 + rows[-1][5]), 0
        equity[t] = account
    held = buy_and_hold(prices[0], prices[3], fee, slippage)
    return Result(np.array(equity), _trades(rows), fee, slippage, float(held[-1] - 1))


def _net(side: Any, ratio: Any, cost: float) -> Any:
    return side * (ratio - 1.0) - cost * (1.0 + ratio)


def _trade(
    entry: int, leave: int, held: int, side: int, ratio: float, cost: float, reason: str
) -> tuple[int, int, int, int, float, float, str]:
    return entry, leave, held, side, ratio, max(_net(side, ratio, cost), -1.0), reason


def buy_and_hold(open: np.ndarray, close: np.ndarray, fee: float, slippage: float) -> np.ndarray:
    """(N,) what an account that buys at the second open holds at each close once sold there; gaps are held through."""
    equity = np.ones(len(close))
    equity[1:] = np.maximum(1.0 + _net(1, close[1:] / open[1:2], fee + slippage), 0.0)
    return equity


def _trades(rows: list[tuple[int, int, int, int, float, float, str]]) -> Trades:
    entry, leave, held, side, ratio, net, reason = zip(*rows, strict=True) if rows else [()] * 7
    sides, ratios = np.array(side, dtype=np.int64), np.array(ratio, dtype=np.float64)
    return Trades(
        entry=np.array(entry, dtype=np.int64),
        exit=np.array(leave, dtype=np.int64),
        held=np.array(held, dtype=np.int64),
        side=sides,
        ratio=ratios,
        gross=sides * (ratios - 1.0),
        net=np.array(net, dtype=np.float64),
        reason=reason,
    )


def _check(prices, signal, gap, fee, slippage, stop, target, horizon) -> None:
    shapes = [column.shape for column in (*prices, signal, gap)]
    if len(set(shapes)) != 1 or len(shapes[0]) != 1 or not shapes[0][0]:
        raise ValueError(f"open, high, low, close, signal and gap must be one non-empty column each, got {shapes}")
    opens, highs, lows, closes = prices
    if not all(np.isfinite(column).all() and (column > 0).all() for column in prices):
        raise ValueError("prices must be finite and above 0")
    if (highs < np.maximum(opens, closes)).any() or (lows > np.minimum(opens, closes)).any():
        raise ValueError("open and close must lie between low and high")
    if not np.isin(signal, (-1, 0, 1)).all():
        raise ValueError(f"signals must be -1, 0 or 1, got {sorted(set(signal.tolist()) - {-1, 0, 1})[:5]}")
    if fee < 0 or slippage < 0:
        raise ValueError(f"fee and slippage must not be negative, got {fee} and {slippage}")
    for name, distance in (("stop", stop), ("target", target)):
        if distance is not None and not 0 < distance < 1:
            raise ValueError(f"{name} is a share of the entry price between 0 and 1, got {distance}; None: without one")
    if horizon < 1:
        raise ValueError(f"horizon is a number of candles, at least 1, got {horizon}")


def figures(result: Result, candles_per_day: int) -> dict[str, Any]:
    """The backtest in plain numbers; None where a figure has no meaning (no trade, no loss, less than two whole days).

    Daily returns are those of `candles_per_day` candles from the start on, the last part of a day left out. Sharpe and
    Sortino are mean over deviation (below 0 for Sortino) of daily returns, times sqrt(365), without a risk-free rate;
    Calmar is 365 times the mean daily return over the maximum drawdown. Turnover counts both sides, in accounts.
    """
    trades, equity = result.trades, result.equity
    gains, losses = trades.net[trades.net > 0].sum(), -trades.net[trades.net < 0].sum()
    drawdown = _max_drawdown(equity)
    daily = _daily_returns(equity, candles_per_day)
    turnover = float((1.0 + trades.ratio).sum())
    return {
        "net_return": float(equity[-1] - 1.0),
        "num_trades": len(trades),
        "num_closed_by_gap": sum(reason == "gap" for reason in trades.reason),
        "win_rate": float((trades.net > 0).mean()) if len(trades) else None,
        "profit_factor": float(gains / losses) if losses > 0 else None,
        "expectancy": float(trades.net.mean()) if len(trades) else None,
        "max_drawdown": drawdown,
        "sharpe": _annual_ratio(daily, daily.std(ddof=1)) if len(daily) > 1 else None,
        "sortino": _annual_ratio(daily, np.sqrt((np.minimum(daily, 0.0) ** 2).mean())) if len(daily) > 1 else None,
        "calmar": float(DAYS_PER_YEAR * daily.mean() / drawdown) if len(daily) > 1 and drawdown > 0 else None,
        "exposure": float(trades.held.sum() / len(equity)),
        "turnover": turnover,
        "turnover_per_day": turnover * candles_per_day / len(equity),
        "break_even_fee": break_even_fee(result),
        "buy_and_hold_return": result.buy_and_hold,
    }


def _max_drawdown(equity: np.ndarray) -> float:
    """Deepest fall from a peak, as a share of the peak; the start counts as one."""
    peaks = np.maximum(np.maximum.accumulate(equity), 1.0)
    return float((1.0 - equity / peaks).max())


def _daily_returns(equity: np.ndarray, candles_per_day: int) -> np.ndarray:
    closes = np.concatenate([[1.0], equity[candles_per_day - 1 :: candles_per_day]])
    before = closes[:-1]
    # Nothing is earned on a lost account.
    return np.divide(closes[1:], before, out=np.ones_like(before), where=before > 0) - 1.0


def _annual_ratio(daily: np.ndarray, deviation: float) -> float | None:
    return float(daily.mean() / deviation * DAYS_PER_YEAR**0.5) if deviation > 0 else None


def break_even_fee(result: Result) -> float | None:
    """The fee per side at which the same trades return 0; below 0 where they lose without any.

    None without trades, and where one of them lost the account.
    """
    trades = result.trades
    if not len(trades) or (trades.net <= -1).any():
        return None
    notional = 1.0 + trades.ratio
    # Each trade has its own break-even; that of all lies between the lowest and the highest of them.
    each = trades.gross / notional - result.slippage
    low, high = float(each.min()), float(each.max())
    for _ in range(100):
        fee = (low + high) / 2
        factors = 1.0 + trades.gross - (fee + result.slippage) * notional
        if (factors > 0).all() and np.log(factors).sum() >= 0:
            low = fee
        else:
            high = fee
    return low


def signals(probabilities: np.ndarray, threshold: float | None) -> np.ndarray:
    """(N, 3) probabilities of SHORT, NO_TRADE, LONG -> (N,) signals: the likelier side if it reaches the threshold."""
    short, long = probabilities[:, SHORT], probabilities[:, LONG]
    if threshold is None:
        return np.zeros(len(probabilities), dtype=np.int64)
    return np.where(np.maximum(short, long) >= threshold, np.sign(long - short), 0).astype(np.int64)


def choose_threshold(
    probabilities: np.ndarray,
    open: np.ndarray,
    high: np.ndarray,
    low: np.ndarray,
    close: np.ndarray,
    gap: np.ndarray,
    *,
    grid: Sequence[float] = THRESHOLDS,
    **rules: Any,
) -> Choice:
    """The threshold with the highest net return on the validation candles, whose probabilities (N, 3) these must be.

    Not trading is among the choices; of equals the one with fewer trades is taken, then the higher threshold, and not
    trading before one that never traded. One threshold serves both sides: with two, the drift of the validation months
    would pick the side. `rules` are those of `run`: fee, slippage, stop, target, horizon.
    """
    tried: list[dict[str, Any]] = [{"threshold": None, "net_return": 0.0, "num_trades": 0}]
    for threshold in grid:
        result = run(open, high, low, close, signals(probabilities, threshold), gap, **rules)
        net_return = float(result.equity[-1] - 1.0)
        tried.append({"threshold": threshold, "net_return": net_return, "num_trades": len(result.trades)})
    best = max(tried, key=lambda row: (row["net_return"], -row["num_trades"], row["threshold"] or float("inf")))
    return Choice(**best, table=tried)


def random_trades(
    result: Result, open: np.ndarray, close: np.ndarray, gap: np.ndarray, *, repetitions: int = 1000, seed: int = 0
) -> np.ndarray:
    """(repetitions,) net returns of the same trades at random moments: what luck and costs alone would have paid.

    Each repetition keeps the number of trades and each trade's side and holding time, shuffles them and spreads the
    idle candles between them at random. Trades enter at an open and leave at a close, at the last one before a gap
    where they would reach across it; stops and targets act only through the holding times. The share of repetitions
    that did at least as well as the model is its p-value: (1 + (random >= net).sum()) / (1 + repetitions).
    """
    trades, num_candles = result.trades, len(close)
    if not len(trades):
        return np.zeros(repetitions)
    opens, closes = np.asarray(open, dtype=np.float64), np.asarray(close, dtype=np.float64)
    last = _last_before_gap(np.asarray(gap, dtype=bool))
    idle = num_candles - 1 - int(trades.held.sum())
    generator = np.random.default_rng(seed)
    found = []
    for begin in range(0, repetitions, REPETITIONS_AT_ONCE):
        shape = (min(REPETITIONS_AT_ONCE, repetitions - begin), len(trades))
        order = generator.permuted(np.broadcast_to(np.arange(len(trades)), shape), axis=1)
        held, side = trades.held[order], trades.side[order]
        before = np.sort(generator.integers(0, idle + 1, shape), axis=1)  # idle candles before each trade
        entry = 1 + before + np.cumsum(held, axis=1) - held
        leave = np.minimum(entry + held - 1, last[entry])
        ratio = closes[leave] / opens[entry]
        factors = np.maximum(1.0 + _net(side, ratio, result.fee + result.slippage), 0.0)
        found.append(factors.prod(axis=1) - 1.0)
    return np.concatenate(found)


def _last_before_gap(gap: np.ndarray) -> np.ndarray:
    """(N,) for each candle the last one that is reached from it without crossing a gap."""
    ends = np.append(np.flatnonzero(gap[1:]), len(gap) - 1)
    return ends[np.searchsorted(ends, np.arange(len(gap)))]
