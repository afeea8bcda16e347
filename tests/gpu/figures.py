"""Measure the documents' GPU figures on this machine, the most important first, in nine minutes.

    python tests/gpu/wheels.py                                        # where there is a network
    python tests/gpu/figures.py --wheels .wheels --out gpu.jsonl      # where there is a GPU
    python tests/gpu/figures.py --fill gpu.jsonl                      # write the tables into the documents
    python tests/gpu/figures.py --dry-run --out dry.jsonl             # tiny sizes on the CPU, to try it out

--out (gpu.jsonl in the folder OUT, or here) gets a JSON line for each part as soon as the part has ended. What it has
already is not measured again: repeat the command for what time did not reach. A part that fails or takes too long is
recorded with its last lines. What the commands say is in a file beside it that ends with .log. Commands are forks
of one interpreter or, where its imports start threads, interpreters that have imported while others ran: of nine
minutes the imports would take five.
"""

import argparse
import contextlib
import functools
import hashlib
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)

from tests.gpu.machine import Failed, Machine
from tests.gpu.tables import fill

# The default config of each workload, with a batch for a GPU; and tiny ones for a dry run.
WORKLOADS = {
    "cvrp": ["data.labels=0", "training.imitation_steps=0", "training.batch_size=512"],
    "tinystories": ["training.batch_size=512"],
    "bep": ["training.batch_size=512"],
    "crypto": ["model.coins=[AAAUSDT]", "training.batch_size=64"],
    "lmol": ["training.batch_size=512"],
}
STORIES = ["training.sequence=32", "evaluation.samples=2", "evaluation.sample_tokens=20"]
COINS = ["model.width=8", "training.batch_size=64"]
TINY = {
    "cvrp": ["data.customers=6", "data.capacity=12", "model.layers=1", "model.width=16", "model.heads=2"],
    "tinystories": ["data.generated_characters=60000", "model.preset=rp2040-speed", "model.context=12", *STORIES],
    "bep": ["model.width=16", "model.embedding=8", "model.mixing_places=600", "training.sequence=20"],
    "crypto": ["model.coins=[AAAUSDT]", "data.simulated_candles=1700", "data.lookback=12", *COINS],
    "lmol": ["data.size=16", "data.train_pairs=50", "data.evaluation_pairs=30", "model.width=16"],
}
ROUTING = {20: 512, 50: 256, 100: 128}  # customers, as many starts, six layers: batch size
PEER = {"RL4CO": ("medium", "16-mixed"), "RL4CO fp32": ("highest", "32-true")}  # as it comes, and as ours in fp32
LLAVA = [
    *("model.kind=vlm", "model.lora=true", "model.preset=llava-1.5-7b", "data.size=336", "training.batch_size=16"),
    *("hardware.gradient_checkpointing=true", "data.train_pairs=200", "data.evaluation_pairs=200"),
]
TINY_LLAVA = [*TINY["lmol"], "model.kind=vlm", "model.lora=true", "model.layers=2", "model.heads=2"]
TWO = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--mixed_precision", "bf16"]
KILLED = 4  # runs at a time, five kills each
# Ten seconds at least, on a CPU that has bf16 in software only.
WITHOUT_PRODUCT = """
import runpy, sys
from pipelines.checks import throughput
throughput.product_flops_per_s = lambda *_: 1e9
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def stage(machine: Machine, script: str, workload: str, *words: str) -> list[str]:
    """Return the words of a stage; in a dry run of a tiny config."""
    tiny = ["training.batch_size=8", *TINY[workload]] if machine.dry else []
    return [str(ROOT / "pipelines" / script), "--workload", workload, *words, *tiny]


def benchmark(
    machine: Machine, workload: str, words: Sequence[str], steps: int = 20, launch: Sequence[str] = (), **env: str
) -> dict[str, Any]:
    """Time training steps."""
    asked = ["--cpu-seconds", "0", "--steps", str(2 if machine.dry else steps)]
    if machine.dry and "ACCELERATE_MIXED_PRECISION" in env:
        launch = "-c", WITHOUT_PRODUCT
    output = machine.run(*launch, *stage(machine, "benchmark.py", workload, *asked, *words), **env)
    return json.loads(output.splitlines()[-1])


def routing(machine: Machine, customers: int, words: Sequence[str] = (), **env: str) -> dict[str, Any]:
    """Time training steps with as many starts as customers."""
    sizes = [f"data.customers={customers}", f"training.starts={customers}", "model.layers=6"]
    sizes = [] if machine.dry else [*sizes, f"training.batch_size={ROUTING[customers]}"]
    words = *WORKLOADS["cvrp"][:-1], *words, *sizes
    return benchmark(machine, "cvrp", words, **env)


def peer(machine: Machine, customers: int, precision: Sequence[str]) -> dict[str, Any]:
    """Time RL4CO's training steps at the sizes of `routing`."""
    sizes = [6, 6, 1, 8, 2] if machine.dry else [customers, customers, 6, ROUTING[customers], 10]
    output = machine.run(str(ROOT / "tests/peers/rl4co_steps.py"), *map(str, sizes), *precision)
    return json.loads([line for line in output.splitlines() if line.startswith("{")][-1])


def kernels(machine: Machine) -> dict[str, Any]:
    """Compare the routing kernels with torch, and time both."""
    output = machine.run(str(ROOT / "tests/gpu/kernel_times.py"), *["--dry-run"] * machine.dry)
    return json.loads(output.splitlines()[-1])


def llava(machine: Machine) -> dict[str, Any]:
    words = TINY_LLAVA if machine.dry else LLAVA
    return benchmark(machine, "lmol", words, steps=3, ACCELERATE_MIXED_PRECISION="bf16")


def two_gpus(machine: Machine) -> dict[str, Any]:
    found = int(machine.run("-c", "import torch; print(torch.cuda.device_count())"))
    if found < 2:
        raise Failed(f"{found} GPUs")
    return benchmark(machine, "cvrp", WORKLOADS["cvrp"], launch=TWO)


def coins(machine: Machine, stack: bool) -> dict[str, Any]:
    """Train 32 coins for two passes over their data, in one process or in a process each."""
    names = [f"{chr(65 + number // 26)}{chr(65 + number % 26)}AUSDT" for number in range(2 if machine.dry else 32)]
    words = [f"data.symbols=[{','.join(names)}]", "training.epochs=2", f"hardware.stack={str(stack).lower()}"]

    def run(script: str, *first: str) -> None:
        machine.run(*(word for word in stage(machine, script, "crypto", *first, *words) if "model.coins" not in word))

    run("prepare.py")
    began = time.monotonic()
    run("train.py", "--name", "in-one" if stack else "in-many")
    return {"coins": len(names), "epochs": 2, "seconds": round(time.monotonic() - began, 1)}


def training(machine: Machine, workload: str, name: str, steps: int) -> list[str]:
    """Return the command of a short training whose bits are to repeat."""
    lengths = [f"training.steps={steps}", "training.epochs=null", "training.checkpoint_steps=20"]
    words = [*WORKLOADS[workload][:-1], *lengths, "training.batch_size=64", "hardware.deterministic=true"]
    begun = (machine.folder / "runs" / workload / name / "config.yaml").exists()
    return stage(machine, "train.py", workload, "--name", name, *["--resume"] * begun, *words)


def weights(machine: Machine, workload: str, name: str) -> str:
    path = machine.folder / "runs" / workload / name / "model/last/model.safetensors"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def repeats(machine: Machine) -> dict[str, Any]:
    """Train each workload twice, all at the same time, and compare the bits."""
    chosen = ["cvrp"] if machine.dry else list(WORKLOADS)
    prepared = [machine.start(*stage(machine, "prepare.py", name, *WORKLOADS[name][:-1])) for name in chosen]
    for process in prepared:
        machine.finish(process)
    runs = [(workload, name) for workload in chosen for name in ("one", "two")]
    started = [machine.start(*training(machine, *run, steps=40)) for run in runs]
    for process in started:
        machine.finish(process)
    return {workload: len({weights(machine, workload, name) for name in ("one", "two")}) == 1 for workload in chosen}


def kills(machine: Machine) -> dict[str, Any]:
    """Kill trainings at random moments, resume them, and compare their bits with those of an undisturbed one."""
    count, steps, shortest = (1, 300, 4.0) if machine.dry else (5, 1500, 8.0)
    calm = machine.start(*training(machine, "cvrp", "calm", steps))

    def disturbed(number: int) -> int:
        generator, done = random.Random(number), 0
        for _ in range(count):
            process = machine.start(*training(machine, "cvrp", f"killed-{number}", steps))
            time.sleep(generator.uniform(shortest, 1.5 * shortest))
            if process.child.poll() is None:
                machine.kill(process)
                done += 1
        machine.run(*training(machine, "cvrp", f"killed-{number}", steps))
        return done

    with ThreadPoolExecutor() as pool:
        done = list(pool.map(disturbed, range(1 if machine.dry else KILLED)))
    machine.finish(calm)
    found = [weights(machine, "cvrp", f"killed-{number}") for number in range(len(done))]
    return {"kills": sum(done), "same_bits": set(found) == {weights(machine, "cvrp", "calm")}}


def stages(machine: Machine) -> dict[str, Any]:
    """Take each workload through its commands, all at once; return True, or the last lines of a failure."""
    chosen = ["tinystories"] if machine.dry else list(WORKLOADS)
    importable = os.pathsep.join([str(ROOT), machine.environment["PYTHONPATH"]])

    def through(workload: str) -> bool | str:
        try:
            for steps in 20, 40:  # the second time it resumes
                machine.run(*training(machine, workload, "stages", steps), ACCELERATE_MIXED_PRECISION="bf16")
            machine.run(str(ROOT / "pipelines/evaluate.py"), "--workload", workload, "--name", "stages")
            machine.run("-m", "exporters", "safetensors", f"runs/{workload}/stages", PYTHONPATH=importable)
        except Failed as error:
            return str(error)
        return True

    with ThreadPoolExecutor() as pool:
        return dict(zip(chosen, pool.map(through, chosen), strict=True))


def answers(machine: Machine) -> dict[str, Any]:
    """Ask the models that ship on a GPU and on the CPU; return where their answers, to three digits, differ."""
    asked = inputs(machine.folder)
    chosen = ["tinystories"] if machine.dry else list(asked)

    def lines(run: tuple[str, str]) -> str:
        workload, device = run
        words = ["--workload", workload, "--device", device, *asked[workload]]
        said = machine.run(str(ROOT / "pipelines/predict.py"), *words)
        return re.sub(r"\d+\.\d+(e-?\d+)?", lambda number: f"{float(number[0]):.3g}", said)

    runs = [(workload, device) for workload in chosen for device in ("cpu" if machine.dry else "cuda", "cpu")]
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lines, runs))
    pairs = zip(chosen, found[::2], found[1::2], strict=True)
    return {workload: ours == theirs or [ours[-300:], theirs[-300:]] for workload, ours, theirs in pairs}


def inputs(folder: Path) -> dict[str, list[str]]:
    """Write what the models that ship are asked; return the words that ask it."""
    draw = random.Random(1)
    images = [folder / f"image-{number}.pgm" for number in range(4)]
    for path in images:
        path.write_bytes(b"P5 28 28 255\n" + draw.randbytes(784))
    places = [[draw.random(), draw.random()] for _ in range(21)]
    routes = {"depot": places[0], "customers": places[1:], "demands": [draw.randint(1, 9) for _ in places[1:]]}
    rows, price = ["time,open,high,low,close,volume"], 100.0
    for step in range(2000):
        last, price = price, price * (1 + draw.gauss(0, 0.005))
        high, low = 1.001 * max(last, price), 0.999 * min(last, price)
        rows.append(f"{900 * (1_888_888 + step)},{last},{high},{low},{price},{draw.uniform(10, 20)}")
    (folder / "AAAUSDT.csv").write_text("\n".join(rows))
    (folder / "routes.jsonl").write_text(json.dumps(routes | {"capacity": 30}))
    return {
        "cvrp": [str(folder / "routes.jsonl")],
        "tinystories": ["prompt=Once upon a time", "length=100", "temperature=0"],
        "bep": ["field=projectScope", "length=100", "temperature=0"],
        "crypto": [str(folder / "AAAUSDT.csv"), "now=newest"],
        "lmol": list(map(str, images)),
    }


def parts(dry: bool) -> dict[str, tuple[float, Callable[[Machine], dict[str, Any]]]]:
    """Return the longest time in seconds and the function of each part, the most important first."""
    bf16, part = {"ACCELERATE_MIXED_PRECISION": "bf16"}, functools.partial
    some, sizes = list(WORKLOADS)[: 1 if dry else None], list(ROUTING)[: 1 if dry else None]
    found: dict[str, tuple[float, Callable[[Machine], dict[str, Any]]]] = {}
    # Within two minutes: exactness, kernels, and a rate for each workload.
    found["same bits"], found["kernels"] = (110, repeats), (45, kernels)
    for name, words in WORKLOADS.items():
        found[f"{name} bf16"] = 30, part(benchmark, workload=name, words=words, **bf16)
    found["llava-1.5-7b"] = 120, llava
    for customers in sizes:
        found[f"routing {customers} bf16"] = 60, part(routing, customers=customers, **bf16)
        found[f"routing {customers} RL4CO"] = 60, part(peer, customers=customers, precision=PEER["RL4CO"])
    found["two GPUs"] = 90, two_gpus
    for name in some:
        words = ["--compare", "hardware.tf32=false", *WORKLOADS[name]]
        found[f"{name} tf32"] = 60, part(benchmark, workload=name, words=words)
    found["kills"], found["answers"], found["stages"] = (120, kills), (60, answers), (240, stages)
    found["coins"], found["coins in many"] = (90, part(coins, stack=True)), (90, part(coins, stack=False))
    for name in some:
        words, cpu = WORKLOADS[name], {"ACCELERATE_TORCH_DEVICE": "cpu"}
        found[f"{name} CPU"] = 60, part(benchmark, workload=name, words=words, steps=3, **cpu)
    for customers in sizes:
        found[f"routing {customers} fp32"] = 60, part(routing, customers=customers, words=["hardware.tf32=false"])
        found[f"routing {customers} RL4CO fp32"] = 60, part(peer, customers=customers, precision=PEER["RL4CO fp32"])
    return found


def measure(machine: Machine, out: Path, seconds: float, wheels: Path | None, asked: Sequence[str] = ()) -> None:
    """Measure the parts that `out` lacks; of all, those whose names begin as one of `asked` does."""
    ends = time.monotonic() + seconds
    machine.ends = ends
    if wheels:
        machine.install(wheels)
    device = machine.device()
    if device == "CPU" and not machine.dry:
        sys.exit("torch sees no GPU here; --dry-run tries the parts on the CPU")
    known = {json.loads(line)["part"] for line in out.read_text().splitlines()} if out.exists() else set()
    for part, (limit, function) in parts(machine.dry).items():
        began = time.monotonic()
        if part in known or not part.startswith(tuple(asked) or ""):
            continue
        if ends - began < 10:
            print(f"{part}: left out, the time is over", flush=True)
            continue
        machine.ends = ends if machine.dry else min(ends, began + limit)
        entry: dict[str, Any] = {"part": part, "device": device}
        try:
            entry["figures"] = function(machine)
        except (Failed, OSError, LookupError, ValueError) as error:
            entry["failed"] = f"{type(error).__name__}: {error}"
        entry["seconds"] = round(time.monotonic() - began, 1)
        with out.open("a") as file:
            print(json.dumps(entry), file=file)
        print(f"{part}: {entry.get('failed', 'done')[-300:]} ({entry['seconds']} s)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "gpu.jsonl")
    parser.add_argument("--wheels", type=Path, help="folder of wheels that are installed first, for these parts only")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--parts", nargs="+", default=(), metavar="NAME", help="only parts whose names begin like this")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--fill", type=Path, metavar="FILE", help="write FILE's figures into the documents and stop")
    args = parser.parse_args()
    if args.fill:
        fill(
            [json.loads(line) for line in args.fill.read_text().splitlines()],
            [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")],
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(folder, f"{folder}/site", args.out.resolve().with_suffix(".log"), args.dry_run)
        with contextlib.closing(machine):
            measure(machine, args.out.resolve(), args.seconds, args.wheels and args.wheels.resolve(), args.parts)


if __name__ == "__main__":
    main()
