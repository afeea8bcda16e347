"""What a command says before it does anything: help, refusals of its words, the resolved config."""

import itertools
import os
import re
import resource
import subprocess
import sys

import pytest
import yaml

from common.config import key_help
from pipelines import workloads
from tests import configuration, forked
from tests.processor import within
from tests.stages import PYTHONPATH, ROOT, command, refused, stage

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PYTHONPATH}


def fresh(*words, folder=None):
    """Run `python *words` in a new interpreter, in `folder`; returns what came of it and its CPU-seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *words], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def begin(folder, workload):
    """Make a run `default` that has been begun."""
    run = folder / "runs" / workload / "default"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("seed: 1\n")
    (run / "metrics.jsonl").touch()


def dotted(name):
    return [key.name for group in key_help.groups(workloads.find(name).config) for key in group.keys]


def test_configs_are_read_without_torch():
    heavy = ("torch", "accelerate", "datasets", "transformers", "pandas", "scipy")
    modules = ", ".join(f"pipelines.workloads.{name}" for name in workloads.names())
    done, _ = fresh(
        "-c", f"import sys, pipelines.arguments, {modules}; print([m for m in {heavy} if m in sys.modules])"
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "cvrp" else pytest.mark.slow) for name in workloads.names()]
)
def test_help_shows_every_key_within_80_columns_and_half_a_second(name):
    done, seconds = fresh(*command("train.py", "--workload", name, "--help")[1:])
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= key_help.WIDTH
    assert set(re.findall(r"^  ([\w.]+)=", done.stdout.split("changes:")[1], re.MULTILINE)) == set(dotted(name))
    # Other programs may have had its caches and its share of a core.
    again = (fresh(*command("train.py", "--workload", name, "--help")[1:])[1] for _ in range(5))
    assert any(within(each, 0.5) for each in itertools.chain([seconds], again))


def test_every_key_tells_its_type_and_what_it_means():
    for name in workloads.names():
        for group in key_help.groups(workloads.find(name).config):
            assert all(key.type and key.description and "typing" not in key.type for key in group.keys)
    told = {key.name: key for group in key_help.groups(workloads.find("cvrp").config) for key in group.keys}
    assert told["training.ema"].type == "0 < number < 1 / null"
    assert told["data.customers"].type == "{0} / [{0}, {0}]".format("2 <= integer <= 10000")
    assert told["evaluation.reference_seconds"].type == "[number >= 0, ...] / null"
    assert told["training.betas"].type == "[{0}, {0}]".format("0 <= number < 1")
    assert told["evaluation.decode"].choices == ("greedy", "sampling", "multistart")
    assert told["tracking.log_with"].choices == ("tensorboard", "trackio", "wandb")


def test_help_narrows_to_a_section_and_shows_the_values_of_the_yaml_file(tmp_path):
    (tmp_path / "mine.yaml").write_text("evaluation: {samples: 7}\n")
    words = ["--config", str(tmp_path / "mine.yaml"), "--keys", "evaluation.sa"]
    assert stage(tmp_path, "evaluate.py", *words).stdout == (
        "evaluation: The instances to solve, how to solve them, and the solvers to\n"
        "compare with.\n"
        "  evaluation.samples=7  (1 <= integer <= 1048576)\n"
        "      tours per problem with decode=sampling\n"
    )
    refused(stage(tmp_path, "train.py", "--keys", "evaluatoin"), "no key starts with it; did you mean evaluation?")


def test_the_resolved_config_is_printed_and_nothing_begins(tmp_path):
    done = stage(tmp_path, "train.py", "--print-config", "training.steps=7")
    assert yaml.safe_load(done.stdout)["training"]["steps"] == 7
    assert not list(tmp_path.iterdir())


SLIPS = [
    (["train.py", "--workload", "cvrp", "training.stepss=3"], "did you mean 'training.steps'?"),
    (["train.py", "--workload", "crypto", "trainig.steps=3"], "did you mean 'training'?"),
    (["train.py", "--workload", "cvpr"], "did you mean cvrp?"),
    (["train.py", "--workload", "cvrp", "--nmae", "x"], "did you mean --name?"),
    (["train.py", "--workload", "cvrp", "--steps", "5"], "did you mean training.steps=5, without dashes?"),
    (["train.py", "--workload=cvrp", "--data.customers", "50"], "did you mean data.customers=50, without dashes?"),
    (["evaluate.py", "--workload", "cvrp", "--milliseconds=8"], "did you mean evaluation.milliseconds=8,"),
    (["train.py"], "--workload is missing; give one of bep, crypto"),
    (["evaluate.py", "--workload", "bep", "evaluation.clause=2"], "did you mean 'evaluation.clauses'?"),
    (["prepare.py", "--workload", "lmol", "data.thetta=4"], "did you mean 'data.theta'?"),
    (["benchmark.py", "--workload", "tinystories", "--stpes", "4"], "did you mean --steps?"),
    (["benchmark.py", "--workload", "tinystories", "--name", "none"], "there is no run runs/tinystories/none"),
    (["-m", "exporters", "safetensor", "runs/cvrp/none"], "unknown format 'safetensor'"),
    (["-m", "exporters", "safetensors", "runs/cvrp/none", "--wich", "last"], "did you mean --which?"),
]


def slips():
    """The first slip of train.py and of exporters told by a new interpreter, whose time counts; all others by a fork.

    Slowly these, too, by a new one.
    """
    known = {script for script, *_ in (words for words, _ in SLIPS)} - {"train.py", "-m"}
    for words, answer in SLIPS:
        first = words[0] not in known
        known.add(words[0])
        yield pytest.param(words, answer, True, marks=() if first else pytest.mark.slow)
        if not first:
            yield words, answer, False


@pytest.mark.parametrize(("words", "answer", "new"), [*slips()])
def test_a_slip_is_told_in_three_lines_and_a_second_whatever_runs_there_are(words, answer, new, tmp_path):
    for name in workloads.names():
        begin(tmp_path, name)
    before = sorted(tmp_path.rglob("*"))
    words = words if words[0] == "-m" else [str(ROOT / "pipelines" / words[0]), *words[1:]]
    if new:
        done, seconds = fresh(*words, folder=tmp_path)
    else:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PYTHONPATH}
        done, seconds = forked.run(words, tmp_path, environment), 0
    assert (done.returncode, done.stdout) == (2, "")
    assert answer in done.stderr
    assert len(done.stderr.splitlines()) <= 3
    assert within(seconds, 1)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_page_of_all_keys_is_that_of_the_classes():
    assert configuration.PAGE.read_text() == configuration.page(), (
        "docs/configuration.md is out of date: run `make docs`"
    )
    page = configuration.page()
    for name in workloads.names():
        assert all(f"| `{key}` |" in page for key in dotted(name))


def test_a_value_of_another_type_is_told_before_the_run_that_exists(tmp_path):
    begin(tmp_path, "cvrp")
    refused(stage(tmp_path, "train.py", "training.steps=many"), "training.steps", "given 'many'")
    refused(stage(tmp_path, "train.py", "training.steps=3"), "the run runs/cvrp/default exists")
