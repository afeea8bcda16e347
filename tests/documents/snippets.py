"""Commands and Python code of the documents, and how each is run in a test: as it stands, at the smallest sizes.

A command that trains, prepares or measures gets the words of SHORT behind its own, so that only its size differs from
what a reader types. What another test runs already, or what needs hardware that a test has not, is in ELSEWHERE with
the file that runs it.
"""

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("accelerate", "cp", "freqtrade", "make", "python", "sbatch", "source", "torchrun", ".ci/run")
FEW = "training.batch_size=8 training.log_steps=1 training.validation_steps=4 training.checkpoint_steps=4"
STEPS = f"training.steps=4 training.epochs=null {FEW}"
# Words by workload: of all that trains or prepares, and of evaluation.
SHORT = {
    "cvrp": "data.validation_instances=16 data.test_instances=4 data.labels=16 training.imitation_steps=2 "
    f"model.layers=1 model.width=16 model.heads=2 {STEPS}",
    "tinystories": "data.generated_characters=60000 model.preset=rp2040-speed model.context=12 model.hidden=16 "
    f"training.sequence=32 {STEPS}",
    "crypto": f"data.symbols=[AAAUSDT,BBBUSDT] data.simulated_candles=1700 data.lookback=16 model.width=8 {STEPS}",
    "bep": "data.sources=my_documents/ model.width=16 model.embedding=8 model.mixing_places=600 training.sequence=20 "
    f"{STEPS}",
    "lmol": "data.source=photos data.photos_crops=2 data.size=16 data.train_pairs=60 data.evaluation_pairs=40 "
    f"model.width=16 {STEPS}",
    "waves": f"data.examples=200 {STEPS}",
}
SHORT_EVALUATION = {
    "cvrp": "data.test_instances=4 evaluation.reference_seconds=[0.001]",
    "tinystories": "evaluation.samples=2 evaluation.sample_tokens=20",
    "crypto": "evaluation.repetitions=100",
    "bep": "evaluation.typed=6 evaluation.clauses=0",
    "lmol": "evaluation.comparisons=8",
    "waves": "",
}
# What is small whatever a command says; other keys are left as they are said.
SIZES = {"training.steps", "training.batch_size", "data.size", "data.photos_crops", "data.evaluation_pairs"}
# What begins a command -> the test that runs it.
ELSEWHERE = {
    "make test": ".ci/run",
    "make lint": ".ci/run",
    "make evidence": "tests/test_evidence.py",
    "make pictures": "tests/documents/test_pages.py",
    "make docs": "tests/test_words.py",
    "make firmware": ".ci/run",
    ".ci/run": ".ci/run",
    "accelerate config": "tests/checks/test_accelerate_config.py",
    "accelerate launch --config_file accelerate_configs/ddp.yaml": "tests/distributed/test_machines.py",
    "accelerate launch --mixed_precision bf16 pipelines/benchmark.py": "tests/gpu/figures.py",
    "accelerate launch pipelines/train.py --workload lmol --name qwen": "tests/workloads/lmol/test_vlm_runs.py",
    "accelerate launch pipelines/train.py --workload crypto --name shared": "tests/workloads/crypto/test_crypto.py",
    "accelerate launch pipelines/train.py --workload crypto --name own": "tests/workloads/crypto/test_crypto.py",
    "accelerate launch pipelines/train.py --workload tinystories --name mi": "tests/workloads/tinystories/test_base.py",
    "python -m exporters onnx": "tests/exporters/test_to_onnx.py",
    "python -m exporters rp2040 models/pretrained": "tests/models/stories/test_shipped.py",
    "python tests/exporters/rp2040/chip.py exports/": "tests/models/stories/test_shipped.py",
    "python -m exporters web": "tests/exporters/web/test_web_pages.py",
    "python -m exporters site": "tests/exporters/web/test_to_site.py",
    "python -m exporters freqtrade": "tests/exporters/test_to_freqtrade.py",
    "python -m exporters safetensors runs/cvrp/default --push": "tests/exporters/test_hub.py",
    "python -m exporters safetensors runs/cvrp/default": "tests/exporters/test_to_safetensors.py",
    "freqtrade backtesting": "tests/peers/against_freqtrade.py",
    "python tests/gpu/": "tests/gpu/test_figures.py",
    "python tests/peers/": "tests/peers/test_peers.py",
    "python pipelines/serve.py": "tests/server/test_server.py",
    "python pipelines/follow.py": "tests/following/test_follow.py",
    "python tests/server/load.py": "tests/server/test_server.py",
    "python pipelines/ask.py": "tests/workloads/lmol/people/test_preferences.py",
    "python tests/evidence.py": "tests/test_evidence.py",
    "python tests/distributed/one_model.py": "tests/distributed/test_one_model.py",
    "python -m pytest": ".ci/run",
    "sbatch": "tests/distributed/test_machines.py",
    "source .venv/bin/activate": "Makefile",
}


BLOCK = re.compile(r"^```(\w*)\n(.*?)^```|(?:(?<=\n\n)|\A)((?: {4}[^\n]*\n|\n(?= {4}))+)", re.DOTALL | re.MULTILINE)


def code(text: str) -> Iterator[str]:
    """Iterate over the code of a document: indented blocks outside of lists, and fenced ones."""
    for found in BLOCK.finditer(text):
        if found[1] not in ("diff", "text"):
            yield found[2] or textwrap.dedent(found[3])


def commands(block: str) -> list[str]:
    """Return a block's commands, a line each, without comments; none if it is no block of commands."""
    lines = re.sub(r"\\\n\s*", "", block).splitlines()
    lines = [re.sub(r"\s+# .*|\s{2,}#.*", "", line).strip() for line in lines]
    lines = [line for line in lines if line and not line.startswith("#")]
    return lines if all(re.split(r"[ \t]", line)[0] in COMMANDS for line in lines) else []


def is_python(block: str) -> bool:
    """Return whether a block is Python code."""
    return bool(re.search(r"^(from|import) |^model\.", block, re.MULTILINE))


def elsewhere(command: str) -> str | None:
    """Return the file whose tests run the command, if another test does."""
    return next((file for start, file in ELSEWHERE.items() if command.startswith(start)), None)


def shortened(command: str) -> list[str]:
    """Return the words of a command of Python's, at the smallest sizes."""
    words = [word for word in shlex.split(command) if word != "--config_file" and not word.endswith("single_gpu.yaml")]
    words = words[2:] if words[:2] == ["accelerate", "launch"] else words[1:]
    if "--workload" not in words:
        return words
    workload = words[words.index("--workload") + 1].rstrip("/").rpartition("/")[2]
    stage = Path(words[0]).stem
    if stage == "evaluate":
        return words + SHORT_EVALUATION[workload].split()
    if stage == "predict" or {"--help", "--keys", "--print-config"} & set(words):
        return words
    said = {word.partition("=")[0] for word in words} - SIZES
    if "data.folder" in said or "--resume" in words:
        said.add("data.symbols")  # which are those of the folder, or of the run
    small = [word for word in SHORT[workload].split() if word.partition("=")[0] not in said]
    if "model.base" in said:  # it has sizes of its own
        small = [word for word in small if not word.startswith("model.") or "mixing_places" in word]
    return words + small + ["--steps", "2", "--cpu-seconds", "0"] * (stage == "benchmark")
