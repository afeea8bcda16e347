"""Train the weights of pipelines/workloads/bep/documents/tagger.py on the made plans.

    python -m tests.workloads.bep.documents.tagging                 # writes tagger.safetensors; half a minute
    python -m tests.workloads.bep.documents.tagging FILE [FILE...]  # without these, and counts what is masked in them

What stands beside a file's name is how much of it is found by rules and by weights that did not see the file.
"""

import random
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from pipelines.workloads.bep.documents import cleaning, tagger
from tests.workloads.bep.documents import made_plans

PARTS = ("all", "coin", "unseen", "apart", "others", "judge", *made_plans.FIRMS)
FEWEST = 3  # places of a feature that gets a weight
EPOCHS, RATE, BATCH = 10, 0.05, 32
SHORTEST = 12  # words of a piece, which ends at the end of a line
LEAST = 0.1  # the greatest weight of a feature that is kept
CORPUS = Path(tagger.__file__).parents[1] / "corpus"
KIND_OF = {"person": "name", "user": "name"}


def pieces(plan: made_plans.Plan) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (features, kinds) of some lines each."""
    kinds, numbers = [*tagger.TAGS], tagger.features(plan.text)
    marked, lines = np.zeros(len(plan.text), np.int64), plan.text.split("\n")
    starts = np.cumsum([0, *(len(line) + 1 for line in lines)])
    ends: dict[int, int] = {}
    for label in plan.labels:
        if (at := lines[label.line].find(label.text, ends.get(label.line, 0))) >= 0 and label.kind != "email":
            ends[label.line] = at + len(label.text)
            begin = starts[label.line] + at
            marked[begin : begin + len(label.text)] = kinds.index(KIND_OF.get(label.kind, label.kind))
    places, rows = numbers
    targets = np.array([marked[begin] for begin, _ in places])
    cuts = [0]
    for at, (begin, _) in enumerate(places, 1):
        if (plan.text[begin] == "\n" and at - cuts[-1] >= SHORTEST) or at == len(places):
            cuts.append(at)
    return [(rows[a:b], targets[a:b]) for a, b in pairwise(cuts)]


def embedded() -> Iterator[made_plans.Plan]:
    """Yield the embedded plans, which are mostly prose, marked by what rules alone find in them."""
    for path in sorted(CORPUS.glob("*.md")):
        text = cleaning.clean(path.read_text(encoding="utf-8"), mask=False).text
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cleaning, "tagged", lambda said: bytes(len(said)))
            found = cleaning.clean(text, mask=True, names=True).masked
        labels = [made_plans.Label(it.line - 1, it.kind, it.text) for it in found]
        yield made_plans.Plan(path.stem, text, [it for it in labels if KIND_OF.get(it.kind, it.kind) in tagger.TAGS])


def fitted(plans: list[made_plans.Plan], epochs: int = EPOCHS) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of features and of kinds behind another: most likely for the marks, by Adagrad."""
    data = [piece for plan in plans for piece in pieces(plan)]
    counts = np.bincount(np.concatenate([rows.ravel() for rows, _ in data]), minlength=1 << tagger.BITS)
    used = np.flatnonzero(counts >= FEWEST)
    row_of = np.zeros(1 << tagger.BITS, np.int64)  # 0 for features without a weight
    row_of[used] = np.arange(1, len(used) + 1)
    examples = [(torch.from_numpy(row_of[rows]), torch.from_numpy(kinds)) for rows, kinds in data]
    size = len(tagger.TAGS)
    table = torch.zeros(len(used) + 1, size, requires_grad=True)
    following = torch.zeros(size, size, requires_grad=True)
    descent = torch.optim.Adagrad([table, following], lr=RATE)
    generator = random.Random(0)
    for _ in range(epochs):
        generator.shuffle(examples)
        batches = [
            sorted(examples[at : at + 16 * BATCH], key=lambda it: len(it[1]))
            for at in range(0, len(examples), 16 * BATCH)
        ]
        for batch in (some[at : at + BATCH] for some in batches for at in range(0, len(some), BATCH)):
            loss = unlikelihood(table, following, batch) / BATCH
            descent.zero_grad()
            loss.backward()
            descent.step()
    weights = np.zeros((1 << tagger.BITS, size), np.float32)
    weights[used] = table.detach().numpy()[1:]
    return weights, following.detach().numpy()


def unlikelihood(table: torch.Tensor, following: torch.Tensor, batch: list) -> torch.Tensor:
    """Return the sum over pieces of -log p(kinds | words)."""
    lengths = [len(kinds) for _, kinds in batch]
    scores = functional.embedding_bag(torch.cat([rows for rows, _ in batch]), table, mode="sum", padding_idx=0)
    scores = pad_sequence(scores.split(lengths), batch_first=True)
    kinds = pad_sequence([kinds for _, kinds in batch], batch_first=True)
    there = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    marked = (scores.gather(2, kinds[..., None])[..., 0] * there).sum()
    marked = marked + (following[kinds[:, :-1], kinds[:, 1:]] * there[:, 1:]).sum()
    total = scores[:, 0]
    for at in range(1, max(lengths)):
        further = torch.logsumexp(total[:, :, None] + following, 1) + scores[:, at]
        total = torch.where(there[:, at, None], further, total)
    return torch.logsumexp(total, 1).sum() - marked


def packed(table: np.ndarray, following: np.ndarray) -> dict[str, np.ndarray]:
    """Return what the file holds: the weights that matter, in eight bits."""
    kept = np.flatnonzero(np.abs(table).max(1) > LEAST)
    scale = np.abs(table).max() / 127
    return {
        "features": kept.astype(np.int32),
        "weights": np.round(table[kept] / scale).astype(np.int8),
        "scale": np.array([scale], np.float32),
        "following": following.astype(np.float32),
    }


if __name__ == "__main__":
    held = sys.argv[1:]
    seen = [plan for part in PARTS if part not in {*held, *made_plans.COUNTED} for plan in made_plans.plans(part)]
    weights = packed(*fitted([*seen, *embedded()]))
    if not held:
        save_file(weights, Path(tagger.__file__).with_suffix(".safetensors"))
    tagger.weights = lambda: tagger.unpacked(weights)
    for part in held or ["counted"]:
        for kind, (precision, recall, count) in made_plans.measured(part)[0].items():
            print(f"{part:22} {kind:10} precision {precision:6.1%}  recall {recall:6.1%}  of {count}")
