"""Train simulated coins by one command, and by the loop one would write without it; print both times and their ratio.

    python tests/peers/against_plain_loop.py [COINS CANDLES EPOCHS [key.path=value ...]]

Both are whole processes, imports included, on data that are prepared before; both validate after every epoch and keep
the best weights. The plain loop has torch's own number of threads and a DataLoader that shuffles a dataset of windows.
"""

import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
BATCH = 256
CONFIG = ROOT / "pipelines" / "configs" / "crypto_cnn_lstm.yaml"


def main(coins: int, candles: int, epochs: int, words: list[str]) -> None:
    symbols = [chr(ord("A") + number) * 3 + "USDT" for number in range(coins)]
    steps = int(candles * 0.7) // BATCH  # about an epoch
    words = [f"data.symbols=[{','.join(symbols)}]", f"data.simulated_candles={candles}", *words]
    training = [f"training.epochs={epochs}", f"training.batch_size={BATCH}", f"training.validation_steps={steps}"]
    with tempfile.TemporaryDirectory() as folder:
        _run(folder, [sys.executable, str(ROOT / "pipelines" / "prepare.py"), "--workload", "crypto", *words])
        train = [sys.executable, str(ROOT / "pipelines" / "train.py"), "--workload", "crypto", "--config", str(CONFIG)]
        seconds = {
            "one command": _run(folder, [*train, *words, *training]),
            "plain loop": _run(folder, [sys.executable, __file__, "plain", str(epochs), *words]),
        }
        files = (Path(folder) / "runs/crypto/default").glob("members/*/outcome.json")
        done = [json.loads(path.read_text()) for path in files]
    assert [outcome["state"] for outcome in done] == ["done"] * coins, done
    print(f"{coins} coins x {candles:,} candles x {epochs} epochs at batch {BATCH}")
    for name, value in seconds.items():
        print(f"{name:12} {value:7.1f} s")
    print(json.dumps({**seconds, "times_faster": seconds["plain loop"] / seconds["one command"]}))


def plain(epochs: int, words: list[str]) -> None:
    """The same model for every coin in turn."""
    import torch
    from torch.nn import functional as F
    from torch.utils.data import DataLoader, Dataset

    from common import config as configs
    from pipelines.workloads.crypto import Config, data, task

    class Windows(Dataset):
        def __init__(self, features, labels, ends, lookback):
            self.features, self.labels, self.ends, self.lookback = features, labels, ends, lookback

        def __len__(self):
            return len(self.ends)

        def __getitem__(self, item):
            end = self.ends[item]
            return self.features[end - self.lookback + 1 : end + 1], self.labels[end]

    config = configs.load(CONFIG, Config, words)
    folder = next(Path("data/crypto").iterdir())
    for symbol in config.data.coins():
        coin = data.load(folder, symbol)
        features, labels = torch.from_numpy(coin.scaled(0)), torch.from_numpy(coin.labels).long()
        loaders = {
            part: DataLoader(
                Windows(features, labels, torch.from_numpy(coin.folds[0][part]), coin.lookback),
                batch_size=BATCH,
                shuffle=part == "train",
            )
            for part in ("train", "validation")
        }
        model = task.untrained(config, [coin], 0)
        optimizer = torch.optim.AdamW(model.parameters(), lr=config.training.learning_rate)
        best, kept = float("inf"), None
        for _ in range(epochs):
            model.train()
            for windows, targets in loaders["train"]:
                loss = F.cross_entropy(model(windows)[:, 0], targets)
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            model.eval()
            with torch.no_grad():
                nats = sum(
                    float(F.cross_entropy(model(windows)[:, 0], targets, reduction="sum"))
                    for windows, targets in loaders["validation"]
                )
            if nats < best:
                best, kept = nats, copy.deepcopy(model.state_dict())
        torch.save(kept, f"{symbol}.pt")


def _run(folder: str, command: list[str]) -> float:
    """Seconds that a command takes in `folder`."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return time.perf_counter() - began


if __name__ == "__main__":
    if sys.argv[1:2] == ["plain"]:
        plain(int(sys.argv[2]), sys.argv[3:])
    else:
        sizes = [int(word) for word in sys.argv[1:4]] or [8, 35_000, 2]
        main(*sizes, sys.argv[4:])
