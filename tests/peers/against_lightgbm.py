"""Compare the pool with LightGBM on planted coins: shares of what the true process gains, and paired differences.

    pip install --no-deps --target LIGHTGBM lightgbm
    PYTHONPATH=LIGHTGBM python tests/peers/against_lightgbm.py [SEEDS [PROCESS,...]]

The processes are those of known_processes.py. LightGBM sees the same training, validation and test windows in two sets
of inputs, what the pool's trees see (the last row and 24 returns) and the last row with all returns of the window. For
each set it may try settings on validation for as many CPU-seconds as the training of the coin took, stops early there,
and keeps the best; the better set on validation is its forecast. One thread. p-values are those of the verdict, each
for being better than the other one. About 55 CPU-seconds a coin.
"""

import itertools
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import lightgbm
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from models import io
from pipelines.workloads.crypto import data, experts
from pipelines.workloads.crypto.verdict.classification import class_shares, log_losses
from pipelines.workloads.crypto.verdict.significance import p_value
from pipelines.workloads.crypto.windows import pooled
from tests.peers.known_processes import HORIZON, PROCESSES, path, truth, written
from tests.peers.run_stage import run_stage

GRID = {
    "learning_rate": (0.03, 0.08),
    "num_leaves": (7, 15, 31),
    "min_data_in_leaf": (20, 50, 200),
    "lambda_l2": (0.0, 20.0),
    "feature_fraction": (1.0, 0.4),
}
LEAST = 6  # settings that are tried whatever they take
FIXED = {"objective": "multiclass", "num_class": 3, "num_threads": 1, "deterministic": True, "verbose": -1, "seed": 0}


def main(seeds: int, names: list[str]) -> None:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            for seed in range(1, seeds + 1):
                found[f"{name}{seed}"] = compared(Path(folder), name, seed)
                print(json.dumps({f"{name}{seed}": found[f"{name}{seed}"]}), flush=True)
    for side in ("pool", "lightgbm"):
        ahead = [coin for coin, each in found.items() if each[f"p_{side}_better"] < 0.05]
        print(f"{side} better at p < .05 on {len(ahead)} of {len(found)}: {', '.join(ahead)}")


def compared(folder: Path, name: str, seed: int) -> dict:
    """Train and evaluate a coin, let LightGBM learn the same, and return the gains of both with p-values."""
    (num, mean), coin = PROCESSES[name], f"{name}{seed}"
    returns, variances = path(num, mean, seed)
    times = written(folder / coin, {coin: (returns, variances)})[coin]
    before = _children()
    run_stage(str(folder), "train.py", "--workload", "crypto", "--name", coin, f"data.folder={coin}")
    seconds = _children() - before
    run_stage(str(folder), "evaluate.py", "--workload", "crypto", "--name", coin)
    lines = [each.split(",") for each in (folder / f"runs/crypto/{coin}/evaluations/test.csv").read_text().split()[1:]]
    rows, labels = (np.array([int(line[place]) for line in lines]) for place in (1, 3))
    mine = np.array([[float(each) for each in line[4:]] for line in lines])
    known = data.load(next(page.parent for page in folder.glob(f"data/crypto/*/{coin}-*.json")), coin)
    model = io.load(next(folder.glob(f"runs/crypto/{coin}/**/model/best"))).eval()
    theirs, chosen = _lightgbm(model, known, seconds)
    shares = class_shares(known.labels[known.folds[0]["train"]].astype(int))
    true = truth(returns, variances, mean, np.searchsorted(times, rows))
    prior, best, ours, others = (
        log_losses(each, labels) for each in (np.tile(shares, (len(labels), 1)), true, mine, theirs)
    )
    expected = [(true * np.log(each / shares)).sum(1).mean() for each in (true, mine, theirs)]
    return {
        "true": round((prior - best).mean(), 4),
        "pool": round((prior - ours).mean(), 4),
        "lightgbm": round((prior - others).mean(), 4),
        "expected_shares": [round(each / expected[0], 3) for each in expected[1:]],
        "p_pool_better": round(p_value(others - ours, HORIZON), 4),
        "p_lightgbm_better": round(p_value(ours - others, HORIZON), 4),
        "training_cpu_s": round(seconds, 1),
        **chosen,
    }


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _lightgbm(model, known: data.Coin, seconds: float) -> tuple[np.ndarray, dict]:
    """Return LightGBM's probabilities (N, 3) on the test, and what was chosen on validation for it."""
    best, tried, start = (np.inf, {}, None, None), 0, time.process_time()
    for inputs, see in {"trees": _tree_inputs, "window": _window}.items():
        parts = {}
        for part in ("train", "validation", "test"):
            source = pooled([known], 0, part, model.stretch)
            rows = experts.over(source, lambda windows, coins, see=see: (see(model, windows, coins),))[0]
            parts[part] = rows.numpy(), source.labels[experts.rows_of(source)].numpy()
        kept = {"feature_pre_filter": False, "verbose": -1}  # else inputs are dropped by the first min_data_in_leaf
        train = lightgbm.Dataset(*parts["train"], params=kept)
        judged = lightgbm.Dataset(*parts["validation"], reference=train, params=kept)
        settings = [dict(zip(GRID, each, strict=True)) for each in itertools.product(*GRID.values())]
        np.random.default_rng(0).shuffle(settings)
        until = time.process_time() + seconds / 2
        for number, each in enumerate(settings):
            if number >= LEAST and time.process_time() > until:
                break
            stop = lightgbm.early_stopping(30, verbose=False)
            fitted = lightgbm.train(FIXED | each, train, 600, valid_sets=[judged], callbacks=[stop])
            loss, tried = fitted.best_score["valid_0"]["multi_logloss"], tried + 1
            if loss < best[0]:
                best = loss, {"inputs": inputs, "rounds": fitted.best_iteration, **each}, fitted, parts["test"][0]
    _, chosen, fitted, test = best
    return np.clip(fitted.predict(test), 1e-6, 1), {
        "tried": tried,
        "tuning_cpu_s": round(time.process_time() - start, 1),
        "chosen": chosen,
    }


def _tree_inputs(model, windows: torch.Tensor, coins: torch.Tensor) -> torch.Tensor:
    return model.tree_inputs(windows, coins)


def _window(model, windows: torch.Tensor, coins: torch.Tensor) -> torch.Tensor:
    """The last row, all returns of the window by their volatility, and the volatility at each."""
    returns, volatility = model._moves(windows, coins)
    length = model.config.lookback
    scaled = (returns / volatility).unfold(1, length, 1)
    return torch.cat([windows[:, length - 1 :], scaled, volatility.unfold(1, length, 1)], -1)


if __name__ == "__main__":
    seeds, names = [*sys.argv[1:], *("2", "AR,LAG,REGIME,TREND")[len(sys.argv) - 1 :]]
    main(int(seeds), names.split(","))
