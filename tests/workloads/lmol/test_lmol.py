"""The commands that a user types to train and evaluate comparators, on few and small images."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from common.config import load
from models import io
from pipelines import loading
from pipelines.workloads.lmol import WORKLOAD
from tests import stages, towers
from tests.stages import ROOT, records, refused, stage

LMOL = ["--workload", "lmol"]
FEW = [
    *LMOL,
    "data.size=16",
    "data.train_pairs=200",
    "data.evaluation_pairs=40",
    "training.batch_size=16",
    "training.log_steps=1",
    "evaluation.comparisons=8",
]
TINY = [
    *FEW,
    "model.width=16",
    "training.steps=12",
    "training.schedule=constant",  # the same course however long a run is
    "training.validation_steps=4",
    "training.checkpoint_steps=4",
]
CROPS = ["data.source=photos", "data.photos_crops=1"]  # a tenth of the images, each of which large models look at
VLM = [*TINY, *CROPS, "model.kind=vlm", "model.layers=2", "model.heads=2"]


def weights(run, which="last"):
    return (run / "model" / which / "model.safetensors").read_bytes()


def succeeded(done):
    assert done.returncode == 0, done.stderr
    return done


def train_in_two(folder, name, words):
    """Train under `name` for 7 steps, then with --resume up to step 12."""
    succeeded(stage(folder, "train.py", *words, "training.steps=7", "--name", name))
    done = succeeded(stage(folder, "train.py", *LMOL, "--name", name, "--resume", "training.steps=12"))
    assert "resumed from" in done.stdout + done.stderr


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a trained run. Its data are prepared here, where near duplicates among digits are known."""
    folder = tmp_path_factory.mktemp("lmol")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        loading.prepare("lmol", WORKLOAD, load(ROOT / "pipelines/configs/lmol.yaml", WORKLOAD.config, TINY[2:]))
    done = succeeded(stage(folder, "train.py", *TINY))
    assert "trial steps: " in done.stdout
    return folder


def test_training_tells_the_loss_and_learns(trained):
    run = trained / "runs/lmol/default"
    assert len(records(run, "train/loss")) == 12
    assert set(records(run, "val/accuracy")) == {4, 8, 12}
    assert set(records(run, "val/swap_consistency").values()) == {1.0}  # siamese: by construction
    assert set(records(run, "train/order_loss").values()) == {0.0}
    losses = records(run, "val/loss")
    assert losses[12] < losses[4]


@pytest.mark.slow
def test_a_stopped_and_resumed_run_ends_in_the_same_bits(trained):
    train_in_two(trained, "resumed", TINY)
    assert weights(trained / "runs/lmol/resumed") == weights(trained / "runs/lmol/default")


def test_the_best_model_answers_without_the_pipeline(trained):
    model = io.load(trained / "runs/lmol/default/model/best")
    images = model.reference_images
    probabilities = model.compare(images[0], images[-1])
    assert probabilities.sum().item() == pytest.approx(1, abs=1e-6)
    torch.testing.assert_close(model.compare(images[-1], images[0]), probabilities[[1, 0, 2]])
    scores, errors = model.score(images[:3], budget=8)
    assert scores.shape == errors.shape == (3,)
    assert (errors > 0).all()


def export(folder, name, *words):
    """Export a run in `folder` and return the manifest."""
    said = succeeded(stages.export("safetensors", f"runs/lmol/{name}", *words, folder=folder)).stdout
    assert said.count("equal to model/best in every weight and output") == 1
    return json.loads((folder / "runs/lmol" / name / "exports/safetensors/manifest.json").read_text())


def test_an_exported_model_is_equal_and_says_what_its_answers_mean(trained):
    assert "comparator.json" in export(trained, "default")["files"]
    found = json.loads((trained / "runs/lmol/default/exports/safetensors/comparator.json").read_text())
    assert found["question"] == "which of two images ranks higher in value"
    assert found["bradley_terry_with_ties"]["floor"] + found["bradley_terry_with_ties"]["dispersion"] > 0


def test_what_cannot_work_is_refused_before_a_run_is_begun(trained):
    refused(stage(trained, "train.py", *TINY, "--name", "x", "model.lora=true"), "model.lora=True does nothing")
    words = [*TINY, "--name", "x", "model.layers=9"]
    refused(stage(trained, "train.py", *words), "size 16 cannot be halved 9 times")
    assert not (trained / "runs/lmol/x").exists()


def test_the_config_file_is_the_default_model():
    config = load(ROOT / "pipelines/configs/lmol.yaml", WORKLOAD.config)
    assert (config.model.kind, config.data.source, config.shift) == ("siamese", "digits", 3)


@pytest.mark.slow
def test_images_read_by_workers_end_in_the_same_bits_and_figures(trained):
    summaries = []
    for name, loader in (("here", "resident"), ("streamed", "stream")):
        succeeded(stage(trained, "train.py", *TINY, "--name", name, f"data.loader={loader}"))
        # The evaluation uses the other loader, because a run does not fix how data are loaded.
        other = {"resident": "stream", "stream": "resident"}[loader]
        succeeded(stage(trained, "evaluate.py", *LMOL, "--name", name, f"data.loader={other}"))
        summaries.append(json.loads((trained / f"runs/lmol/{name}/evaluations/test.json").read_text()))
    assert weights(trained / "runs/lmol/streamed") == weights(trained / "runs/lmol/here")
    assert summaries[0]["nll"] == summaries[1]["nll"]
    assert len(list((trained / "data/lmol").iterdir())) == 1


@pytest.mark.slow
def test_a_siamese_over_the_tower_of_a_base_trains_resumes_and_is_evaluated_and_exported(trained):
    base = towers.save_tower("dinov2", trained / "base")
    words = [*TINY, *CROPS, "model.base=base"]
    done = succeeded(stage(trained, "train.py", *words, "--name", "tower"))
    assert "trial steps: " in done.stdout
    assert "features of" in done.stdout
    assert "UNEXPECTED" not in done.stdout + done.stderr
    train_in_two(trained, "tower-resumed", words)
    run = trained / "runs/lmol/tower"
    assert weights(run) == weights(trained / "runs/lmol/tower-resumed")
    described = json.loads((run / "model/best/config.json").read_text())["config"]
    assert (described["base"], len(described["revision"])) == ("base", 64)
    succeeded(stage(trained, "evaluate.py", *LMOL, "--name", "tower"))
    assert json.loads((run / "evaluations/test.json").read_text())["n"] == 40
    export(trained, "tower")
    towers.save_tower("dinov2", base, seed=1)
    done = stage(trained, "evaluate.py", *LMOL, "--name", "tower")
    refused(done, "are not the ones that this model was trained on")


@pytest.mark.slow
def test_a_tuned_tower_ends_in_the_same_bits_when_resumed_and_is_evaluated_and_exported(trained):
    towers.save_tower("vit", trained / "vit")
    words = [*TINY, *CROPS, f"model.base={trained / 'vit'}", "model.tune=last", "evaluation.network_steps=4"]
    done = succeeded(stage(trained, "train.py", *words, "--name", "tuned"))
    assert "trial steps: " in done.stdout
    train_in_two(trained, "tuned-resumed", words)
    run = trained / "runs/lmol/tuned"
    assert weights(run) == weights(trained / "runs/lmol/tuned-resumed")
    succeeded(stage(trained, "evaluate.py", *LMOL, "--name", "tuned"))
    assert json.loads((run / "evaluations/test.json").read_text())["n"] == 40
    export(trained, "tuned")
    model = io.load(run / "model/last")
    began = towers.tower("vit")
    moved = {
        name
        for name, tensor in model.tower.network.named_parameters()
        if not torch.equal(tensor, began.get_parameter(name))
    }
    assert {f"tower.network.{name}" for name in moved} == set(model.rate_factors)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        [],
        pytest.param(["model.lora=true"], marks=pytest.mark.exhaustive),
        pytest.param(["hardware.gradient_checkpointing=true"], marks=pytest.mark.exhaustive),
        ["model.question=levels", "model.lora=true", "hardware.gradient_checkpointing=true"],
    ],
)
def test_a_stopped_and_resumed_vlm_ends_in_the_same_bits(trained, words):
    name = "vlm" + "".join(word.partition("=")[0].rpartition(".")[2] for word in words)
    done = succeeded(stage(trained, "train.py", *VLM, *words, "--name", name))
    assert "trial steps: " in done.stdout
    train_in_two(trained, f"{name}-resumed", [*VLM, *words])
    assert weights(trained / f"runs/lmol/{name}-resumed") == weights(trained / f"runs/lmol/{name}")


@pytest.mark.slow
def test_a_vlm_of_both_questions_scores_by_levels_in_one_pass_and_tells_what_comparisons_give(trained):
    digits = [word for word in VLM if word not in CROPS]  # whose levels are 0 to 9
    words = [*digits, "model.question=both", "model.attention=eager", "model.lora=true"]
    succeeded(stage(trained, "train.py", *words, "--name", "both"))
    run = trained / "runs/lmol/both"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any("train/score_loss" in line and "train/answer_loss" in line for line in lines)
    succeeded(stage(trained, "evaluate.py", *LMOL, "--name", "both"))
    summary = json.loads((run / "evaluations/test.json").read_text())
    assert summary["passes_per_image"] == 1
    assert 2 * 2 <= summary["by_comparisons"]["passes an image"] <= 2 * summary["comparisons_per_score"]
    assert {"Pearson", "Spearman", "MAE", "RMSE"} <= summary["by_comparisons"].keys()
    manifest = export(trained, "both", "--merged")
    assert manifest["maximum_absolute_difference"]["merged_output"] < 1e-3
    described = json.loads((run / "exports/safetensors/comparator.json").read_text())["levels"]
    assert (described["scores"][0], described["scores"][4], len(described["label_ids"])) == (0, 9, 5)


@pytest.mark.slow
def test_adapters_on_a_trained_base_are_evaluated_and_exported(trained):
    if not (trained / "runs/lmol/vlm").exists():
        succeeded(stage(trained, "train.py", *VLM, "--name", "vlm"))
    words = [*FEW, "model.kind=vlm", "model.lora=true", "model.base=runs/lmol/vlm/model/best", "training.steps=4"]
    done = succeeded(stage(trained, "train.py", *words, "--name", "adapters"))
    assert "features of" in done.stdout
    run = trained / "runs/lmol/adapters"
    described = json.loads((run / "model/best/config.json").read_text())["config"]
    assert described["base"] == "runs/lmol/vlm/model/best"
    assert len(described["revision"]) == 64
    assert len(weights(run, "best")) < len(weights(trained / "runs/lmol/vlm", "best")) / 2
    succeeded(stage(trained, "evaluate.py", *LMOL, "--name", "adapters"))
    assert json.loads((run / "evaluations/test.json").read_text())["n"] == 40
    manifest = export(trained, "adapters", "--merged")
    assert {"adapter/adapter_model.safetensors", "processor/tokenizer.json"} <= manifest["files"].keys()
    assert manifest["files"]["merged/model.safetensors"]["bytes"] > manifest["files"]["model.safetensors"]["bytes"]
    assert manifest["maximum_absolute_difference"]["merged_output"] < 1e-3
    assert not any(name.startswith("merged/") for name in export(trained, "adapters")["files"])
    # The second export removed the merged model of the first.
    assert not list((trained / "runs/lmol/adapters/exports/safetensors/merged").glob("*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["model.kind=vlm", "model.lora=true", "model.heads=2", "model.layers=1"], ["model.base=seen"]]
)
def test_two_processes_resume_what_is_trained_on_a_base(trained, words):
    towers.save_tower("clip", trained / "seen")
    words, name = [*TINY, *words], words[0].partition("=")[2] + "-two"
    both = {"processes": 2, "ACCELERATE_USE_CPU": "true"}
    succeeded(stage(trained, "train.py", *words, "--name", name, **both))
    succeeded(stage(trained, "train.py", *words, "training.steps=7", "--name", f"{name}-resumed", **both))
    # A run may be resumed with the other loader.
    again = ["--name", f"{name}-resumed", "--resume", "training.steps=12", "data.loader=stream"]
    succeeded(stage(trained, "train.py", *LMOL, *again, **both))
    assert weights(trained / f"runs/lmol/{name}-resumed") == weights(trained / f"runs/lmol/{name}")


@pytest.mark.slow
def test_two_processes_follow_the_curve_of_one(trained):
    succeeded(stage(trained, "train.py", *TINY, "--name", "two", processes=2, ACCELERATE_USE_CPU="true"))
    one, two = (records(trained / "runs/lmol" / name, "train/loss") for name in ("default", "two"))
    assert two == pytest.approx(one, rel=1e-4)


@pytest.mark.slow
def test_a_scorer_sees_one_image_and_resumes_to_the_same_bits(trained):
    words = [*TINY, "model.kind=scorer"]
    done = succeeded(stage(trained, "train.py", *words, "--name", "scorer"))
    assert "trial steps: " in done.stdout
    train_in_two(trained, "scorer-resumed", words)
    assert weights(trained / "runs/lmol/scorer-resumed") == weights(trained / "runs/lmol/scorer")
    succeeded(stage(trained, "evaluate.py", *LMOL, "--name", "scorer"))
    export(trained, "scorer")


@pytest.mark.slow
def test_preferences_alone_train_a_comparator(trained):
    folder = trained / "preferred"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for row in range(60):
        grey = np.full((24, 24), 4 * row + 8, np.uint8) + generator.integers(0, 8, (24, 24), dtype=np.uint8)
        Image.fromarray(grey).save(folder / f"{row:02d}.png")
    pairs = [sorted(generator.choice(60, 2, replace=False)) for _ in range(600)]
    rows = [f"{b:02d}.png,{a:02d}.png,{int(b - a < 4)}" for a, b in pairs]
    (folder / "answers.csv").write_text("\n".join(["winner,loser,tie", *rows]))
    words = [*TINY, "data.source=preferred", "training.steps=80", "--name", "preferred"]
    done = succeeded(stage(trained, "train.py", *words))
    assert "trial steps: " in done.stdout
    succeeded(stage(trained, "evaluate.py", *LMOL, "--name", "preferred"))
    found = json.loads((trained / "runs/lmol/preferred/evaluations/test.json").read_text())
    assert found["n"] == 40
    assert found["accuracy"] > 0.5
    assert found["rmse"] < found["rmse_constant"]
    words = ["preferred/answers.csv", "--model", "runs/lmol/preferred/model/best", "--pairs", "5", "--next", "next.csv"]
    succeeded(stage(trained, "ask.py", *words, "--ranking", "ranking.csv"))
    assert (trained / "ranking.csv").read_text().count("\n") == 61
