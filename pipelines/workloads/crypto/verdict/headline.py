"""The verdict in words, money first: one line for all coins and one for each, the same wherever a verdict is shown."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from common.statistics import RESAMPLES, moving_block_sums, percentiles
from models.market.candle_tables import milliseconds
from models.market.candles import DAY
from pipelines.workloads.crypto.verdict import judge
from pipelines.workloads.crypto.verdict.significance import MIN_BLOCKS
from pipelines.workloads.crypto.verdict.summary import Page


def headline(pages: Sequence[Page], simulated: bool) -> str:
    """Return the verdict on all coins: how many pay their costs, what came of the money, what else they are worth."""
    copies = sum(page["verdict"].startswith(judge.COPY) for page in pages)
    pages = [page for page in pages if not page["verdict"].startswith(judge.COPY)]
    worth = Counter(map(_worth, pages))
    verb = "pays its" if 1 in (worth[judge.PAYS], len(pages)) else "pay their"
    kind = f"{'simulated ' * simulated}coin{'s' * (len(pages) > 1)}"
    said = f"{worth[judge.PAYS]} of {len(pages)} {kind} {verb} costs"
    others = [f"{worth[name]} {name}" for name in (judge.NOT_TRADABLE, judge.BOUNCE) if worth[name]]
    others += [f"a leak is suspected on {worth[judge.LEAK]}"] * bool(worth[judge.LEAK])
    others += [f"{copies} more {'are copies' if copies > 1 else 'is a copy'} of another's candles"] * bool(copies)
    return too_short(pages) + "; ".join([said, *others]) + f": {money(pages)}"


def coin_line(page: Page) -> str:
    """Return the verdict on a coin."""
    return f"{page['symbol']}: {too_short([page])}{_worth(page)}: {money([page])}"


def too_short(pages: Sequence[Page]) -> str:
    """Return the opening of a verdict on too few candles for an interval, or fewer trades than MIN_BLOCKS, else ""."""
    traded = [page["backtest"] for page in pages]
    trades, days = sum(each["num_trades"] for each in traded), max(each["days"] for each in traded)
    lacking = "too few trades" * (0 < trades < MIN_BLOCKS) if net_return_interval(pages) else "too short"
    worths = {_worth(page) for page in pages}  # by tests of their own, with minima of their own
    if not lacking or judge.PAYS in worths or judge.NO_SKILL not in worths:
        return ""
    return f"{lacking} for a verdict ({days} day{'s' * (days != 1)}, {trades or 'no'} trade{'s' * (trades != 1)}): "


def _worth(page: Page) -> str:
    if page["verdict"] in (judge.LEAK, judge.BOUNCE) or page["verdict"].startswith(judge.COPY):
        return page["verdict"]
    worth = {judge.PAYS: judge.PAYS, judge.PREDICTIVE: judge.NOT_TRADABLE}
    return next((worth[grade] for grade in worth if page["grades"][grade]), judge.NO_SKILL)


def money(pages: Sequence[Page]) -> str:
    """Return in words the net return of an account spread evenly over the coins."""
    traded = [page["backtest"] for page in pages]
    trades, days = sum(each["num_trades"] for each in traded), max(each["days"] for each in traded)
    held = np.mean([each["buy_and_hold_return"] for each in traded])
    said = f"buy-and-hold {100 * held:+.1f} %, {days} day{'s' * (days != 1)}"
    net, ends = np.mean([each["net_return"] for each in traded]), net_return_interval(pages)
    if not trades or too_short(pages):
        return f"net return {100 * net:+.1f} %, {said}" if trades else f"no trade, {said}"
    between = f" [{100 * ends[0]:+.1f}, {100 * ends[1]:+.1f}]" if ends else ""
    # At the break-even fee, what all trades earn without a fee equals their turnover times the fee.
    known = [each for each in traded if each["break_even_fee"] is not None]
    turnover = sum(each["turnover"] for each in known)
    fee = sum(each["break_even_fee"] * each["turnover"] for each in known) / turnover if turnover else None
    later = np.mean([each["net_return_one_candle_later"] for each in traded])
    even = f" ({100 * later:+.1f} % filled a candle later), {trades} trade{'s' * (trades != 1)}"
    even += f", break-even fee {100 * fee:.3f} % a side" if fee is not None else ""
    return f"net return {100 * net:+.1f} %{between}{even}, {said}"


def net_return_interval(pages: Sequence[Page]) -> list[float] | None:
    """Return the 95 % interval of the coins' mean account, by moving blocks of its growth; None for too short a test.

    It is that of the account's drawn curve, with points as far apart as in the longest of their tests, over all tests.
    """
    curves = [page["equity"] for page in pages]
    begins, ends = np.array([[curve["time_ms"][0], curve["time_ms"][-1]] for curve in curves], float).T
    longest = np.array(curves[((ends - begins) / DAY).round().argmax()]["time_ms"], float)
    step, last = (longest[-1] - longest[0]) / (len(longest) - 1), len(longest) - 1
    place = np.arange(round((begins.min() - longest[0]) / step), last + round((ends.max() - longest[-1]) / step) + 1)
    times = longest[place.clip(0, last)] + step * (place - place.clip(0, last))
    times = times[((begins - step <= times[:, None]) & (times[:, None] <= ends + step)).any(1)]
    account = np.mean([np.interp(times, curve["time_ms"], curve["model"]) for curve in curves], axis=0)
    candles = step / milliseconds(pages[0]["timeframe"])
    block = math.ceil(max(judge.ACCOUNT_BLOCK, 3 * pages[0]["horizon"]) / max(candles, 1))
    grown = np.diff(np.log(np.maximum(account, 1e-9)), prepend=0.0)[:, None]
    if len(grown) < MIN_BLOCKS * block:
        return None
    drawn = np.concatenate(list(moving_block_sums(grown - grown.mean(), block, RESAMPLES, seed=0)))
    return [math.expm1(grown.sum() + end) for end in percentiles(drawn)]  # whole blocks may be longer than the test


def predictability(pages: Sequence[Page]) -> str:
    """Return in a trader's words how often the models had the side right."""
    if not (figures := [page["figures"] for page in pages if page["figures"]["directional_n"]]):
        return "The models leaned to neither side."
    rates = [each["directional_hit_rate"] or 0.0 for each in figures]
    sides = sum(each["directional_n"] for each in figures)
    right = sum(rate * each["directional_n"] for rate, each in zip(rates, figures, strict=True)) / sides
    each = f", {100 * min(rates):.1f} to {100 * max(rates):.1f} % by coin" if len(rates) > 1 else ""
    of_moves = f"{100 * right:.1f} % of {sides:,} moves{each}"
    return f"Where a side was the likeliest, the price went its way in {of_moves}; a coin toss has 50 %."
