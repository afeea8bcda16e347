"""Download of candles from an exchange, tested on a stand-in for ccxt."""

import sys
from types import SimpleNamespace

import pytest

from common.errors import UserError
from pipelines.workloads.crypto.candles.exchange import download
from tests.workloads.crypto.candles.candle_tables import MANY, same, table


class Exchange:
    """Exchange with two pages of candles, the last of which is still open."""

    failing = False
    has = {"fetchTime": True}  # noqa: RUF012 (as ccxt has it)
    fast = 0  # ms by which the clock here is ahead of the exchange's

    def __init__(self, options):
        self.rows = [[int(row[0]), *row[1:]] for row in table(1500).to_numpy().tolist()]

    def load_markets(self):
        return {"BTC/USDT:USDT": {}, "BTC/USDT": {}}

    def milliseconds(self):
        return self.fetch_time() + self.fast

    def fetch_time(self):
        return self.rows[-1][0] + 1

    def fetch_ohlcv(self, market, timeframe, since, limit):
        assert (market, timeframe) == ("BTC/USDT", "15m")
        if self.failing:
            raise ConnectionError("no\nnetwork")
        return [row for row in self.rows if row[0] >= since][:limit]


@pytest.mark.parametrize("fast", [0, 3_600_000])
def test_candles_are_downloaded_in_pages_without_the_open_one(monkeypatch, fast):
    monkeypatch.setattr(Exchange, "fast", fast)
    ccxt = SimpleNamespace(exchanges=["binance"], binance=Exchange, BaseError=ConnectionError)
    monkeypatch.setitem(sys.modules, "ccxt", ccxt)
    candles, facts = download("BTCUSDT", "15m", 365, "binance", minimum_rows=500)
    assert same(candles, MANY.rows(slice(0, 1499)))
    assert facts["open_candle"] == 1
    assert facts["duplicates"] == 0
    with pytest.raises(UserError, match="XYZUSDT: the exchange does not trade XYZ/USDT"):
        download("XYZUSDT", "15m", 365, "binance", minimum_rows=500)
    monkeypatch.setattr(Exchange, "failing", True)
    with pytest.raises(UserError, match="BTCUSDT: binance did not answer: no network; try again later"):
        download("BTCUSDT", "15m", 365, "binance", minimum_rows=500)


def test_without_ccxt_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ccxt", None)
    with pytest.raises(UserError, match="pip install ccxt"):
        download("BTCUSDT", "15m", 365, "binance", minimum_rows=500)
