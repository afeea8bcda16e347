"""Parts of the evidence: the commands behind each figure of the documents, and the bounds that the figure must keep."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OZ, E_N22_K4 = "../shared/data/oz.txt", "../shared/data/E-n22-k4.vrp"


@dataclass(frozen=True)
class Figure:
    read: Callable[[str], Any]  # from what the commands printed
    at_most: float | None = None
    at_least: float | None = None

    def fault(self, value: Any) -> str | None:
        """Return which bound `value` misses."""
        if self.at_most is not None and not value <= self.at_most:
            return f"{value}, must be at most {self.at_most}"
        if self.at_least is not None and not value >= self.at_least:
            return f"{value}, must be at least {self.at_least}"
        return None


@dataclass(frozen=True)
class Part:
    commands: Sequence[str]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    runs: Sequence[str] = ()  # WORKLOAD/NAME of each; removed first, because the commands train them
    needs: str | None = None  # a file that is not in the repository


def evaluated(run: str, split: str, key: str, **bounds: float) -> Figure:
    """A figure of an evaluation."""
    path = f"runs/{run}/evaluations/{split}.json"
    return Figure(lambda _: json.loads((ROOT / path).read_text())[key], **bounds)


def printed(key: str, **bounds: float) -> Figure:
    """A figure in the JSON object that the commands print last."""
    return Figure(lambda output: json.loads(re.findall(r"^\{.*\}$", output, re.MULTILINE)[-1])[key], **bounds)


def matched(pattern: str, **bounds: float) -> Figure:
    """The number that `pattern` finds last in what the commands print."""
    return Figure(lambda output: float(re.findall(pattern, output)[-1]), **bounds)


def whole(run: str, split: str, words: str = "", then: Sequence[str] = (), needs: str | None = None, **bounds) -> Part:
    """A run that is trained with `words` and evaluated; `bounds` has those of each figure, by its key."""
    workload, name = run.split("/")
    commands = [
        f"accelerate launch pipelines/train.py --workload {workload} --name {name} {words}".strip(),
        f"accelerate launch pipelines/evaluate.py --workload {workload} --name {name}",
        *then,
    ]
    return Part(commands, {key: evaluated(run, split, key, **bounds[key]) for key in bounds}, [run], needs)


def coins(run: str, words: str = "", **skill: float) -> Part:
    """A run of coins: nats that each predictor gains on the prior, and verdicts; `skill` bounds how many show some."""
    part = whole(run, "test", words, skill=skill)
    pages = ROOT / "runs" / run / "evaluations/test"

    def each() -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(pages.glob("*.json"))]

    def gains(_: str) -> dict[str, dict[str, float]]:
        found = {}
        for page in each():
            prior, rows = page["figures"]["prior_log_loss"], page["predictors"]
            found[page["symbol"]] = {
                row["predictor"]: prior - row["log_loss"] for row in rows if row.get("log_loss") is not None
            }
        return found

    def grades(_: str) -> dict[str, dict[str, Any]]:
        return {page["symbol"]: {"verdict": page["verdict"], "grades": page["grades"]} for page in each()}

    return replace(part, figures={**part.figures, "gains": Figure(gains), "verdicts": Figure(grades)})


def stories(name: str, words: str, then: Sequence[str] = (), needs: str | None = None, **bounds: float) -> Part:
    """Stories trained with `words`; `bounds` are those of the exported model's bits per character."""
    keys = {"bits_per_character": {}, "int8_bits_per_character": bounds, "int8_cost_percent": {"at_most": 1}}
    keys |= {"strongest_frozen": {}, "frozen_gain": {}, "frozen_gain_interval": {}}
    return whole(f"tinystories/{name}", "held_out", words, then, needs, **keys, table={})


def customers_22(policy: float, search: float) -> Part:
    """E-n22-k4, whose best known cost is 375, solved by the run of the part `cvrp`: its policy, and the search."""
    bounds = {"cost": policy, "cost_search": search}
    figures = {key: evaluated("cvrp/evidence", "E-n22-k4", key, at_most=most) for key, most in bounds.items()}
    command = f"python pipelines/evaluate.py --workload cvrp --name evidence evaluation.instances={E_N22_K4}"
    return Part([command], figures, needs=E_N22_K4)


def elsewhere(name: str, words: str) -> Part:
    """Routes of a model that comes with the project."""
    command = f"python pipelines/evaluate.py --workload cvrp --name {name} data.labels=0 hardware.threads=1 {words}"
    return Part([command], {"table": evaluated(f"cvrp/{name}", "test", "table")})


def front(name: str, customers: int, instances: int, rounds: int, methods: str) -> Part:
    """A model that comes with the project beside random tours and searches, in alternated rounds."""
    command = f"python tests/peers/routing_front.py {name} {customers} {instances} {rounds} {methods}"
    return Part([command], {method: printed(method) for method in methods.split()})


SOLVERS = (
    "evaluation.augment=false evaluation.reference=[hgs,pyvrp] evaluation.reference_seconds=[0.001,0.005,0.01,0.1]"
)
ADAMW = "training.optimizer=adamw training.schedule=cosine"  # as the documents' rows were trained
FORMER = f"model.vocabulary=512 model.hidden=160 {ADAMW}"
OZ_WORDS = (
    f"data.source={OZ} training.epochs=null training.steps=1800 training.learning_rate=5e-3 model.dropout=0.2 {FORMER}"
)
COUNTS = "model.counts=98304 'model.memory=[8192,8192]'"
PHOTOS = (
    "data.source=photos data.size=64 data.photos_crops=32 data.evaluation_pairs=10000 training.batch_size=64"
    " training.steps=1200 hardware.threads=1"
)
TOLD = "runs/tinystories/evidence/exports/rp2040/story.uf2"
# Trained as little as makes them models of the default sizes, whose answers take as long as any; those there are stay.
SERVED = {
    "tinystories": "training.epochs=null training.steps=20",
    "bep": "training.steps=20",
    "crypto": "'data.symbols=[AAAUSDT]' training.epochs=1",
    "lmol": "training.steps=20",
}
RL4CO = "runs/evidence/rl4co/bin/"  # an environment of its own
FREQTRADE = "runs/evidence/freqtrade/bin/"  # likewise
PARTS = {
    "cvrp": whole("cvrp/evidence", "test", "hardware.threads=1", cost={"at_most": 6.25}, table={}),
    "e-n22-k4": customers_22(382.5, 375),
    "cvrp-20": elsewhere("cvrp-20", "evaluation.reference=[]"),
    "cvrp-20-front": front(
        *("cvrp-20", 20, 1000, 3), "policy:0 policy:0.6 mix:0.6 local:0.6 then:0.6 mix:5 then:5 hgs:0.5 hgs:5"
    ),
    "cvrp-50-front": front(
        *("cvrp-50", 50, 100, 3), "policy:0 policy:2.5 mix:2.5 local:2.5 then:2.5 mix:12 then:12 hgs:2.3 hgs:12"
    ),
    "cvrp-100-front": front(
        *("cvrp-100", 100, 40, 3), "policy:0 policy:8 mix:8 local:8 then:8 mix:25 then:25 hgs:8 hgs:25"
    ),
    "cvrp-50": elsewhere("cvrp-50", f"data.test_instances=100 {SOLVERS}"),
    "cvrp-100": elsewhere("cvrp-100", f"data.test_instances=40 {SOLVERS}"),
    "cvrp-mixed": elsewhere(
        "cvrp-mixed",
        "data.customers=[100,200] data.test_instances=48 evaluation.augment=false evaluation.reference=[hgs]"
        " evaluation.reference_seconds=0.1",
    ),
    "crypto": coins("crypto/evidence", at_least=8),
    "crypto-without-signal": coins("crypto/evidence-none", "data.signal=0", at_most=0),
    "bep": whole(
        "bep/evidence",
        "test",
        "hardware.threads=1 evaluation.typed=6000",
        bits_per_character={"at_most": 1.96},
        table={},
        keystrokes_saved={"at_least": 0.22},
        bits_per_character_prompt={},
        gain_percent_interval={},
        keystrokes_gain_percent_interval={},
        typing={},
    ),
    "bep-tuned": Part(
        ["python tests/peers/fine_tuning.py 60"],
        {
            f"{number} documents, {how}": printed(f"{number} documents, {how}")
            for number in (1, 3, 10)
            for how in ("frozen", "adapting")
        },
    ),
    "bep-speed": Part(
        ["python tests/peers/completion_speed.py"],
        {
            "characters_per_s": printed("characters_per_s", at_least=900),
            **{
                (key := f"{text}, {how}, s"): printed(key, at_most=2)
                for text in ("plans", "backwards")
                for how in ("frozen", "adapting")
            },
        },
    ),
    "bep-canaries": Part(
        ["python tests/peers/memorisation.py 600"],
        {kind: printed(kind) for kind in ("LSTM", "mixture", "mixture, min_documents=2")},
    ),
    "bep-oz": whole(
        "bep/evidence-oz",
        "validation",
        f"data.sources={OZ} data.test=0 data.hold_out=true training.steps=6000 model.dropout=0.4"
        " hardware.threads=1 evaluation.typed=0",
        needs=OZ,
        bits_per_character={"at_most": 2.06},  # Kneser-Ney has 2.154
        table={},
    ),
    "lmol": whole(
        "lmol/evidence",
        "test",
        "hardware.threads=1",
        accuracy={"at_least": 0.95},
        swap_consistency={"at_least": 0.99},
        pearson={"at_least": 0.96},
        rmse={"at_most": 0.4},  # an SVM has 0.43
        mae={},
        coverage={"at_least": 0.93},
        table={},
    ),
    "lmol-photos": whole(
        "lmol/evidence-photos", "test", PHOTOS, accuracy={"at_least": 0.9}, pearson={"at_least": 0.95}, table={}
    ),
    "lmol-preferences": Part(
        ["python tests/peers/preferred_pairs.py"],
        {key: printed(key) for key in ("images", "chosen pairs", "random pairs", "percent_of_random")}
        | {"percent_of_random_alone": printed("percent_of_random_alone", at_most=15)},
    ),
    "stories": stories(
        "evidence",
        f"hardware.threads=1 {FORMER}",
        then=[
            "python -m exporters rp2040 runs/tinystories/evidence",
            f'python tests/exporters/rp2040/chip.py {TOLD} "/temperature 0.8" "Once upon a time"',
        ],
        at_most=0.335,  # 25 % fewer than a 5-gram's 0.445
    ),
    "stories-speed": stories("evidence-speed", f"model.preset=rp2040-speed training.epochs=8 {ADAMW}", at_most=2.4),
    "stories-optimized": stories(
        "evidence-optimized", f"model.preset=rp2040-optimized training.epochs=8 {ADAMW}", at_most=2.1
    ),
    "stories-quality": stories(
        "evidence-quality", f"model.preset=rp2040-quality training.epochs=5 {ADAMW}", at_most=1.7
    ),
    "stories-oz": stories("evidence-oz", OZ_WORDS, needs=OZ, at_most=2.3),  # 5 % fewer than a 5-gram's 2.412
    "stories-oz-counts": stories("evidence-oz-counts", f"{OZ_WORDS} {COUNTS}", needs=OZ, at_most=2.2),
    "stories-search": Part(
        [f"python tests/peers/story_search.py {OZ} 300"], {"together": printed("together")}, needs=OZ
    ),
    "shared-base": Part(
        ["python tests/peers/shared_base.py 6"], {name: printed(name) for name in ("MARKET", "REGIME")}
    ),
    "coins": Part(
        ["python tests/peers/against_plain_loop.py"],
        {key: printed(key) for key in ("one command", "plain loop")}
        | {"times_faster": printed("times_faster", at_least=1.2)},
    ),
    "known-processes": Part(
        ["python tests/peers/known_processes.py 3"], {key: printed(key) for key in ("AR", "REGIME", "LAG")}
    ),
    "fitted-power": Part(
        ["python tests/peers/known_processes.py 20 WEAK"],
        {"WEAK": printed("WEAK"), "predictive": matched(r'"predictive": ([\d.]+)', at_least=0.7)},
    ),
    "freqtrade": Part(
        [
            "python -m venv runs/evidence/freqtrade",
            f"{FREQTRADE}pip install --quiet freqtrade==2026.9",
            "accelerate launch pipelines/train.py --workload crypto --name evidence-freqtrade"
            " 'data.symbols=[AAAUSDT]' training.epochs=4 hardware.threads=1",
            "accelerate launch pipelines/evaluate.py --workload crypto --name evidence-freqtrade",
            f"python tests/peers/against_freqtrade.py {FREQTRADE}python runs/crypto/evidence-freqtrade AAAUSDT",
        ],
        {
            "share_equal": printed("share_equal", at_least=0.99),
            **{key: printed(key) for key in ("ours", "freqtrade", "equal", "others")},
        },
        runs=["crypto/evidence-freqtrade"],
    ),
    "rl4co": Part(
        [
            "python -m venv runs/evidence/rl4co",
            f"{RL4CO}pip install --quiet torch==2.13.0 rl4co==0.7.0",
            f"python tests/peers/against_rl4co.py {RL4CO}python --rounds 2",
        ],
        {"table": Figure(lambda output: re.findall(r"^ +\d+ .*|^customers .*", output, re.MULTILINE))},
    ),
    "overhead": Part(
        ["python -m pytest -m slow -n 0 tests/engine/test_overhead.py"],
        {"percent": matched(r"engine overhead ([\d.]+)%", at_most=5)},
    ),
    "one-model": Part(
        ["python tests/distributed/one_model.py"],
        {"differences": Figure(lambda output: json.loads(output.splitlines()[-1]))},
    ),
    "serve": Part(
        [
            *(
                f"python pipelines/train.py --workload {name} --name evidence-served hardware.threads=1 {words}"
                for name, words in SERVED.items()
            ),
            "OMP_NUM_THREADS=1 python tests/server/load.py --requests 64 --memory 10000 --mutated 10000 cvrp/cvrp-20"
            f" {' '.join(f'{name}/evidence-served' for name in SERVED)}",
        ],
        {"p95": printed("p95"), "lost": printed("lost", at_most=0), "mutated": printed("mutated")}
        | {"growth_percent": matched(r'"growth_percent": ([-\d.e]+)', at_most=5)},
        [f"{name}/evidence-served" for name in SERVED],
    ),
    "every-change": Part(
        ["python -m pytest -m exhaustive -n 0 -s tests/engine/test_every_change.py"],
        {
            "killed": Figure(lambda output: re.findall(r"killed: (.*)", output)),
            "failing": Figure(lambda output: re.findall(r"failing: (.*)", output)),
            "passed": matched(r"(\d+) passed", at_least=17),
        },
    ),
    "exhaustive": Part(["python -m pytest -m exhaustive"], {"passed": matched(r"(\d+) passed", at_least=1)}),
    "properties": Part(
        ["HYPOTHESIS_PROFILE=fresh python -m pytest -m hypothesis"], {"passed": matched(r"(\d+) passed", at_least=1)}
    ),
}
