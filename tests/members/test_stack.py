"""Members that train side by side in one process: what each learns is what it learns alone."""

import signal
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from common.errors import MembersFailedError
from pipelines.members import fanout, stack
from pipelines.run.folder import Run
from pipelines.workloads import find as find_workload
from pipelines.workloads.crypto.experts import fixed
from pipelines.workloads.crypto.task import ExpertsTask, expand
from tests.members import toys
from tests.members.test_fanout import DEVICE, FakeAccelerator, begun, in_a_folder_of_its_own, job_of  # noqa: F401
from tests.workloads.crypto.standin import prepared

TRAINING = {"steps": 12, "batch_size": 16, "validation_steps": 3, "checkpoint_steps": 4, "log_steps": 1, "ema": 0.9}
MEMBERS = {
    "a": {"weight": 1.0},
    "b": {"weight": 0.5, "training": {"learning_rate": 2e-3, "clip_norm": 1.0}},
    "c": {"weight": 2.0, "training": {"patience": 1}, "toy": {"flat": True}},  # ends after two validations
}


def config_of(weight=1.0, training=(), **options):
    toy = {"dropout": 0.3, **options.pop("toy", {})}
    training = {**TRAINING, **dict(training)}
    return fanout.of_one_thread(toys.Config(training=training, model={"weight": weight, "toy": toy, **options}))


def job(members, folder, name="many", resume=False):
    configs = {member: config_of(**options) for member, options in members.items()}
    return replace(job_of(configs, folder, resume), run=Run("toy", name))


def train_stacked(given):
    """Train all members in this process, which prints afterwards where it did before."""
    before = sys.stdout, sys.stderr
    fanout.train_stacked(given, list(given.configs))
    assert (sys.stdout, sys.stderr) == before


def train_alone(given):
    """Train one member after the other in this process."""
    for name in given.configs:
        assert fanout.train_one(given, name, given.find, lambda file: file.close()) == 0


def find_crypto():
    return find_workload("crypto")


def figures(run):
    """What a member logged, but for times and rates."""
    left_out = ("time", "examples_per_s", "data_wait")
    return [{key: value for key, value in entry.items() if key not in left_out} for entry in run.metrics()]


def check_equal(run, other):
    """Check that two members learnt the same."""
    for entry, expected in zip(figures(run), figures(other), strict=True):
        assert entry == pytest.approx(expected, rel=1e-5, abs=1e-6)
    for name in ("best", "last"):
        weights, expected = (load_file(each.folder / "model" / name / "model.safetensors") for each in (run, other))
        torch.testing.assert_close(weights, expected, rtol=1e-5, atol=1e-5)
    outcome, expected = run.outcome(), other.outcome()
    assert outcome["best"] == pytest.approx(expected["best"], rel=1e-5)
    assert [outcome[key] for key in ("state", "best_step", "step")] == [
        expected[key] for key in ("state", "best_step", "step")
    ]


def test_members_learn_together_what_they_learn_alone_whatever_becomes_of_others(tmp_path, monkeypatch):
    alone = job(MEMBERS, tmp_path, "alone")
    train_alone(alone)
    sizes, compute = [], stack.compute
    monkeypatch.setattr(stack, "compute", lambda group: (sizes.append(len(group)), compute(group)))
    failing = {"broken": {"fault": "exception"}, "nan": {"weight": 1e30}}
    stacked = job({**failing, **MEMBERS}, tmp_path)
    train_stacked(stacked)
    for name in MEMBERS:
        check_equal(stacked.run.member(name), alone.run.member(name))
    assert stacked.run.member("c").outcome()["step"] < TRAINING["steps"]  # its patience was over
    assert sizes[0] == 4  # all but the broken one
    assert set(sizes[1:]) == {3, 2}
    outcomes = {name: stacked.run.member(name).outcome() for name in failing}
    assert outcomes["broken"]["reason"].startswith("RuntimeError: pretended")
    assert "not finite at step 1" in outcomes["nan"]["reason"]
    logs = {name: (stacked.run.member(name).folder / "train.log").read_text() for name in ("broken", "nan", "a")}
    assert "Traceback" in logs["broken"]
    assert logs["nan"].count("step 1/12") == 0
    assert logs["a"].count("step 12/12") == 2  # a record and a validation


def test_what_the_memory_does_not_hold_is_computed_in_parts(tmp_path, monkeypatch):
    sizes, compute = [], stack.compute

    def limited(group):
        sizes.append(len(group))
        if len(group) > 1:
            raise torch.OutOfMemoryError("pretended")
        compute(group)

    monkeypatch.setattr(stack, "compute", limited)
    given = job({name: {"training": {"steps": 2}} for name in "abc"}, tmp_path)
    train_stacked(given)
    assert [given.run.member(name).outcome()["state"] for name in "abc"] == ["done"] * 3
    assert sizes == [3, 1, 1, 1, 1, 1, 1]


def test_what_is_no_tensor_is_the_same_for_all_that_are_computed_together():
    def asked(scale, weight, items=None):
        task = toys.MemberTask(1.0)
        vars(task)["loss"] = None  # which a stack replaces
        batch = {"x": torch.ones(2, 5, 4) * weight, "y": torch.ones(2, 5), "valid": scale, "mask": None}
        return stack.LossRequest(task, task.model, batch, 0, items)

    one, other = asked(1, 1.0), asked(1, 2.0)
    kinds = {each.kind() for each in (one, other, asked(2, 1.0), asked(1, 1.0, torch.arange(2)))}
    assert len(kinds) == 3
    one.batch["valid"] = other.batch["valid"] = torch.ones(2, 5)
    stack.compute([one, other])
    assert float(one.loss.value.detach()) != float(other.loss.value.detach())


def test_a_members_gradients_are_sent_to_a_device_at_once():
    sent = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            sent.append(function.overloadpacket.__name__)
            return function(*args, **(kwargs or {}))

    gradients, parameters = ([torch.full((3,), each + value) for each in range(20)] for value in (0.5, 1.0))
    parameters = [nn.Parameter(each) for each in parameters]
    value = stack._Computed.apply(torch.tensor(2.0), gradients, *parameters)
    with Counting():
        found = torch.autograd.grad(value * 0.25, parameters)
    torch.testing.assert_close(list(found), [0.25 * each for each in gradients], rtol=0, atol=0)
    assert len(sent) < len(parameters), sent


def test_a_signal_stops_all_of_them(tmp_path):
    given = job({"a": {"toy": {"signal_at": 1}}, "b": {}, "c": {}}, tmp_path)
    train_stacked(given)
    for name in "abc":
        outcome = given.run.member(name).outcome()
        assert outcome["state"] == "stopped", outcome
        assert outcome["reason"].startswith(f"stopped by {signal.SIGTERM.name} after step ")
        assert list(given.run.member(name).checkpoints.iterdir())


@pytest.mark.slow
def test_coins_learn_together_what_they_learn_alone(tmp_path, monkeypatch):
    """But for what is no gradients' work: linear expert and trees are left as they are at first."""
    monkeypatch.setattr(
        ExpertsTask, "_fit", lambda self, *_: vars(self.validation).update(fixed=fixed(self.model, self.validation))
    )
    sizes, compute = [], stack.compute
    monkeypatch.setattr(stack, "compute", lambda group: (sizes.append(len(group)), compute(group)))
    training = {"epochs": 3, "batch_size": 3, "validation_steps": 4, "log_steps": 3, "ema": 0.9, "patience": 2}
    symbols = ("AAAUSDT", "BBBUSDT", "CCCUSDT")
    config = prepared(tmp_path / "data", symbols=symbols, simulated_candles=3000, training=training)
    configs = {name: fanout.of_one_thread(each) for name, each in expand(config, tmp_path / "data").items()}
    assert all(each.stacks for each in configs.values())
    alone, stacked = (
        fanout.Job(Run("crypto", name), configs, tmp_path / "data", {"coins": {}}, False, find_crypto)
        for name in ("alone", "stacked")
    )
    train_alone(alone)
    train_stacked(stacked)
    assert sizes[0] == 3
    for symbol in symbols:
        check_equal(stacked.run.member(symbol), alone.run.member(symbol))


@pytest.mark.slow
def test_a_device_that_waits_for_launches_trains_them_in_one_process_that_can_be_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(fanout, "STACKING", ("cpu",))
    whole = job(MEMBERS, tmp_path, "whole")
    fanout.train_all(whole, list(MEMBERS), FakeAccelerator(), begun)
    (tmp_path / "kill").touch()
    given = job(MEMBERS, tmp_path)
    with pytest.raises(MembersFailedError, match="3 of 3 members failed"):
        fanout.train_all(given, list(MEMBERS), FakeAccelerator(), begun)
    assert "killed by SIGKILL" in given.run.member("c").outcome()["reason"]
    (tmp_path / "kill").unlink()
    fanout.train_all(job(MEMBERS, tmp_path, resume=True), list(MEMBERS), FakeAccelerator(), begun)
    for name in MEMBERS:
        check_equal(given.run.member(name), whole.run.member(name))


def test_members_share_a_process_on_a_gpu_alone_and_where_their_config_allows_it(tmp_path, monkeypatch):
    monkeypatch.setattr(fanout, "MOST_STACKED", 2)
    monkeypatch.setattr(fanout.workers, "start_server", lambda modules: None)
    given = job({name: {} for name in "abcde"}, tmp_path)
    for name, change in (("b", {"compile": True}), ("d", {"stack": False})):
        changed = given.configs[name].hardware.model_copy(update=change)
        given.configs[name] = given.configs[name].model_copy(update={"hardware": changed})
    pool = fanout.Pool(given, DEVICE)
    assert pool.parts("abcde") == [[name] for name in "abcde"]
    monkeypatch.setattr(fanout, "STACKING", ("cpu",))
    assert pool.parts("abcde") == [["a", "c"], ["e"], ["b"], ["d"]]
    # Gradients of losses that are not scaled would vanish.
    assert fanout.Pool(given, DEVICE, "fp16").parts("abcde") == [[name] for name in "abcde"]
