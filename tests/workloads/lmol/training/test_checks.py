"""The checks before the first step: faults that trial steps find, and a model left unchanged."""

import pytest
import torch
from torch import nn

from common.errors import UserError
from pipelines.workloads.lmol.training import checks
from tests import towers
from tests.workloads.lmol.small import make


def trial(task):
    return checks.check_trains(task.model, task.train, task.loss)


@pytest.mark.parametrize("kind", ["siamese", "scorer"])
def test_the_gate_leaves_the_model_and_the_random_state_as_they_were(whole, kind):
    subject = whole[kind]
    subject.model.train()
    state = {name: tensor.clone() for name, tensor in subject.model.state_dict().items()}
    random = torch.random.get_rng_state()
    count = sum(parameter.requires_grad for parameter in subject.model.parameters())
    assert trial(subject).startswith(f"trial steps: all {count} parameter tensors learn and are saved")
    assert torch.equal(random, torch.random.get_rng_state())
    assert subject.model.training
    assert all(parameter.grad is None for parameter in subject.model.parameters())
    for name, tensor in subject.model.state_dict().items():
        assert torch.equal(tensor, state[name])


def test_the_gate_names_a_part_that_no_gradient_reaches(prepared):
    subject = make(prepared)
    encoder = subject.model.encoder
    subject.model.encoder = Detached(encoder)
    with pytest.raises(UserError, match=r"^encoder\.inside\.0\.weight, .*, \.\.\.: 10 of 16 parameters .* no gradient"):
        trial(subject)
    assert all(parameter.grad is None for parameter in subject.model.parameters())


class Detached(nn.Module):
    """A module whose output is right but passes no gradient back."""

    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return self.inside(x).detach()


def test_the_gate_names_a_part_that_is_never_called(prepared):
    subject = make(prepared)
    subject.model.projector = nn.Linear(4, 4)
    with pytest.raises(UserError, match=r"^projector\.weight, projector\.bias: 2 of 18 parameters"):
        trial(subject)


def test_the_gate_names_what_would_not_be_saved(prepared):
    subject = make(prepared)

    def leave_out(module, state, prefix, metadata):
        del state["similar"]

    subject.model.register_state_dict_post_hook(leave_out)
    with pytest.raises(UserError, match=r"^similar would train but not be saved"):
        trial(subject)


def test_the_gate_notices_that_a_saved_model_is_another_one(prepared):
    subject = make(prepared)
    subject.model.encoder[1].eps = 0.1  # stored in no file
    with pytest.raises(UserError, match=r"the model's logits differ by"):
        trial(subject)


@pytest.mark.slow
def test_the_gate_names_a_projector_that_is_detached(prepared):
    subject = make(prepared, "vlm", lora=True)
    inner = subject.model.base.model
    inner.multi_modal_projector = Detached(inner.multi_modal_projector)
    with pytest.raises(UserError, match=r"multi_modal_projector.*: 4 of \d+ parameters .* get no gradient"):
        trial(subject)


@pytest.mark.slow
def test_the_gate_notices_that_a_tower_is_not_its_bases(prepared, tmp_path):
    subject = make(prepared, base=towers.save_tower("siglip", tmp_path / "base"))
    assert subject.train.encoded.shape[1] == sum(subject.model.regressions.sizes) == 18 * 16 + 44 + 64
    assert subject.model.levels.tolist() == list(range(10))
    assert "features of" in subject.notes[1]
    subject.model.tower.network.encoder.layers[0].mlp.fc2.bias.add_(1)  # stored nowhere
    with pytest.raises(UserError, match=r"the model's logits differ by .* or the base is not restored"):
        trial(subject)
