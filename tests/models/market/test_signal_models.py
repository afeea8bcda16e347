"""Predictions from candles, and the candles that are refused."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch

from models import io
from models.market import candle_features
from models.market.candles import Candles
from models.market.cnn_lstm import CNNLSTM, CNNLSTMConfig
from models.market.rule import NEVER
from models.market.signal_model import ANY, NOTE, ROWS_AT_ONCE, SIMULATED

STEP, START = 60_000, 1_700_000_040_000
NAMES = ("log_return_1", "rsi_14", "volume_z_50")
NEEDED = 181  # features of 174 candles, and 7 more of them in the window


def candles(rows=NEEDED + 12, seed=0):
    generator = np.random.default_rng(seed)
    close = 100 * np.exp(np.cumsum(generator.normal(0, 0.01, rows)))
    first = np.concatenate([[100.0], close[:-1]])
    spread = np.abs(generator.normal(0, 0.1, (2, rows)))
    return {
        "time": START + STEP * np.arange(rows),
        "open": first,
        "high": np.maximum(first, close) + spread[0],
        "low": np.minimum(first, close) - spread[1],
        "close": close,
        "volume": np.exp(generator.normal(5, 1, rows)),
    }


def now(rows):
    return START + STEP * rows + 17


@pytest.fixture(scope="module")
def model():
    return make()


def make():
    """A small model of one coin with random weights."""
    torch.manual_seed(0)
    scaler = {"mean": [0.0, 50.0, 0.5], "std": [0.01, 10.0, 1.0]}
    made = CNNLSTM(
        CNNLSTMConfig(
            "default", features=NAMES, lookback=8, coins=("AUSDT",), scalers={"AUSDT": scaler}, timeframe_ms=STEP
        )
    ).eval()
    for parameter in made.parameters():  # the last layer starts at zero
        torch.nn.init.normal_(parameter, std=0.3)
    return made


def test_predict_computes_and_scales_the_features_and_takes_every_window(model):
    assert model.candles_needed == NEEDED
    given = candles(NEEDED + ROWS_AT_ONCE + 12)
    table, names = candle_features.compute(Candles("AUSDT", STEP, **given)), candle_features.NAMES
    chosen = torch.from_numpy(table[:, [names.index(name) for name in NAMES]][173:])
    scaled = ((chosen - torch.tensor([0.0, 50.0, 0.5])) / torch.tensor([0.01, 10.0, 1.0])).float()
    with torch.no_grad():
        expected = model(scaled[None])[0].softmax(-1)
    found = model.probabilities(given, now=now(NEEDED + ROWS_AT_ONCE + 12))
    assert len(found) == ROWS_AT_ONCE + 13
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_no_more_candles_than_needed_give_the_newest_signal(model):
    given = candles()
    newest = {name: column[-NEEDED:] for name, column in given.items()}
    found = [model.probabilities(each, now=now(NEEDED + 12))[-1] for each in (given, newest)]
    torch.testing.assert_close(found[0], found[1], atol=1e-6, rtol=0)


def test_candles_that_are_not_what_training_had_are_refused(model):
    def refused(message, change=None, **words):
        given = candles()
        if change:
            name, place, value = change
            given[name][place] = value
        with pytest.raises(ValueError, match=message):
            model.probabilities(words.pop("given", given), **{"now": now(NEEDED + 12), **words})

    full = candles()
    refused("lack volume; give the columns time, open", given={name: full[name] for name in list(full)[:5]})
    refused("must be of one length", given={**full, "close": full["close"][1:]})
    refused(f"only {NEEDED - 1} candles; give {NEEDED}", given=candles(NEEDED - 1))
    refused(f"gap: the candle after {full['time'][4]} ms is", ("time", slice(5, None), full["time"][5:] + STEP))
    refused(
        f"candle of {full['time'][4]} ms comes after that of {full['time'][4]} ms; give each once",
        ("time", 5, full["time"][4]),
    )
    newest_first = {name: column[::-1] for name, column in full.items()}
    refused(
        f"candle of {full['time'][-2]} ms comes after that of {full['time'][-1]} ms; .* oldest first",
        given=newest_first,
    )
    twice = "these candles are of 2 minutes, the model learnt from candles of 1"
    refused(twice, ("time", slice(None), 2 * full["time"]))
    refused(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC \(\d+ ms\), is stale at .*; .* now=newest", now=now(NEEDED + 13))
    refused("is stale", now=None)  # 2023 is long ago by this computer's clock
    refused("has not closed yet", now=now(NEEDED + 11))
    refused("does not know the coin 'BUSDT'", coin="BUSDT")
    for column, value in (("close", np.nan), ("low", 1e9), ("open", -1.0), ("volume", -1.0)):
        refused(f"the candle of {full['time'][3]} ms is impossible", (column, 3, value))


def test_gaps_that_training_filled_are_filled_and_longer_ones_refused():
    filling, full, rows = make(), candles(), NEEDED + 12
    filling.config = replace(filling.config, fill=2)
    cut = {name: np.delete(column, [100, 101]) for name, column in full.items()}
    filled = Candles("AUSDT", STEP, **cut).filled(2).columns()
    assert len(filled["time"]) == rows
    expected = make().probabilities(filled, now=now(rows))
    torch.testing.assert_close(filling.probabilities(cut, now=now(rows)), expected, rtol=0, atol=0)
    asked = {"candles": {name: column.tolist() for name, column in cut.items()}}
    (told,) = filling.predict([asked], now="newest")
    assert list(told["probabilities"].values()) == pytest.approx(expected[-1].tolist(), abs=1e-6)
    longer = {name: np.delete(column, [100, 101, 102]) for name, column in full.items()}
    with pytest.raises(ValueError, match="there is a gap: the candle after"):
        filling.probabilities(longer, now=now(rows))
    twice = {name: column[::3] for name, column in candles(3 * NEEDED).items()}  # which are no gaps
    with pytest.raises(ValueError, match="these candles are of 3 minutes"):
        filling.probabilities(twice, now=now(3 * NEEDED))
    gap = {name: np.delete(column, 50) for name, column in twice.items()}
    with pytest.raises(ValueError, match="these candles are of 3 minutes"):
        filling.probabilities(gap, now=now(3 * NEEDED))
    sparse = {name: np.delete(column, np.arange(2, rows - 2, 3)) for name, column in full.items()}
    assert len(filling.probabilities(sparse, now=now(rows))) == len(expected)


def test_gaps_of_the_context_are_filled_as_those_of_the_coin():
    names, full, other = ("log_return_1", "BUSDT:log_return_1"), candles(), candles(seed=1)
    known = {"coins": ("AUSDT",), "scalers": {"AUSDT": {"mean": [0.0, 0.0], "std": [0.01, 0.01]}}}
    torch.manual_seed(0)
    made = CNNLSTM(CNNLSTMConfig("default", features=names, lookback=8, timeframe_ms=STEP, fill=2, **known)).eval()
    torch.nn.init.normal_(made.network.head[-1].weight)
    cut = {name: np.delete(column, [150, 151]) for name, column in other.items()}
    filled = Candles("BUSDT", STEP, **cut).filled(2).columns()
    found, expected = (
        made.probabilities(full, now=now(len(full["time"])), context={"BUSDT": each}) for each in (cut, filled)
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    made.config = replace(made.config, fill=1)
    with pytest.raises(ValueError, match="BUSDT, as context, lacks the candle of"):
        made.probabilities(full, now=now(len(full["time"])), context={"BUSDT": cut})
    twice = {name: np.delete(column[::2], 50) for name, column in other.items()}
    with pytest.raises(ValueError, match="these candles are of 2 minutes"):
        made.probabilities(full, now=now(len(full["time"])), context={"BUSDT": twice})


def test_the_newest_candle_is_the_last_closed_one_up_to_the_close_of_the_next(model):
    full, closed = candles(), START + STEP * (NEEDED + 12)
    for moment in (closed, closed + STEP - 1):
        model.probabilities(full, now=moment)
    for moment, why in ((closed - 1, "has not closed yet"), (closed + STEP, "is stale")):
        with pytest.raises(ValueError, match=why):
            model.probabilities(full, now=moment)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"timeframe_ms": -5}, "timeframe_ms=-5 and fill=0 must not"), ({"fill": -1}, "timeframe_ms=0 and fill=-1 must")],
)
def test_a_negative_time_between_candles_and_a_negative_gap_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        CNNLSTMConfig("default", features=("moon",), lookback=8, **wrong)


def test_features_that_this_version_does_not_compute_are_named(model):
    old = CNNLSTM(CNNLSTMConfig("default", features=("moon",), lookback=8, timeframe_ms=STEP))
    with pytest.raises(ValueError, match="there is no feature moon here: "):
        old.probabilities(candles(), now=now(NEEDED + 12))


def test_a_model_of_a_coin_without_a_name_answers_for_any_and_of_a_simulated_market_says_so(model):
    made, scaler = make(), model.config.scalers["AUSDT"]
    made.config = replace(made.config, coins=ANY, scalers={"": scaler}, about={"market": SIMULATED})
    given = {name: column.tolist() for name, column in candles().items()}
    own, named, nameless = (
        next(each.predict([{"coin": coin, "candles": given}], now="newest"))
        for each, coin in ((model, "AUSDT"), (made, "BTCUSDT"), (made, None))
    )
    assert own.keys() == {"coin", "time", "date", "probabilities", "signal", "verdict"}
    assert own["date"] == f"{datetime.fromtimestamp(own['time'] / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    assert own["verdict"] == NEVER
    assert named == {**own, "coin": "BTCUSDT", "market": "simulated", "note": NOTE}
    assert nameless == {**named, "coin": None}
    assert made.takes(made.input_type(coin="BTCUSDT", candles=given))
    assert not model.takes(model.input_type(coin="BTCUSDT", candles=given))
    assert "no forecast of any real coin" in NOTE


def test_the_model_that_ships_says_that_its_market_was_simulated_and_is_small():
    folder = Path(io.__file__).parent / "pretrained/crypto-simulated"
    shipped = io.load(folder)
    assert shipped.config.coins == ANY
    assert shipped.config.warning == {"market": "simulated", "note": NOTE}
    assert sum(path.stat().st_size for path in folder.iterdir()) < 600_000
