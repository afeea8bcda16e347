"""docs/architecture.md's examples: each is a change of one file, and the project has the new thing once it is made."""

import json
import os
import re
import shutil
import subprocess
import textwrap

import pytest

from common import config as configs
from common.errors import UserError
from pipelines.workloads.cvrp.config import Config
from tests import forked
from tests.stages import ROOT, records
from tests.test_stages import TINY

TEXT = (ROOT / "docs/architecture.md").read_text()
WORDS = {
    "training.optimizer=radam": "pipelines/engine/optim.py",
    "training.schedule=square_root": "pipelines/engine/optim.py",
    "tracking.log_with=[swanlab]": "pipelines/tracking/trackers.py",
    "evaluation.decode=every_second": "models/routing/decodes.py",
    "data.distribution=corner": "pipelines/workloads/cvrp/instances/distributions.py",
}
SWANLAB = """
    import json
    from types import SimpleNamespace

    def init(project):
        return SimpleNamespace(log=log, finish=lambda: None)

    def log(values, step):
        with open("swanlab.jsonl", "a") as file:
            file.write(json.dumps({"step": step, **values}) + "\\n")

    class Config(dict):
        def update(self, values, allow_val_change):
            super().update(values)

    config = Config()
"""


def examples():
    """{word: diff}: a diff belongs to the word in the sentence before it."""
    return dict(re.findall(r"`([\w.]+=\S+)`:\n\n```diff\n(.*?)```", TEXT, re.DOTALL))


def apply(diff, folder):
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    done = subprocess.run(["git", "apply"], cwd=folder, input=diff, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """A copy of the project with all examples."""
    folder = tmp_path_factory.mktemp("changed")
    for name in ("common", "models", "pipelines"):
        shutil.copytree(ROOT / name, folder / name)  # what is compiled, too, but for what a diff changes
    for diff in examples().values():
        apply(diff, folder)
    return folder


def test_every_table_has_an_example_that_changes_one_file():
    assert examples().keys() == WORDS.keys()
    for word, diff in examples().items():
        assert re.findall(r"^(?:---|\+\+\+) [ab]/(.*)", diff, re.MULTILINE) == [WORDS[word]] * 2


@pytest.mark.parametrize("word", WORDS)
def test_before_the_change_the_name_is_refused(word):
    with pytest.raises(UserError, match=re.escape(word.partition("=")[0])):
        configs.build(Config, {}, [word], "of the example")


@pytest.mark.slow
def test_a_model_is_trained_and_evaluated_with_all_of_them(changed, tmp_path):
    packages, folder = tmp_path / "packages", tmp_path / "work"
    (packages / "swanlab-1.dist-info").mkdir(parents=True)
    (packages / "swanlab-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: swanlab\nVersion: 1\n")
    (packages / "swanlab.py").write_text(textwrap.dedent(SWANLAB))
    folder.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(packages)}
    falling = ["training.warmup_steps=0", "training.final_learning_rate=0"]
    for script, words in (("train.py", [*TINY, *WORDS, *falling]), ("evaluate.py", ["evaluation.reference_seconds=0"])):
        command = [str(changed / "pipelines" / script), "--workload", "cvrp", *words]
        done = forked.run(command, folder, environment, fresh=True)
        assert done.returncode == 0, done.stderr
    run = folder / "runs/cvrp/default"
    rates = records(run, "learning_rate")
    assert rates[4] == pytest.approx(rates[1] * (1 - 0.5), rel=1e-6)  # 3 of 12 updates are done: a half is left
    logged = [json.loads(line) for line in (folder / "swanlab.jsonl").read_text().splitlines()]
    assert {entry["step"] for entry in logged} == set(range(1, 13))
    summary = json.loads((run / "evaluations/test.json").read_text())
    assert summary["decode"] == "gt, every_second x 8 symmetries"
