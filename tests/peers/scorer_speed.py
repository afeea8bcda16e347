"""CPU time of scoring N images by a scorer, by comparisons with references, and by comparing all pairs.

    python tests/peers/scorer_speed.py [N ...]

Comparators of the default sizes for digits, by one thread: a siamese's comparison is a few sums, a
vision-language model's (the small one) is a pass of its language model. Their weights are random, and
what they compute is thrown away: scores from 0 to 9 are planted in the images as their brightness, which a comparator
sees with an error of 0.25 and answers by, so that as many comparisons are made as a comparator of such a kind needs.
The scorer errs by 0.3, and by 0.8 about one image of twenty, which it leaves to the comparator that it has inside. All
ways encode each image once; the references are encoded beforehand by all, as they are kept. Comparing all pairs takes
N (N - 1) / 2 comparisons in both orders; where these are more than 2,000, the time of so many is continued. The last
line is JSON: milliseconds and comparisons per image, how many times faster the scorer is, and Pearson's correlation.
"""

import json
import sys
import time
from pathlib import Path

import torch

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from models import io
from models.images.comparator.interface import AT_ONCE
from models.images.ranking import Davidson

REFERENCES, VALIDATION, LEFT, MOST, REPEATS = 100, 100, 0.05, 2_000, 3
ERROR, SCORER_ERROR, UNSURE_ERROR = 0.25, 0.3, 0.8
TRUTH = Davidson(6.0, 1.0)
UNIT = 0.1
QUESTION = {"references": REFERENCES, "theta": round(1 / UNIT), "unit": UNIT}
KINDS = {"siamese": ("comparator", {"kind": "siamese"}), "vlm": ("vlm_comparator", {})}
STEP = 20  # grey levels for a score of 1
EVEN = 3**0.5  # an even distribution from -EVEN to EVEN has unit deviation


def pictures(count, seed):
    """Images (count, 1, 32, 32) uint8, and the scores (count,) that are planted in them."""
    generator = torch.Generator().manual_seed(seed)
    scores = 9 * torch.rand(count, generator=generator)
    images = STEP * scores[:, None, None, None] + 40 * torch.rand(count, 1, 32, 32, generator=generator)
    images[:, 0, 0] = 255 * torch.rand(count, 32, generator=generator)  # from which errors are drawn
    return images.round().byte(), scores.double()


def drawn(images, column):
    """Values (U,), even between 0 and 1, which differ by image and column."""
    return images[:, 0, 0, column].double() / 255


def planted(images):
    """Scores (U,) of images, without an error."""
    return (images[:, 0, 1:].double().mean((1, 2)) - 20) / STEP


class Counted:
    """A comparator whose logits are those of planted scores, though it computes its own."""

    def __init__(self, model):
        self.model, self.encode, self.compare, self.comparisons = model, model.encode, model.compare_encoded, 0
        model.encode, model.compare_encoded = self.with_score, self.planted_logits

    def with_score(self, images):
        """Encodings with one more number each, the score that the comparator sees."""
        encoded = self.encode(images)
        seen = planted(images) + ERROR * EVEN * (2 * drawn(images, 0) - 1)
        return torch.cat(
            [encoded, seen.to(encoded).view(-1, *[1] * (encoded.ndim - 1)).expand(*encoded.shape[:-1], 1)], -1
        )

    def planted_logits(self, encoded, first, second):
        """Logits (P, 3) of Davidson's model of the scores that were seen."""
        self.comparisons += len(first)
        self.compare(encoded[..., :-1], first, second)
        seen = encoded[..., -1].reshape(len(encoded), -1)[:, 0].double()
        return TRUTH.probabilities(seen[first] - seen[second]).log()


def made(kind):
    """A comparator that was counted on known scores, and a scorer that has it inside."""
    torch.manual_seed(0)
    family, config = KINDS[kind]
    described = {"family": family, "config": QUESTION | config}
    scorer = io.module_of("comparator").build({"kind": "scorer", "teacher": described}).eval()
    teacher = scorer.teacher
    references, known = pictures(REFERENCES, 1)
    teacher.reference_images.copy_(references)
    teacher.reference_scores.copy_((known / UNIT).round())
    for model in (teacher, scorer):
        model.prior.copy_(torch.linspace(0, 9, len(model.prior)))
    counted = Counted(teacher)
    teacher.fit_scale()
    unseen, levels = pictures(VALIDATION, 2)
    teacher.rely(teacher.encode_all(unseen), levels)
    scorer.fit_scale()
    encode = scorer.encode

    def told(images):
        encode(images)
        unsure = drawn(images, 1) < LEFT
        error = torch.where(unsure, UNSURE_ERROR, SCORER_ERROR)
        centre, spread = scorer.standard
        found = planted(images) + error * EVEN * (2 * drawn(images, 2) - 1)
        return torch.stack([(found - centre) / spread, (error / spread).log()], 1)

    scorer.encode = told
    scorer.widest.fill_((UNSURE_ERROR + SCORER_ERROR) / 2)
    return scorer, counted


def seconds(work):
    """Least CPU time of a few calls, and what the last one returns."""
    found = []
    for _ in range(REPEATS):
        began = time.process_time()
        result = work()
        found.append(time.process_time() - began)
    return min(found), result


@torch.no_grad()
def all_pairs(model, images):
    """CPU seconds of comparing all pairs of images."""
    encoding, encoded = seconds(lambda: model.encode_all(images))
    first, second = torch.triu_indices(len(images), len(images), 1)
    some = torch.randperm(len(first))[:MOST]
    parts = list(zip(first[some].split(AT_ONCE), second[some].split(AT_ONCE), strict=True))
    heads, _ = seconds(lambda: [model.both_orders(encoded, *part) for part in parts])
    return encoding + heads * len(first) / len(some)


def pearson(found, known):
    return float(torch.corrcoef(torch.stack([found, known]))[0, 1])


def timed(scorer, counted, count):
    """Milliseconds and comparisons per image of each way, and how many times faster the scorer is."""
    images, known = pictures(count, 3)
    teacher, found, row = scorer.teacher, {}, {}
    ways = {"scorer alone": scorer.place, "scorer": scorer.score, "references": teacher.score}
    for name, way in ways.items():
        counted.comparisons = 0
        found[name], (scores, _) = seconds(lambda way=way: way(images))
        row[f"{name}, comparisons per image"] = counted.comparisons / REPEATS / count
        row[f"{name}, Pearson"] = pearson(scores, known)
    found["all pairs"] = all_pairs(teacher, images)
    row |= {f"{name}, ms per image": 1000 * each / count for name, each in found.items()}
    return row | {f"faster than {name}": found[name] / found["scorer"] for name in ("references", "all pairs")}


def main(*counts):
    torch.set_num_threads(1)
    told = {}
    for kind in KINDS:
        scorer, counted = made(kind)
        for count in counts or (100, 1000):
            row = told[f"{kind}, {count} images"] = timed(scorer, counted, count)
            print(kind, count, {name: round(value, 4) for name, value in row.items()}, flush=True)
        encoding, _ = seconds(lambda model=scorer.teacher: model.encode_all(model.reference_images))
        told[f"{kind}, references once"] = 1000 * encoding
    print(json.dumps(told))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
