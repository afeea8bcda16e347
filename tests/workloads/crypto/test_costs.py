"""Fees and funding: the user's, else those of the exchange by one dated table."""

import json

import numpy as np
import pytest

from common.config import build
from common.errors import UserError
from exporters.onnx.cnn_lstm import random_candles
from models.market.candles import Candles
from pipelines.workloads.crypto import Config
from pipelines.workloads.crypto.config import FEES
from pipelines.workloads.crypto.data import Coin
from pipelines.workloads.crypto.trading import strategy


def costs(*words, coin="BTCUSDT"):
    return build(Config, {}, [*words, "data.threshold=0.03"], "").costs(coin)


def test_fees_are_those_of_the_exchange_and_say_where_they_come_from():
    date = json.loads(FEES.read_text())["date"]
    assert costs() == (0.001, 0.0, f"fee 0.1 % a side (spot of binance on {date}), slippage 0.05 %")
    assert costs("data.exchange=kraken").fee == 0.0026
    said = f"fee 0.05 % a side (futures of binance on {date}), slippage 0.05 %, funding 0.01 % in 8 h"
    assert costs(coin="XRPUSDTUSDT") == (0.0005, 0.0001, said)
    assert costs("data.exchange=krakenfutures").funding == 0.0001
    own = costs("evaluation.fee=0.002", "evaluation.funding=0", "data.exchange=elsewhere", coin="BTCUSDTPERP")
    assert own == (0.002, 0.0, "fee 0.2 % a side (as given), slippage 0.05 %")


@pytest.mark.parametrize(
    ("words", "coin", "said"),
    [
        (
            ["data.exchange=elsewhere"],
            "",
            r"data\.exchange=elsewhere: its fees of spot are not known, only those of bi",
        ),
        (
            ["data.exchange=kraken"],
            "XRPUSDTUSDT",
            r"its fees of futures are not known, .*; give evaluation\.fee and eva",
        ),
        (
            ["data.exchange=kraken", "evaluation.fee=0.001"],
            "XRPUSDTUSDT",
            r"give evaluation\.fee and evaluation\.fundi",
        ),
    ],
)
def test_an_exchange_without_known_fees_is_refused(words, coin, said):
    with pytest.raises(UserError, match=said):
        costs(*words, coin=coin)


def test_a_label_earns_the_fee_of_its_exchange():
    with pytest.raises(UserError, match=r"data\.threshold=0\.003 is below the cost .*fee 0\.0026 .*= 0\.0062"):
        build(Config, {}, ["data.exchange=kraken"], "")


def test_they_are_what_a_backtest_pays():
    candles = random_candles(0, 400, 900_000)
    for name, fee, funding in (("BTCUSDT", 0.001, 0), ("XRPUSDTUSDT", 0.0005, 0.0001)):
        made = Candles(name, 900_000, **candles.columns())
        coin = Coin(made, (), np.zeros((400, 0)), np.zeros(400), (), (), 60, {})
        market = strategy.market(build(Config, {}, [], ""), coin, np.arange(400))
        assert market["fee"] == fee
        assert market["funding"].sum() == pytest.approx(funding * len(np.unique(made.time // strategy.FUNDED)[1:]))
