"""A training step that goes wrong on a device."""

import torch

from pipelines.checks import pytorch


def test_a_step_that_leaves_the_weights_is_a_problem(monkeypatch):
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: None)
    monkeypatch.setattr(pytorch, "devices", lambda: [torch.device("cpu")])
    [finding] = pytorch.check_training_step()
    assert finding.level == "problem"
    assert "left weights unchanged" in finding.message


def test_a_device_that_fails_is_a_problem_with_the_reason(monkeypatch):
    def fails(_):
        raise RuntimeError("no kernel image is available\nCompile with ...")

    monkeypatch.setattr(pytorch, "training_step", fails)
    monkeypatch.setattr(pytorch, "devices", lambda: [torch.device("mps")])
    [finding] = pytorch.check_training_step()
    assert finding.message == "mps: a training step failed: no kernel image is available"
