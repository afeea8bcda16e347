"""Data sets of preferences alone: the part that each answer belongs to, and scores fitted to the answers."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from common.errors import UserError
from pipelines.workloads.lmol.config import Data
from pipelines.workloads.lmol.pairs import PARTS
from pipelines.workloads.lmol.people.preferences import UNKNOWN, Prior
from pipelines.workloads.lmol.people.raters import fitted
from pipelines.workloads.lmol.sources.image_set import ImageSet

Parts = Mapping[str, np.ndarray]


def preferred(
    found: ImageSet, parts: Parts, data: Data
) -> tuple[ImageSet, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the images with scores, the images of each part, and its pairs (P, 3), labelled as people did.

    An answer belongs to the last part that one of its images is in: of a test pair at least one image was not trained
    on. The scores of training images are fitted to the training answers alone, those of the others to all answers.
    Training images about which there are only answers of other parts are left out.

    Raises UserError for a part without answers.
    """
    assert found.labels is not None, "preferences are labels"
    part = np.empty(len(found.scores), np.int64)
    for number, name in enumerate(PARTS):
        part[parts[name]] = number
    of_answer = part[found.labels[:, :2]].max(axis=1)
    answers = {name: found.labels[of_answer == number] for number, name in enumerate(PARTS)}
    few = next((name for name in PARTS if not len(answers[name])), None)
    if few:
        raise UserError(
            f"data.source={data.source}: none of the {len(found.labels)} answers falls to the {few} part; give more "
            f"answers, or a smaller data.folds={data.folds}"
        )
    compared = np.unique(answers["train"][:, :2])
    who = np.full(len(found.labels), "") if found.raters is None else found.raters
    blank = Prior(np.zeros(len(part)), np.full(len(part), UNKNOWN))
    heard = fitted(answers["train"], blank, who[of_answer == 0].tolist())
    trained = heard.posterior(answers["train"])
    whole = fitted(found.labels, blank, who.tolist()).posterior(found.labels)
    scores = whole.scores + (trained.scores - whole.scores)[compared].mean()
    scores[compared] = trained.scores[compared]
    unit = float(found.unit)
    kept = {**parts, "train": compared}
    generator = np.random.default_rng([data.seed, 1])
    for name in ("validation", "test"):
        answers[name] = generator.permutation(answers[name])[: data.evaluation_pairs]
    made = replace(
        found,
        scores=np.rint(scores / unit).astype(np.int64),
        # Where the difference of two scores is less, Similar is the likeliest answer.
        theta=round(max(0.0, 2 * trained.tie) / unit),
        facts={
            **found.facts,
            "answers": {name: len(rows) for name, rows in answers.items()},
            "raters": heard.raters.table() if heard.raters else [],
        },
        trust=heard.raters.factor[heard.raters.of].clip(0, 1) if heard.raters else None,
    )
    return made, kept, answers
