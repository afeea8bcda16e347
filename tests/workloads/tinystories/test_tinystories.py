"""The commands a user types for stories, on a few of them."""

import json
import math
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch

from common.config import load
from common.errors import UserError
from models import io
from pipelines import evaluate, loading, train
from pipelines.run.folder import Run
from pipelines.workloads.tinystories import WORKLOAD
from tests import stages
from tests.report.pages import checked
from tests.stages import ROOT, records, refused, stage

CONFIG = ROOT / "pipelines/configs/tinystories.yaml"
STORIES = ["--workload", "tinystories"]
TINY = [
    *STORIES,
    "data.generated_characters=60000",
    "model.preset=rp2040-speed",
    "model.context=12",
    "model.hidden=16",
    "model.counts=200",
    "training.epochs=null",
    "training.steps=12",
    "training.batch_size=8",
    "training.sequence=32",
    "training.log_steps=1",
    "training.validation_steps=6",
    "training.checkpoint_steps=6",
    "evaluation.samples=2",
    "evaluation.sample_tokens=20",
]


def export(folder, *words):
    return stages.export("rp2040", *words, folder=folder)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a trained and evaluated run."""
    folder = tmp_path_factory.mktemp("stories")
    done = stage(folder, "train.py", *TINY)
    assert done.returncode == 0, done.stderr
    assert "stories: embedded" in done.stdout
    done = stage(folder, "evaluate.py", *STORIES)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_model_stands_beside_its_baselines(trained):
    run = trained / "runs/tinystories/default"
    found = json.loads((run / "evaluations/held_out.json").read_text())
    rows = {row["predictor"]: row["bits/character"] for row in found["table"]}
    others = dict(list(rows.items())[2:7])
    assert [re.sub(r", order \d+", "", name) for name in others] == [
        "Kneser-Ney",
        "Kneser-Ney, adapting",
        "Kneser-Ney of characters",
        "Kneser-Ney of characters, adapting",
        "PPMd, adapting",
    ]
    assert len(rows) == 9  # and xz, twice
    assert others[found["strongest_baseline"]] == min(others.values())
    frozen = {name: bits for name, bits in others.items() if not name.endswith("adapting")}
    assert frozen[found["strongest_frozen"]] == min(frozen.values())
    for gain, rival in (("gain", "strongest_baseline"), ("frozen_gain", "strongest_frozen")):
        assert found[gain] == pytest.approx(rows[found[rival]] - found["int8_bits_per_character"])
        assert found[f"{gain}_interval"][0] < found[gain] < found[f"{gain}_interval"][1]
    assert found["bits_per_character"] == rows["rp2040-speed, float32"]
    assert abs(found["int8_cost_percent"]) < 1
    assert found["n"] > 5
    assert "embedded" in found["trained_on"]
    validated = records(run, "val/bits_per_character")
    # Other stories than those that picked the model, but of the same kind.
    assert found["bits_per_character"] == pytest.approx(min(validated.values()), rel=0.05)
    assert found["bits_per_character"] not in validated.values()


def test_predictions_are_the_stories_of_the_evaluation(trained, tmp_path):
    (tmp_path / "two.jsonl").write_text('{"prompt": ""}\n{"prompt": ""}\n')
    done = stage(trained, "predict.py", *STORIES, str(tmp_path / "two.jsonl"), "length=20")
    assert done.returncode == 0, done.stderr
    told = [answer["text"] for answer in map(json.loads, done.stdout.splitlines())]
    samples = (trained / "runs/tinystories/default/evaluations/held_out.samples.txt").read_text()
    assert "\n\n".join(told) + "\n" == samples


def test_the_report_shows_stories(trained):
    page = (trained / "runs/tinystories/default/report.html").read_text()
    assert "Stories it tells" in page
    assert "neither trained the model nor picked the best one" in page
    assert checked(page).headings()[0].startswith("Worse than the strongest alternative: ")


def test_the_export_is_complete_and_tells_a_story(trained):
    done = export(trained, "runs/tinystories/default")
    assert done.returncode == 0, done.stderr
    folder = trained / "runs/tinystories/default/exports/rp2040"
    manifest = json.loads((folder / "manifest.json").read_text())
    names = {"model_256p.bin", "vocab_256p.bin", "config_256p.json", "story.uf2"}
    assert set(manifest["files"]) == names
    assert names <= {path.name for path in folder.iterdir()}


@pytest.mark.slow
def test_two_processes_train_and_evaluate_as_one(trained, tmp_path):
    done = stage(tmp_path, "train.py", *TINY, processes=2, ACCELERATE_USE_CPU="true")
    assert done.returncode == 0, done.stderr
    one, two = (folder / "runs/tinystories/default" for folder in (trained, tmp_path))
    for key in ("train/loss", "train/grad_norm", "val/bits_per_character"):
        assert records(two, key) == pytest.approx(records(one, key), rel=1e-4)
    done = stage(tmp_path, "evaluate.py", *STORIES, processes=2, ACCELERATE_USE_CPU="true")
    assert done.returncode == 0, done.stderr
    found = [json.loads((run / "evaluations/held_out.json").read_text()) for run in (one, two)]
    for key in ("bits_per_character", "int8_bits_per_character", "tokens"):
        assert found[1][key] == pytest.approx(found[0][key], rel=1e-4)


def test_other_tokens_than_those_trained_on_are_noticed(trained, tmp_path):
    shutil.copytree(trained / "runs", tmp_path / "runs")
    for which in ("best", "last"):
        folder = tmp_path / "runs/tinystories/default/model" / which
        model = io.load(folder)
        merges = model.config.tokenizer["model"]["merges"]
        merges[0], merges[1] = merges[1], merges[0]
        io.save(model, folder)
    refused(stage(tmp_path, "evaluate.py", *STORIES), "the model was trained on other tokens")
    refused(stage(tmp_path, "train.py", *STORIES, "--resume", "training.steps=13"), "another tokenizer")
    refused(stage(trained, "evaluate.py", *STORIES, "data.seed=5"), "which fixes these keys", "data.seed: 0 -> 5")


def test_a_book_can_be_trained_on_and_is_not_exchanged_unnoticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    book = Path("book.txt")
    book.write_text("".join(f"On day {i} the fox and the hen went {i * i} steps to the sea.\n" for i in range(900)))
    words = [*TINY[2:], f"data.source={book}", "data.passage_characters=500", "model.vocabulary=80"]
    config = load(CONFIG, WORKLOAD.config, words)
    folder, manifest = loading.prepare("tinystories", WORKLOAD, config)
    assert "the last tenth held out" in manifest["split"]
    task = WORKLOAD.task(config, folder, torch.device("cpu"))
    loss = task.loss(task.model, task.train.batch(torch.arange(4)))
    assert float(loss.value.detach() / loss.count) == pytest.approx(math.log(80), rel=0.1)
    counted = sum(
        int(task.score(task.model, task.validation.batch(torch.tensor([i])))["count"])
        for i in range(task.validation.size)
    )
    assert counted == manifest["validation"]["tokens"]
    few = load(CONFIG, WORKLOAD.config, [*words, "model.vocabulary=2000"])  # more than the book yields
    folder, manifest = loading.prepare("tinystories", WORKLOAD, few)
    size = manifest["vocabulary"]
    lowered, taken = manifest["note"].splitlines()
    assert lowered == f"model.vocabulary=2000 is lowered to {size}: the text yields no more tokens"
    assert taken.startswith("book.txt is taken for a book")
    assert WORKLOAD.task(few, folder, torch.device("cpu")).model.config.vocabulary == size < 2000
    book.write_text("Another text.")
    with pytest.raises(UserError, match=re.escape("book.txt has changed since")):
        loading.prepare("tinystories", WORKLOAD, config)


@pytest.mark.parametrize(("stage", "words"), [(evaluate, []), (train, ["--resume"])])
def test_data_prepared_anew_from_changed_files_neither_judge_a_run_nor_go_on_with_it(
    stage, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (book := Path("book.txt")).write_text("".join(f"On day {i} the hen went {i * i} steps.\n" for i in range(900)))
    run = Run("tinystories", "mine")
    config = load(CONFIG, WORKLOAD.config, [*TINY[2:], f"data.source={book}", "model.vocabulary=80"])
    folder, manifest = loading.prepare("tinystories", WORKLOAD, config)
    run.begin(config, 1, manifest)
    run.record({"step": 1})
    book.write_text(book.read_text() + "At last the hen came to the sea.\n")
    shutil.rmtree(folder)
    monkeypatch.setattr(sys, "argv", ["stage.py", "--workload", "tinystories", "--name", "mine", *words])
    with pytest.raises(UserError) as caught:
        stage.main()
    assert str(caught.value) == (
        f"book.txt has changed since {run.folder} was trained; it may have seen the new test: "
        f"restore the old files and delete {folder}, or train another --name"
    )
    book.unlink()
    shutil.rmtree(folder)
    with pytest.raises(UserError, match=f"; or copy {folder} from where {run.folder} was trained$"):
        stage.main()
    book.write_text("".join(f"The hen went {i} steps.\n" for i in range(900)))
    run.metrics_file.unlink()  # of a run that has learnt nothing, a first try for instance
    assert loading.prepare("tinystories", WORKLOAD, config, run)[0] == folder
    book.unlink()
    shutil.rmtree(folder)
    run.provenance_file.unlink()
    with pytest.raises(UserError, match=r"or leave data\.source out for the embedded stories$"):
        stage.main()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["model.vocabulary=20"], "model.vocabulary"),
        (["model.layers=16", "model.width=128", "model.context=128"], "too many; lower one of: model.width="),
        (["data.percent=0"], "data.percent"),
        (["data.percent=101"], "data.percent"),
        (["data.source=nowhere.txt"], "nowhere.txt"),
        (["data.source=empty.txt"], "empty"),
        (["data.source=damaged.txt"], "UTF-8"),
        (["data.vocabulary=300"], "set model.vocabulary"),
        (["training.sequence=20"], "model.context=12"),
        (["model.preset=rp2040-huge"], "rp2040-speed"),
    ],
)
def test_what_a_user_can_mend_is_said_and_nothing_is_written(tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text(" \n\n")
    Path("damaged.txt").write_bytes("Das Märchen war schön.\n".encode() * 100 + b"\xe4")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=re.escape(told)):
        loading.prepare("tinystories", WORKLOAD, load(CONFIG, WORKLOAD.config, [*TINY[2:], *words]))
    assert [path for path in sorted(tmp_path.rglob("*")) if path.is_file()] == before


def test_a_refusal_ends_the_command_with_status_2(tmp_path):
    refused(stage(tmp_path, "train.py", *TINY, "data.percent=101"), "data.percent")
    assert list(tmp_path.iterdir()) == []


def test_exports_without_a_model_and_into_a_folder_that_cannot_be_written_are_refused(trained, tmp_path):
    (tmp_path / "runs/tinystories/none").mkdir(parents=True)
    refused(export(tmp_path, "runs/tinystories/none"), "has no model/best", "train it first")
    (tmp_path / "file").write_text("in the way")
    refused(export(trained, "runs/tinystories/default", "--out", tmp_path / "file" / "out"), "file")
