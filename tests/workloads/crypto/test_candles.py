"""Candles, their gaps and their names."""

import numpy as np
import pytest

from common.errors import UserError
from pipelines.workloads.crypto.candles import canonical, milliseconds
from tests.workloads.crypto.candle_tables import ROWS, check, table


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
    assert (facts["zero_volume"], facts["jumps"]) == (1, 1)


def test_invalid_names_and_timeframes_are_refused():
    for name in ("../BTC", "", "BTC USDT", None):
        with pytest.raises(UserError, match="is not the name of a coin"):
            canonical(name)
    with pytest.raises(UserError, match=r"data\.timeframe=7m is not known; give one of 1m, 3m"):
        milliseconds("7m")
