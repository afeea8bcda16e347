"""Train coins alone, all by one shared model, and each from that on; print what going on gains, with intervals.

    python tests/peers/shared_base.py [COINS [PROCESS,... [key.path=value ...]]]

Coins of 5,000 candles: of the simulated market (MARKET), whose coins share the planted signal, or each of a process of
tests/peers/known_processes.py. Nats per window on the tests of all coins; what happens at one time counts once. About
15 CPU-seconds a coin.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from common.config import load
from common.disk.prepared import folder_for
from models import io
from pipelines.workloads.crypto import Config, data
from pipelines.workloads.crypto.verdict.significance import block_bootstrap
from pipelines.workloads.crypto.windows import pooled
from tests.peers.known_processes import HORIZON, PROCESSES, path, written
from tests.peers.run_stage import run_stage

CANDLES = 5000
MARKET = ("data.signal=1.0", f"data.simulated_candles={CANDLES}")
LONGER = ("training.epochs=56", "training.validation_steps=14")  # as many steps as a coin of 20,000 candles takes
TUNED = ("training.epochs=28", "training.validation_steps=7", "training.learning_rate=1e-3")
RUNS = {"alone": LONGER, "shared": ("model.pooled=true",), "tuned": (*TUNED, "model.base=runs/crypto/shared")}


def main(coins: int, names: list[str], words: list[str]) -> None:
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            given = [*_data(Path(folder), name, coins), *words]
            for run, settings in RUNS.items():
                named = ("--workload", "crypto", "--name", run)
                run_stage(folder, "train.py", *named, "hardware.threads=1", *given, *settings)
            seen = {run: _tested(Path(folder), run) for run in RUNS}
        times, labels, _ = seen["alone"]
        prior = np.bincount(labels) / len(labels)
        found[name] = {
            f"{run} on {rival}": _gain(
                seen[run][2], np.tile(prior, (len(labels), 1)) if rival == "prior" else seen[rival][2], labels, times
            )
            for run, rival in (("alone", "prior"), ("tuned", "alone"), ("tuned", "shared"))
        }
        print(name, json.dumps(found[name]), flush=True)
    print(json.dumps(found))


def _data(folder: Path, name: str, coins: int) -> list[str]:
    """Return the words that choose the data of a process, which are written if they come in files."""
    if name == "MARKET":
        return [*MARKET, f"data.symbols=[{','.join(f'C{number}USDT' for number in range(coins))}]"]
    written(folder / name, {f"{name}{seed}": path(CANDLES, PROCESSES[name][1], seed) for seed in range(1, coins + 1)})
    return [f"data.folder={name}"]


@torch.no_grad()
def _tested(folder: Path, run: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times (N,), labels (N,) and a run's probabilities (N, 3) in the tests of all coins, in their order."""
    config = load(folder / "runs/crypto" / run / "config.yaml", Config, [])
    columns: dict[str, list] = {}
    for place in sorted((folder / "runs/crypto" / run / "members").iterdir()):
        model = io.load(place / "model/best")
        for number, symbol in enumerate(model.config.coins):
            coin = data.load(folder / folder_for("crypto", config.data, config.data.layout), symbol)
            batch = (source := pooled([coin], 0, "test", first=number)).batch(torch.arange(source.size))
            logits = model(batch["windows"], batch["coins"])[:, 0]
            times = coin.candles.time[coin.folds[0]["test"]]
            columns[symbol] = [times, batch["labels"][:, 0].numpy(), logits.double().softmax(-1).numpy()]
    times, labels, rows = (
        np.concatenate(each) for each in zip(*(columns[name] for name in sorted(columns)), strict=True)
    )
    return times, labels, rows


def _gain(rows: np.ndarray, rivals: np.ndarray, labels: np.ndarray, times: np.ndarray) -> list[float]:
    """Return the nats gained on the rivals per window, and the ends of its interval."""
    found = block_bootstrap(rows, rivals, labels, horizon=HORIZON, time=times)["log_loss"]
    return [found["gain"], found["low"], found["high"]]


if __name__ == "__main__":
    coins, names, *words = [*sys.argv[1:], *("6", "MARKET,REGIME")[len(sys.argv) - 1 :]]
    main(int(coins), names.split(","), words)
