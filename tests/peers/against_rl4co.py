"""Whole training steps of ours and of RL4CO 0.7.0 on the same machine, same sizes, alternating.

    python -m venv /tmp/rl4co && /tmp/rl4co/bin/pip install torch==2.13.0 rl4co==0.7.0
    .venv/bin/python tests/peers/against_rl4co.py /tmp/rl4co/bin/python

RL4CO runs under its own trainer twice: as it comes, with matmul_precision "medium", which asks the CPU for bfloat16
products and is slow where it has no instructions for them; and with "highest", plain float32 as ours. Ratios are of
medians over the rounds.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = (  # customers, starts, layers, batch
    (20, 20, 6, 64),
    (50, 1, 3, 128),
    (20, 1, 3, 512),
)


def last_json(command: list[str]) -> dict:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


def ours(customers: int, starts: int, layers: int, batch: int, steps: int, kind: str) -> float:
    """Instances per second of our training steps."""
    baseline = ["training.baseline=rollout"]
    if starts > 1:
        baseline = ["training.baseline=multistart", f"training.starts={starts}", "training.best_of=1"]
    command = [sys.executable, str(ROOT / "pipelines/benchmark.py"), "--workload", "cvrp", "--steps", str(steps)]
    command += [f"data.customers={customers}", f"model.kind={kind}", "model.preset=small", f"model.layers={layers}"]
    command += ["data.labels=0", "training.imitation_steps=0", f"training.batch_size={batch}", *baseline]
    return last_json(command)["examples_per_s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", help="interpreter of an environment with rl4co")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--kind", default="gt", help="our model.kind; gt is the nearest to RL4CO's encoder")
    args = parser.parse_args()
    print("customers  starts  layers  batch   ours inst/s   RL4CO as it comes (ratio)   RL4CO float32 (ratio)")
    for setting in SETTINGS:
        speeds = {"ours": [], "medium": [], "highest": []}
        for _ in range(args.rounds):
            speeds["ours"].append(ours(*setting, args.steps, args.kind))
            for precision in ("medium", "highest"):
                words = [*map(str, setting), str(args.steps), precision]
                result = last_json([args.python, str(ROOT / "tests/peers/rl4co_steps.py"), *words])
                speeds[precision].append(result["examples_per_s"])
        mine, medium, highest = (statistics.median(speeds[name]) for name in ("ours", "medium", "highest"))
        print(
            "{:9}  {:6}  {:6}  {:5}".format(*setting)
            + f"   {mine:11.1f}   {medium:17.1f} ({mine / medium:4.1f}x)   {highest:13.1f} ({mine / highest:4.1f}x)",
            flush=True,
        )


if __name__ == "__main__":
    main()
