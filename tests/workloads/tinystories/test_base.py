"""Going on from a model of stories: its tokens, its sizes and its weights, on other stories."""

import json
import re
from dataclasses import replace

import pytest
import torch

from common.config import load
from common.errors import UserError
from models import io
from models.stories.tiny_transformer import TinyTransformer
from pipelines import loading
from pipelines.workloads.tinystories import WORKLOAD, data
from tests.stages import ROOT, refused, stage
from tests.workloads.tinystories.texts import STORIES

CPU = torch.device("cpu")
CONFIG = ROOT / "pipelines/configs/tinystories.yaml"
WORDS = ["training.epochs=null", "training.steps=4", "training.batch_size=4", "training.patience=null"]
SIZES = [
    "model.preset=rp2040-speed",
    "model.context=12",
    "model.hidden=16",
    "model.memory=[64]",
    "model.vocabulary=160",
]
PLACES = ("sea", "park", "hill", "moon", "shop", "farm", "barn", "lake", "wood")
OWN = [f"Zoe and the {animal} went to the {place}.\n" for place in PLACES for animal in ("Cat", "Dog", "Fox")]


def task_of(*words):
    config = load(CONFIG, WORKLOAD.config, [*WORDS, *words])
    folder, manifest = loading.prepare("tinystories", WORKLOAD, config)
    return WORKLOAD.task(config, folder, CPU), folder, manifest


@torch.no_grad()
def every_window(source, compute):
    return compute(source.batch(torch.arange(source.size)))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder with a model of lower-case stories, random but for its memory, and other stories, with capitals."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "lower.txt").write_text("\n<|endoftext|>\n".join(STORIES).lower())
    (folder / "own.txt").write_text("\n<|endoftext|>\n".join(OWN))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        task, _, _ = task_of("data.source=lower.txt", *SIZES)
        task.refit(every_window)
        io.save(task.model, folder / "base")
    return folder


def test_it_begins_with_the_bases_weights_and_reads_in_its_tokens(base, monkeypatch):
    monkeypatch.chdir(base)
    task, folder, manifest = task_of("data.source=own.txt", "model.base=base", "model.dropout=0.25")
    model = io.load("base")
    assert isinstance(model, TinyTransformer)
    assert task.model.config == replace(model.config, dropout=0.25)
    for name, tensor in model.state_dict().items():
        assert torch.equal(task.model.state_dict()[name], tensor), name
    assert data.tokenizer(folder) == model.config.tokenizer
    assert data.stories(folder, "held_out")[0] in {story.strip().lower() for story in OWN}
    tokens = data.tokens(folder, "held_out")
    first = tokens[1 : 1 + (tokens[1:] == 0).argmax()].tolist()
    assert model.tokenizer.decode(first) == data.stories(folder, "held_out")[0]
    assert manifest["files"] == ["own.txt"]
    batch = task.train.batch(torch.arange(2))
    loss = task.loss(task.model.train(), batch)
    loss.value.backward()
    lacking = {name for name, weight in task.model.named_parameters() if weight.grad is None}
    assert lacking == {"memory.prior", "memory.followed_by.0.weight"}  # which say nothing of a text that is not there
    assert not any(task.model.get_parameter(name).requires_grad for name in lacking)
    rows = task.model.memory.mean(0).clone()
    task.refit(every_window)
    assert torch.equal(task.model.memory.mean(0), rows)
    assert rows.any()


def test_bytes_that_the_base_cannot_tell_are_named(base, monkeypatch):
    monkeypatch.chdir(base)
    (base / "dear.txt").write_text("\n<|endoftext|>\n".join(f"{story} Ω" for story in OWN))
    *_, manifest = task_of("data.source=dear.txt", "model.base=base")
    assert "54 bytes of the text are no tokens of base, which cannot write them" in manifest["note"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["model.base=base", "model.width=32"], "model.base=base has sizes of its own; leave out model.width=32"),
        (["model.base=base", "model.memory=[64]"], "leave out model.memory="),
        (["model.base=nowhere/at/all"], "give a model of stories, such as models/pretrained/tinystories-real"),
        ([f"model.base={ROOT}/models/pretrained/cvrp-20"], "is a routing; give a model of stories"),
        (["model.base=base", "data.vocabulary=99"], "leave out data.vocabulary=99"),
        (["data.base=base"], "data.base=base is not model.base=None; leave it out"),
        (["model.base=base", "training.sequence=20"], "must be even and at least twice the context"),
    ],
)
def test_what_is_no_base_is_refused(base, monkeypatch, words, told):
    monkeypatch.chdir(base)
    with pytest.raises(UserError, match=re.escape(told)):
        task_of("data.source=own.txt", *words)


def test_a_run_is_a_base_by_its_best_model(base, monkeypatch):
    monkeypatch.chdir(base)
    io.save(io.load("base"), base / "runs/tinystories/default/model/best")
    task, *_ = task_of("data.source=own.txt", "model.base=runs/tinystories/default")
    assert torch.equal(task.model.output_bias, io.load("base").output_bias)


def test_counts_of_a_base_are_counted_anew_in_the_text_that_is_learnt(base, monkeypatch):
    monkeypatch.chdir(base)
    task, _, _ = task_of("data.source=lower.txt", *SIZES, "model.counts=64")
    task.refit(every_window)
    io.save(task.model, base / "counted")
    task, _, _ = task_of("data.source=own.txt", "model.base=counted")
    assert task.refit(every_window)["counts"] > 0
    again, _, _ = task_of("data.source=own.txt", *SIZES, "model.counts=64", "model.vocabulary=60")
    assert not torch.equal(task.model.counts.levels, again.model.counts.levels)


def test_stories_that_differ_by_capitals_alone_are_one_for_a_base_of_lower_case(base, monkeypatch):
    monkeypatch.chdir(base)
    (base / "twice.txt").write_text("\n<|endoftext|>\n".join([*OWN, *(story.upper() for story in OWN)]))
    _, folder, manifest = task_of("data.source=twice.txt", "model.base=base")
    assert manifest["duplicates_removed"] == len(OWN)
    parts = [set(data.stories(folder, name)) for name in ("train", "validation", "held_out")]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(OWN)


@pytest.mark.slow
def test_by_commands_it_is_judged_beside_its_base_and_needs_it_no_more_to_tell(base):
    words = ["--workload", "tinystories", "--name", "own"]
    done = stage(base, "train.py", *words, "data.source=own.txt", "model.base=base", *WORDS)
    assert done.returncode == 0, done.stderr
    done = stage(base, "train.py", *words, "--resume", "training.steps=6")
    assert done.returncode == 0, done.stderr
    done = stage(base, "evaluate.py", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads((base / "runs/tinystories/own/evaluations/held_out.json").read_text())
    names = [row["predictor"] for row in found["table"]]
    assert names[0] == "from base, float32"
    assert "base, as it is" in names
    assert (
        "after the text of base, which n-grams have not seen" in (base / "runs/tinystories/own/report.html").read_text()
    )
    (base / "base").rename(base / "elsewhere")
    try:
        done = stage(base, "predict.py", *words, "prompt=zoe", "length=5")
        assert done.returncode == 0, done.stderr
        refused(stage(base, "evaluate.py", *words), "model.base=base", "give a model of stories")
    finally:
        (base / "elsewhere").rename(base / "base")
