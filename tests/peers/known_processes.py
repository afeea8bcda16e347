"""Train and evaluate coins whose process is known; print each model's gain on the prior beside the true process's.

    python tests/peers/known_processes.py [SEEDS [PROCESS,... [key.path=value ...]]]
    python tests/peers/known_processes.py 20 WEAK    # how often fitted models reach the first grade among 20 coins

AR(1) with phi 0.2 (of WEAK 0.15, which has to be named), momentum 0.35 that turns into reversal in calm markets
and a trend of 0.05 times the sum of 12 returns (20,000 candles each), and a return that repeats 0.45 of the one 20
candles before (16,000). PRODUCT, which has to be named as well, takes the sign of a return and the size of another.
GARCH volatility, Student's t. Beside the gains, what the model is expected to gain by the true probabilities, which no
luck of the test changes, and the experts that the pool is worse than at p < .05. About 20 CPU-seconds a coin.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from models import io
from models.market.candles import COLUMNS
from models.market.pooled_experts import EXPERTS
from pipelines.workloads.crypto import data, experts
from pipelines.workloads.crypto.verdict.classification import class_shares, log_losses
from pipelines.workloads.crypto.verdict.judge import PREDICTIVE
from pipelines.workloads.crypto.verdict.significance import p_value
from pipelines.workloads.crypto.windows import pooled
from tests.workloads.crypto.verdict.autoregressive import (
    GARCH,
    HORIZON,
    THRESHOLD,
    VOLATILITY,
    Coins,
    candles_of,
    student,
)

ROOT = Path(__file__).resolve().parents[2]
# name -> candles, and the mean of the next return, in columns, from returns (t, K) up to now
PROCESSES = {
    "AR": (20_000, lambda past: 0.2 * past[-1]),
    "REGIME": (20_000, lambda past: np.where(past[-20:].std(0) > 0.95 * VOLATILITY, 0.35, -0.35) * past[-1]),
    "TREND": (20_000, lambda past: 0.05 * past[-12:].sum(0)),
    "LAG": (16_000, lambda past: 0.45 * past[-20]),
    "PRODUCT": (20_000, lambda past: 0.3 * np.sign(past[-3]) * np.abs(past[-7])),
    "WEAK": (20_000, lambda past: 0.15 * past[-1]),
}
DRAWS = 2000


def path(num: int, mean, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the returns (n, 1) and the variance before each (n + 1, 1)."""
    shocks = student(np.random.default_rng(seed), (num, 1))
    returns, variances = np.zeros((num, 1)), np.ones((num + 1, 1))
    for t in range(num):
        noise = np.sqrt(variances[t]) * shocks[t]
        variances[t + 1] = GARCH[0] + GARCH[1] * noise**2 + GARCH[2] * variances[t]
        returns[t] = VOLATILITY * noise + (mean(returns[t - 20 : t]) if t >= 20 else 0)
    return returns, variances


def truth(returns: np.ndarray, variances: np.ndarray, mean, rows: np.ndarray) -> np.ndarray:
    """Return the true class probabilities (m, 3) after each of the rows, by simulation of the next three returns."""
    shocks = student(np.random.default_rng(1), (HORIZON, DRAWS))
    found = np.empty((len(rows), 3))
    for place, row in enumerate(rows):
        past, now, total = np.repeat(returns[row - 19 : row + 1], DRAWS, 1), np.full(DRAWS, variances[row + 1, 0]), 0.0
        for shock in shocks:
            noise = np.sqrt(now) * shock
            step = mean(past) + VOLATILITY * noise
            past, total = np.concatenate([past[1:], step[None]]), total + step
            now = GARCH[0] + GARCH[1] * noise**2 + GARCH[2] * now
        short, long = (total < np.log1p(-THRESHOLD)).mean(), (total > np.log1p(THRESHOLD)).mean()
        found[place] = np.clip([short, 1 - short - long, long], 1e-3, 1)
    return found / found.sum(1, keepdims=True)


def main(seeds: int, names: list[str], words: list[str]) -> None:
    shares = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            num, mean = PROCESSES[name]
            made = {f"{name}{seed}": path(num, mean, seed) for seed in range(1, seeds + 1)}
            found, best, mine, true, predictive, behind = np.mean(_gains(Path(folder), name, made, mean, words), 0)
            shares[name] = {"gain": found, "share": found / best, "expected_share": mine / true}
            shares[name] |= {"predictive": predictive, "behind_an_expert": behind}
    print(json.dumps(shares))


def _gains(folder: Path, name: str, made, mean, words: list[str]) -> list[tuple[float, ...]]:
    """Train and evaluate coins in a run of their own.

    Return what the model and the true process gain on the prior, the same expected by the true probabilities, whether
    the model reaches the first grade, and whether it is worse than one of its experts.
    """
    times = written(folder / name, made)
    summary, lines = evaluated(folder, name, f"data.folder={name}", *words)
    gains = []
    for coin, (returns, variances) in made.items():
        own = [line for line in lines if line[0] == coin]
        rows = np.searchsorted(times[coin], [int(line[1]) for line in own])
        labels = np.array([int(line[3]) for line in own])
        true, mine = truth(returns, variances, mean, rows), np.array([[float(x) for x in line[4:]] for line in own])
        best = log_losses(true, labels).mean()
        prior, found = summary[coin]["prior_log_loss"], summary[coin]["log_loss"]
        shares, alone = _prior_and_experts(folder, name, coin)
        expected = [(true * np.log(each / shares)).sum(1).mean() for each in (mine, true)]
        behind = [
            expert
            for expert, each in zip(EXPERTS, alone, strict=True)
            if p_value(log_losses(mine, labels) - log_losses(each, labels), HORIZON) < 0.05
        ]
        gains.append((prior - found, prior - best, *expected, summary[coin]["grades"][PREDICTIVE], bool(behind)))
        print(
            f"{coin}: {prior - found:.4f} nats of {prior - best:.4f}, expected {expected[0]:.4f} of {expected[1]:.4f}; "
            f"{summary[coin]['verdict']}; worse than {', '.join(behind) or 'no expert'}",
            flush=True,
        )
    return gains


def _prior_and_experts(folder: Path, name: str, coin: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes' shares in training (3,), and the probabilities (K, N, 3) of each expert on the test."""
    run = folder / "runs/crypto" / name
    model = io.load(next(each for each in (run / f"members/{coin}/model/best", run / "model/best") if each.is_dir()))
    prepared = next(page.parent for page in folder.glob(f"data/crypto/*/{coin}-*.json"))
    known = data.load(prepared, coin)
    source = pooled([known], 0, "test", model.stretch)
    (found,) = experts.over(source, lambda windows, coins: (model.eval().experts(windows, coins),))
    labels = known.labels[known.folds[0]["train"]].astype(int)
    return class_shares(labels), torch.softmax(found.double(), -1).transpose(0, 1).numpy()


def written(folder: Path, made) -> dict[str, np.ndarray]:
    """Write a file of candles for each coin; return their times."""
    folder.mkdir()
    times = {}
    for coin, (returns, variances) in made.items():
        candles = candles_of(Coins(0.0, returns, variances, returns), 0)
        rows = np.column_stack([getattr(candles, column) for column in COLUMNS]).tolist()
        (folder / f"{coin}-15m.json").write_text(json.dumps([[int(row[0]), *row[1:]] for row in rows]))
        times[coin] = candles.time
    return times


def evaluated(folder: Path, name: str, *words: str) -> tuple[dict, list[list[str]]]:
    """Train and evaluate a run; return its summary and the lines of its file of windows."""
    for stage, given in (("train.py", words), ("evaluate.py", ())):
        command = [sys.executable, str(ROOT / "pipelines" / stage), "--workload", "crypto", "--name", name, *given]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    evaluations = folder / "runs/crypto" / name / "evaluations"
    lines = (evaluations / "test.csv").read_text().splitlines()
    return json.loads((evaluations / "test.json").read_text()), [line.split(",") for line in lines]


if __name__ == "__main__":
    seeds, names, *words = [*sys.argv[1:], *("3", "AR,REGIME,TREND,LAG")[len(sys.argv) - 1 :]]
    main(int(seeds), names.split(","), words)
