"""Rankings by people's answers: the posterior that is shown, and one of scores, votes and the next pair to vote on."""

import numpy as np

from common.plain import Plain
from common.statistics import Z95
from models.images.inputs import ImagesInput
from models.images.people.many import MOST_DENSE
from models.images.people.preferences import Posterior, Prior, next_pairs
from models.images.people.propagation import averaged
from models.images.people.raters import Fitted, fitted


def ranked(answers: np.ndarray, found: Fitted) -> tuple[Posterior, list[str]]:
    """Return the scores to show given answers (P, 3), with calibrated errors where these can be had, else why not."""
    said = f"over {MOST_DENSE:,} images: scores and intervals are Laplace's approximation, by sparse matrices"
    if len(found.priors[0].mean) <= MOST_DENSE:
        try:
            return averaged(answers, found.priors, found.beforehand, found.heard), []
        except ArithmeticError as error:
            said = f"{error}; scores and intervals are Laplace's approximation, and intervals may be too narrow"
    return found.posterior(answers), [said]


def by_votes(given: ImagesInput) -> dict[str, Plain]:
    """Return a ranking of images whose scores are known up to errors, by votes, and the pair to vote on next.

    Scores are about 0, in the logits of answers.
    """
    votes = [(one, other, ("First", "Second", "Similar").index(said)) for one, other, said in given.votes]
    answers = np.array(votes, np.int64).reshape(-1, 3)
    found = fitted(answers, Prior(np.array(given.scores), np.array(given.errors)))
    posterior, notes = ranked(answers, found)
    middle, reach = posterior.scores - posterior.scores.mean(), Z95 * posterior.errors
    ends = np.stack([middle, middle - reach, middle + reach], 1).tolist()
    rows: list[Plain] = [
        {"image": int(i), **dict(zip(("score", "low", "high"), ends[i], strict=True))}
        for i in np.argsort(-middle, kind="stable")
    ]
    pairs = next_pairs(found.posterior(answers), 1, answers, seed=len(answers))
    return {"ranking": rows, "next": pairs[0].tolist() if len(pairs) else None, **({"notes": notes} if notes else {})}
