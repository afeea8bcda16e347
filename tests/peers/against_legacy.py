"""Train the default character LSTM and the original's for the same seconds; print both bits/character.

    python tests/peers/against_legacy.py [SECONDS [key.path=value ...]]

Each gets as many updates as fit into SECONDS (120 if not given) by the benchmark on this machine; validation and saving
come on top. The figures are those of the validation documents, from the end of training.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"
CONFIGS = {"default": "bep.yaml", "legacy": "bep_legacy.yaml"}


def main(seconds: float, words: list[str]) -> None:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, config in CONFIGS.items():
            common = ["--workload", "bep", "--config", str(PIPELINES / "configs" / config), *words]
            timed = json.loads(run_stage(folder, "benchmark.py", "--steps", "5", *common).splitlines()[-1])
            steps = max(1, round(seconds / timed["step_s"]))
            last = f"training.validation_steps={steps}"
            run_stage(
                folder, "train.py", "--name", name, *common, f"training.steps={steps}", "training.epochs=null", last
            )
            metrics = (Path(folder) / "runs/bep" / name / "metrics.jsonl").read_text().splitlines()
            bits = json.loads(metrics[-1])["val/bits_per_character"]
            found[name] = {"updates": steps, "targets_per_s": timed["targets_per_s"], "bits_per_character": bits}
            print(name, found[name], flush=True)
    default, legacy = found["default"], found["legacy"]
    fewer = 100 * (1 - default["bits_per_character"] / legacy["bits_per_character"])
    times = default["targets_per_s"] / legacy["targets_per_s"]
    print(json.dumps({**found, "seconds": seconds, "fewer_bits_percent": fewer, "times_targets_per_s": times}))


def run_stage(folder: str, script: str, *words: str) -> str:
    """What a stage prints, run in `folder`."""
    done = subprocess.run([sys.executable, str(PIPELINES / script), *words], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{script} {' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else 120.0, sys.argv[2:])
