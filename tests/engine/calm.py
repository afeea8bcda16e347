"""An undisturbed training, and what a disturbed and resumed one has to leave: the same."""

import json
import os
import re
import shutil
from pathlib import Path

import torch

from tests import faults, forked
from tests.stages import ROOT

FAULTS = ROOT / "tests/faults.py"
EACH_START = ("provenance.json", "train.log", ".lock")  # tell of each start
TIMES = ("time", "seconds", "examples_per_s", "data_wait", "seconds_by_rank")


class Calm:
    """An undisturbed training in `folder`: the changes it made to the disk, what it left, and how to train so again.

    `given` is a folder of files that users have before. With `keep`, `states` are copies of what was on disk at each
    change, as far as they differ.
    """

    def __init__(self, workload, folder, words, processes=1, given=None, keep=False):
        self.workload, self.words, self.processes, self.given = workload, words, processes, given
        self.run = Path("runs") / Path(workload).name / "default"
        self.calm, log, states = folder, Path(f"{folder}.changes"), Path(f"{folder}.states")
        self.train(self.begun(folder), *words, fault=("keep", states) if keep else ("list", log), sound=True)
        listed = [] if keep else [line.split("\t") for line in log.read_text().splitlines()]
        self.changes, self.origins = [change for change, _ in listed], [origin for _, origin in listed]
        self.states = [path for path in sorted(states.iterdir()) if path.is_dir()] if keep else []
        self.left = left(folder)
        self.sound = set()  # digests of folders from which --resume is known to end in the same

    def begun(self, folder):
        """Return `folder`, made, with what users have before."""
        folder.mkdir(parents=True, exist_ok=True)
        return shutil.copytree(self.given, folder, dirs_exist_ok=True) if self.given else folder

    def train(self, folder, *words, fault=(), sound=False):
        """Run train.py in `folder`, with a fault (kind, number) if one is given; `sound`: it has to succeed."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment |= {"ACCELERATE_USE_CPU": "true"} if self.processes > 1 else {}
        folder.mkdir(parents=True, exist_ok=True)
        done = forked.run(self.command(*words, fault=fault), folder, environment, self.processes)
        assert done.returncode == 0 or not sound, done.stderr
        return done

    def command(self, *words, fault=()):
        """The words after `python`."""
        script = [FAULTS, *fault] * bool(fault) + [ROOT / "pipelines/train.py", "--workload", self.workload]
        return [*map(str, script), *words]

    def resume(self, folder):
        """Resume, by nothing but the run's name; begin again where the run was not begun."""
        words = ["--resume"] if (folder / self.run / "config.yaml").exists() else self.words
        return self.train(folder, *words, fault=("list", os.devnull), sound=True)  # which forks members

    def distinct(self):
        """Return the numbers, from 1, of changes: of those to one file in one way from the same code, the first."""
        places = list(zip(self.changes, self.origins, strict=True))
        return [number for number, place in enumerate(places, 1) if place not in places[: number - 1]]

    def check_resumed(self, folder, case):
        """Assert that resuming in `folder`, which is removed, leaves what the undisturbed training left."""
        if (now := digest(folder)) not in self.sound:
            resumed, found = self.resume(folder), left(folder)
            assert found.keys() == self.left.keys(), (case, found.keys() ^ self.left.keys(), resumed.stderr)
            assert [name for name in found if found[name] != self.left[name]] == [], (case, resumed.stderr)
            self.sound.add(now)
        shutil.rmtree(folder)

    def check_state(self, state, folder):
        """Resume from one of `states`: what a process leaves that is killed there."""
        shutil.copytree(state, folder)
        self.check_resumed(folder, f"killed before or in {Path(f'{state}.change').read_text()}")

    def check_fault(self, folder, kind, number):
        """Disturb the change `number` and resume."""
        case = f"{kind} at {number}: {self.changes[number - 1]}"
        done = self.train(self.begun(folder), *self.words, fault=(kind, number))
        if kind == "kill":
            assert done.returncode != 0, case
        elif done.returncode:
            members = "members failed" in done.stderr
            assert self.processes > 1 or done.returncode == (1 if members else 2), (case, done.stderr)
            assert "Traceback" not in done.stderr, (case, done.stderr)
            named = whole(re.search("cannot write (.*?): ", done.stderr)[1])
            disturbed = whole(re.search(r"^disturbed: \w+ (.*)", said(done, folder), re.MULTILINE)[1])
            # The file, or a folder that is written at once.
            assert os.path.commonpath([named, disturbed]) in (named, disturbed), (case, done.stderr)
        else:  # nothing that matters
            assert left(folder).items() >= self.left.items(), case
        self.check_resumed(folder, case)


def said(done, folder):
    """What a training and its members' processes said."""
    return done.stderr + "".join(log.read_text() for log in folder.glob("runs/**/train.log"))


def digest(folder):
    """A digest of what resuming begins with: what is in `folder`, as `faults.key` has it, without times."""
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        try:
            value = contents(path) if path.name not in EACH_START and not faults.is_temporary(name) else None
        except ValueError:  # a line that is torn
            value = path.read_bytes()
        found[str(name)] = value
    return faults.key(found)


def whole(path):
    """Return the path of what is to stand in place of files and folders that are temporary."""
    return re.sub(r"/\.([^/]*)\.(tmp|old)\b", r"/\1", path)


def left(folder):
    """What training left in `folder`: {path: contents}, without times, and without what tells of each start."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    return {name: contents(path) for name, path in found.items() if path.name not in EACH_START[:2]}


def contents(path):
    """What is in a file, as far as an undisturbed training and a resumed one have to agree; None for a folder."""
    if path.is_dir():
        return None
    if path.suffix == ".pt":  # equal objects may be pickled to other bytes
        return flat(torch.load(path, weights_only=True))
    if path.name == "manifest.json" and path.parent.name.startswith("step-"):
        return sorted(json.loads(path.read_text()))
    if path.name == "outcome.json":
        return timeless(json.loads(path.read_text()))
    if path.name != "metrics.jsonl":
        return path.read_bytes()
    return [timeless(json.loads(line)) for line in path.read_text().splitlines()]


def timeless(value):
    """Leave out times in dictionaries within dictionaries."""
    if not isinstance(value, dict):
        return value
    return {key: timeless(inner) for key, inner in value.items() if key not in TIMES}


def flat(value):
    """What == compares, in place of tensors, lists and tuples within dictionaries and lists."""
    if isinstance(value, dict):
        return {key: flat(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [flat(inner) for inner in value]
    return (value.dtype, value.tolist()) if isinstance(value, torch.Tensor) else value
