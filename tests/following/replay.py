"""A market replayed many times faster than it went, by a stand-in for ccxt that fails, and clocks that are wrong.

    python tests/following/replay.py FOLDER CANDLES SPEED SEED

follows it into FOLDER until CANDLES are answered. It may be killed at any time, and started again to go on.
"""

import json
import random
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from models.market.candles import COLUMNS
from pipelines.answers import trained
from pipelines.following.loop import Follower, State
from pipelines.workloads.crypto.candles import simulated
from pipelines.workloads.crypto.config import Config
from pipelines.workloads.crypto.following import feed

NAME, COIN, STEP = "crypto-simulated", "BBBUSDT", 900_000
BEFORE = 700  # candles before the replay
FIRST = simulated.START + BEFORE * STEP  # when the first candle to be answered opens
GAP = (14, 17)  # candles of the replay that are missing
HOUR = 3_600_000


def market(candles):
    """All candles of the replay, with a gap."""
    coin = simulated.simulate([COIN], BEFORE + candles, "15m", seed=5, signal=1.0)[COIN]
    after = (coin.time - FIRST) // STEP
    return coin.rows((after < GAP[0]) | (after >= GAP[1]))


def inputs(candles):
    """What predict.py is given for each candle: all those up to it, since the newest gap."""
    known = market(candles)
    for row in range(int((known.time < FIRST).sum()), len(known)):
        cut = known.rows(slice(0, row + 1))
        newest = cut.rows(cut.segments()[-1])
        yield {"coin": COIN, "candles": {name: getattr(newest, name).tolist() for name in COLUMNS}}


class Exchange:
    """ccxt's interface to a market as it is at the time `now`, which `clock` tells wrongly."""

    has = {"fetchTime": True}  # noqa: RUF012 (as ccxt has it)

    def __init__(self, candles, now, seed):
        self.rows = list(zip(*(getattr(candles, name).tolist() for name in COLUMNS), strict=True))
        self.now, self.random = now, random.Random(seed)

    def clock(self):
        """The time, which is two hours fast in some hours and three hours slow in others."""
        now = self.now()
        return now + {1: 2 * HOUR, 2: -3 * HOUR}.get(now // (2 * HOUR) % 5, 0)

    def load_markets(self):
        return {"BBB/USDT": {}}

    milliseconds = clock

    def fetch_time(self):
        return self.now()

    def fetch_ohlcv(self, market, timeframe, since, limit):
        now, fate = self.now(), self.random.random()
        if fate < 0.3:
            raise ConnectionError("no network")
        if fate < 0.35:
            return [[now + HOUR // STEP * STEP, 1.0, 1.0, 1.0, 1.0, 1.0]]
        if fate < 0.4:
            return [["nonsense"]]
        found = [list(row) for row in self.rows if since <= row[0] <= now]
        if found and found[-1][0] + STEP > now:
            found[-1][4] = found[-1][1]  # the newest candle, whose close is not yet known
        return found[:limit]


def config():
    return Config.model_validate({"data": {"source": "ccxt", "symbols": [COIN], "days": 30}})


def follower(folder, exchange, clock, model=None, every=0.0):
    """One that has answered the candle before the first one."""
    sys.modules["ccxt"] = SimpleNamespace(exchanges=["binance"], binance=Made(exchange), BaseError=ConnectionError)
    opened = feed(config(), folder)
    opened.every = opened.read.every = every
    if not (folder / "answers.jsonl").exists():
        folder.mkdir(parents=True, exist_ok=True)
        state = State(models=(NAME,), answered={COIN: FIRST - STEP}, drift={}, tried=FIRST)
        (folder / "state.json").write_text(state.model_dump_json())
    made = Follower(NAME, folder, opened, lambda name: model or trained.find("crypto", name, None, "cpu"))
    made.clock = clock
    return made


class Made:
    """The class that ccxt has for an exchange."""

    def __init__(self, exchange):
        self.exchange = exchange

    def __call__(self, options):
        return self.exchange


def answers(folder):
    """The lines of the log by time, without the time at which each was given; none is torn or there twice."""
    text = (folder / "answers.jsonl").read_text()
    assert text.endswith("\n")
    found = [json.loads(line) for line in text.splitlines()]
    times = [each["time"] for each in found]
    assert times == sorted(set(times))
    assert all(each.pop("answered") for each in found)
    return found


def main():
    folder, candles, speed, seed = Path(sys.argv[1]), *map(int, sys.argv[2:])
    start = folder / "start"
    if not start.exists():
        folder.mkdir(parents=True, exist_ok=True)
        start.write_text(str(time.time()))
    began, known = float(start.read_text()), market(candles)
    exchange = Exchange(known, lambda: FIRST + int((time.time() - began) * 1000 * speed), f"{seed} {time.time()}")
    following = follower(folder, exchange, exchange.clock, every=0.001)
    while following.state.answered[COIN] < known.time[-1]:
        following.look()
        time.sleep(0.001)


if __name__ == "__main__":
    main()
