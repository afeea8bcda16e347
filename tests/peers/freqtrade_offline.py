"""A command of freqtrade's without a network, with markets that are given instead of asked for.

    python tests/peers/freqtrade_offline.py PAIR WORDS...        # in an environment with freqtrade

WORDS are those of `freqtrade`, such as `backtesting ...` or `lookahead-analysis ...`. Replaced is what an exchange
would be asked: which pairs it has, with which steps of prices and amounts, and how much leverage it gives.
"""

import sys

from freqtrade.exchange import Exchange
from freqtrade.main import main

PAIR = sys.argv[1]
BASE, QUOTE = PAIR.partition(":")[0].split("/")
NONE = {"min": None, "max": None}
MARKET = {
    "symbol": PAIR,
    "id": f"{BASE}{QUOTE}",
    "base": BASE,
    "quote": QUOTE,
    "settle": QUOTE,
    "type": "swap",
    "spot": False,
    "margin": False,
    "swap": True,
    "future": False,
    "linear": True,
    "contract": True,
    "active": True,
    "contractSize": 1.0,
    "maker": 0.0,
    "taker": 0.0,
    "info": {},
    # No steps of prices: simulated prices have all digits, and a price that is rounded out of its candle is not filled.
    "precision": {"amount": None, "price": None},
    "limits": {"amount": NONE, "price": NONE, "cost": NONE, "leverage": {"min": 1, "max": 1}},
}
TIER = {"minNotional": 0.0, "maxNotional": 1e15, "maintenanceMarginRate": 0.0, "maxLeverage": 1.0, "maintAmt": 0.0}


def reload_markets(self, force=False, *, load_leverage_tiers=True):
    self._markets = {PAIR: MARKET}
    for api in (self._api, self._api_async):
        api.set_markets([MARKET])


def fill_leverage_tiers(self):
    self._leverage_tiers = {PAIR: [TIER]}


if __name__ == "__main__":
    Exchange.reload_markets, Exchange.fill_leverage_tiers = reload_markets, fill_leverage_tiers
    main(sys.argv[2:])
