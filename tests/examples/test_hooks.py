"""Hooks of training: the examples do what they say, and the run's bits are what they are without them."""

import json
import re
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from common.errors import Stopped, UserError
from models import io
from pipelines.engine.hooks import Hook
from tests.engine import toy
from tests.exporters import hub as stand_in

FOLDER = Path(__file__).resolve().parents[2] / "examples/hooks"
# The library hands bytes to its client in a way that the client has another name for now.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

TRAINING = {"steps": 24, "checkpoint_steps": 10, "validation_steps": 10, "log_steps": 8}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(io, "save", io.save)  # put back what the toy replaces
    monkeypatch.setattr(sys, "path", [*sys.path])


def train(name, *hooks, **training):
    toy.train(name, {**TRAINING, **training, "hooks": hooks}, {"dropout": 0.3})
    return Path("runs/toy") / name


def checkpoint(run):
    return (run / "checkpoints/step-000024/model.safetensors").read_bytes()


class Nosy(Hook):
    """Writes down what it is called with, and draws random numbers."""

    seen: list

    def on_update(self, now):
        import torch

        torch.rand(3)
        gradients = [p.grad.clone() for p in now.model.parameters()]
        assert any(gradient.any() for gradient in gradients)
        assert not torch.is_grad_enabled()
        self.seen.append(("update", now.step))

    def on_validation(self, now, values):
        self.seen.append(("validation", now.step, sorted(values)))

    def on_save(self, now, checkpoint):
        assert (checkpoint / "manifest.json").is_file()
        self.seen.append(("save", now.step, checkpoint.name))

    def on_end(self, now):
        self.seen.append(("end", now.step))


@pytest.fixture
def seen(monkeypatch):
    monkeypatch.setattr(Nosy, "seen", [], raising=False)
    return Nosy.seen


NOSY = f"{__name__}:Nosy"


def test_hooks_are_called_with_gradients_values_and_complete_checkpoints_and_change_no_bit(seen):
    import torch

    plain, drawn = train("plain"), torch.random.get_rng_state()
    watched = train("watched", NOSY)
    assert checkpoint(plain) == checkpoint(watched)
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert [call[1] for call in seen if call[0] == "update"] == list(range(1, 25))
    assert [call for call in seen if call[0] == "validation"] == [
        ("validation", k, ["val/error"]) for k in (10, 20, 24)
    ]
    # The last one is written again with the outcome of its validation.
    assert [call for call in seen if call[0] == "save"] == [("save", k, f"step-{k:06d}") for k in (10, 20, 24, 24)]
    assert seen[-1] == ("end", 24)


def test_a_run_that_is_stopped_ends_for_its_hooks_too(seen):
    with pytest.raises(Stopped):
        toy.train("stopped", {**TRAINING, "hooks": [NOSY]}, {"signal_at": 3})
    assert seen[-2:] == [("save", 3, "step-000003"), ("end", 3)]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("nowhere:Histograms", "No module named 'nowhere'; give module:Class"),
        ("own_hooks:Histogram", "own_hooks:Histogram is not a hook; did you mean own_hooks:Histograms?"),
        ("own_hooks:Path", "own_hooks:Path is not a hook"),
        ("own_hooks", "own_hooks is not a hook; give module:Class"),
        ("./own_hooks.py:Histograms", "./own_hooks.py:Histograms is not a hook; give module:Class"),
    ],
)
def test_a_name_that_is_no_hook_is_refused_before_the_first_step(word, message):
    source = "from pathlib import Path\nfrom pipelines.engine.hooks import Hook\nclass Histograms(Hook): pass\n"
    Path("own_hooks.py").write_text(source)
    sys.modules.pop("own_hooks", None)
    with pytest.raises(UserError, match=re.escape(message)):
        train("refused", word)
    assert not Path("runs/toy/refused/metrics.jsonl").exists()


def test_gradients_are_shown_as_histograms_in_tensorboard(monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    make = toy.make_accelerator

    def started(config, run):
        accelerator = make(
            config.model_copy(update={"tracking": type(config.tracking)(log_with=("tensorboard",))}), run
        )
        (run.folder / "trackers").mkdir(parents=True)
        accelerator.init_trackers("toy")
        return accelerator

    monkeypatch.setattr(toy, "make_accelerator", started)
    run = train("seen", "examples.hooks.gradients:GradientHistograms")
    file = next((run / "trackers").rglob("events.*"))
    events = EventAccumulator(str(file), {"histograms": 0}).Reload()
    assert "gradients/layers.0.weight" in events.Tags()["histograms"]
    assert [event.step for event in events.Histograms("gradients/layers.3.bias")] == [8, 16, 24]


def test_the_trace_has_steps_10_to_20():
    run = train("profiled", "examples.hooks.profiling:Profile")
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    steps = [event for event in events if event.get("name", "").startswith("Optimizer.step#AdamW.step")]
    assert len(steps) == 11


@pytest.fixture
def hub(monkeypatch):
    with stand_in.running() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", hub.token)
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        monkeypatch.setenv("HUB_OWNER", "me")
        yield hub


def test_checkpoints_are_pushed_as_they_are_written(hub):
    run = train("pushed", "examples.hooks.hub:PushCheckpoints")
    assert hub.private == {"me/toy-pushed"}
    first, *_, newest = hub.repositories["me/toy-pushed"]
    assert "checkpoints/step-000010/manifest.json" in first
    for path in (run / "checkpoints/step-000024").rglob("*.*"):
        assert newest[path.relative_to(run).as_posix()] == path.read_bytes()


def test_a_hub_that_refuses_stops_no_training(hub, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody_else")
    train("kept", "examples.hooks.hub:PushCheckpoints")
    assert "step-000024 was not pushed: " in capsys.readouterr().err
    monkeypatch.delenv("HUB_OWNER")
    with pytest.raises(UserError, match="HUB_OWNER=my-name"):
        train("nobody", "examples.hooks.hub:PushCheckpoints")


def test_the_examples_are_short():
    for path in FOLDER.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 45, path
