"""Download of candles from an exchange, tested on a stand-in for ccxt."""

import sys
from types import SimpleNamespace

import pytest

from common.errors import UserError
from pipelines.workloads.crypto.candles.exchange import download
from tests.workloads.crypto.candles.candle_tables import MANY, STEP, same, table


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
    with pytest.raises(UserError, match="XYZEUR: the exchange does not trade XYZ/EUR"):
        download("XYZEUR", "15m", 365, "binance", minimum_rows=500)
    with pytest.raises(UserError, match="BTCUSDT: ccxt knows no exchange 'binanse'"):
        download("BTCUSDT", "15m", 365, "binanse", minimum_rows=500)
    monkeypatch.setattr(Exchange, "failing", True)
    with pytest.raises(UserError, match="BTCUSDT: binance did not answer: no network; try again later"):
        download("BTCUSDT", "15m", 365, "binance", minimum_rows=500)


def test_pages_without_candles_before_a_coin_was_listed_and_within_a_long_gap_end_no_download(monkeypatch):
    class Paged(Exchange):
        def __init__(self, options):
            super().__init__(options)
            self.rows = [row for row in self.rows if not 400 <= (row[0] - self.rows[0][0]) // STEP < 1100]

        def fetch_ohlcv(self, market, timeframe, since, limit):
            return [row for row in self.rows if since <= row[0] < since + 300 * STEP]

    ccxt = SimpleNamespace(exchanges=["coinbase"], coinbase=Paged, BaseError=ConnectionError)
    monkeypatch.setitem(sys.modules, "ccxt", ccxt)
    candles, facts = download("BTCUSDT", "15m", 365, "coinbase", minimum_rows=500)
    assert len(candles) == 799
    assert facts["missing_candles"] == 700
    with pytest.raises(UserError, match=r"800 rows are too few, 900 are needed; give more candles or a lower data"):
        download("BTCUSDT", "15m", 365, "coinbase", minimum_rows=900)


def test_without_ccxt_the_command_that_installs_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ccxt", None)
    with pytest.raises(UserError, match="pip install ccxt"):
        download("BTCUSDT", "15m", 365, "binance", minimum_rows=500)
