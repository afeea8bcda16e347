"""Train and evaluate coins whose process is known; print each model's gain on the prior beside the true process's.

    python tests/peers/known_processes.py [SEEDS [PROCESS,... [key.path=value ...]]]
    python tests/peers/known_processes.py 20 WEAK    # how often fitted models reach the first grade among 20 coins

AR(1) with phi 0.2 (of WEAK 0.15, which has to be named), momentum 0.35 that turns into reversal in calm markets
(20,000 candles each), and a return that repeats 0.45 of the one 20 candles before (16,000). PRODUCT, which has to be
named as well, takes the sign of a return and the size of another. GARCH volatility,
Student's t. About 20 CPU-seconds a coin.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from models.market.candles import COLUMNS
from pipelines.workloads.crypto.verdict.judge import PREDICTIVE
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
            *gains, predictive = np.mean(_gains(Path(folder), name, made, mean, words), 0)
            shares[name] = {"gain": gains[0], "share": gains[0] / gains[1], "predictive": predictive}
    print(json.dumps(shares))


def _gains(folder: Path, name: str, made, mean, words: list[str]) -> list[tuple[float, float, bool]]:
    """Train and evaluate coins in a run of their own.

    Return what the model and the true process gain on the prior, and whether the model reaches the first grade.
    """
    times = written(folder / name, made)
    summary, lines = evaluated(folder, name, f"data.folder={name}", *words)
    gains = []
    for coin, (returns, variances) in made.items():
        own = [line for line in lines if line[0] == coin]
        rows = np.searchsorted(times[coin], [int(line[1]) for line in own])
        labels = np.array([int(line[3]) for line in own])
        best = -np.log(truth(returns, variances, mean, rows)[np.arange(len(rows)), labels]).mean()
        prior, found = summary[coin]["prior_log_loss"], summary[coin]["log_loss"]
        gains.append((prior - found, prior - best, summary[coin]["grades"][PREDICTIVE]))
        print(f"{coin}: {prior - found:.4f} nats of {prior - best:.4f}; {summary[coin]['verdict']}", flush=True)
    return gains


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
    seeds, names, *words = [*sys.argv[1:], *("3", "AR,REGIME,LAG")[len(sys.argv) - 1 :]]
    main(int(seeds), names.split(","), words)
