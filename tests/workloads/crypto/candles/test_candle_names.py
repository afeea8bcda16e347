"""Candles, their gaps and their names."""

import numpy as np
import pytest

from common.errors import UserError
from models.market.candle_tables import canonical, milliseconds
from tests.workloads.crypto.candles.candle_tables import CLEAN, ROWS, check, table


def test_gaps_are_counted_and_never_filled():
    keep = np.ones(3000, bool)
    keep[[10, 11, 12, 500]] = False
    candles, facts = check(table(3000)[keep])
    assert (facts["gaps"], facts["missing_candles"], facts["longest_gap"]) == (2, 4, 3)
    assert [(segment.start, segment.stop) for segment in candles.segments()] == [(0, 10), (10, 497), (497, 2996)]


def test_candles_without_volume_and_jumps_are_counted_and_kept():
    frame = table()
    frame.loc[5, "volume"] = 0
    frame.loc[40:, ["open", "high", "low", "close"]] *= 1000
    candles, facts = check(frame)
    assert len(candles) == ROWS
    assert (facts["zero_volume"], facts["jumps"], facts["longest_still"]) == (1, 1, 0)
    frame.loc[5:7, ["open", "high", "low", "close"]] = frame.loc[4, "close"]  # as of an exchange, without a trade
    frame.loc[5:7, "volume"] = 0
    assert check(frame)[1]["longest_still"] == 3


def test_invalid_names_and_timeframes_are_refused():
    for name in ("../BTC", "", "BTC USDT", None):
        with pytest.raises(UserError, match="is not the name of a coin"):
            canonical(name)
    with pytest.raises(UserError, match=r"data\.timeframe=7m is not known; give one of 1m, 3m"):
        milliseconds("7m")


def test_short_gaps_are_filled_at_the_last_close_and_longer_ones_stay():
    whole = CLEAN
    kept = whole.rows(np.delete(np.arange(len(whole)), [5, 6, 20, 21, 22]))
    found = kept.filled(2)
    assert len(found) == len(kept) + 2
    assert np.array_equal(found.time, np.delete(whole.time, [20, 21, 22]))
    for name in ("open", "high", "low", "close"):
        assert (getattr(found, name)[5:7] == whole.close[4]).all()
    assert found.volume[5:7].tolist() == [0, 0]
    others = np.delete(np.arange(len(found)), [5, 6])
    assert found.rows(others).digest() == kept.digest()
    assert kept.filled(0) is kept
    assert kept.filled(9).time.tolist() == whole.time.tolist()
    twice = kept.rows(np.array([0, 1, 1, 2]))  # which are refused elsewhere
    assert twice.filled(9) is twice
