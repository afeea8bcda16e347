"""One model of several attributes: what it learns from, how it is judged and asked, and what refuses it."""

import base64
import csv
import json
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from scipy.stats import spearmanr

from common.disk import prepared
from models import io
from pipelines.server.limits import Limits
from pipelines.workloads.lmol import data
from pipelines.workloads.lmol.config import Config
from pipelines.workloads.lmol.sources.finding import by_attribute
from tests import towers
from tests.server.test_server import ask, served
from tests.stages import export, refused, stage
from tests.workloads.lmol.test_lmol import LMOL, succeeded, weights

BOTH = "data.attributes=[texture,brightness]"
WORDS = [
    *LMOL,
    "data.source=made",
    "data.size=16",
    "data.train_pairs=1000",
    "data.evaluation_pairs=300",
    "model.width=32",
    "training.batch_size=64",
    "training.steps=90",
    "training.validation_steps=45",
    "training.checkpoint_steps=60",
    "evaluation.network_steps=0",
]


def rows_of(folder, count=200):
    """Write images whose noise and whose level are independent; return the rows of a table of both, some empty."""
    generator = np.random.default_rng(0)
    folder.mkdir()
    rows = []
    for i in range(count):
        light, rough = generator.uniform(0, 1, 2)
        image = 60 + 120 * light + (2 + 30 * rough) * generator.standard_normal((16, 16))
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(folder / f"{i:03}.png")
        rows.append([f"{i:03}.png", f"{10 * rough:.1f}", f"{10 * light:.1f}"])
        if i % 10 == 0:
            rows[-1][1 + i // 10 % 2] = ""
    return rows


def write(path, *rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a table of scores in `made`."""
    folder = tmp_path_factory.mktemp("attributes")
    write(folder / "scores.csv", ("file", "texture", "brightness"), *rows_of(folder / "made"))
    (folder / "scores.csv").rename(folder / "made/scores.csv")
    return folder


@pytest.fixture(scope="module")
def trained(made):
    """The folder with an evaluated run of both attributes."""
    done = succeeded(stage(made, "train.py", *WORDS, BOTH))
    assert "texture of images of made" in done.stdout
    assert "brightness of images of made" in done.stdout
    for name in ("texture", "brightness"):  # what is not the same of both says of which it is
        assert done.stdout.count(f"made: {name}: no image has two ratings, so the standard error") == 1
    assert done.stdout.count("made: image is read from the column 'file'") == 1
    succeeded(stage(made, "evaluate.py", *LMOL))
    return made


def section(folder, **fields):
    return Config.model_validate({"data": {"source": str(folder), "size": 16, "theta": 1, **fields}})


def test_each_head_learns_its_own_attribute(trained):
    run, known = trained / "runs/lmol/default", {}
    for name in ("texture", "brightness"):
        found = json.loads((run / f"evaluations/test-{name}.json").read_text())
        rows = {row["predictor"]: row for row in found["table"]}
        assert found["attribute"] == name
        assert found["accuracy"] > rows["majority class"]["accuracy"] + 0.2
        assert {"ridge", "kernel ridge", "SVM"} <= rows.keys()
        with (run / f"evaluations/test-{name}.scores.csv").open() as file:
            known[name] = {row["image"]: float(row["known"]) for row in csv.DictReader(file)}
    both = sorted(known["texture"].keys() & known["brightness"].keys())
    done = succeeded(stage(trained, "predict.py", *LMOL, *(f"made/{image}" for image in both)))
    (answer,) = map(json.loads, done.stdout.strip().splitlines())
    scores = {row["image"].removeprefix("made/"): row["scores"] for row in answer["ranking"]}
    for name, other in (("texture", "brightness"), ("brightness", "texture")):
        given = [scores[image][name] for image in both]
        own, others = (spearmanr(given, [known[each][image] for image in both])[0] for each in (name, other))
        assert own > 0.7
        assert own > others + 0.3


@pytest.mark.slow
def test_a_scorer_learns_each_attribute_in_one_pass_and_resumes_to_the_same_bits(made):
    words = [*WORDS, BOTH, "model.kind=scorer", "training.schedule=constant", "training.steps=240", "--name"]
    succeeded(stage(made, "train.py", *words, "scorer"))
    succeeded(stage(made, "train.py", *words, "cut-scorer", "training.steps=120"))
    succeeded(stage(made, "train.py", *LMOL, "--name", "cut-scorer", "--resume", "training.steps=240"))
    assert weights(made / "runs/lmol/cut-scorer") == weights(made / "runs/lmol/scorer")
    shutil.rmtree(made / "runs/lmol/cut-scorer")
    succeeded(stage(made, "evaluate.py", *LMOL, "--name", "scorer"))
    for name, other in (("texture", "brightness"), ("brightness", "texture")):
        found = json.loads((made / f"runs/lmol/scorer/evaluations/test-{name}.json").read_text())
        assert found["pearson"] > 0.7
        assert found["coverage"] > 0.8
        with (made / "made/scores.csv").open() as file:
            known = {row["file"]: row for row in csv.DictReader(file) if row[name] and row[other]}
        (answer,) = (io.load(made / "runs/lmol/scorer/model/best").rank(made / "made", attribute=name),)
        rows = [row for row in answer["ranking"] if (file := row["image"].rpartition("/")[2]) in known]
        assert all(row["score"] == row["scores"][name] for row in rows)
        for by, least in ((name, 0.7), (other, -1)):
            told = [float(known[row["image"].rpartition("/")[2]][by]) for row in rows]
            assert least < spearmanr([row["score"] for row in rows], told)[0] < (1 if least > 0 else 0.4)
    succeeded(export("onnx", "runs/lmol/scorer", folder=made))


def test_the_note_on_few_images_says_of_which_attribute(tmp_path):
    write(tmp_path / "scores.csv", ("file", "texture", "brightness"), *rows_of(tmp_path / "made", 40))
    (tmp_path / "scores.csv").rename(tmp_path / "made/scores.csv")
    facts = data.prepare(section(tmp_path / "made", attributes=["texture", "brightness"]), tmp_path / "prepared")
    assert [line.partition(" few")[0] for line in facts["note"].split("\n")] == ["texture: too", "brightness: too"]


def test_a_ranking_is_by_the_first_attribute_or_by_the_one_named(trained):
    model = io.load(trained / "runs/lmol/default/model/best")
    first, other = model.rank(trained / "made"), model.rank(trained / "made", attribute="brightness")
    for found, name in ((first, "texture"), (other, "brightness")):
        for row in found["ranking"]:
            assert (row["attribute"], row["score"]) == (name, row["scores"][name])
            assert (row["low"], row["high"]) == (row["lows"][name], row["highs"][name])
            assert set(row["scores"]) == {"texture", "brightness"}
        assert [row["score"] for row in found["ranking"]] == sorted(
            (r["score"] for r in found["ranking"]), reverse=True
        )
    assert {r["image"]: r["scores"] for r in first["ranking"]} == {r["image"]: r["scores"] for r in other["ranking"]}
    pair = {"first": str(trained / "made/001.png"), "second": str(trained / "made/002.png")}
    asked = [next(model.predict([pair], attribute=name)) for name in (None, "texture", "brightness")]
    assert [each["attribute"] for each in asked] == ["texture", "texture", "brightness"]
    assert asked[0] == asked[1]
    assert asked[2]["first_is_higher"] != asked[1]["first_is_higher"]
    assert model.compare(pair["first"], pair["second"])[0] == pytest.approx(asked[0]["first_is_higher"])
    alone = model.of("brightness").compare(pair["first"], pair["second"])
    assert alone[0] == pytest.approx(asked[2]["first_is_higher"])
    assert next(model.predict([pair], attribute="Brightness")) == asked[2]  # however it is spelled, as in training
    refused(
        stage(trained, "predict.py", *LMOL, "attribute=light", "made/001.png"), "the model ranks by texture, bright"
    )


def test_a_table_has_a_column_for_each_attribute(trained):
    succeeded(stage(trained, "predict.py", *LMOL, "made", "--csv", "out.csv"))
    with (trained / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 200
    assert float(rows[0]["scores.texture"]) == float(rows[0]["score"])
    assert {row["attribute"] for row in rows} == {"texture"}
    assert all(float(row["lows.brightness"]) < float(row["highs.brightness"]) for row in rows)


def test_the_report_judges_each_attribute_and_the_card_lists_them(trained):
    run = trained / "runs/lmol/default"
    verdict = (run / "verdict.txt").read_text()
    assert verdict.startswith("texture: ")
    assert "; brightness: " in verdict
    page = (run / "report.html").read_text()
    assert "ranks higher in texture" in page
    assert "ranks higher in brightness" in page
    succeeded(export("safetensors", "runs/lmol/default", folder=trained))
    assert "- texture\n- brightness\n" in (run / "exports/safetensors/README.md").read_text()
    described = json.loads((run / "exports/safetensors/comparator.json").read_text())
    assert list(described["attributes"]) == ["texture", "brightness"]


@pytest.mark.slow
def test_programs_and_a_page_answer_by_every_attribute(trained):
    succeeded(export("onnx", "runs/lmol/default", folder=trained))
    folder = trained / "runs/lmol/default/exports/onnx"
    comparison = onnxruntime.InferenceSession(folder / "comparison.onnx")
    assert [each.name for each in comparison.get_outputs()] == ["logits", "logits of brightness"]
    files = [str(trained / f"made/{number}.png") for number in ("001", "002")]
    said = subprocess.run([sys.executable, folder / "example.py", *files], capture_output=True, text=True, check=True)
    name, first, *_ = brightness = said.stdout.splitlines()[-4:]
    model = io.load(trained / "runs/lmol/default/model/best").of("brightness")
    assert (said.stdout.splitlines()[0], name, len(brightness)) == ("texture", "brightness", 4)
    assert float(first.partition(" ")[2].rstrip("%")) == pytest.approx(100 * float(model.compare(*files)[0]), abs=0.2)
    succeeded(export("web", "runs/lmol/default", folder=trained))
    page = (trained / "runs/lmol/default/exports/web/index.html").read_text()
    assert '"attributes":["texture","brightness"]' in page.replace(", ", ",").replace(": ", ":")
    assert "ranks higher in texture or brightness" in page


def test_training_that_was_cut_short_goes_on_to_the_same_bits(made):
    words = [*WORDS, BOTH, "training.schedule=constant", "training.validation_steps=6", "training.checkpoint_steps=3"]
    succeeded(stage(made, "train.py", *words, "training.steps=4", "--name", "cut"))
    succeeded(stage(made, "train.py", *LMOL, "--name", "cut", "--resume", "training.steps=6"))
    succeeded(stage(made, "train.py", *words, "training.steps=6", "--name", "whole"))
    assert weights(made / "runs/lmol/cut") == weights(made / "runs/lmol/whole")


@pytest.mark.slow
def test_one_attribute_is_what_it_was(made):
    assert "attributes" not in prepared.section_of(Config().data)
    short = [*WORDS, "training.steps=6", "training.validation_steps=6"]
    succeeded(stage(made, "train.py", *short, "data.columns.score=texture", "--name", "column"))
    succeeded(stage(made, "train.py", *short, "data.attributes=[texture]", "--name", "one"))
    config, written = (made / "runs/lmol" / name for name in ("column", "one"))
    assert "attributes" not in (config / "config.yaml").read_text()
    assert (config / "model/best/config.json").read_bytes() == (written / "model/best/config.json").read_bytes()
    ours, theirs = (io.stored_weights(each / "model/best/model.safetensors")[0] for each in (config, written))
    # Images without a score are set aside in one, and left out in the other: the same pairs are drawn.
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_columns_of_attributes_are_found_whatever_their_case_and_spaces(tmp_path):
    rows = [[f"{n}.png", str(n % 3), str(9 - n % 5), ".1"] for n in range(9)]
    write(tmp_path / "scores.csv", ("file", "Visual Beauty", "visual-texture", "std"), *rows)
    by_exact, by_words = (
        by_attribute(tmp_path / "scores.csv", {}, names)
        for names in (["Visual Beauty", "visual-texture"], ["visual_beauty", "Visual Texture"])
    )
    assert [each.scores for each in by_words] == [each.scores for each in by_exact]
    assert by_words[0].scores == {row[0]: row[1] for row in rows}
    assert [each.errors for each in by_words] == [each.errors for each in by_exact]


def test_an_image_without_a_score_gives_no_pairs_for_that_attribute_alone(made, tmp_path):
    config = section(made / "made", attributes=["texture", "brightness"])
    facts = data.prepare(config, tmp_path)
    assert [each["attribute"] for each in facts["attributes"]] == ["texture", "brightness"]
    texture, brightness = (data.load(tmp_path, 0, number) for number in (0, 1))
    assert texture.names == brightness.names
    part = {}
    for found, lacking, other in ((texture, "000.png", "010.png"), (brightness, "010.png", "000.png")):
        used = np.concatenate([*found.parts.values()])
        listed = {found.names[row] for row in used}
        assert lacking not in listed
        assert other in listed
        assert np.isin(np.concatenate([rows[:, :2].ravel() for rows in found.pairs.values()]), used).all()
        for name, rows in found.parts.items():
            for row in rows:  # an image is in the same part for all attributes
                assert part.setdefault(row, name) == name


@pytest.mark.slow
def test_votes_are_by_the_attribute_that_their_row_names(made, tmp_path):
    generator = np.random.default_rng(1)
    with (made / "made/scores.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["texture"] and row["brightness"]][:40]
    write(tmp_path / "votes.csv", ("winner", "loser", "attribute"))
    votes = []
    for name in ("texture", "brightness"):
        for _ in range(200):
            one, other = generator.choice(len(rows), 2, replace=False)
            order = sorted((rows[one], rows[other]), key=lambda row: -float(row[name]))
            votes.append((*(str(made / "made" / row["file"]) for row in order), name))
    folder = tmp_path / "made"
    folder.mkdir()
    for row in rows:
        (folder / row["file"]).write_bytes((made / "made" / row["file"]).read_bytes())
    votes = [(one.rsplit("/")[-1], other.rsplit("/")[-1], name) for one, other, name in votes]
    write(folder / "votes.csv", ("winner", "loser", "attribute"), *votes)
    data.prepare(section(folder, attributes=["texture", "brightness"], theta=None), tmp_path / "out")
    for number, name in enumerate(("texture", "brightness")):
        found = data.load(tmp_path / "out", 0, number)
        truth = {row["file"]: float(row[name]) for row in rows}
        train = found.parts["train"]
        assert spearmanr(found.scores[train], [truth[found.names[row]] for row in train])[0] > 0.8
    ranked = {}
    for name in ("texture", "brightness"):
        words = ["made", "--ranking", f"{name}.csv", f"data.attribute={name}"]
        assert "200 answers" in succeeded(stage(tmp_path, "ask.py", *words)).stdout
        with (tmp_path / f"{name}.csv").open() as file:
            ranked[name] = {row["image"]: float(row["score"]) for row in csv.DictReader(file)}
        assert spearmanr(*zip(*((ranked[name][row["file"]], float(row[name])) for row in rows), strict=True))[0] > 0.8
    refused(stage(tmp_path, "ask.py", *words[:-1], "data.attribute=taste"), "no score in 'taste', and no row whose")
    both = "the column attribute has rows about 2 attributes; give data.attribute=brightness, or in training data"
    refused(stage(tmp_path, "ask.py", *words[:-1]), both)
    refused(stage(tmp_path, "prepare.py", "--workload", "lmol", "data.source=made"), both)


def test_pairs_to_ask_about_go_on_in_the_form_of_their_table(made, tmp_path):
    folder, names = tmp_path / "asked", [f"{number:03}.png" for number in range(12)]
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes((made / "made" / name).read_bytes())
    table = folder / "answers.csv"
    answers = [(*names[:2], "First", "gloss", "ann"), (*names[2:4], "Second", "shape", "bob")]
    write(table, ("left", "right", "label", "attribute", "rater"), *answers)
    words = ["asked", "--next", "next.csv", "--pairs", "3", "data.attribute=gloss", "data.columns.first=left"]
    succeeded(stage(tmp_path, "ask.py", *words, "data.columns.second=right"))
    with (tmp_path / "next.csv").open() as file:
        asked = list(csv.DictReader(file))
    assert {(*row, *list(row.values())[2:]) for row in asked} == {
        ("left", "right", "label", "attribute", "rater", "", "gloss", "")
    }
    with table.open("a", newline="") as file:
        csv.writer(file).writerows([*[*row.values()][:2], "Similar", "gloss", "ann"] for row in asked)
    (tmp_path / "next.csv").unlink()
    assert "4 answers about" in succeeded(stage(tmp_path, "ask.py", *words, "data.columns.second=right")).stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["model.kind=vlm"], "model.kind=vlm takes one attribute: give data.attributes=[texture]"),
        (["data.source=digits"], "data.source=digits gives one attribute"),
        (["data.columns.score=texture"], "data.columns.score=texture gives one attribute"),
        (["data.attributes=[texture,gloss]"], "has no score in 'gloss'; it has file, texture, brightness"),
        (["data.attributes=[texture,../up]"], "data.attributes"),
        (["data.attributes=[texture,texture]"], "each once"),
        (["data.attributes=[visual texture,Visual_texture]"], "names one twice; give each once"),
    ],
)
def test_what_takes_one_attribute_says_what_to_type(made, words, text):
    refused(stage(made, "train.py", *WORDS, BOTH, *words, "--name", "refused"), text)


def test_each_fold_has_the_pairs_of_each_attribute(made, tmp_path):
    config = section(made / "made", attributes=["texture", "brightness"], fold="all", folds=3)
    facts = data.prepare(config, tmp_path / "all")
    assert [[each["attribute"] for each in fold["attributes"]] for fold in facts["folds"]] == [
        ["texture", "brightness"]
    ] * 3
    one = config.model_copy(update={"data": config.data.model_copy(update={"fold": 1})})
    data.prepare(one, tmp_path / "one")
    for number in (0, 1):
        member, alone = data.load(tmp_path / "all", 1, number), data.load(tmp_path / "one", 1, number)
        for part in data.PARTS:
            assert np.array_equal(member.pairs[part], alone.pairs[part])


@pytest.mark.slow
def test_all_folds_of_several_attributes_are_one_table_for_each(made, tmp_path):
    (tmp_path / "made").symlink_to(made / "made")
    words = [*WORDS, BOTH, "training.steps=30", "training.validation_steps=15", "data.folds=3", "--folds", "all"]
    succeeded(stage(tmp_path, "train.py", *words))
    succeeded(stage(tmp_path, "evaluate.py", *LMOL))
    run, images = tmp_path / "runs/lmol/default", {}
    for name in ("texture", "brightness"):
        found = json.loads((run / f"evaluations/test-{name}.json").read_text())
        own = json.loads((run / f"members/fold-1/evaluations/test-{name}.json").read_text())
        assert list(found["folds"]) == ["fold-0", "fold-1", "fold-2"]
        assert found["attribute"] == own["attribute"] == name
        assert found["folds"]["fold-1"]["accuracy"] == own["accuracy"]
        assert found["intervals"]["accuracy"]
        images[name] = found["images"]
    assert images == {"texture": 190, "brightness": 190}  # each image with a score is once in a test part
    verdict = (run / "verdict.txt").read_text()
    assert verdict.startswith("texture: ")
    assert verdict.count("over 3 folds") == verdict.count("; brightness: ") + 1 == 2


@pytest.mark.slow
@pytest.mark.parametrize("tune", ["none", pytest.param("last", marks=pytest.mark.exhaustive)])
def test_heads_over_a_tower_share_it(made, tune, monkeypatch):
    monkeypatch.chdir(made)
    if not (made / "base").is_dir():
        towers.save_tower("dinov2", made / "base")
    words = [*LMOL, "data.source=made", BOTH, "training.steps=8", "training.validation_steps=4", "model.base=base"]
    words += ["training.checkpoint_steps=4", "training.schedule=constant", f"model.tune={tune}", "--name"]
    run = made / f"runs/lmol/tower-{tune}"
    succeeded(stage(made, "train.py", *words, run.name))
    succeeded(stage(made, "train.py", *words, "cut-tower", "training.steps=5"))
    succeeded(stage(made, "train.py", *LMOL, "--name", "cut-tower", "--resume", "training.steps=8"))
    assert weights(made / "runs/lmol/cut-tower") == weights(run)
    shutil.rmtree(made / "runs/lmol/cut-tower")
    model = io.load(run / "model/best")
    one, other = model.heads
    assert one.tower is other.tower
    assert one.encoder is other.encoder
    assert not torch.equal(one.higher, other.higher)
    assert not torch.equal(one.regressions.weights, other.regressions.weights)
    succeeded(stage(made, "evaluate.py", *LMOL, "--name", run.name, "evaluation.network_steps=4"))
    for each in ("texture", "brightness"):
        found = json.loads((run / f"evaluations/test-{each}.json").read_text())
        assert found["accuracy"] > {row["predictor"]: row for row in found["table"]}["majority class"]["accuracy"]
    if tune == "last":  # half a minute; programs of both attributes, and of a tower, are exported by other tests
        succeeded(export("onnx", f"runs/lmol/{run.name}", folder=made))


def test_a_server_says_by_what_it_ranks_and_takes_the_name(trained, monkeypatch):
    monkeypatch.chdir(trained)
    image = base64.b64encode((trained / "made/001.png").read_bytes()).decode()
    asked = {"inputs": [{"images": [image]}], "settings": {"attribute": "brightness"}}
    with served(["lmol/default"], Limits()) as port:
        (run,) = ask(port, "/runs")[1]
        assert (run["model"]["attribute"], run["model"]["attributes"]) == ("texture", ["texture", "brightness"])
        status, found = ask(port, "/runs/lmol/default/predict", asked)
    assert status == 200
    (row,) = found["outputs"][0]["ranking"]
    assert (row["attribute"], row["score"]) == ("brightness", row["scores"]["brightness"])
