"""The comparator of a config: its question and references, and refusals of sizes and bases that do not fit."""

import dataclasses

import pytest
import torch

from common.errors import UserError
from models import io
from pipelines.workloads.lmol.model import make_model, scorer_for
from tests.workloads.lmol.small import config, make


def test_the_model_knows_the_question_and_the_references(whole):
    subject = whole["siamese"]
    found, comparisons = subject.model.config, subject.comparisons
    assert (found.attribute, found.theta, found.unit) == (comparisons.attribute, comparisons.theta, comparisons.unit)
    assert found.references == len(comparisons.references) > 1
    assert torch.equal(subject.model.reference_scores, torch.from_numpy(comparisons.scores[comparisons.references]))
    k = comparisons.references[3]
    assert torch.equal(subject.model.reference_images[3], torch.from_numpy(comparisons.images[k]).movedim(-1, 0))


def test_a_scorer_begins_with_its_teachers_encoder_where_that_fits(whole, tmp_path):
    subject = whole["siamese"]
    io.save(subject.model, tmp_path)
    same, other = (config("scorer", width=width) for width in (16, 24))
    begun = scorer_for(same, subject.comparisons, str(tmp_path)).encoder.state_dict()
    for name, tensor in subject.model.encoder.state_dict().items():
        assert torch.equal(begun[name], tensor)
    wider = scorer_for(other, subject.comparisons, str(tmp_path))  # of a shape of its own
    assert wider.teacher is not None
    assert wider.head.in_features == 24


def test_a_base_that_has_seen_images_which_test_it_is_refused(whole, tmp_path):
    subject = whole["siamese"]
    io.save(subject.model, tmp_path)
    kept = subject.comparisons
    made = make_model(config("scorer", base=str(tmp_path)), kept)
    assert made.teacher is not None
    other = dataclasses.replace(kept, parts={**kept.parts, "test": kept.parts["train"]})
    with pytest.raises(UserError, match="an image of the test part here; train it on the same data section"):
        make_model(config("scorer", base=str(tmp_path)), other)


@pytest.mark.slow
def test_a_base_that_is_not_there_is_the_users_to_mend(prepared, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"^model: base 'no/where' is not a complete folder"):
        make(prepared, base="no/where")


def test_a_base_that_can_be_no_name_on_the_hub_is_refused_without_asking_for_it(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network was asked"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"model.base=nobase: .*; give the folder of a model, such as runs/lmol/NAME"):
        make(prepared, "scorer", base="nobase")
    for name in ("first", "other"):
        (tmp_path / "runs/lmol" / name / "model/best").mkdir(parents=True)
        (tmp_path / "runs/lmol" / name / "config.yaml").touch()
    for given in ("frist", "runs/lmol/frist/model/best"):
        with pytest.raises(UserError, match=r"did you mean model.base=runs/lmol/first/model/best( or .*)?\?$"):
            make(prepared, "scorer", base=given)
    with pytest.raises(UserError, match=r"there is no such folder, .*; did you mean model.base=efficientnet-lite0\?$"):
        make(prepared, base="efficientnet")


def test_sizes_that_do_not_fit_the_images_are_refused(prepared):
    with pytest.raises(UserError, match="size 32 cannot be halved 6 times"):
        make(prepared, layers=6)
