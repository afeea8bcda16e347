"""Tables of candles for tests, and the candles that they hold."""

import numpy as np
import pandas as pd

from models.market.candles import Candles
from pipelines.workloads.crypto.candles import checks

STEP = 900_000
START = 1_735_689_600_000 - 30 * STEP  # the year 2025 begins in the middle of the rows
NOW = 1_760_000_000_000
ROWS = 60


def table(rows: int = ROWS, step: int = STEP) -> pd.DataFrame:
    close = 100 * np.exp(np.cumsum(np.random.default_rng(0).normal(0, 0.003, rows)))
    start = np.concatenate([[100.0], close[:-1]])
    high, low = np.maximum(start, close) * 1.001, np.minimum(start, close) * 0.999
    time = START + step * np.arange(rows, dtype=np.int64)
    return pd.DataFrame({"time": time, "open": start, "high": high, "low": low, "close": close, "volume": 5.0})


def check(frame: pd.DataFrame, **options):
    frame = frame.reset_index(drop=True)
    frame.index += 1
    return checks.check(frame, "BTCUSDT", "15m", "a.csv", **{"now": NOW, "minimum_rows": 50, **options})


def same(one: Candles, other: Candles) -> bool:
    return one.digest() == other.digest()


CLEAN, CLEAN_FACTS = check(table())
MANY, _ = check(table(3000))
