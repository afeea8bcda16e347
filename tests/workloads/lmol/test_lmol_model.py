"""The comparator of a config: its question and references, and refusals of sizes and bases that do not fit."""

import pytest
import torch

from common.errors import UserError
from tests.workloads.lmol.small import make


def test_the_model_knows_the_question_and_the_references(whole):
    subject = whole["siamese"]
    found, comparisons = subject.model.config, subject.comparisons
    assert (found.attribute, found.theta, found.unit) == (comparisons.attribute, comparisons.theta, comparisons.unit)
    assert found.references == len(comparisons.references) > 1
    assert torch.equal(subject.model.reference_scores, torch.from_numpy(comparisons.scores[comparisons.references]))
    k = comparisons.references[3]
    assert torch.equal(subject.model.reference_images[3], torch.from_numpy(comparisons.images[k]).movedim(-1, 0))


@pytest.mark.slow
def test_a_base_that_is_not_there_is_the_users_to_mend(prepared, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"^model: base 'no/where' is not a complete folder"):
        make(prepared, "cross", base="no/where")


def test_sizes_that_do_not_fit_the_images_are_refused(prepared):
    with pytest.raises(UserError, match="size 32 cannot be halved 6 times"):
        make(prepared, layers=6)
    with pytest.raises(UserError, match="width 16 is not a multiple of heads 3"):
        make(prepared, "cross", heads=3)
