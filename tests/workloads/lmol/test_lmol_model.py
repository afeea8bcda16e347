"""The comparator of a config: its question and references, and refusals of sizes and bases that do not fit."""

import dataclasses

import pytest
import torch

from common.errors import UserError
from models import io
from pipelines.workloads.lmol.model import check_unseen
from tests.workloads.lmol.small import make


def test_the_model_knows_the_question_and_the_references(whole):
    subject = whole["siamese"]
    found, comparisons = subject.model.config, subject.comparisons
    assert (found.attribute, found.theta, found.unit) == (comparisons.attribute, comparisons.theta, comparisons.unit)
    assert found.references == len(comparisons.references) > 1
    assert torch.equal(subject.model.reference_scores, torch.from_numpy(comparisons.scores[comparisons.references]))
    k = comparisons.references[3]
    assert torch.equal(subject.model.reference_images[3], torch.from_numpy(comparisons.images[k]).movedim(-1, 0))


def test_a_base_that_has_seen_images_which_test_it_is_refused(whole, tmp_path):
    subject = whole["siamese"]
    io.save(subject.model, tmp_path)
    kept = subject.comparisons
    check_unseen(str(tmp_path), kept)
    other = dataclasses.replace(kept, parts={**kept.parts, "test": kept.parts["train"]})
    with pytest.raises(UserError, match="an image of the test part here; train it on the same data section"):
        check_unseen(str(tmp_path), other)


@pytest.mark.slow
def test_a_base_that_is_not_there_is_the_users_to_mend(prepared, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"^model: base 'no/where' is not a complete folder"):
        make(prepared, base="no/where")


def test_a_base_that_can_be_no_name_on_the_hub_is_refused_without_asking_for_it(prepared, tmp_path, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network was asked"))
    monkeypatch.chdir(tmp_path)
    adapted = {"lora": True, "width": None, "layers": None, "heads": None}
    with pytest.raises(UserError, match=r"model.base=nobase: .*; give the folder of a model, such as runs/lmol/NAME"):
        make(prepared, "vlm", base="nobase", **adapted)
    for name in ("first", "other"):
        (tmp_path / "runs/lmol" / name / "model/best").mkdir(parents=True)
        (tmp_path / "runs/lmol" / name / "config.yaml").touch()
    for given in ("frist", "runs/lmol/frist/model/best"):
        with pytest.raises(UserError, match=r"did you mean model.base=runs/lmol/first/model/best( or .*)?\?$"):
            make(prepared, "vlm", base=given, **adapted)
    with pytest.raises(UserError, match=r"there is no such folder, .*; did you mean model.base=efficientnet-lite0\?$"):
        make(prepared, base="efficientnet")


def test_sizes_that_do_not_fit_the_images_are_refused(prepared):
    with pytest.raises(UserError, match="size 16 cannot be halved 6 times"):
        make(prepared, layers=6)
