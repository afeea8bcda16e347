"""Candles for tests of trading."""

import numpy as np
from hypothesis import strategies as st

Candles = dict[str, np.ndarray]
FREE = {"fee": 0.0, "slippage": 0.0}
COSTS = {"fee": 0.001, "slippage": 0.0005}


def candles(seed: int, num: int, gap_rate: float = 0.0, scale: float = 0.01) -> Candles:
    """Return a random walk whose opens differ a little from the last close."""
    generator = np.random.default_rng(seed)
    close = 100 * np.exp(np.cumsum(generator.normal(0, scale, num)))
    open_ = np.concatenate([[100.0], close[:-1]]) * np.exp(generator.normal(0, scale / 4, num))
    spread = generator.exponential(scale / 2, (2, num))
    return {
        "open": open_,
        "high": np.maximum(open_, close) * (1 + spread[0]),
        "low": np.minimum(open_, close) * (1 - spread[1]) + 1e-9,
        "close": close,
        "gap": generator.random(num) < gap_rate,
        "funding": np.zeros(num),
    }


def flat(*rows: tuple[float, float, float, float]) -> Candles:
    """Return candles without gaps from rows (open, high, low, close)."""
    columns = np.array(rows, dtype=float).T
    return {
        **dict(zip(("open", "high", "low", "close"), columns, strict=True)),
        "gap": np.zeros(len(rows), dtype=bool),
        "funding": np.zeros(len(rows)),
    }


@st.composite
def cases(draw, stops: bool = True):
    """Draw (candles, signal, rules)."""
    num = draw(st.integers(1, 60))
    market = candles(draw(st.integers(0, 10**6)), num, draw(st.sampled_from([0.0, 0.1])))
    signal = np.array(draw(st.lists(st.sampled_from([-1, 0, 1, 1]), min_size=num, max_size=num)))
    rules = {
        "fee": draw(st.sampled_from([0.0, 0.001, 0.01])),
        "slippage": draw(st.sampled_from([0.0, 0.0005])),
        "horizon": draw(st.sampled_from([1, 3, 10])),
    }
    if stops:
        rules |= {"stop": draw(st.sampled_from([None, 0.005, 0.02])), "target": draw(st.sampled_from([None, 0.01]))}
    return market, signal, rules
