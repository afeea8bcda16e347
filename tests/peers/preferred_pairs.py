"""How many answers about pairs of photos a ranking needs: chosen pairs against random ones.

    python tests/peers/preferred_pairs.py [CROPS] [SIMULATIONS]

Someone who knows the scores of the embedded photos, spoilt in four ways, answers, and slips in one answer of twenty.
Each way of choosing and of scoring asks on until the rank correlation with the scores is 95 % of what the answers to
all pairs, without a slip, give by their numbers of wins. The last line is JSON: the mean numbers of pairs, and what
the chosen ones are in percent of random ones, with 95 % intervals over the simulations.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from common.statistics import mean_and_half_width
from models.images.people.preferences import UNKNOWN, Prior, fit, next_pairs
from models.images.people.raters import fitted
from models.images.ranking import FIRST, SECOND
from models.images.texture import texture
from pipelines.workloads.lmol import sources
from pipelines.workloads.lmol.config import Data
from pipelines.workloads.lmol.pairs import label

SHARE, SLIPS, MOST = 0.95, 0.05, 20_000
WAYS = {  # name: (pairs are chosen, images that look alike have like scores)
    "chosen pairs": (True, True),
    "random pairs, Davidson's model alone": (False, False),
    "chosen pairs, Davidson's model alone": (True, False),
    "random pairs": (False, True),
}


def of_all_pairs(found):
    """Rank correlation of the numbers of wins with the scores, if all pairs are answered without a slip."""
    labels = label(found.scores[:, None], found.scores, found.theta)
    return spearmanr((labels == FIRST).sum(1) - (labels == SECOND).sum(1), found.scores).statistic


def needed(found, features, chosen, bar, seed):
    """Number of answers after which the ranking is as good as `bar`."""
    generator, count = np.random.default_rng(seed), len(found.scores)
    scored = fit if features is None else lambda answers, prior: fitted(answers, prior).posterior(answers)
    answers, unknown = np.zeros((0, 3), np.int64), Prior(np.zeros(count), np.full(count, UNKNOWN), features)
    posterior = scored(answers, unknown)
    while len(answers) < MOST:
        batch = max(10, len(answers) // 16)
        if chosen:
            asked = next_pairs(posterior, batch, answers, seed)
        else:
            first = generator.integers(0, count, batch)
            asked = np.stack([first, (first + generator.integers(1, count, batch)) % count], axis=1)
        labels = label(found.scores[asked[:, 0]], found.scores[asked[:, 1]], found.theta)
        labels = np.where(generator.random(batch) < SLIPS, generator.integers(0, 3, batch), labels)
        answers = np.concatenate([answers, np.column_stack([asked, labels])])
        posterior = scored(answers, unknown)
        if spearmanr(posterior.scores, found.scores).statistic >= bar:
            return len(answers)
    raise SystemExit(f"{MOST} answers were not enough")


def share_interval(some, rest):
    """Mean of `some` in percent of the mean of `rest`, and its 95 % interval over independent simulations."""
    (one, reach), (other, other_reach) = (mean_and_half_width(np.array(each, float)) for each in (some, rest))
    off = np.hypot((reach or 0) / one, (other_reach or 0) / other)
    return [float(100 * one / other * (1 + sign * off)) for sign in (0, -1, 1)]


def main(crops=1, simulations=10):
    with tempfile.TemporaryDirectory() as folder:
        found = sources.read(Data(source="photos", size=64, photos_crops=crops), Path(folder) / "images.npy")
        features = texture(torch.from_numpy(np.array(found.images)).movedim(-1, 1)).double().numpy()
    features = (features - features.mean(0)) / (features.std(0) + 1e-9)
    bar = SHARE * of_all_pairs(found)
    figures = {"images": len(features), "rank_correlation": float(bar)}
    counts = {}
    for name, (chosen, alike) in WAYS.items():
        counts[name] = [needed(found, features if alike else None, chosen, bar, seed) for seed in range(simulations)]
        figures[name] = float(np.mean(counts[name]))
        print(name, counts[name], flush=True)
    for key, name in (("random_alone", "random pairs, Davidson's model alone"), ("random", "random pairs")):
        percent, *interval = share_interval(counts["chosen pairs"], counts[name])
        figures |= {f"percent_of_{key}": percent, f"percent_of_{key}_interval": interval}
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
