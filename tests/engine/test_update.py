"""One update: its gradient is the mean over all examples, however they are cut, and what goes wrong changes nothing."""

import time
from types import SimpleNamespace

import pytest
import torch

from common import noise
from common.errors import UserError
from pipelines.engine.batches import smaller
from pipelines.engine.config import BaseConfig, Training
from pipelines.engine.optim import OPTIMIZERS
from pipelines.engine.stepping import HalfMadeError, LackOfMemoryError, NotFiniteError, Stepper
from pipelines.engine.training import make_accelerator
from pipelines.engine.update import Updater
from pipelines.run.folder import Run
from tests.engine.toy import Net, ToyTask

# An update of plain gradient descent at rate 1 takes the gradient off the weights.
TRAINING = {
    "steps": 8,
    "batch_size": 16,
    "optimizer": "sgd",
    "betas": (0.0, 0.9),
    "schedule": "constant",
    "learning_rate": 1.0,
    "weight_decay": 0.0,
    "clip_norm": None,
}


@pytest.fixture
def updater_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def make(options=None, **training):
        config = BaseConfig(training=Training(**TRAINING, **training))
        run = Run("toy", "update")
        updater = Updater(ToyTask(**options or {}), config, make_accelerator(config, run), run)
        updater.choose_micro_batch_size()
        return updater

    return make


def weights(updater):
    return [p.detach().clone() for p in updater.parameters]


def difference(updater, before):
    return [old - new for old, new in zip(before, weights(updater), strict=True)]


def gradient_by_hand(task, items):
    """The gradient of the mean squared error over the valid positions of `items`."""
    batch = task.train.batch(items)
    error = (task.model(batch["x"]) - batch["y"])[batch["valid"]]
    return torch.autograd.grad(error.square().sum() / len(error), list(task.model.parameters()))


def test_a_part_with_a_factor_on_its_rate_moves_by_that_share(updater_of, monkeypatch):
    moved = []
    for factors in ({}, {"layers.3": 0.25}):
        monkeypatch.setattr(Net, "rate_factors", factors, raising=False)
        updater = updater_of()
        before = weights(updater)
        updater.update(updater.batches())
        names = [name for name, _ in updater.model.named_parameters()]
        moved.append(dict(zip(names, difference(updater, before), strict=True)))
    for name, step in moved[0].items():
        torch.testing.assert_close(moved[1][name], step * (0.25 if "layers.3" in name else 1.0))


@pytest.mark.parametrize("micro_batch_size", [16, 8, 1])
def test_ragged_examples_are_divided_by_their_number_once(updater_of, micro_batch_size):
    updater = updater_of(micro_batch_size=micro_batch_size)
    items = updater.order.items(0)
    counts = {int(updater.task.train.batch(part)["valid"].sum()) for part in items.split(micro_batch_size)}
    assert len(counts) > 1 or micro_batch_size == 16  # so a mean of means would differ
    expected, before = gradient_by_hand(updater.task, items), weights(updater)
    began = time.perf_counter()
    updater.update(updater.batches())
    assert 0 < updater.monitor.waited < time.perf_counter() - began  # for data
    assert noise.begun()[1] is None
    torch.testing.assert_close(difference(updater, before), list(expected), rtol=1e-4, atol=1e-6)
    assert updater.figures[0]["grad_norm"] == pytest.approx(torch.cat([g.flatten() for g in expected]).norm().item())
    assert all(not p.grad.any() for p in updater.parameters if p.grad is not None)


def test_clipping_is_done_on_the_true_gradient(updater_of, monkeypatch):
    monkeypatch.setitem(TRAINING, "clip_norm", 0.01)
    updater = updater_of(micro_batch_size=4)
    expected, before = gradient_by_hand(updater.task, updater.order.items(0)), weights(updater)
    norm = torch.cat([g.flatten() for g in expected]).norm()
    updater.update(updater.batches())
    clipped = [gradient * 0.01 / norm for gradient in expected]
    torch.testing.assert_close(difference(updater, before), clipped, rtol=1e-3, atol=1e-6)
    assert updater.figures[0]["grad_norm"] == pytest.approx(norm.item(), rel=1e-5)  # that before clipping


def test_lack_of_memory_halves_the_micro_batch_and_keeps_the_gradient(updater_of, capsys):
    updater = updater_of({"out_of_memory_above": 4}, micro_batch_size=16)
    expected, before = gradient_by_hand(updater.task, updater.order.items(0)), weights(updater)
    sizes = []
    while not updater.progress.step:
        try:
            updater.update(updater.batches())
        except LackOfMemoryError as error:
            assert not any(change.any() for change in difference(updater, before))
            updater.shrink(error)
            sizes.append(updater.progress.micro_batch_size)
    assert sizes == [8, 4]
    torch.testing.assert_close(difference(updater, before), list(expected), rtol=1e-4, atol=1e-6)
    assert "out of memory with 8 examples at once; continuing with 4 (the batch stays 16)" in capsys.readouterr().err


def test_memory_that_runs_out_halfway_leaves_no_part_of_a_gradient_behind(updater_of):
    updater = updater_of(micro_batch_size=4)
    expected, before = gradient_by_hand(updater.task, updater.order.items(0)), weights(updater)
    whole = updater.task.loss

    def loss(model, batch):
        if updater.task.calls == 2:
            updater.task.calls += 1
            raise torch.OutOfMemoryError("pretended")
        return whole(model, batch)

    updater.task.loss = loss
    with pytest.raises(LackOfMemoryError) as error:
        updater.update(updater.batches())
    assert any(p.grad.any() for p in updater.parameters if p.grad is not None)
    updater.shrink(error.value)
    updater.update(updater.batches())
    torch.testing.assert_close(difference(updater, before), list(expected), rtol=1e-4, atol=1e-6)


def run_out(monkeypatch, optimizer, at, after=lambda: None):
    """Let memory run out in call `at` of the optimizer's step, after it did what `after` does."""
    step, calls = optimizer.step, []

    def short():
        calls.append(1)
        if len(calls) == at:
            optimizer.state[optimizer.param_groups[0]["params"][0]]["half"] = torch.ones(1)
            after()
            raise torch.OutOfMemoryError("pretended")
        step()

    monkeypatch.setattr(optimizer, "step", short)


def made(updater, steps=4):
    """Make updates as the loop does; return the micro-batch sizes they were made with."""
    batches, sizes = updater.batches(), []
    while updater.progress.step < steps:
        try:
            updater.update(batches)
            sizes.append(updater.progress.micro_batch_size)
        except LackOfMemoryError as error:
            updater.shrink(error)
            batches = updater.batches()
    return sizes


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("which", [0, -1])
def test_memory_that_runs_out_in_a_step_costs_no_update_and_halves_the_next_micro_batch(
    updater_of, monkeypatch, at, which
):
    for key, value in {"optimizer": "muon", "learning_rate": 0.01, "betas": (0.9, 0.99)}.items():
        monkeypatch.setitem(TRAINING, key, value)
    calm, short = (updater_of(ema=0.5) for _ in range(2))
    run_out(monkeypatch, short.optimizers[which].optimizer, at)
    assert made(calm) == [16] * 4
    assert made(short) == [16] * at + [8] * (4 - at)
    tolerance = {"rtol": 1e-2, "atol": 1e-4}  # Muon orthogonalises in bfloat16
    torch.testing.assert_close(weights(short), weights(calm), **tolerance)
    torch.testing.assert_close(short.average.values, calm.average.values, **tolerance)


def test_memory_that_runs_out_when_a_step_is_half_made_is_said_with_what_to_type(updater_of, monkeypatch):
    updater = updater_of()
    half = torch.no_grad()(lambda: updater.parameters[0].mul_(2))
    run_out(monkeypatch, updater.optimizers[0].optimizer, 1, half)
    with pytest.raises(UserError, match=r"in the optimizers' step of step 1, .* --resume training.micro_batch_size=8"):
        updater.update(updater.batches())


def test_memory_that_runs_out_in_clipping_makes_the_update_again(updater_of, monkeypatch):
    updater = updater_of(micro_batch_size=16)
    expected, before = gradient_by_hand(updater.task, updater.order.items(0)), weights(updater)
    clip, calls = torch.nn.utils.clip_grad_norm_, []

    def short(*arguments):
        calls.append(1)
        if len(calls) == 1:
            raise torch.OutOfMemoryError("pretended")
        return clip(*arguments)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", short)
    assert made(updater, 1) == [8]
    torch.testing.assert_close(difference(updater, before), list(expected), rtol=1e-4, atol=1e-6)


def test_one_example_too_large_for_the_memory_is_refused(updater_of):
    updater = updater_of({"out_of_memory_above": 0.5}, micro_batch_size=1)
    with pytest.raises(LackOfMemoryError) as error:
        updater.update(updater.batches())
    with pytest.raises(UserError, match=r"out of memory at step 1 with one example at a time"):
        updater.shrink(error.value)


def test_an_error_that_is_not_about_memory_is_not_taken_for_it(updater_of):
    updater = updater_of()
    updater.task.loss = lambda model, batch: model(batch["x"][..., :3])
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        updater.update(updater.batches())


def test_a_loss_that_is_not_finite_is_named_and_the_weights_stay(updater_of):
    updater = updater_of({"nan_at": 2})
    batches = updater.batches()
    updater.update(batches)
    before = weights(updater)
    with pytest.raises(NotFiniteError, match=r"not finite at step 2 \(loss nan, "):
        updater.update(batches)
    assert all(torch.equal(old, new) for old, new in zip(before, weights(updater), strict=True))
    assert updater.progress.step == 1


def test_a_smaller_micro_batch_divides_the_batch():
    assert [smaller(size, 12) for size in (12, 6, 4, 3, 2, 1)] == [6, 3, 2, 1, 1, None]


@pytest.mark.parametrize(("found", "kept"), [(4, 4), (16, 16), (5, 16), (0, 16)])
def test_a_micro_batch_found_before_is_kept_while_it_divides_the_batch(updater_of, capsys, found, kept):
    updater = updater_of()
    updater.progress.micro_batch_size = found
    updater.choose_micro_batch_size()
    assert updater.progress.micro_batch_size == kept
    said = f"batch of 16: 1 process x {16 // kept} accumulated x {kept} at once"
    assert capsys.readouterr().err.splitlines()[-1].endswith(said)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_on_a_gpu_the_micro_batch_is_found_by_trying_and_nothing_of_the_trials_stays(
    updater_of, monkeypatch, capsys, optimizer
):
    for key, value in {"optimizer": optimizer, "betas": (0.9, 0.99), "weight_decay": 0.1}.items():
        monkeypatch.setitem(TRAINING, key, value)
    updater = updater_of({"out_of_memory_above": 4})
    before, size = weights(updater), updater.progress.micro_batch_size
    assert size == 16  # a CPU is not tried
    device = SimpleNamespace(type="cuda", index=0)
    monkeypatch.setattr(type(updater.accelerator), "device", property(lambda self: device))
    seeds = []
    monkeypatch.setattr(torch.cuda, "manual_seed", seeds.append)
    updater.progress.micro_batch_size = 0
    updater.choose_micro_batch_size()
    assert updater.progress.micro_batch_size == 4
    assert noise.begun()[1] is None
    assert len(set(seeds)) == 1  # trials of the same step and items draw the same
    assert "out of memory with 8 examples at once; continuing with 4" in capsys.readouterr().err
    assert not any(change.any() for change in difference(updater, before))
    assert not any(p.grad is not None and p.grad.any() for p in updater.parameters)
    state = [value for each in updater.optimizers for value in each.optimizer.state.values()]
    assert len(state) == len(before)  # so that the trial is as large as an update
    assert not any(tensor.any() for values in state for tensor in values.values() if tensor is not None)


@pytest.fixture
def adam():
    """(a parameter with a gradient that is not finite, its optimizer, the stepper of both)"""
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.tensor([1.0, torch.inf, torch.nan])
    optimizer = torch.optim.AdamW([parameter], lr=0.5)
    accelerator = SimpleNamespace(scaler=None, device=torch.device("cpu"))
    return parameter, optimizer, Stepper(accelerator, [SimpleNamespace(optimizer=optimizer)])


def test_a_rehearsed_step_changes_no_weight_whatever_the_gradient_and_leaves_zeros(adam):
    parameter, optimizer, stepper = adam
    stepper.rehearse()
    assert parameter.tolist() == [1, 1, 1]
    assert {name: value.any().item() for name, value in optimizer.state[parameter].items()} == dict.fromkeys(
        ("step", "exp_avg", "exp_avg_sq"), False
    )


def test_a_rehearsed_step_leaves_the_state_of_a_resumed_run(adam):
    parameter, optimizer, stepper = adam
    parameter.grad = torch.ones(3)
    assert stepper.step(parameter.grad.norm())
    kept = {name: value.clone() for name, value in optimizer.state[parameter].items()}
    stepper.rehearse()
    assert all(torch.equal(value, kept[name]) for name, value in optimizer.state[parameter].items())
    assert kept["step"] == 1
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_a_rehearsed_step_that_fits_no_memory_leaves_no_state(adam, monkeypatch):
    _, optimizer, stepper = adam
    run_out(monkeypatch, optimizer, 1)
    with pytest.raises(torch.OutOfMemoryError):
        stepper.rehearse()
    assert not optimizer.state


def test_a_change_is_made_again_once_with_what_memory_can_be_freed_and_only_if_that_was_lacking(adam, monkeypatch):
    *_, stepper = adam
    stepper.accelerator.device, calls = SimpleNamespace(type="cuda"), []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("freed"))

    def fails(error):
        calls.append("made")
        raise error

    with pytest.raises(HalfMadeError):
        stepper.again(lambda: fails(MemoryError()), [torch.ones(1)], {})
    assert calls == ["made", "freed", "made"]
    assert stepper.short
    with pytest.raises(RuntimeError, match="of another kind"):
        stepper.again(lambda: fails(RuntimeError("of another kind")), [], {})
    assert len(calls) == 4


def test_a_micro_batch_that_does_not_divide_the_batch_is_refused_at_once(updater_of):
    with pytest.raises(UserError, match=r"training\.micro_batch_size.*5"):
        updater_of(micro_batch_size=5)


def test_an_error_of_clipping_that_is_not_about_memory_stays_as_it_is(updater_of, monkeypatch):
    def fails(*arguments):
        raise RuntimeError("of another kind")

    updater = updater_of()
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", fails)
    with pytest.raises(RuntimeError, match="of another kind"):
        updater.update(updater.batches())
    assert updater.progress.step == 0
