"""Models that were trained split are evaluated split, by the same configuration."""

import json
import os
import re

import pytest

from tests import forked
from tests.distributed import capped
from tests.distributed.one_model import CASES, run

FIGURES = {"cvrp": "test", "tinystories": "held_out", "lmol": "test"}  # evaluations, by workload
FEW = {"lmol": ["data.source=photos", "data.photos_crops=1"]}  # images, of which each is encoded
WORDS = {
    "cvrp": ["evaluation.milliseconds=0", "evaluation.reference=[]", "evaluation.decode=multistart"],
    "tinystories": ["evaluation.samples=2", "evaluation.sample_tokens=20", "evaluation.heard=2"],
    "lmol": ["evaluation.network_steps=0", "evaluation.comparisons=4"],
}


def evaluate(folder, workload, spread, processes, name, *words, size=0):
    command = [capped.__file__, spread, str(size), "evaluate", "--workload", workload, "--name", name, *words]
    return forked.run(command, folder, {**os.environ, "OMP_NUM_THREADS": "1"}, processes)


def figures(folder, workload, name):
    """Return the lines of an evaluation by what they are about, without those of time and place."""
    path = folder / "runs" / workload / name / "evaluations" / FIGURES[workload]
    return dict(lines(json.loads(path.with_suffix(".json").read_text())))


def lines(value, key=""):
    if isinstance(value, dict | list):
        for own, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from lines(part, f"{key}/{own}")
    elif not re.search("second|_ms|[ /]ms|per_s|/s$|/on$|front", key):
        yield key, value


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", ["cvrp", "tinystories", pytest.param("vlm", marks=pytest.mark.exhaustive), "vlm, adapters"]
)
def test_a_split_model_has_the_figures_of_the_whole_one(tmp_path, case):
    workload = CASES[case].split()[0]
    run(tmp_path, case, "ddp", 1, {"own": ["training.steps=2", *FEW.get(workload, [])]})
    found, said = [], []
    for spread, processes in (("ddp", 1), ("fsdp", 2)):
        done = evaluate(tmp_path, workload, spread, processes, "own", *WORDS[workload])
        assert done.returncode == 0, done.stderr
        found.append(figures(tmp_path, workload, "own"))
        said.append(int(re.search(r"^(\d+) of \d+ weights are split$", done.stdout, re.MULTILINE)[1]))
    assert said[0] == 0
    assert (said[1] > 0) == (case != "tinystories")  # whose integers are made of all weights
    assert found[1].keys() == found[0].keys()
    for key, value in found[0].items():
        expected = pytest.approx(value, rel=1e-4, abs=1e-6) if isinstance(value, float) else value
        assert found[1][key] == expected, key
