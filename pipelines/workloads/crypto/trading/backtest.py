"""Backtest of trading on a classifier's signals, with costs and gaps.

Rules
- The signal of candle t is known at its close and filled at the open of candle t + 1. There is one position at a time.
- A signal covers `horizon` candles: its position is kept for that long, and for that long again each time the signal is
  repeated, so that a lasting forecast does not pay its costs twice. No signal (0) is not an order to leave.
- A trade is as large as the account at its entry. With x = exit price / entry price and side +1 or -1,
      gross = side (x - 1) - funding paid,    net = gross - (fee + slippage) (1 + x),
  so each side costs its own notional times (fee + slippage), as on a margin account, and costs are linear in the fee:
  raising the fee by d lowers the trade by exactly d (1 + x). A short earns minus the long's gross and pays the same
  costs.
- `funding` of candle t, for futures, is paid by a long to a short that was open before t, as a share of the notional at
  the entry; also by one that leaves at the open of t.
- A position ends at the first of: the open after the opposite signal, or after the horizon of the last signal; the stop
  or the target, both in force from the candle of the entry on (if one candle reaches both, the stop counts); the last
  close before a gap; the last close. If the open jumps over the stop, it is filled at that open; the target is never
  filled at a better price than its own. After any exit the signal of the candle before may enter again, an older one
  does not.
- A gap cancels the order that would be filled after it.
- An account that has lost everything is closed (`ruin`): net is never below -1.
- The equity of candle t is the value of the account if it were closed at that candle's close, exit cost included. It
  depends on no later candle, not even on a gap that follows.
"""

from typing import NamedTuple, NotRequired, TypedDict, TypeVar, Unpack, get_type_hints

import numpy as np

Number = TypeVar("Number", float, np.ndarray)


class Market(TypedDict):
    """Candles that are traded (N,), and the costs and rules of trading them."""

    open: np.ndarray
    high: np.ndarray
    low: np.ndarray
    close: np.ndarray
    gap: np.ndarray  # bool, whether candles are missing between the one before and this one
    funding: np.ndarray  # what longs pay in each
    fee: float  # share of the notional per side, as the slippage
    slippage: float
    stop: NotRequired[float | None]  # distance as a share of the entry price, as the target; None: no stop
    target: NotRequired[float | None]
    horizon: NotRequired[int]  # candles that a signal covers, 1 unless given


class Trade(NamedTuple):
    """A trade, in the order of the columns of `Result.trades`."""

    entry: int  # candle at whose open it was entered
    exit: int  # candle in which the exit was filled
    held: int  # number of candles during which the position was open, including that of the entry
    side: int  # 1 long, -1 short
    ratio: float  # exit price / entry price
    gross: float  # return on the account before fee and slippage, funding paid
    net: float  # return on the account after costs
    reason: str  # signal, stop, target, gap, end or ruin


COLUMNS = [(name, {str: "U6"}.get(kind, kind)) for name, kind in get_type_hints(Trade).items()]


class Result(NamedTuple):
    """Outcome of one backtest."""

    equity: np.ndarray  # (N,) account at each close, 1 at the start
    trades: np.recarray  # (K,) in order of time, a column for each field of `Trade`
    slippage: float  # share of the notional, per side
    buy_and_hold: np.ndarray  # (N,) account at each close after buying at the second open, gaps included


def run(signal: np.ndarray, **market: Unpack[Market]) -> Result:
    """Trade `signal` (N,) in -1, 0, +1 by the rules at the head of this module."""
    # Plain Python numbers: one pass over lists is several times faster than indexing arrays.
    prices = market["open"], market["high"], market["low"], market["close"]
    opens, highs, lows, closes = (column.tolist() for column in prices)
    gaps, owed = market["gap"].tolist(), np.cumsum(market["funding"]).tolist()
    orders = [0, *np.where(market["gap"][1:], 0, signal[:-1]).tolist()]  # to be filled at the open of each candle
    fee, slippage, horizon = market["fee"], market["slippage"], market.get("horizon", 1)
    stop, target = market.get("stop"), market.get("target")
    final, cost = len(closes) - 1, fee + slippage
    equity = [1.0] * len(closes)
    trades: list[Trade] = []
    account, side, entry, until, price = 1.0, 0, 0, 0, 0.0
    for t in range(1, len(closes)):
        if orders[t] == side:
            until = t + horizon
        if side and (orders[t] == -side or t == until):
            paid = side * (owed[t] - owed[entry])
            trades.append(_trade(entry, t, t - entry, side, opens[t] / price, paid, cost, "signal"))
            account, side = account * (1.0 + trades[-1].net), 0
        if not side:
            if not (side := orders[t] if account > 0 else 0):
                equity[t] = account
                continue
            entry, until, price = t, t + horizon, opens[t]
        paid = side * (owed[t] - owed[entry])
        worth = 1.0 + net_return(side, closes[t] / price, cost) - paid
        exit_price, reason = _stop_or_target(side, price, opens[t], highs[t], lows[t], stop, target)
        if not reason:
            exit_price = closes[t]
            reason = "ruin" if worth <= 0 else "end" if t == final else "gap" if gaps[t + 1] else ""
        if not reason:
            equity[t] = account * worth
            continue
        trades.append(_trade(entry, t, t - entry + 1, side, exit_price / price, paid, cost, reason))
        account, side = account * (1.0 + trades[-1].net), 0
        equity[t] = account
    held = buy_and_hold(market["open"], market["close"], fee, slippage)
    return Result(np.array(equity), np.array(trades, COLUMNS).view(np.recarray), slippage, held)


def net_return(side: Number, ratio: Number, cost: float) -> Number:
    """Return the return of a trade after costs; numbers or arrays, see the rules at the head of this module."""
    return side * (ratio - 1.0) - cost * (1.0 + ratio)


def _stop_or_target(
    side: int, price: float, open: float, high: float, low: float, stop: float | None, target: float | None
) -> tuple[float, str]:
    """Return the price and the reason of an exit within a candle, and an empty reason if there is none."""
    if stop:
        level = price * (1 - side * stop)
        if low <= level if side > 0 else high >= level:
            return (min(open, level) if side > 0 else max(open, level)), "stop"  # the open may be beyond the stop
    if target:
        level = price * (1 + side * target)
        if high >= level if side > 0 else low <= level:
            return level, "target"
    return 0.0, ""


def _trade(entry: int, leave: int, held: int, side: int, ratio: float, paid: float, cost: float, reason: str) -> Trade:
    net = max(net_return(side, ratio, cost) - paid, -1.0)
    return Trade(entry, leave, held, side, ratio, side * (ratio - 1.0) - paid, net, reason)


def buy_and_hold(open: np.ndarray, close: np.ndarray, fee: float, slippage: float) -> np.ndarray:
    """Return the account (N,) at each close, if sold there, after buying at the second open; gaps are held through."""
    equity = np.ones(len(close))
    equity[1:] = np.maximum(1.0 + net_return(np.ones(1), close[1:] / open[1:2], fee + slippage), 0.0)
    return equity
