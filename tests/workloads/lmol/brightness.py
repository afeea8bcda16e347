"""Images scored by brightness, a comparator that sees it, and a `map_items` of a single process."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from models.images.comparator.config import Question
from models.images.comparator.interface import Comparator
from models.images.ranking import Davidson
from pipelines.engine.config import Training
from pipelines.workloads.lmol.data import Comparisons, Images
from pipelines.workloads.lmol.model import prior
from pipelines.workloads.lmol.pairs import label

CONFIG = SimpleNamespace(
    seed=0,
    data=SimpleNamespace(workers=0, fold=0, folds=5, fit="crop", attributes=()),
    model=SimpleNamespace(kind="brightness", tune=None, width=None, layers=None, heads=None),
    training=Training(steps=30, batch_size=32, learning_rate=4e-3),
    evaluation=SimpleNamespace(comparisons=16, network_steps=None),
    frozen=False,
    fine=False,
    shift=0,
)
PARTS = {"train": 90, "validation": 40, "test": 60}


def comparisons(theta=1, levels=10, families=("any",), pairs=300):
    """Even 8 x 8 images with a little noise; score k has brightness 20 (k + 1)."""
    generator = np.random.default_rng(0)
    count = sum(PARTS.values())
    scores = np.arange(count) * 7 % levels
    images = 20 * (scores + 1)[:, None, None, None] + generator.integers(-5, 6, (count, 8, 8, 1))
    parts = dict(zip(PARTS, np.split(np.arange(count), np.cumsum(list(PARTS.values()))[:-1]), strict=True))
    return Comparisons(
        images=images.astype(np.uint8),
        scores=scores,
        unit=0.5,
        groups=[str(i) for i in range(count)],
        names=[f"<image {i}>" for i in range(count)],
        families=[families[i % len(families)] for i in range(count)],
        parts=parts,
        pairs={name: labelled(scores, part, theta, pairs, generator) for name, part in parts.items()},
        theta=theta,
        attribute="brightness",
        references=parts["train"][:30],
        facts={},
    )


def labelled(scores, part, theta, count, generator):
    """Pairs of different images of the part, with their labels, (P, 3)."""
    first, second = generator.choice(part, (2, 2 * count))
    first, second = first[first != second][:count], second[first != second][:count]
    return np.stack([first, second, label(scores[first], scores[second], theta)], axis=1)


class Brightness(Comparator):
    """Comparator that reads the score off the mean brightness and answers by Davidson's model.

    `error` scales the error of the scores it reads; `lean` is added to the logit of First of every pair.
    """

    def __init__(self, discrimination=12.0, tie=4.5, error=0.0, lean=0.0):
        super().__init__(Question(size=8, references=30, unit=0.5))
        self.davidson, self.error, self.lean = Davidson(discrimination, tie), error, lean
        self.encoded = []

    def encode(self, images):
        self.encoded.append(len(images))
        seen = images.float().mean((1, 2, 3)) / 20 - 1
        # The error is a function of the image, so it is the same in every comparison.
        return (seen + self.error * torch.sin(1000 * seen))[:, None] * 0.5

    @torch.no_grad()
    def fitted_to(self, found):
        """This comparator with the references, the scale and the reliability of prepared data."""
        shown = Images(found.images, found.references)[torch.arange(30)]
        self.config = replace(self.config, channels=shown.shape[1], theta=found.theta)
        self.reference_images = shown
        self.reference_scores.copy_(torch.from_numpy(found.scores[found.references]))
        self.prior.copy_(prior(found))
        self.fit_scale(16)
        unseen = found.parts["validation"]
        images = Images(found.images, unseen)[torch.arange(len(unseen))]
        self.rely(self.encode_all(images), torch.from_numpy(found.scores[unseen] * found.unit), 16)
        self.encoded.clear()
        return self

    def compare_encoded(self, encoded, first, second):
        logits = self.davidson.probabilities((encoded[first] - encoded[second])[:, 0]).log()
        return logits + torch.tensor([self.lean, 0.0, 0.0])


@torch.no_grad()
def map_items(source, function, batch_size=64):
    """Map the source's items as the engine does in a single process."""
    batches = [function(source.batch(items)) for items in torch.arange(source.size).split(batch_size)]
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}


def one_hot(labels):
    """Answers (P,) as probabilities (P, 3)."""
    return np.eye(3)[labels]
