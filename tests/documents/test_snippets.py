"""Every command and every piece of Python in README and docs runs; a page's pieces run in their order."""

import csv
import os
import random
import re
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from tests import forked
from tests.documents import snippets
from tests.documents.snippets import ROOT, code, commands, elsewhere, is_python, shortened
from tests.workloads.bep.firm import prose
from tests.workloads.cvrp.files import SMALL

PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
# The values that a page's Python code takes for granted.
GIVEN = {"locs": [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], "demand": [0, 1, 2], "capacity": 3, "text": "Clashes\n"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder that looks like the project's, with a reader's own files in it."""
    for name in (
        "common",
        "exporters",
        "models",
        "pipelines",
        "tests",
        "accelerate_configs",
        "Makefile",
        "requirements.txt",
    ):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    _documents(tmp_path / "my_documents")
    _candles(tmp_path / "candles")
    _images(tmp_path)
    corpus = sorted((ROOT / "pipelines/workloads/bep/corpus").iterdir())
    (tmp_path / "oz.txt").write_text("\n\n".join(path.read_text() for path in corpus[:6]))
    (tmp_path / "my_instances.vrp").write_text(SMALL)
    (tmp_path / "past.txt").write_text(" ".join(["0.5"] * 16) + "\n")
    return tmp_path


def _documents(folder):
    folder.mkdir()
    for number in range(8):
        (folder / f"plan-{number}.md").write_text(prose(number))


def _candles(folder):
    """Two coins of 2,000 candles, a random walk."""
    folder.mkdir()
    for number, symbol in enumerate(("BTCUSDT", "ETHUSDT")):
        generator = np.random.default_rng(number)
        close = 100 * np.exp(np.cumsum(generator.normal(0, 0.004, 2000)))
        rows = [
            (1_700_000_000_000 // 900_000 * 900_000 + 900_000 * i, o, max(o, c) * 1.001, min(o, c) * 0.999, c, 1000)
            for i, (o, c) in enumerate(zip([100.0, *close[:-1]], close, strict=True))
        ]
        with (folder / f"{symbol}-15m.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("open_time", "open", "high", "low", "close", "volume"), *rows])


def _images(folder):
    """Pictures whose score is their brightness, and some to be compared."""
    generator = random.Random(0)
    for name in ("my_images", "folder"):
        (folder / name).mkdir()
    scores = [generator.randint(0, 200) for _ in range(40)]
    for number, score in enumerate(scores):
        image = Image.new("L", (16, 16))
        image.putdata([score + generator.randint(0, 55) for _ in range(256)])  # unlike each other
        image.save(folder / f"my_images/{number}.png")
        image.save(folder / f"folder/{number}.png") if number < 3 else None
    rows = [f"{number}.png,{score / 200}" for number, score in enumerate(scores)]
    (folder / "my_images/scores.csv").write_text("\n".join(["image,score", *rows]) + "\n")
    for name in ("a.png", "b.png"):
        shutil.copy(folder / "my_images/0.png", folder / name)
    shutil.copytree(folder / "my_images", folder / "my_pairs")
    shutil.copytree(folder / "my_images", folder / "my_faces")
    faces = [f"{row},{(3 * number) % 10}" for number, row in enumerate(rows)]
    (folder / "my_faces/scores.csv").write_text("\n".join(["file,quality,beauty", *faces]) + "\n")
    (folder / "my_pairs/scores.csv").unlink()
    pairs = [generator.sample(range(40), 2) for _ in range(200)]
    rows = [f"{a}.png,{b}.png,{int(scores[a] == scores[b])}" for a, b in pairs if scores[a] >= scores[b]]
    (folder / "my_pairs/answers.csv").write_text("\n".join(["winner,loser,tie", *rows]) + "\n")


def run(command, project):
    """Run a command of a document in `project`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(project)}
    if elsewhere(command):
        return
    command = command.replace("$HOME", str(project)).replace("~/", f"{project}/")
    if command.startswith("make "):
        target = shutil.which("make")
        done = subprocess.run([target, "-n", *command.split()[1:]], capture_output=True, text=True, cwd=project)
        assert done.returncode == 0, done.stderr
        for line in re.findall(r"^\S*/(accelerate launch .*)$", done.stdout, re.MULTILINE):
            run(line, project)
    elif command.startswith(("cp ", "source ")):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=project, env=environment)
        assert done.returncode == 0, done.stderr
    else:
        done = forked.run(shortened(command), project, environment)
        doctor = "doctor.py" in command  # finds faults of a machine with two cores and no GPU, and then leaves with 1
        assert done.returncode in ((0, 1) if doctor else (0,)), f"{command}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_code_is_one_that_is_run(page):
    for block in code((ROOT / page).read_text()):
        assert commands(block) or is_python(block) or block.startswith("runs/"), block
        for command in commands(block):
            other = elsewhere(command)
            assert other is None or (ROOT / other).exists(), command


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_says_to_type_runs(page, project):
    values = dict(GIVEN)
    for block in code((ROOT / page).read_text()):
        for command in commands(block):
            run(command, project)
        if is_python(block):
            exec(compile(block, page, "exec"), values)


def test_a_command_is_shortened_by_words_behind_its_own():
    assert shortened("accelerate launch pipelines/train.py --workload cvrp --name x data.customers=50")[:5] == [
        "pipelines/train.py", "--workload", "cvrp", "--name", "x",
    ]  # fmt: skip
    assert "training.steps=4" in shortened("python pipelines/train.py --workload lmol training.steps=1200")
    assert shortened("python pipelines/doctor.py") == ["pipelines/doctor.py"]
    text = "Text:\n\n    make run   # a comment\n    python x.py \\\n        more\n\n```diff\n+ no\n```\n\n    runs/\n"
    assert [commands(block) for block in code(text)] == [["make run", "python x.py more"], []]
    assert snippets.elsewhere("make test") == ".ci/run"
