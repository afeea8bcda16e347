"""Checkpoints of a tiny model: complete, verified, exact, and only the newest."""

import copy
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import DistributedType
from torch import nn

from common.disk.files import sha256
from common.errors import UserError
from pipelines.engine import checkpoints
from pipelines.engine.split_checkpoints import Trained
from pipelines.engine.update import Progress

FILES = ("model.safetensors", "optimizer.pt", "task.pt", "progress.json")


class Tied(nn.Module):
    """Two names for one weight, and one of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class Training:
    """A model with an optimizer after `steps` updates."""

    def __init__(self, steps=0, scaler=None, device="cpu"):
        torch.manual_seed(steps)
        self.model = Tied()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.accelerator = SimpleNamespace(
            scaler=scaler,
            device=torch.device(device),
            distributed_type=DistributedType.NO,
            unwrap_model=lambda model: model,
        )
        for _ in range(steps):
            self.update()

    def update(self):
        self.optimizer.zero_grad()
        self.model(torch.eye(3)).square().sum().backward()
        self.optimizer.step()

    def save(self, folder, step, keep=3, task=None, best=Path("nowhere")):
        progress = Progress(step, best=0.1 + 0.2, validated=step, sums={"loss": 1e-30})
        snapshot = checkpoints.take(self.trained(), task or {}, progress)
        snapshot.write(folder, keep, best)

    def load(self, path):
        """(task state, progress)"""
        return checkpoints.load(path, self.trained())

    def trained(self):
        return Trained(self.accelerator, self.model, [self.optimizer], None)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def same(one, other):
    """Whether two state dicts are equal in every bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_what_is_loaded_is_what_was_saved_and_goes_on_alike(tmp_path):
    saved, loaded = Training(steps=3), Training()
    task = {"seen": torch.tensor([1.5, math.pi]), "count": 7, "names": ["a"]}
    saved.save(tmp_path, 3, task=task)
    state, progress = loaded.load(tmp_path / "step-000003")
    assert same(state, task)
    assert progress == Progress(3, best=0.1 + 0.2, validated=3, sums={"loss": 1e-30})
    for _ in range(2):
        assert same(loaded.model.state_dict(), saved.model.state_dict())
        assert same(loaded.optimizer.state_dict(), saved.optimizer.state_dict())
        saved.update()
        loaded.update()
    assert loaded.model.first.weight is loaded.model.second.weight


class Wider(Tied):
    """The model in a later version, with a tensor more."""

    def __init__(self):
        super().__init__()
        self.register_buffer("share", torch.zeros(2))

    def renewed(self, tensors):
        return {"share": torch.ones(2), **tensors}


def test_a_model_gives_an_older_checkpoint_what_it_lacks(tmp_path):
    saved, loaded = Training(steps=3), Training()
    saved.save(tmp_path, 3)
    loaded.model = Wider()
    loaded.optimizer = torch.optim.AdamW(loaded.model.parameters(), lr=0.1)
    progress = tmp_path / "step-000003/progress.json"
    own = json.loads(progress.read_text())
    del own["validated"]  # which older ones do not say
    progress.write_text(json.dumps(own))
    _, found = loaded.load(tmp_path / "step-000003")
    assert torch.equal(loaded.model.first.weight, saved.model.first.weight)
    assert loaded.model.share.tolist() == [1, 1]
    assert found.validated == 3


def test_saving_changes_nothing_in_training(tmp_path):
    saving, other = Training(steps=2), Training(steps=2)
    before = copy.deepcopy(saving.optimizer.state_dict())
    saving.save(tmp_path, 2)
    assert same(saving.optimizer.state_dict(), before)
    saving.update()
    other.update()
    assert same(saving.model.state_dict(), other.model.state_dict())


def test_numbers_that_a_gpu_leaves_on_the_host_are_copied_before_they_change():
    step, weight = torch.tensor(1.0), torch.ones(2)
    kept = checkpoints._copied({"step": step, "weight": weight}, torch.device("cuda"))
    step += 1  # as optimizers count
    assert kept["step"] == 1
    assert kept["weight"] is weight  # which has come from the GPU


def test_the_manifest_lists_every_other_file(tmp_path):
    Training().save(tmp_path, 1)
    folder = tmp_path / "step-000001"
    assert names(folder) == sorted([*FILES, "manifest.json"])
    assert json.loads((folder / "manifest.json").read_text()) == {name: sha256(folder / name) for name in FILES}


def test_the_newest_stay_by_number_and_other_folders_are_left_alone(tmp_path):
    (tmp_path / "step-12").mkdir()
    (tmp_path / "step-000007.old").mkdir()
    training = Training()
    for step in (5, 999_999, 1_000_000):
        training.save(tmp_path, step, keep=2)
    assert [path.name for path in checkpoints.found(tmp_path)] == ["step-1000000", "step-999999"]
    assert names(tmp_path) == ["step-000007.old", "step-1000000", "step-12", "step-999999"]


def test_saving_a_step_again_replaces_it(tmp_path):
    first, second = Training(steps=1), Training(steps=2)
    first.save(tmp_path, 4)
    second.save(tmp_path, 4)
    first.load(tmp_path / "step-000004")
    assert same(first.model.state_dict(), second.model.state_dict())


def test_the_state_of_a_task_gets_to_a_cpu_that_has_a_number_as_those_of_several_processes_have(tmp_path):
    Training().save(tmp_path, 1, task={"baseline": {"weight": torch.ones(2)}})
    state, _ = Training(device="cpu:0").load(tmp_path / "step-000001")
    assert state["baseline"]["weight"].tolist() == [1, 1]


def test_what_comes_after_a_checkpoint_is_deleted_and_does_not_count_among_the_newest(tmp_path):
    training = Training()
    for step in (8, 9, 3):
        training.save(tmp_path, step, keep=1)
    assert names(tmp_path) == ["step-000003"]


def test_the_best_model_is_kept_and_brought_back(tmp_path):
    best, folder = tmp_path / "best", tmp_path / "checkpoints"
    best.mkdir()
    files = {"config.json": "the config", "model.safetensors": "the weights"}
    for name, text in files.items():
        (best / name).write_text(text)
    (best / ".figures.json.tmp").symlink_to("gone")  # of an evaluation beside training
    (best / "onnx").mkdir()
    Training().save(folder, 1, best=best)
    (best / ".figures.json.tmp").unlink()
    (best / "onnx").rmdir()
    assert not checkpoints.restore_best(folder / "step-000001", best)
    (best / "config.json").unlink()
    (best / "model.safetensors").write_text("other weights")
    assert checkpoints.restore_best(folder / "step-000001", best)
    assert {path.name: path.read_text() for path in best.iterdir()} == files
    (folder / "step-000001/best/config.json").write_text("spoilt")
    with pytest.raises(UserError, match="no sound checkpoint"):
        checkpoints.newest_sound(folder, lambda line: None)


def test_a_checkpoint_that_cannot_be_finished_leaves_no_trace_and_takes_none_away(tmp_path, monkeypatch):
    training = Training()
    training.save(tmp_path, 1, keep=1)

    def fails(folder, known):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints.files, "digests", fails)
    with pytest.raises(UserError, match="the disk is full"):
        training.save(tmp_path, 2, keep=1)
    assert names(tmp_path) == ["step-000001"]


@pytest.mark.parametrize("spoil", [flip, lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_an_unsound_checkpoint_is_refused_by_name_for_the_one_before(tmp_path, name, spoil):
    for step in (1, 2):
        Training().save(tmp_path, step)
    spoil(tmp_path / "step-000002" / name)
    said = []
    assert checkpoints.newest_sound(tmp_path, said.append) == tmp_path / "step-000001"
    assert len(said) == 1
    assert f"{tmp_path / 'step-000002'} is refused: " in said[0]
    if (name, spoil) != ("manifest.json", flip):  # which then wrongs another file, and that one is named
        assert name in said[0]


@pytest.mark.parametrize("manifest", ["", "[]", "{}", "3", '{"model.safetensors": 5}', '{"gone": ""}', "\x00"])
def test_a_manifest_that_is_none_is_refused(tmp_path, manifest):
    Training().save(tmp_path, 1)
    (tmp_path / "step-000001/manifest.json").write_text(manifest)
    with pytest.raises(UserError, match=r"no sound checkpoint in .*: delete the run folder"):
        checkpoints.newest_sound(tmp_path, lambda line: None)


@pytest.mark.parametrize("name", [*FILES, "average.safetensors"])
def test_a_file_that_the_manifest_does_not_list_is_not_trusted(tmp_path, name):
    for step in (1, 2):
        Training().save(tmp_path, step)
    folder = tmp_path / "step-000002"
    (folder / name).touch()
    listed = json.loads((folder / "manifest.json").read_text())
    listed.pop(name, None)
    (folder / "manifest.json").write_text(json.dumps(listed))
    said = []
    assert checkpoints.newest_sound(tmp_path, said.append) == tmp_path / "step-000001"
    assert said == [f"checkpoint {folder} is refused: manifest.json does not list {name}"]


def test_where_there_is_no_checkpoint_there_is_nothing_to_refuse(tmp_path):
    assert checkpoints.newest_sound(tmp_path, pytest.fail) is None
    assert checkpoints.newest_sound(tmp_path / "nowhere", pytest.fail) is None


class Payload:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was run",))


@pytest.mark.parametrize("name", ["optimizer.pt", "task.pt"])
def test_no_pickle_is_run_though_its_sum_is_right(tmp_path, name):
    Training().save(tmp_path, 1)
    torch.save({"state": Payload()}, tmp_path / "step-000001" / name)
    with pytest.raises(Exception, match="Weights only load failed"):
        Training().load(tmp_path / "step-000001")


class Scaler:
    """What is needed of torch.amp.GradScaler."""

    def __init__(self, scale):
        self.scale = scale

    def state_dict(self):
        return {"scale": self.scale}

    def load_state_dict(self, state):
        self.scale = state["scale"]


def test_the_scale_of_the_loss_is_restored_where_there_is_one(tmp_path):
    Training(scaler=Scaler(1024.0)).save(tmp_path, 1)
    scaled, plain = Training(scaler=Scaler(1.0)), Training()
    for training in (scaled, plain):
        _, progress = training.load(tmp_path / "step-000001")
        assert progress.step == 1
    assert scaled.accelerator.scaler.scale == 1024.0
    Training().save(tmp_path, 2)
    scaled.load(tmp_path / "step-000002")
    assert scaled.accelerator.scaler.scale == 1024.0
