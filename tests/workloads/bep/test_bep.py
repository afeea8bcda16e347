"""The stages of the workload as a user runs them, on documents too small to learn much from."""

import csv
import json
import random
import re
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch

from models import io
from models.plans.fields import FIELDS
from pipelines.engine.workload import Evaluation
from pipelines.workloads.bep import report
from pipelines.workloads.bep.config import Config
from tests.report.pages import checked
from tests.stages import export, records, refused, stage

PROSE = """the a model plan team lead client site data drop review issue check manager information design shared
container approved status code file name level floor wall duct pipe clash report weekly meeting federated exchange
delivery responsible before after each with for of and must contains agrees signs publishes stores returns"""
WORDS = PROSE.split()
BEGINNINGS = {name: field.beginning for name, field in list(FIELDS.items())[:25]}
TINY = [
    "data.sources=documents",
    "model.width=16",
    "model.embedding=8",
    "model.mixing_places=100",
    "training.sequence=20",
    "training.steps=12",
    "training.schedule=constant",
    "training.batch_size=8",
    "training.log_steps=1",
    "training.validation_steps=4",
    "training.checkpoint_steps=3",
    "evaluation.typed=0",
]


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """A folder with `documents`, of which each has sentences of its own."""
    folder = tmp_path_factory.mktemp("bep")
    write_documents(folder / "documents", 8, 30)
    return folder


def write_documents(folder, count, sentences):
    """Write documents of random words into `folder`, which is made."""
    generator = random.Random(0)

    def sentence():
        return " ".join(generator.choices(WORDS, k=generator.randint(4, 12))).capitalize() + ".\n"

    folder.mkdir(parents=True)
    for number in range(count):
        text = "".join(sentence() for _ in range(sentences)) + f"Questions go to firm{number}@example.com.\n"
        (folder / f"{number}.txt").write_text(text)


@pytest.fixture(scope="module")
def trained(documents):
    """The folder with a trained and evaluated run."""
    for script, words in (("train.py", TINY), ("evaluate.py", ())):
        done = bep(documents, script, *words)
        assert done.returncode == 0, done.stderr
    return documents


def bep(folder, script, *words, **settings):
    return stage(folder, script, "--workload", "bep", *words, **settings)


def assert_same_weights(runs, *names):
    one, other = (safetensors.torch.load_file(runs / name / "model/last/model.safetensors") for name in names)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_an_evaluation_says_what_the_documents_were_worth(trained):
    run = trained / "runs/bep/default"
    for split in ("validation", "test"):
        found = json.loads((run / f"evaluations/{split}.json").read_text())
        assert found["bits_per_character"] == found["table"][0]["bits/character"]
        bits = {row["predictor"]: row["bits/character"] for row in found["table"]}
        strongest = min((name for name in bits if name.startswith(("Kneser-Ney", "PPMd"))), key=bits.get)
        own = min(bits["mixture, frozen"], bits["mixture, adapting"])
        assert found["strongest_baseline"] == strongest
        assert found["gain_percent"] == pytest.approx(100 * (1 - own / bits[strongest]))
        better = "better" if found["gain_percent_interval"][0] > 0 else "not better"
        assert found["verdict"].startswith(f"{better} than {strongest}")
    best = min(records(run, "val/bits_per_character").values())
    assert json.loads((run / "evaluations/validation.json").read_text())["bits_per_character"] == pytest.approx(
        best, rel=1e-3
    )


def test_the_report_shows_every_field(trained):
    run = trained / "runs/bep/default"
    page = (run / "report.html").read_text()
    with (run / "evaluations/test.suggestions.csv").open(newline="") as file:
        assert {row["field"] for row in csv.DictReader(file)} == set(FIELDS)
    for name in FIELDS:
        assert f"<b>{name}</b>" in page
    headings = checked(page).headings()
    found = json.loads((run / "evaluations/test.json").read_text())
    low, high = found["gain_percent_interval"]
    outcome = "Better than" if low > 0 else "Worse than" if high < 0 else "No clear difference from"
    with (run / "evaluations/test.suggestions.csv").open(newline="") as file:
        silent = {row["field"] for row in csv.DictReader(file) if row["rank"] == "0"}
    title, _, lost = headings[0].partition("; ")
    assert title == f"Clauses for {len(FIELDS) - len(silent)} of {len(FIELDS)} fields"
    assert bool(lost) == (low <= 0)
    than = f" bits for unseen text than {found['strongest_baseline']}"
    assert not lost or re.fullmatch(rf"[\d.e+]+ % (fewer|more).*{re.escape(than)}", lost)
    assert f"for: {', '.join(name for name in FIELDS if name in silent)}." in page
    assert re.search(r"It read \d+ documents with [\d,]+ characters\. Masked: ", page)
    likelihood = (
        f"Likelihood of unseen text: {outcome.lower()} the strongest alternative, {found['strongest_baseline']}"
    )
    last = headings.index(likelihood)
    assert headings[last + 1 : last + 3] == ["Evaluation: test", "Evaluation: validation"]


def test_the_report_begins_with_what_is_saved(tmp_path):
    typing = [{"suggestions by": name, "keystrokes saved, %": 31.4, "95 %": [28.3, 34.7]} for name in ("both", "words")]
    summary = {"keystrokes_saved": 0.314, "keystrokes_saved_interval": [0.283, 0.347], "typing": typing}
    facts = {"files": {"a": {"kept": 1200}, "b": {"kept": 34}}, "masked": {"name": 7, "address": 1}}
    run = SimpleNamespace(provenance=lambda: {"data": facts})
    heading, said = report.answered([Evaluation("test", summary)], [[{"field": "bimUses", "rank": "0"}]], run)
    assert heading == "Saves 31 % of the keystrokes [28, 35]; clauses for 0 of 1 fields"
    assert "Nothing fits, and nothing is suggested, for: bimUses." in said
    assert "It read 2 documents with 1,234 characters. Masked: 7 x name, 1 x address." in said


def test_the_report_begins_with_what_clauses_are_worth_and_how_much_text_is_known():
    found = {"clauses": [{}], "clauses_hit_words": 41.7, "new_text": {"share": 0.62}}
    found |= {"clauses_gain_words": -3.2, "clauses_gain_words_interval": [-8, 1.5]}
    run = SimpleNamespace(provenance=dict)
    heading, said = report.answered([Evaluation("test", found), Evaluation("validation", {})], [], run)
    assert heading == (
        "42 % of held-out clauses found from three words, 3.2 points fewer [-1.5, 8] than by TF-IDF alone; "
        "38 % of the held-out text is also in the training text"
    )
    assert 'class="answer even"' in said
    better = {"clauses_gain_words": 9.6, "clauses_gain_words_interval": [2.1, 17.3], "new_text": {"share": 1.0}}
    heading, said = report.answered([Evaluation("test", {**found, **better})], [], run)
    assert heading.endswith("three words, 9.6 points more [2.1, 17.3] than by TF-IDF alone")
    assert 'class="answer better"' in said


@pytest.mark.parametrize(
    ("bits", "interval", "told"),
    [
        (1.8, [-25, -15], "; 20 % more [15, 25] bits for unseen text than PPMd, adapting"),
        (1.5, [-1, 1], "; 0 % fewer [-1, 1] bits for unseen text than PPMd, adapting"),
        (1.2, [15, 25], ""),
    ],
)
def test_the_verdict_names_the_strongest_alternative_unless_the_model_is_better(bits, interval, told):
    named = {"mixture, frozen": 2.0, "mixture, adapting": bits, "PPMd, adapting": 1.5, "xz": 1.9}
    table = [{"predictor": name, "bits/character": found, "95 %": [found, found]} for name, found in named.items()]
    summary = {"strongest_baseline": "PPMd, adapting", "gain_percent_interval": interval, "n": 9, "documents": 1}
    run = SimpleNamespace(provenance=dict)
    heading, _ = report.sections(Config(), {}, [Evaluation("test", summary, table)], run)[0]
    assert heading == f"No keystrokes were counted, and nothing is suggested{told}"


def test_predictions_are_the_models_completions(trained, tmp_path):
    some = dict([*BEGINNINGS.items()][:5])
    (tmp_path / "form.json").write_text(json.dumps(dict.fromkeys(some, "")))
    done = bep(trained, "predict.py", str(tmp_path / "form.json"), "length=12", "temperature=0.8")
    assert done.returncode == 0, done.stderr
    found = {answer["field"]: answer["text"] for answer in map(json.loads, done.stdout.splitlines())}
    model = io.load(trained / "runs/bep/default/model/best")
    assert found == {
        name: model.complete(prompt, 12, 0.8, seed=number) for number, (name, prompt) in enumerate(some.items())
    }


@pytest.mark.parametrize("count", [3, pytest.param(len(BEGINNINGS), marks=pytest.mark.slow)])
def test_an_exported_model_completes_as_the_run_does(trained, count):
    run = trained / "runs/bep/default"
    export("safetensors", run).check_returncode()
    model, exported = io.load(run / "model/best"), io.load(run / "exports/safetensors")
    for prompt in [*BEGINNINGS.values()][:count]:
        assert exported.complete(prompt, 30, seed=1) == model.complete(prompt, 30, seed=1)
    verdict = json.loads((run / "evaluations/test.json").read_text())["verdict"]
    assert verdict.partition(":")[0].partition(" by ")[0] in (run / "exports/safetensors/README.md").read_text()


@pytest.mark.slow
def test_three_documents_are_learnt_as_a_whole_from_a_base_and_left_out_in_turn(trained):
    base = io.load(trained / "runs/bep/default/model/best")
    (trained / "three").mkdir()
    for number in range(3):
        text = (trained / f"documents/{number}.txt").read_text()
        (trained / f"three/{number}.txt").write_text(f"{text}\u00df\n{text}\n{text}")
    sizes = ("data.sources", "model.width", "model.embedding")
    words = ["data.sources=three", "model.base=runs/bep/default", *(w for w in TINY if not w.startswith(sizes))]
    for script, given in (("train.py", words), ("evaluate.py", ())):
        done = bep(trained, script, "--name", "three", *given)
        assert done.returncode == 0, done.stderr
        assert (done.stdout + done.stderr).count("families of documents: 3") == 1
    model = io.load(trained / "runs/bep/three/model/best")
    assert model.config.vocabulary == base.config.vocabulary + "\u00df"
    assert set(model.config.documents) == {"0.txt", "1.txt", "2.txt", *base.config.documents} | {
        f"base/{name}" for name in ("0.txt", "1.txt", "2.txt") if name in base.config.documents
    }
    assert model.config.rows > base.config.rows
    found = json.loads((trained / "runs/bep/three/evaluations/left_out.json").read_text())
    assert found["documents"] == 3
    assert found["n"] == sum(model.config.documents[f"{number}.txt"] for number in range(3))
    assert [row["predictor"] for row in found["table"]][:3] == ["mixture, frozen", "mixture, adapting", "Kneser-Ney"]


def test_a_base_that_is_none_is_refused_with_a_way_out(trained):
    done = bep(trained, "train.py", "--name", "other", *TINY[:1], *TINY[3:], "model.base=runs/bep/nowhere")
    refused(done, "model.base=runs/bep/nowhere")


@pytest.mark.slow
def test_a_stopped_and_resumed_run_ends_in_the_same_bits(trained):
    for words in ([*TINY, "training.steps=7"], ["--resume", "training.steps=12"]):
        done = bep(trained, "train.py", "--name", "resumed", *words)
        assert done.returncode == 0, done.stderr
    assert_same_weights(trained / "runs/bep", "default", "resumed")


@pytest.mark.slow
def test_both_loaders_end_in_the_same_bits(trained):
    done = bep(trained, "train.py", "--name", "streamed", *TINY, "data.loader=stream")
    assert done.returncode == 0, done.stderr
    assert_same_weights(trained / "runs/bep", "default", "streamed")


@pytest.mark.slow
def test_two_processes_follow_the_curve_of_one(trained):
    # What is drawn anew in every step is drawn by each process for its own slice.
    words = [*TINY, "model.dropout=0", "training.unknown=0"]
    done = bep(trained, "train.py", *words, "--name", "one")
    assert done.returncode == 0, done.stderr
    done = bep(trained, "train.py", *words, "--name", "two", processes=2, ACCELERATE_USE_CPU="true")
    assert done.returncode == 0, done.stderr
    one, two = (records(trained / "runs/bep" / name, "train/loss") for name in ("one", "two"))
    assert one.keys() == two.keys()
    assert list(two.values()) == pytest.approx(list(one.values()), rel=1e-4)


@pytest.mark.slow
def test_benchmark_counts_the_characters_of_both_loaders(trained):
    done = bep(trained, "benchmark.py", *TINY, "--steps", "3", "--compare", "data.loader=stream")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["targets_per_s"] == pytest.approx(8 * 40 / result["step_s"])
    assert result["targets_per_s, data.loader=stream"] > 0


def test_a_trained_run_keeps_its_documents(trained):
    done = stage(trained, "evaluate.py", "--workload", "bep", "data.lower_case=true")
    refused(done, "data.lower_case: False -> True")
