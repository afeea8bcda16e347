"""Votes on pairs move a model's ranking, narrow its intervals and say which pair tells most."""

import numpy as np
import pytest

from models.images.inputs import ImagesInput
from models.images.people.preferences import Prior
from models.images.people.raters import by_votes, fitted, ranked
from tests.models.images.comparator.small import make

KNOWN = np.random.default_rng(0).permutation(8) / 2.0
SCORES = (KNOWN + np.random.default_rng(1).normal(0, 2, 8)).tolist()  # as a model that is unsure has them
ERRORS = [2.0] * 8


def ranks(found):
    order = np.empty(len(KNOWN))
    order[[row["image"] for row in found["ranking"]]] = range(len(KNOWN), 0, -1)
    return np.corrcoef(order, KNOWN)[0, 1]


@pytest.mark.slow
def test_the_ranking_settles_as_the_pairs_that_tell_most_are_voted_on():
    votes, widths, agreement = [], [], []
    for _ in range(14):
        found = by_votes(ImagesInput(scores=SCORES, errors=ERRORS, votes=votes))
        widths.append(
            np.mean([row["high"] - row["low"] for row in found["ranking"]])
            / np.ptp([row["score"] for row in found["ranking"]])
        )
        agreement.append(ranks(found))
        first, second = found["next"]
        assert not any({first, second} == {*vote[:2]} for vote in votes)
        votes.append((first, second, "First" if KNOWN[first] > KNOWN[second] else "Second"))
    assert agreement[0] == pytest.approx(np.corrcoef(np.argsort(np.argsort(SCORES)), KNOWN)[0, 1])  # the model's own
    assert agreement[-1] > agreement[0] + 0.1
    assert widths[-1] < 0.8 * widths[0]


def test_after_all_pairs_there_is_none_to_vote_on():
    assert by_votes(ImagesInput(scores=[1.0, 2.0], errors=[0.5, 0.5], votes=[(0, 1, "Second")]))["next"] is None


def test_intervals_by_votes_are_of_95_percent():
    votes = [(0, 1, "Second"), (2, 3, "First"), (2, 0, "Similar")]
    found = by_votes(ImagesInput(scores=SCORES, errors=ERRORS, votes=votes))
    answers = np.array([[0, 1, 1], [2, 3, 0], [2, 0, 2]])
    likely = fitted(answers, Prior(np.array(SCORES), np.array(ERRORS)))
    posterior, _ = ranked(answers, likely)
    for row in found["ranking"]:
        reach = 1.96 * posterior.errors[row["image"]]
        assert [row["score"] - row["low"], row["high"] - row["score"]] == pytest.approx([reach, reach], rel=1e-4)


def test_a_comparator_answers_votes_as_an_input_of_its_own_beside_others():
    model = make(references=2)
    given = {"scores": SCORES, "errors": ERRORS, "votes": [[0, 1, "Second"], [3, 2, "Similar"]]}
    (found,) = model.predict([given])
    assert {row["image"] for row in found["ranking"]} == set(range(8))
    assert found["ranking"][0]["low"] < found["ranking"][0]["score"] < found["ranking"][0]["high"]
    assert len(found["next"]) == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scores": [1, 2], "errors": [1], "votes": []}, "2 scores and 1 errors"),
        ({"scores": [1, 2], "errors": [1, 1], "votes": [[0, 2, "First"]]}, "images 0 and 2; give two from 0 to 1"),
        ({"scores": [1, 2], "errors": [1, 1], "votes": [[1, 1, "First"]]}, "images 1 and 1"),
        ({"scores": [3, 3], "errors": [1e-200, 1e-200]}, "greater than"),  # of which nothing can be computed
        ({"scores": [1e308, -1e308], "errors": [1, 1]}, "less than"),
        ({"images": ["a.png"], "votes": [[0, 1, "First"]]}, "0 scores"),
        (
            {"images": ["a.png"], "scores": [1, 2], "errors": [1, 1]},
            "give images, which are ranked, or first and second",
        ),
    ],
)
def test_votes_that_fit_no_scores_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        ImagesInput.model_validate(given)
