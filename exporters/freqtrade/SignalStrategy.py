"""A freqtrade strategy on the signals of trained models, one for each coin.

    freqtrade backtesting --strategy SignalStrategy --strategy-path FOLDER --fee 0.0015 --timerange 20240901-

FOLDER is that of this file, with the folder `signals` beside it. In spot markets only LONG is traded. The rules are
those of the evaluation: a signal holds a position for `horizon` candles, prolonged by each further signal of its side,
and the opposite signal turns it.
"""

import functools
import json
import logging
import re
from pathlib import Path
from typing import ClassVar

import numpy as np
from freqtrade.strategy import IStrategy
from pandas import DataFrame
from signals import candle_features
from signals.candles import Candles
from signals.classifier import Classifier
from signals.labels import label, signals
from signals.recalibration import recalibrated

FOLDER = Path(__file__).parent / "signals"
SETTINGS = json.loads((FOLDER / "settings.json").read_text())


def coin_of(pair: str) -> str:
    """Return the name of a pair's model: XRPUSDTUSDT for XRP/USDT:USDT if one learnt the future's candles."""
    names = [re.sub("[^A-Z0-9]", "", each.upper()) for each in (pair, pair.split(":")[0])]
    for name in names:
        if name in SETTINGS["coins"]:
            return name
    known = ", ".join(SETTINGS["coins"])
    raise ValueError(f"there is no model of {names[-1]}, only of {known}; leave the pair out of pair_whitelist")


@functools.cache
def classifier_of(coin: str) -> Classifier:
    """Return the classifier of a coin, which is read once."""
    return Classifier(dict(np.load(FOLDER / f"{coin}.npz")), **SETTINGS["coins"][coin]["classifier"])


class SignalStrategy(IStrategy):
    """Trades the signals of the models, by the rules of the evaluation."""

    INTERFACE_VERSION = 3
    timeframe = SETTINGS["timeframe"]
    startup_candle_count = SETTINGS["candles_needed"] + SETTINGS["horizon"]
    stoploss = -(SETTINGS["stop"] or 0.99)
    minimal_roi: ClassVar = {}
    use_exit_signal, exit_profit_only, ignore_roi_if_entry_signal = True, False, False
    process_only_new_candles = True

    def __init__(self, config: dict[str, object]) -> None:
        self.can_short = config.get("trading_mode", "spot") != "spot"
        super().__init__(config)
        idle = [f"{coin}: NO_TRADE: {one['reason']}" for coin, one in SETTINGS["coins"].items() if not one["threshold"]]
        verdicts = [each["verdict"] for each in SETTINGS["coins"].values()]
        for said in (SETTINGS["headline"], *verdicts, *idle, *([SETTINGS["note"]] if "note" in SETTINGS else [])):
            logging.getLogger(__name__).warning("%s", said)

    def populate_indicators(self, dataframe: DataFrame, metadata: dict[str, str]) -> DataFrame:
        """Add the columns `signal`: 1 for LONG, -1 for SHORT, else 0; and `missing`: gaps that training left."""
        coin = coin_of(metadata["pair"])
        # Freqtrade fills in candles that are missing, without volume, at the last close, as training does short gaps,
        # and exchanges where nothing is traded. Only what is longer than those of training is a gap.
        close = dataframe["close"]
        absent = (dataframe["volume"] == 0) & (dataframe["high"] == dataframe["low"]) & (close == close.shift())
        length = absent.groupby((absent != absent.shift()).cumsum()).transform("sum")
        dataframe["missing"] = absent & (length > SETTINGS["coins"][coin]["fill"])
        known = dataframe[~dataframe["missing"]]
        dataframe["signal"] = 0
        dataframe.loc[known.index, "signal"] = self._signals(coin, known)
        return dataframe

    def _signals(self, coin: str, known: DataFrame) -> np.ndarray:
        """Return the signals (N,) after each of N candles; 0 where the model's inputs lack candles."""
        settings = SETTINGS["coins"][coin]
        columns = {name: known[name].to_numpy(np.float64) for name in ("open", "high", "low", "close", "volume")}
        time = known["date"].astype("datetime64[ms, UTC]").astype("int64").to_numpy()
        candles = Candles(coin, SETTINGS["timeframe_ms"], time, **columns)
        table = candle_features.compute(candles, settings["features"]).astype(np.float32)
        found, lookback = np.zeros(len(table), np.int64), settings["lookback"]
        for segment in candles.segments():
            finite = np.flatnonzero(np.isfinite(table[segment]).all(1)) + segment.start
            if len(finite) >= lookback and settings["threshold"] is not None:
                probabilities = classifier_of(coin).probabilities(table[finite])
                if settings["recalibration"]:
                    known = label(candles.rows(segment), **settings["label"])[-len(probabilities) :]
                    logs, whole = np.log(probabilities.astype(np.float64)), [slice(0, len(probabilities))]
                    logs = recalibrated(logs, known, whole, SETTINGS["horizon"], settings["recalibration"])
                    probabilities = np.exp(logs).astype(np.float32)
                found[finite[lookback - 1 :]] = signals(probabilities, settings["threshold"])
        return found

    def populate_entry_trend(self, dataframe: DataFrame, metadata: dict[str, str]) -> DataFrame:
        """Enter at the next open on each signal."""
        dataframe["enter_long"] = (dataframe["signal"] == 1).astype(int)
        dataframe["enter_short"] = (dataframe["signal"] == -1).astype(int)
        if "market" in SETTINGS:  # each trade says that its signal learnt no real market
            dataframe.loc[dataframe["signal"] != 0, "enter_tag"] = f"{SETTINGS['market']} market"
        return dataframe

    def populate_exit_trend(self, dataframe: DataFrame, metadata: dict[str, str]) -> DataFrame:
        """Leave at the next open after the opposite signal, `horizon` candles after the last own one, and at gaps."""
        for side, name in ((1, "exit_long"), (-1, "exit_short")):
            own = (dataframe["signal"] == side).astype(int)
            over = own.rolling(SETTINGS["horizon"], min_periods=1).sum() == 0
            dataframe[name] = (over | (dataframe["signal"] == -side) | dataframe["missing"]).astype(int)
        return dataframe
