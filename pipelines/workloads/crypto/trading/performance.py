"""Performance of a backtest: metrics, the break-even fee, and curves of the account."""

from functools import partial
from typing import Any, TypeAlias

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from pipelines.workloads.crypto.trading.backtest import Result

Figures: TypeAlias = dict[str, Any]  # numbers, None where undefined, and a list of fees

EQUITY_POINTS = 400  # of a curve that is drawn
DAYS_PER_YEAR = 365  # these markets do not close
LEAST_DAYS = 30  # fewer say nothing about a mean over a deviation
FEES = (0.0, 0.0002, 0.0005, 0.00075, 0.001, 0.0015, 0.002)  # per side, of the sensitivity curve


def metrics(result: Result, candles_per_day: int) -> Figures:
    """Return the metrics of a backtest; None where one is undefined (no trade, no loss, less than 30 whole days).

    Daily returns cover `candles_per_day` candles each; an incomplete last day is left out. Sharpe and Sortino are the
    mean over the deviation of daily returns (for Sortino the deviation below 0), times sqrt(365), without a risk-free
    rate, with the standard error of Mertens 2002; Calmar is 365 times the mean daily return over the maximum drawdown.
    Turnover counts both sides of each trade, in units of the account.
    """
    trades, equity = result.trades, result.equity
    gains, losses = trades.net[trades.net > 0].sum(), -trades.net[trades.net < 0].sum()
    drawdown = max_drawdown(equity)
    closes = np.concatenate([[1.0], equity[candles_per_day - 1 :: candles_per_day]])
    # An account that has lost everything earns nothing.
    daily = np.divide(closes[1:], closes[:-1], out=np.ones(len(closes) - 1), where=closes[:-1] > 0) - 1.0
    turnover, enough = float((1.0 + trades.ratio).sum()), len(daily) >= LEAST_DAYS
    return {
        "net_return": float(equity[-1] - 1.0),
        "num_trades": len(trades),
        "num_closed_by_gap": int((trades.reason == "gap").sum()),
        "win_rate": float((trades.net > 0).mean()) if len(trades) else None,
        "profit_factor": float(gains / losses) if losses > 0 else None,
        "expectancy": float(trades.net.mean()) if len(trades) else None,
        "max_drawdown": drawdown,
        "days": len(daily),
        "sharpe": _annual_ratio(daily, daily.std(ddof=1)) if enough else None,
        "sharpe_error": sharpe_error(daily) if enough else None,
        "sortino": _annual_ratio(daily, np.sqrt((np.minimum(daily, 0.0) ** 2).mean())) if enough else None,
        "calmar": float(DAYS_PER_YEAR * daily.mean() / drawdown) if enough and drawdown > 0 else None,
        "exposure": float(trades.held.sum() / len(equity)),
        "turnover": turnover,
        "break_even_fee": break_even_fee(result),
        "fee_sensitivity": [{"fee": fee, "net_return": _at_fee(result, fee)} for fee in FEES],
        "buy_and_hold_return": float(result.buy_and_hold[-1] - 1.0),
    }


def max_drawdown(equity: np.ndarray) -> float:
    """Return the deepest fall from a peak as a share of the peak; the start counts as a peak."""
    return float((1.0 - equity / np.maximum(np.maximum.accumulate(equity), 1.0)).max())


def _annual_ratio(daily: np.ndarray, deviation: float) -> float | None:
    return float(daily.mean() / deviation * DAYS_PER_YEAR**0.5) if deviation > 0 else None


def sharpe_error(daily: np.ndarray) -> float | None:
    """Return the standard error of the annual Sharpe of daily returns (Mertens 2002); None if they are constant."""
    if (deviation := daily.std(ddof=1)) == 0:
        return None
    z = (daily - daily.mean()) / daily.std()
    ratio, skewness, kurtosis = daily.mean() / deviation, (z**3).mean(), (z**4).mean()
    return float(np.sqrt((1 - skewness * ratio + (kurtosis - 1) / 4 * ratio**2) / (len(daily) - 1) * DAYS_PER_YEAR))


def deflated_sharpe(sharpe: float, error: float, trials: int) -> float:
    """Return the probability that a Sharpe is above the expected best of so many trials without skill.

    Bailey and Lopez de Prado 2014, with independent trials whose Sharpes err as much as this one.
    """
    expected = 0.0
    if trials > 1:
        expected = (1 - np.euler_gamma) * ndtri(1 - 1 / trials) + np.euler_gamma * ndtri(1 - 1 / (trials * np.e))
    return float(ndtr(sharpe / error - expected))


def _at_fee(result: Result, fee: float) -> float:
    """Return the net return of the same trades at another fee per side."""
    trades = result.trades
    nets = trades.gross - (fee + result.slippage) * (1.0 + trades.ratio)
    with np.errstate(over="ignore"):  # far from break-even the sign counts, not the size
        return float(np.maximum(1.0 + nets, 0.0).prod() - 1.0)


def break_even_fee(result: Result) -> float | None:
    """Return the fee per side at which the same trades return 0; below 0 if they lose even without a fee.

    None without trades, and if one of them lost the whole account.
    """
    trades = result.trades
    if not len(trades) or (trades.net <= -1).any():
        return None
    # Each trade has its own break-even fee; the common one lies between the lowest and the highest of them.
    each = trades.gross / (1.0 + trades.ratio) - result.slippage
    low, high = float(each.min()), float(each.max())
    lies_between = _at_fee(result, low) > 0 > _at_fee(result, high)
    return float(brentq(partial(_at_fee, result), low, high)) if lies_between else low


def equity_curves(times: np.ndarray, result: Result) -> dict[str, list[float]]:
    """Return the accounts of the model and of buy-and-hold at up to EQUITY_POINTS candles, first and last included."""
    kept = np.unique(np.linspace(0, len(times) - 1, EQUITY_POINTS).round().astype(int))
    curves = {"time_ms": times, "model": result.equity, "buy_and_hold": result.buy_and_hold}
    return {name: curve[kept].tolist() for name, curve in curves.items()}
