"""CPU time of scoring N images by a scorer, by comparisons with references, and by comparing all pairs.

    python tests/peers/scorer_speed.py [N ...]

Comparators of the default sizes for digits, with random weights, on random images, by one thread: a siamese's
comparison is a few sums, a cross comparator's is attention. Each encodes an image once. The scorer takes one pass for
each image, and leaves 5 % to the comparator that it has inside. Comparing all pairs takes N (N - 1) / 2 comparisons in
both orders; where these are more than 20,000, the time of so many is continued. The last line is JSON: milliseconds per
image, and how many times faster the scorer is.
"""

import json
import sys
import time
from pathlib import Path

import torch

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from models.comparator import build
from models.comparator.interface import AT_ONCE

REFERENCES, LEFT, MOST, REPEATS = 100, 0.05, 20_000, 3
SIZES = {"siamese": {}, "cross": {"layers": 2}}


def seconds(work):
    """Least CPU time of a few calls."""
    found = []
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def comparator(kind):
    """A comparator with random weights, and a scorer that has it inside and leaves it nothing yet."""
    torch.manual_seed(0)
    model = build({"kind": kind, "references": REFERENCES, **SIZES[kind]}).eval()
    images = (torch.rand(REFERENCES, 1, 32, 32) * 255).byte()
    model.reference_images.copy_(images)
    if kind == "cross":
        model.learn_dictionary(images, 0)
    model.reference_scores.copy_(torch.arange(REFERENCES) % 10)
    model.prior.copy_(torch.linspace(0, 9, len(model.prior)))
    model.fit_scale()
    described = {"family": model.family, "config": {"kind": kind, "references": REFERENCES, **SIZES[kind]}}
    scorer = build({"kind": "scorer", "teacher": described}).eval()
    scorer.teacher.load_state_dict(model.state_dict())
    scorer.prior.copy_(model.prior)
    scorer.fit_scale()
    return model, scorer


@torch.no_grad()
def all_pairs(model, images):
    """CPU seconds of comparing all pairs of images."""
    encoded = model.encode_all(images)
    first, second = torch.triu_indices(len(images), len(images), 1)
    some = torch.randperm(len(first))[:MOST]
    parts = list(zip(first[some].split(AT_ONCE), second[some].split(AT_ONCE), strict=True))
    heads = seconds(lambda: [model.both_orders(encoded, *part) for part in parts])
    return seconds(lambda: model.encode_all(images)) + heads * len(first) / len(some)


def timed(model, scorer, count):
    """Milliseconds per image of each way, and how many times faster the scorer is."""
    images = (torch.rand(count, 1, 32, 32, generator=torch.Generator().manual_seed(1)) * 255).byte()
    scorer.widest.fill_(0)
    alone = seconds(lambda: scorer.score(images))
    scorer.widest.copy_(scorer.score(images)[1].quantile(1 - LEFT))
    found = {
        "scorer alone": alone,
        "scorer": seconds(lambda: scorer.score(images)),
        "references": seconds(lambda: model.score(images)),
        "all pairs": all_pairs(model, images),
    }
    row = {f"{name}, ms per image": 1000 * each / count for name, each in found.items()}
    return row | {f"faster than {name}": found[name] / found["scorer"] for name in ("references", "all pairs")}


def main(*counts):
    torch.set_num_threads(1)
    told = {}
    for kind in SIZES:
        made = comparator(kind)
        for count in counts or (100, 1000):
            row = told[f"{kind}, {count} images"] = timed(*made, count)
            print(kind, count, {name: round(value, 3) for name, value in row.items()}, flush=True)
    print(json.dumps(told))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
