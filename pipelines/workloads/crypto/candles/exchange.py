"""Candles downloaded from an exchange through ccxt."""

import functools
from collections.abc import Iterable

from common.errors import UserError
from models.market.candle_tables import RULES, canonical, letters_and_digits, milliseconds
from models.market.candles import DAY, VALUES, Candles
from pipelines.workloads.crypto.candles.checks import check

PAGE, LEAST_PAGE = 1000, 100  # candles per request: asked for, and the fewest an exchange gives
CLIENT = functools.cache(lambda kind: kind({"enableRateLimit": True}))  # a client keeps the markets it has loaded


def download(
    symbol: str, timeframe: str, days: int, exchange: str, *, minimum_rows: int, since: int | None = None
) -> tuple[Candles, dict[str, object]]:
    """Return the last `days` of candles, or those `since` a time (ms), checked like a file, and counts of all checks.

    Raises UserError if ccxt is not installed, the exchange or the coin is unknown, or the network fails.
    """
    import pandas as pd

    try:
        import ccxt
    except ImportError as error:
        raise UserError("data.source=ccxt needs the package ccxt: .venv/bin/pip install ccxt") from error
    if exchange not in ccxt.exchanges:
        raise UserError(f"{symbol}: ccxt knows no exchange {exchange!r}; give data.exchange=binance, say")
    client = CLIENT(getattr(ccxt, exchange))
    try:
        market = _market(symbol, client.load_markets())
        now = int(client.milliseconds())
        if client.has.get("fetchTime") is True:
            # With a fast local clock, an open candle would pass for a closed one.
            now = min(now, int(client.fetch_time()))
        rows: list[list[float]] = []
        start = now - days * DAY if since is None else since
        while start <= now:
            page = client.fetch_ohlcv(market, timeframe, since=start, limit=PAGE)
            rows += (page := [row for row in page if row[0] >= start])
            if not page and since is not None:
                break
            # Before a coin was listed, and within a long gap, the pages of some exchanges are empty.
            start = int(page[-1][0]) + 1 if page else start + LEAST_PAGE * milliseconds(timeframe)
    except ccxt.BaseError as error:
        silent = f"{exchange} did not answer: {' '.join(str(error).split())[:200]}; try again later"
        raise UserError(f"{symbol}: {silent}, or give files: data.source=files data.folder=FOLDER") from error
    table = pd.DataFrame(rows, columns=["time", *VALUES], dtype=object)
    table.index += 1
    candles, facts = check(table, symbol, timeframe, exchange, now, minimum_rows)
    return candles, {"exchange": exchange, "market": market, **facts}


def _market(symbol: str, markets: Iterable[str]) -> str:
    wanted = canonical(symbol)
    # BTC/USDT:USDT is a future; the spot market BTC/USDT has the shorter name.
    if not (found := [name for name in sorted(markets, key=len) if letters_and_digits(name) == wanted]):
        quote = next((quote for quote in RULES.quotes if wanted.endswith(quote) and wanted != quote), "")
        base = wanted.removesuffix(quote)
        raise UserError(f"{symbol}: the exchange does not trade {f'{base}/{quote}' if quote else wanted}")
    return found[0]
