"""Trades of an exported strategy in freqtrade's backtest, beside those of our evaluation on the same candles.

    python -m venv /tmp/freqtrade && /tmp/freqtrade/bin/pip install freqtrade==2026.9
    .venv/bin/python tests/peers/against_freqtrade.py /tmp/freqtrade/bin/python runs/crypto/default AAAUSDT

It prints each trade that differs with the reason, and a JSON object last: the counts, and what freqtrade's analyses of
lookahead and of recursive indicators find.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np
import pandas as pd
import torch

from common.config.plain_yaml import parse
from exporters import __main__ as exporters
from models import io
from models.market import candle_features
from models.market.candles import Candles
from models.market.recalibration import reach, recalibrated
from pipelines.workloads.crypto import Config, data, splits
from pipelines.workloads.crypto.trading import backtest
from pipelines.workloads.crypto.trading import strategy as trading
from pipelines.workloads.crypto.trading.strategy import signals

DIGITS, CLOSE = 6, 1e-6  # of prices; difference of ratios and returns that is rounding to 8 digits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", type=Path, help="interpreter of an environment with freqtrade")
    parser.add_argument("run", type=Path, help="an evaluated run of crypto")
    parser.add_argument("coin", help="one of its coins, such as AAAUSDT")
    args = parser.parse_args()
    config = Config.model_validate(parse((args.run / "config.yaml").read_bytes()))
    if config.costs(args.coin).funding:
        parser.error(
            "the run has a funding, which freqtrade takes from an exchange; evaluate with evaluation.funding=0"
        )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "strategy"
        print(exporters.export("freqtrade", args.run, "best", out))
        candles, rows, result = ours(config, args.run, args.coin)
        cost = config.costs(args.coin).fee + config.evaluation.slippage
        theirs, analyses = freqtrades(args.python.absolute(), config, candles, rows, cost, out, Path(folder))
    print(json.dumps({**compared(candles, rows, cost, result.trades, theirs), **analyses}))


def ours(config: Config, run: Path, symbol: str) -> tuple[Candles, np.ndarray, backtest.Result]:
    """Return candles with steps of prices as an exchange has, the rows that are traded, and our trades on them.

    Freqtrade rounds prices to the digits that candles have, which are all that a simulated price has: it would be
    rounded out of its candle, and not be filled.
    """
    member = run / "members" / symbol
    page = json.loads((member / "evaluations" / "test.json").read_text())
    facts = json.loads((run / "provenance.json").read_text())["data"]
    manifests = (run.resolve().parents[2] / "data/crypto").glob("*/manifest.json")
    (folder,) = (path.parent for path in manifests if json.loads(path.read_text())["sha256"] == facts["sha256"])
    coin, model = data.load(folder, symbol), io.load(member / "model" / "best")
    prices = {name: getattr(coin.candles, name).round(DIGITS) for name in ("open", "high", "low", "close")}
    candles = replace(coin.candles, **prices)
    ends = coin.folds[0]["test"]
    threshold = page["folds"][-1]["threshold"]
    _, made = backtested(config, model, coin, ends, threshold)
    if len(made.trades) != page["backtest"]["num_trades"]:
        raise SystemExit(f"{len(made.trades)} trades, but the evaluation has {page['backtest']['num_trades']}")
    return candles, *backtested(config, model, replace(coin, candles=candles), ends, threshold)


def backtested(
    config: Config, model: Any, coin: data.Coin, ends: np.ndarray, threshold: float
) -> tuple[np.ndarray, backtest.Result]:
    """Return the rows that are traded, and the backtest of a model's signals after the rows `ends`."""
    features = candle_features.compute(coin.candles, coin.names).astype(np.float32)
    window, horizon = model.recalibration(coin.candles.symbol), config.data.horizon
    seen = splits.usable(coin.candles, features, coin.labels, coin.lookback)
    seen = seen[(seen >= ends[0] - reach(window, horizon)) & (seen <= ends[-1])]
    scaled = coin.scalers[0].transform(features)[seen[0] - coin.lookback + 1 : ends[-1] + 1]
    logits = np.full((len(features), 3), np.nan)
    with torch.no_grad():
        logits[seen] = model(torch.from_numpy(np.nan_to_num(scaled))[None])[0].numpy()[seen - seen[0]]
    logs = recalibrated(logits, coin.labels, coin.candles.segments(), horizon, window)
    rows, probabilities = trading.traded(np.exp(logs[ends]), ends, horizon)
    return rows, backtest.run(signal=signals(probabilities, threshold), **trading.market(config, coin, rows))


def freqtrades(
    python: Path, config: Config, known: Candles, rows: np.ndarray, cost: float, strategy: Path, folder: Path
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return the trades of freqtrade's backtest of the exported strategy, and what its analyses say."""
    base, candles = known.symbol.removesuffix("USDT"), known.rows(slice(0, rows[-1] + 1))
    pair = f"{base}/USDT:USDT"
    times = pd.to_datetime(candles.time, unit="ms", utc=True)
    columns = {name: getattr(candles, name) for name in ("open", "high", "low", "close", "volume")}
    stored = folder / "data" / "futures"
    stored.mkdir(parents=True)
    pd.DataFrame({"date": times, **columns}).to_feather(
        stored / f"{base}_USDT_USDT-{config.data.timeframe}-futures.feather"
    )
    hours = pd.date_range(times[0].floor("h"), times[-1], freq="h").as_unit("ms")
    nothing = pd.DataFrame({"date": hours, **dict.fromkeys(columns, 0.0)})
    for kind in ("funding_rate", "mark"):
        for timeframe in ("1h", "8h"):
            nothing.to_feather(stored / f"{base}_USDT_USDT-{timeframe}-{kind}.feather")
    settings = {
        "stake_currency": "USDT",
        "stake_amount": 1000,
        "dry_run": True,
        "dry_run_wallet": 1e6,
        "max_open_trades": 1,
        "trading_mode": "futures",
        "margin_mode": "isolated",
        "futures_funding_rate": 0,
        "exchange": {"name": "binance", "pair_whitelist": [pair]},
        "pairlists": [{"method": "StaticPairList", "allow_inactive": True}],
        **{name: {"price_side": "same", "use_order_book": True} for name in ("entry_pricing", "exit_pricing")},
    }
    (folder / "config.json").write_text(json.dumps(settings))
    limits = f"{candles.time[rows[0]]}-{candles.time[rows[-1]] + candles.timeframe_ms}"
    common = {
        "--config": folder / "config.json",
        "--userdir": folder,
        "--datadir": folder / "data",
        "--strategy-path": strategy,
        "--strategy": "SignalStrategy",
        "--timerange": limits,
    }
    costs = {"--fee": cost}
    kept = {"--export": "trades", "--backtest-directory": folder, "--cache": "none"}

    def asked(command: str, words: dict[str, object]) -> str:
        given = [str(word) for each in {**common, **words}.items() for word in each]
        script = Path(__file__).with_name("freqtrade_offline.py")
        done = subprocess.run([python, script, pair, command, *given], capture_output=True, text=True, cwd=folder)
        if done.returncode:
            raise SystemExit(f"freqtrade failed:\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}")
        return done.stdout + done.stderr

    asked("backtesting", {**costs, **kept})
    with zipfile.ZipFile(max(folder.rglob("backtest-result-*.zip"))) as archive:
        found = json.loads(archive.read(Path(archive.filename).with_suffix(".json").name))
    ahead = folder / "lookahead.csv"
    asked("lookahead-analysis", {**costs, "--lookahead-analysis-exportfilename": ahead})
    said = asked("recursive-analysis", {"--pairs": pair})
    analyses = {
        "lookahead": pd.read_csv(ahead).to_dict("records"),
        "recursive": [line.rpartition(" - ")[2] for line in said.splitlines() if "indicator" in line and "No " in line],
    }
    return pd.DataFrame(found["strategy"]["SignalStrategy"]["trades"]), analyses


def compared(
    candles: Candles, rows: np.ndarray, cost: float, trades: np.recarray, theirs: pd.DataFrame
) -> dict[str, Any]:
    """Return how many trades are equal in time, side, prices and return, and why the others are not."""
    time, mine = candles.time[rows], {}
    for i in range(len(trades)):
        # A trade that the signals end is filled at the open of candle `exit`; freqtrade has the same time for it.
        key = (int(time[trades.entry[i]]), int(trades.side[i]))
        # Ours is a share of the account at entry, theirs of the entry's notional with its fee.
        net = trades.net[i] / (1 + trades.side[i] * cost)
        mine[key] = (int(time[trades.exit[i]]), float(trades.ratio[i]), float(net), trades.reason[i])
    other = {}
    for row in theirs.itertuples():
        key = (int(row.open_timestamp), -1 if row.is_short else 1)
        other[key] = (
            int(row.close_timestamp),
            row.close_rate / row.open_rate,
            float(row.profit_ratio),
            row.exit_reason,
        )
    equal, differing = 0, {}
    for key in sorted(mine.keys() | other.keys()):
        one, two = mine.get(key), other.get(key)
        if one and two and one[0] == two[0] and np.allclose(one[1:3], two[1:3], rtol=0, atol=CLOSE):
            equal += 1
        else:
            why = explanation(candles.timeframe_ms, time, key, one, two)
            differing[why] = differing.get(why, 0) + 1
            print(f"{pd.Timestamp(key[0], unit='ms')} side {key[1]:+d}: ours {one}, freqtrade's {two}: {why}")
    total = len(mine.keys() | other.keys())
    return {
        "ours": len(mine),
        "freqtrade": len(other),
        "equal": equal,
        "share_equal": equal / total,
        "others": differing,
    }


def explanation(step: int, time: np.ndarray, key: tuple[int, int], one: Any, two: Any) -> str:
    """Return why a trade differs, or "not explained"."""
    if two and two[3] == "force_exit":
        return "the end of the candles: ours is closed at the last close, freqtrade's at the last open"
    if (one and one[3] == "end") or (not one and key[0] > int(time[-1]) - 5 * step):
        return "the last candles: the evaluation has no signals whose label lies beyond the end"
    if one and one[3] == "gap":
        return "a gap: ours is closed at the last close before it, freqtrade's one candle later at that price"
    return "not explained"


if __name__ == "__main__":
    main()
