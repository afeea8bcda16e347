"""Features of a frozen tower: computed once for the images and the tower, never taken for those of others."""

import errno
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from common.errors import UserError
from models.images.vision_tower import Tower
from pipelines.workloads.lmol import data, features, folds
from pipelines.workloads.lmol.config import Config
from pipelines.workloads.lmol.task import ComparisonTask
from tests import forked, towers
from tests.stages import ROOT
from tests.workloads.lmol.brightness import map_items
from tests.workloads.lmol.small import CPU

COUNT = 60


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of images with scores, and a tiny tower."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "images").mkdir()
    generator = np.random.default_rng(0)
    rows = ["image,score"]
    for number in range(COUNT):
        level = generator.uniform(40, 200)
        pixels = level + 30 * generator.standard_normal((20, 20, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"images/{number}.png")
        rows.append(f"{number}.png,{level:.0f}")
    (folder / "images/scores.csv").write_text("\n".join(rows))
    towers.save_tower("vit", folder / "base")
    return folder


def of(made, base="base", tune=None, **changes):
    """A config over the tower."""
    tree = {"source": str(made / "images"), "fold": "all", "train_pairs": 60, "evaluation_pairs": 60, **changes}
    model = {"base": str(made / base), "width": 16, "tune": tune}
    settings = {"training": {"steps": 1}, "evaluation": {"network_steps": 1}}
    return Config.model_validate({"data": {"theta": 5, "size": 16, **tree}, "model": model, **settings})


@pytest.fixture
def seen(monkeypatch):
    """The number of images in each pass of a tower, those that are not zeros."""
    counts, forward = [], Tower.forward
    monkeypatch.setattr(
        Tower, "forward", lambda self, x: counts.append(int(x.any((1, 2, 3)).sum())) or forward(self, x)
    )
    return counts


def tasks(config, folder):
    """A task of each fold."""
    return {name: ComparisonTask(each, folder, CPU) for name, each in data.expand(config, folder).items()}


@pytest.mark.slow
def test_five_folds_and_their_evaluations_encode_each_image_once(made, tmp_path, seen):
    config = of(made)
    data.prepare(config, tmp_path / "whole")
    trained = tasks(config, tmp_path / "whole")
    for task in trained.values():
        task.refit(map_items)
        task.model.eval()
    folds.evaluate(config, {name: task.model for name, task in trained.items()}, tmp_path / "whole", CPU, map_items)
    trial, blank = 2 * 4, 1  # images of a saved and a read model; a grey one
    assert sum(seen) == COUNT + 5 * (trial + blank)
    again = of(made, theta=7)
    data.prepare(again, tmp_path / "other")
    tasks(again, tmp_path / "other")
    assert sum(seen) == COUNT + 5 * (trial + blank) + 5 * trial


def stored(config, folder):
    """The features, the folder that they are in, and the model."""
    if not folder.exists():
        data.prepare(config, folder)
    comparisons, task = data.load(folder, 0), next(iter(tasks(config, folder).values()))
    at = features.home(task.model, folder, CPU)
    return features.of_all(task.model, [comparisons], folder, CPU)[0], at, task.model


def images_in(folder):
    """The images (N, C, S, S), read as training reads them."""
    return data.Images(data.load(folder, 0).images, np.arange(COUNT))[torch.arange(COUNT)]


def test_features_that_are_kept_have_the_bits_of_those_computed(made, tmp_path):
    found, at, model = stored(of(made, folds=3), tmp_path / "whole")
    assert found.dtype == torch.float32
    assert torch.equal(found, model.encode_all(images_in(tmp_path / "whole")))
    assert at.parent == tmp_path


@pytest.mark.slow
def test_whatever_changes_features_has_a_place_of_its_own(made, tmp_path):
    towers.save_tower("vit", made / "other", seed=1)
    towers.save_tower("vit", made / "normal")
    path = made / "normal/preprocessor_config.json"
    path.write_text(path.read_text().replace("0.4", "0.45"))
    towers.save_tower("vit", made / "eps", layer_norm_eps=1e-3)
    changes = [{}, {"base": "other"}, {"base": "normal"}, {"base": "eps"}, {"size": 24}, {"fit": "pad"}]
    Image.new("RGB", (30, 20), "red").save(made / "images/0.png")
    found = [stored(of(made, **change), tmp_path / f"data-{n}") for n, change in enumerate(changes)]
    Image.new("RGB", (30, 20), "blue").save(made / "images/0.png")
    found.append(stored(of(made), tmp_path / "changed"))
    assert len({at for _, at, _ in found}) == len(changes) + 1
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert features.home(found[0][2], tmp_path / "data-0", CPU) != found[0][1]
    finally:
        torch.set_num_threads(threads)


def test_a_tower_that_is_tuned_keeps_nothing(made, tmp_path):
    config = of(made, tune="last", fold=0)
    data.prepare(config, tmp_path / "whole")
    task = ComparisonTask(config, tmp_path / "whole", CPU)
    task.refit(map_items)
    assert features.home(task.model, tmp_path / "whole", CPU) is None
    assert not list(tmp_path.glob("features-*"))


def test_a_full_disk_is_named_and_leaves_nothing(made, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(UserError, match=r"features-.*the disk is full"):
        stored(of(made), tmp_path / "whole")
    assert not list(tmp_path.glob("*features-*"))


ALONE = """
import sys
from pathlib import Path
import torch
from tests.workloads.lmol import test_tower_features as these
found, _, _ = these.stored(these.of(Path(sys.argv[1])), Path(sys.argv[2]))
print(found.double().sum().item())
"""


@pytest.mark.slow
def test_two_processes_at_once_and_one_that_is_killed_leave_whole_features(made, tmp_path):
    data.prepare(of(made), tmp_path / "whole")
    command = ["-c", ALONE, str(made), str(tmp_path / "whole")]

    def start():
        threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}  # on which the bits depend
        return forked.Process(command, ROOT, {**os.environ, **threads})

    killed, end = start(), time.monotonic() + 60
    while killed.poll() is None and time.monotonic() < end and not list(tmp_path.glob("*features-*")):
        time.sleep(0.002)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    killed.output()  # which closes what it went to
    both = [start(), start()]
    ended = [(each.finish(), *each.output()) for each in both]
    assert ended[0][0] == ended[1][0] == 0, ended
    printed = [said for _, said, _ in ended]
    assert len(set(printed)) == 1
    found, at, _ = stored(of(made), tmp_path / "whole")
    assert printed[0].split()[-1] == str(found.double().sum().item())
    assert [path.name for path in tmp_path.glob("*features-*")] == [at.name]


def test_beside_data_that_cannot_be_written_features_are_computed(made, tmp_path, monkeypatch):
    config = of(made, folds=3)
    data.prepare(config, tmp_path / "whole")
    monkeypatch.setattr(os, "access", lambda path, mode: not (Path(path) == tmp_path and mode == os.W_OK))
    found = tasks(config, tmp_path / "whole")
    assert not list(tmp_path.glob("features-*"))
    monkeypatch.undo()
    kept, _, _ = stored(config, tmp_path / "whole")
    one = found["fold-0"] if "fold-0" in found else next(iter(found.values()))
    torch.testing.assert_close(one._encoded(), kept[one.used])
