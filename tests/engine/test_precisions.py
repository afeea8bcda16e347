"""Every optimizer in every precision makes the update that float64 makes, up to rounding; fp16 has one scaler."""

import json
import os
from types import SimpleNamespace

import pytest
import torch

from pipelines.engine.stepping import LackOfMemoryError, NotFiniteError, Stepper
from tests import forked
from tests.engine.precisions import CASES, ROUNDING, distances, updater_of
from tests.stages import ROOT

WEIGHT = {"adamw": 2e-6, "sgd": 2e-6, "muon": 5e-4}  # Muon orthogonalises in bfloat16


def check(case, gradient, weight):
    assert gradient < ROUNDING[case[1]], case
    assert weight < WEIGHT[case[0]], case


def parameter(case):
    """A case as a test's parameter; accumulation with clipping stands for the others in a fast run."""
    marks = () if case[2:] == (4, 0.1) else pytest.mark.slow
    return pytest.param(case, id="-".join(map(str, case)), marks=marks)


@pytest.mark.parametrize("case", [*map(parameter, CASES)])
def test_an_update_is_that_of_float64(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(case, *distances(case))


@pytest.mark.slow
def test_an_update_of_two_processes_is_that_of_float64(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = forked.run([str(ROOT / "tests/engine/precisions.py"), "out.json"], tmp_path, environment, 2)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    for case, distance in zip(CASES, found, strict=True):
        check(case, *distance)


def weights(updater):
    return torch.cat([p.detach().flatten().clone() for p in updater.parameters])


def test_a_gradient_that_overflows_for_one_optimizer_is_a_step_of_none(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    updater = updater_of("muon", "fp16")
    bias = next(p for p in updater.parameters if p.ndim == 1)  # AdamW's; Muon's gradients are finite
    hook = bias.register_hook(lambda gradient: gradient * float("inf"))
    before, batches = weights(updater), updater.batches()
    updater.update(batches)
    assert torch.equal(weights(updater), before)
    assert updater.progress.step == 1
    assert "step 1: a gradient overflows in fp16; this update is skipped, and the loss scale is 2048" in (
        capsys.readouterr().err
    )
    hook.remove()
    updater.update(batches)
    assert (weights(updater) != before).any()
    sums = updater.sum_up()
    assert (sums["skipped"], sums["updates"]) == (1, 1)
    assert 0 < sums["grad_norm"] < float("inf")  # of the update that was made


def test_a_gradient_that_overflows_at_every_scale_ends_the_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    updater = updater_of("sgd", "fp16", scale=2.0)
    updater.parameters[0].register_hook(lambda gradient: gradient * float("inf"))
    batches = updater.batches()
    updater.update(batches)
    updater.update(batches)
    with pytest.raises(NotFiniteError, match=r"step 3: gradient norm inf is not finite at loss scale 0.5"):
        updater.update(batches)


def test_memory_that_runs_out_after_unscaling_makes_the_same_update_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calm, short = (updater_of("sgd", "fp16", clip=0.1) for _ in range(2))
    clip, calls = torch.nn.utils.clip_grad_norm_, []

    def clipped(*arguments):
        calls.append(1)
        if len(calls) == 1:
            raise torch.OutOfMemoryError("pretended")
        return clip(*arguments)

    calm.update(calm.batches())
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", clipped)
    with pytest.raises(LackOfMemoryError):
        short.update(short.batches())
    short._zero_grad()
    short.update(short.batches())
    assert torch.equal(weights(short), weights(calm))
    assert short.accelerator.scaler.get_scale() == calm.accelerator.scaler.get_scale() == 2.0**12


def fp16_stepper(scale, gradient):
    """(a parameter with this unscaled gradient, the stepper of its optimizer)"""
    parameter = torch.nn.Parameter(torch.ones(2))
    accelerator = SimpleNamespace(scaler=torch.amp.GradScaler("cpu", init_scale=scale), device=torch.device("cpu"))
    stepper = Stepper(accelerator, [SimpleNamespace(optimizer=torch.optim.SGD([parameter], lr=1.0))])
    accelerator.scaler.scale(parameter.sum() * gradient).backward()
    stepper.unscale()
    return parameter, stepper


@pytest.mark.parametrize("scale", [2.0, 1.0])
def test_a_gradient_may_overflow_down_to_a_loss_scale_of_one(scale):
    parameter, stepper = fp16_stepper(scale, float("inf"))
    assert not stepper.step(parameter.grad.norm())
    assert stepper.scaler.get_scale() == scale / 2
    assert not stepper.unscaled
    assert parameter.tolist() == [1, 1]


@pytest.mark.parametrize(("scale", "gradient"), [(0.5, float("inf")), (8.0, 1.0)])
def test_a_norm_that_no_lower_scale_would_mend_ends_the_training(scale, gradient):
    parameter, stepper = fp16_stepper(scale, gradient)
    with pytest.raises(NotFiniteError, match=f"gradient norm inf is not finite at loss scale {scale:g}"):
        stepper.step(torch.tensor(float("inf")))
    assert parameter.tolist() == [1, 1]
