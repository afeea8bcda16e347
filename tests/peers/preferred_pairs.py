"""How many answers about pairs of photos a ranking needs: chosen pairs against random ones.

    python tests/peers/preferred_pairs.py [CROPS] [SIMULATIONS]

Someone who knows the scores of the embedded photos, spoilt in four ways, answers, and slips in one answer of twenty.
Each way of choosing and of scoring asks on until the rank correlation with the scores is 0.95; that of full scores is
1. The last line is JSON: the mean numbers of pairs.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from pipelines.workloads.lmol import Data, sources
from pipelines.workloads.lmol.one_image import texture_features
from pipelines.workloads.lmol.pairs import label
from pipelines.workloads.lmol.preferences import Prior, fit, likeliest_prior, next_pairs

BAR, SLIPS, MOST = 0.95, 0.05, 20_000
WAYS = {  # name: (pairs are chosen, images that look alike have like scores)
    "chosen pairs": (True, True),
    "random pairs": (False, True),
    "chosen pairs, Davidson's model alone": (True, False),
    "random pairs, Davidson's model alone": (False, False),
}


def needed(found, features, chosen, seed):
    """Number of answers after which the ranking is good enough."""
    generator, count = np.random.default_rng(seed), len(found.scores)
    answers, prior = np.zeros((0, 3), np.int64), Prior(np.zeros(count), np.full(count, 4.0), features)
    posterior = fit(answers, prior)
    while len(answers) < MOST:
        batch = max(20, len(answers) // 8)
        if chosen:
            asked = next_pairs(posterior, batch, answers, seed)
        else:
            first = generator.integers(0, count, batch)
            asked = np.stack([first, (first + generator.integers(1, count, batch)) % count], axis=1)
        labels = label(found.scores[asked[:, 0]], found.scores[asked[:, 1]], found.theta)
        labels = np.where(generator.random(batch) < SLIPS, generator.integers(0, 3, batch), labels)
        answers = np.concatenate([answers, np.column_stack([asked, labels])])
        posterior = fit(answers, prior if features is None else likeliest_prior(answers, prior))
        if spearmanr(posterior.scores, found.scores).statistic >= BAR:
            return len(answers)
    raise SystemExit(f"{MOST} answers were not enough")


def main(crops=2, simulations=3):
    with tempfile.TemporaryDirectory() as folder:
        found = sources.read(Data(source="photos", size=64, photos_crops=crops), Path(folder) / "images.npy")
        features = np.stack([texture_features(image) for image in found.images])
    features = (features - features.mean(0)) / (features.std(0) + 1e-9)
    told = {"images": len(features)}
    for name, (chosen, alike) in WAYS.items():
        counts = [needed(found, features if alike else None, chosen, seed) for seed in range(simulations)]
        told[name] = float(np.mean(counts))
        print(name, counts, flush=True)
    told["percent_of_random_alone"] = 100 * told["chosen pairs"] / told["random pairs, Davidson's model alone"]
    told["percent_of_random"] = 100 * told["chosen pairs"] / told["random pairs"]
    print(json.dumps(told))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
