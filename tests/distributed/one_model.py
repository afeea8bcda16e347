"""How far trainings drift apart that differ only in how they are spread: processes, sharding, micro-batches.

    python tests/distributed/one_model.py                 # a table of all cases, and its figures as JSON; half an hour
    python tests/distributed/one_model.py 50 bep vlm      # 50 updates of some

Each case is a workload with its default settings and noise, at sizes that are soon trained. The difference of gradients
is the norm of the difference over the norm; that of curves (loss, norm of the gradient) is the largest difference over
the largest value. `twin` is one process that starts with each weight of a layer changed by one rounding.
"""

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from accelerate import Accelerator, DistributedType, PartialState
from accelerate.commands import launch
from accelerate.utils.launch import prepare_multi_gpu_env
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from pipelines import arguments, exits, run_config, workloads
from pipelines import train as stage
from pipelines.distributed import ranks, sharding
from tests import forked
from tests.stages import ROOT

BATCH = 16
COMMON = (
    f"training.batch_size={BATCH} training.log_steps=1 training.validation_steps=1000 training.checkpoint_steps=1000"
)
LMOL = f"lmol {COMMON} data.train_pairs=200 data.evaluation_pairs=40 evaluation.comparisons=8 model.width=16"
CVRP = (
    f"cvrp {COMMON} data.customers=10 data.validation_instances=16 data.test_instances=8 model.width=16 model.heads=2"
    " data.labels=0 training.imitation_steps=0"
)
VLM = f"{LMOL} model.kind=vlm model.layers=2 model.heads=2"
CASES = {
    "cvrp": CVRP,
    "cvrp, medium": f"{CVRP} model.layers=6 training.baseline=rollout training.challenge_instances=100",
    "cvrp, many sizes": f"{CVRP} data.customers=[6,14] data.capacity=null data.distribution=x",
    "tinystories": f"tinystories {COMMON} data.generated_characters=60000 training.epochs=null"
    " training.optimizer=adamw",  # its own is muon, which needs whole matrices
    "bep": f"bep {COMMON} model.width=16 training.sequence=20",
    "crypto": f"crypto {COMMON} data.symbols=[AAAUSDT] data.simulated_candles=1700 model.coins=[AAAUSDT] model.width=16"
    " training.epochs=null",
    "lmol": LMOL,
    "lmol, photos": f"{LMOL} data.source=photos data.photos_crops=1",
    "vlm": VLM,
    "vlm, adapters": f"{VLM} model.lora=true",
}
MICRO_BATCHES = ("auto", "4", "1")
SPREADS = [("ddp", 1), ("ddp", 2), ("fsdp", 2), ("ddp", 4), ("fsdp", 4)]
CURVES = ("train/loss", "train/grad_norm")
TWIN = "twin"


def drift(folder: Path, case: str, steps: int, spreads=SPREADS, micro=MICRO_BATCHES, early: int = 10) -> dict:
    """Train a case in `folder`; return {setting: differences from one process that takes its batch at once}.

    The differences are `gradient`, the first; `early`, of the curve up to that update; `curve`, of the whole.
    """
    workload = CASES[case].split()[0]
    for spread, processes in spreads:
        sizes = [size for size in micro if size != str(BATCH // processes)]  # which is auto
        settings = {f"{spread}-{processes}-{size}": [f"training.micro_batch_size={size}"] for size in sizes}
        settings |= {TWIN: []} if processes == 1 else {}
        run(folder, case, spread, processes, settings, f"training.steps={steps}")
    runs = folder / "runs" / workload
    names = sorted(path.name for path in runs.iterdir())
    gradients = {name: torch.load(runs / name / "gradient.pt", weights_only=True) for name in names}
    curves = {name: _curves(runs / name / "metrics.jsonl") for name in names}
    whole = f"ddp-1-{micro[0]}"

    def apart(name: str, until: int) -> float:
        one, other = curves[whole], curves[name]
        return float(((one - other)[:, :until].abs().amax(1) / one.abs().amax(1)).max())

    return {
        name: {
            "gradient": float((gradients[name] - gradients[whole]).norm() / gradients[whole].norm()),
            "early": apart(name, early),
            "curve": apart(name, steps),
        }
        for name in names
        if name != whole
    }


def run(folder: Path, case: str, spread: str, processes: int, settings: Mapping[str, Sequence[str]], *words: str):
    """Train a case in `folder` once for each of the `settings`; returns the finished process."""
    workload, *own = CASES[case].split()
    command = [__file__, spread, json.dumps(settings), "--workload", workload, *own, *words]
    done = forked.run(command, folder, {**os.environ, "OMP_NUM_THREADS": "1"}, processes, timeout=900)
    assert done.returncode == 0, done.stderr
    return done


def _curves(metrics: Path) -> torch.Tensor:
    """Return curves (2, updates)."""
    entries = [entry for entry in map(json.loads, metrics.read_text().splitlines()) if CURVES[0] in entry]
    return torch.tensor([[entry[name] for entry in entries] for name in CURVES], dtype=torch.float64)


def shard() -> None:
    """Set what `accelerate launch` sets for fsdp.yaml, and let Accelerate shard on a CPU too."""
    config = str(ROOT / "accelerate_configs/fsdp.yaml")
    command = launch.launch_command_parser().parse_args(["--config_file", config, "train.py"])
    variables = prepare_multi_gpu_env(launch._validate_launch_command(command)[0])
    os.environ |= {name: value for name, value in variables.items() if "FSDP" in name}
    PartialState(cpu=True)
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU  # from which it goes on to FSDP


def train(spread: str, settings: Mapping[str, Sequence[str]], words: Sequence[str]) -> None:
    """Train with `words` once for each {name of the run: further words}, and keep the first gradient of each run."""
    os.environ["ACCELERATE_USE_CPU"] = "true"
    if spread == "fsdp":
        shard()
    gradients: dict[torch.optim.Optimizer, torch.Tensor] = {}  # the first of each optimizer

    trained, prepare = set(), sharding.prepare  # the first: optimizers of the loop, not those of a fit

    def prepared(*given):
        model, wrapped = prepare(*given)
        trained.update(each.optimizer for each in wrapped)
        return model, wrapped

    def keep(optimizer, args, kwargs):
        if optimizer in trained and optimizer not in gradients:
            parts = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            parts = [part.full_tensor() if isinstance(part, DTensor) else part for part in parts]
            gradients[optimizer] = torch.cat([part.flatten() for part in parts])

    sharding.prepare = prepared
    register_optimizer_step_pre_hook(keep)
    Accelerator.end_training = lambda self: None  # another training may follow
    for name, more in settings.items():
        args = arguments.parse(None, resume=True, argv=[*words, *more, "--name", name])
        workload, started = workloads.find(args.workload), run_config.run_of(args)
        if name == TWIN:
            workload = dataclasses.replace(workload, task=nudged(workload.task))
        with run_config.held(args, workload, started) as config:
            stage.train(args, workload, started, config)
        if ranks.is_main():
            torch.save(gradients.popitem()[1], started.folder / "gradient.pt")  # before it are those of trial steps
        gradients.clear()


def nudged(make):
    """Return `make` for a model in whose largest tensor each weight is the next number."""

    def task(*arguments):
        made = make(*arguments)
        weights = max((p.detach() for p in made.model.parameters() if p.requires_grad), key=torch.numel)
        weights.copy_(weights.nextafter(torch.tensor(torch.inf)))
        return made

    return task


def table(steps: int, cases: Sequence[str]) -> None:
    """Print the differences of each case, the largest over micro-batches, then the largest of all as JSON."""
    print(f"{'case':16} {'spread':8} {'gradient':>9} {'updates 1 to 10':>16} {'1 to ' + str(steps):>9}")
    worst = {}
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            found = drift(Path(folder), case, steps)
        for spread in dict.fromkeys(name.rpartition("-")[0] or name for name in found):
            those = [found[name] for name in found if name.startswith(spread)]
            figures = {key: max(one[key] for one in those) for key in ("gradient", "early", "curve")}
            print(f"{case:16} {spread:8} " + "{gradient:9.1e} {early:16.1e} {curve:9.1e}".format(**figures), flush=True)
            worst[f"{case}, {spread}"] = figures
    print(json.dumps(worst))


if __name__ == "__main__":
    if sys.argv[1:2] in (["ddp"], ["fsdp"]):
        exits.run_main(lambda: train(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]))
    else:
        table(int(sys.argv[1]) if sys.argv[1:] else 50, sys.argv[2:] or list(CASES))
        forked.stop()
