"""Every workload on a device that is not the CPU, without a GPU: nothing mixes devices, and few steps wait for it."""

import json
import os
import re
from collections import Counter

import pytest

from tests import forked
from tests.stages import ROOT, command
from tests.workloads.bep.firm import prose, written

STEPS = 10
EVERY = [f"training.{name}={STEPS}" for name in ("steps", "log_steps", "validation_steps", "checkpoint_steps")]
CVRP = [
    *("data.customers=6", "data.capacity=12", "data.validation_instances=16", "data.test_instances=8"),
    *("model.layers=1", "model.width=16", "model.heads=2", "training.batch_size=8"),
    *("data.labels=16", "training.imitation_steps=10"),
]
LMOL = [
    *("data.size=16", "data.train_pairs=50", "data.evaluation_pairs=12", "training.batch_size=8"),
    *("evaluation.comparisons=2", "model.width=16"),
]
CASES = {
    "cvrp": CVRP,
    "cvrp/rollout": [*CVRP, "training.baseline=rollout", "training.challenge_instances=100"],
    "cvrp/dgt": [*CVRP, "model.kind=dgt", "training.optimizer=muon", "training.ema=0.9"],
    "tinystories": [
        *("data.generated_characters=60000", "model.preset=rp2040-speed", "model.context=12", "training.sequence=32"),
        *("training.epochs=null", "training.batch_size=8", "evaluation.samples=2", "evaluation.sample_tokens=20"),
    ],
    "bep": [
        *("data.sources=documents", "model.width=16", "model.embedding=8", "model.mixing_places=200"),
        *("training.sequence=20", "training.epochs=null", "training.batch_size=8"),
        *("evaluation.typed=6", "evaluation.clauses=0"),
    ],
    "crypto": [
        *("data.symbols=[AAAUSDT]", "data.simulated_candles=3000", "data.lookback=12", "model.coins=[AAAUSDT]"),
        *("model.width=8", "training.epochs=null", "training.batch_size=32", "evaluation.repetitions=100"),
    ],
    "lmol": LMOL,
    "lmol/adapters": [
        *(*LMOL, "data.source=photos", "data.photos_crops=1"),  # a tenth of the images, each of which is encoded
        *("model.kind=vlm", "model.layers=2", "model.heads=2", "model.lora=true"),
    ],
}
OPERATIONS = """
import copy, pytest, torch
from torch import nn

device = torch.device("emulated", 0)
here, there = torch.tensor([3.0, 1.0]), torch.tensor([3.0, 1.0], device=device)
assert there.device == device and torch.arange(3, device=device).device == device
assert (there + 1).device == device and there.cpu().device == here.device
for mixed in (lambda: here + there, lambda: torch.cat([here, there]), lambda: torch.stack([there[0], here[0]])):
    with pytest.raises(RuntimeError, match="same device"):
        mixed()
with pytest.raises(TypeError, match="numpy"):
    there.numpy()
assert torch.equal((there * torch.tensor(2.0)).cpu(), here * 2)  # a number of the host is a kernel's argument
torch.use_deterministic_algorithms(True)
there.long().cumsum(0)
with pytest.raises(RuntimeError, match="deterministic"):
    there.cumsum(0)
torch.use_deterministic_algorithms(False)
there[0] = 5
there.add_(1)
assert there.tolist() == [6.0, 2.0]

torch.manual_seed(0)
module = nn.ModuleDict({"lstm": nn.LSTM(4, 5, batch_first=True), "out": nn.Linear(5, 1)})
x = torch.randn(2, 3, 4)
found = []
for model, given in ((module, x), (copy.deepcopy(module).to(device), x.to(device))):
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model["out"](model["lstm"](given)[0]).square().sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    found.append([p.detach().cpu() for p in model.parameters()])
assert model["out"].weight.grad.device == device
torch.testing.assert_close(*found)
"""
WAITING = """
import torch
from tests.emulated_device import WAITS

x, numbers = torch.full((), 1.0, device="emulated"), torch.ones(3, device="emulated")
for program, expected in (
    ("x.item()", "aten._local_scalar_dense.default"),
    ("bool((x > 0).all())", "aten._local_scalar_dense.default"),
    ("x.cpu()", "copy to the host"),
    ("numbers.tolist()", "tolist"),
    ("numbers.nonzero()", "aten.nonzero.default"),
    ("numbers.unique()", "aten._unique2.default"),
    ("numbers[numbers > 0]", "aten.index.Tensor by a mask"),
    ("numbers[torch.tensor([0])]", "copy of an index to the device"),
    ("numbers[[0, 1]]", "copy to the device"),
    ("torch.ones(1).to(x.device)", "copy to the device"),
    ("torch.tensor(1.0, device=x.device)", "copy to the device"),
    ("torch.ones(1).to(x.device, non_blocking=True)", None),
    ("torch.zeros(3, device=x.device).copy_(numbers) + 1", None),
    ("torch.where(numbers > 0, x, 0.0)", None),
    ("numbers[0].fill_(2)", None),
):
    WAITS.clear()
    eval(program)
    assert [what for what, _ in WAITS.elements()] == ([expected] if expected else []), (program, WAITS)
"""
TOURS = """
import torch
from models.routing import stepwise
from models.routing.environment import Instances
from models.routing.policy import RoutingConfig, RoutingPolicy
from models.routing import kernels
from tests.emulated_device import OPERATIONS, WAITS

usable, kernels.usable = kernels.usable, lambda *_: False
model = RoutingPolicy(RoutingConfig(width=16, heads=2, layers=1)).to("emulated")
step, steps = stepwise.step, []
stepwise.step = lambda *args: steps.append(args) or step(*args)
for customers in (6, 12, 24):
    locs, demand = torch.rand(4, customers + 1, 2), torch.randint(1, 10, (4, customers + 1)).float()
    instances = Instances(*(tensor.to("emulated") for tensor in (locs, demand, torch.full((4,), 30.0))))
    WAITS.clear()
    steps.clear()
    with torch.no_grad():
        model(instances, num_starts=customers)
    assert WAITS.total() <= len(steps) / 8, (customers, len(steps), WAITS)

kernels.usable = usable
uniform = torch.rand(4, customers, 2 * customers).to("emulated")
for _ in range(2):  # the first time they are compared with torch
    OPERATIONS.clear()
    WAITS.clear()
    steps.clear()
    model(instances, num_starts=customers, uniform=uniform).log_prob.sum().backward()
assert not steps and not WAITS, WAITS
assert OPERATIONS.total() < 150, OPERATIONS
"""


def emulated(folder, *words):
    """Run a script on the device; returns the finished process and its waits: [what, lines, how often]."""
    report, environment = folder / "waits.json", {**os.environ, "OMP_NUM_THREADS": "1"}
    done = forked.run([str(ROOT / "tests/emulated_device.py"), str(report), *map(str, words)], folder, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done, json.loads(report.read_text())


def run(folder, script, *words):
    return emulated(folder, *command(script, *words)[1:])


def waits_within(waits, function):
    """Return {what and where: how often} of the waits within a function: "update.py:LINE update"."""
    path, name = function.split()
    inside = re.compile(rf"{path}:\d+ {name}")
    found = Counter()
    for what, lines, number in waits:
        if any(inside.search(line) for line in lines):
            found[f"{what}, {lines[0]}"] += number
    return found


@pytest.mark.slow
def test_operations_are_those_of_the_cpu_and_never_mix_devices(tmp_path):
    (tmp_path / "script.py").write_text(OPERATIONS)
    emulated(tmp_path, tmp_path / "script.py")


@pytest.mark.slow
def test_every_way_to_wait_for_the_device_is_counted(tmp_path):
    (tmp_path / "script.py").write_text(WAITING)
    emulated(tmp_path, tmp_path / "script.py")


def test_the_loop_trains_on_it_and_hardly_a_step_waits(tmp_path):
    training = {"steps": STEPS, "log_steps": STEPS, "validation_steps": STEPS, "checkpoint_steps": STEPS}
    _, waits = emulated(tmp_path, ROOT / "tests/engine/toy.py", "default", json.dumps(training), "{}")
    check_waits(waits)
    records = [json.loads(line) for line in (tmp_path / "runs/toy/default/metrics.jsonl").read_text().splitlines()]
    assert records[0]["step"] == STEPS


@pytest.mark.slow
def test_building_tours_waits_at_most_once_in_eight_steps_and_by_kernels_never(tmp_path):
    (tmp_path / "script.py").write_text(TOURS)
    emulated(tmp_path, tmp_path / "script.py")


def check_waits(waits, elsewhere="", most=0):
    """Hold the training steps to one wait in ten, but for those `elsewhere`, of which there may be `most`."""
    found = waits_within(waits, "engine/update.py update")
    counted = {place: number for place, number in found.items() if not elsewhere or elsewhere not in place}
    assert sum(counted.values()) <= STEPS / 10, counted
    assert found.total() - sum(counted.values()) <= most, found
    assert waits_within(waits, "engine/loop.py _log").total() <= 3  # to read the figures of all these steps


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_each_workload_is_trained_evaluated_and_measured_on_it(tmp_path, case):
    workload, words = ["--workload", case.partition("/")[0]], CASES[case]
    written(tmp_path / "documents", {str(seed): prose(seed) for seed in range(5)})  # for bep
    _, waits = run(tmp_path, "train.py", *workload, *words, *EVERY, "hardware.deterministic=true")
    # transformers asks once in a forward pass whether sequences are packed; dgt's tours are built by torch.
    elsewhere = "stepwise.py" if case == "cvrp/dgt" else "vlm_comparator/model.py" if "lmol" in case else ""
    compared = [wait for wait in waits if any(line.endswith(" trusted") for line in wait[1])]  # kernels, on first use
    check_waits([wait for wait in waits if wait not in compared], elsewhere, 2 * STEPS)
    run(tmp_path, "evaluate.py", *workload, *(["evaluation.reference_seconds=0"] if "cvrp" in case else []))
    done, _ = run(tmp_path, "benchmark.py", *workload, *words, "training.steps=3", "--steps", "3")
    assert json.loads(done.stdout.splitlines()[-1])["steps"] == 3
