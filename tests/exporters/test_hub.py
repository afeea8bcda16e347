"""Models go to Hugging Face's hub and come back from it; the hub is a stand-in on this machine."""

import json

import huggingface_hub
import pytest
import torch
from huggingface_hub import ModelCard, constants

from exporters import __main__ as exporters
from exporters import cards
from models import io
from tests.exporters import hub as stand_in
from tests.exporters.commands import refusal

# The library hands bytes to its client in a way that the client has another name for now.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The stand-in, as the library's endpoint, with a cache and a token of its own."""
    with stand_in.running() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", hub.token)
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield hub


def test_a_pushed_model_is_loaded_by_its_name_bit_for_bit(run, hub):
    told = exporters.export("safetensors", run, "best", None, push="me/tiny")
    out = run / "exports" / "safetensors"
    assert "uploaded to" in told
    assert "private until you change that" in told
    assert hub.private == {"me/tiny"}
    (files,) = hub.repositories["me/tiny"]
    assert files == {path.name: path.read_bytes() for path in out.iterdir()}
    original, loaded = io.load(run / "model" / "best"), io.load("me/tiny")
    for name, tensor in original.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name])
    downloaded = [path for method, path in hub.requests if method == "GET" and "/resolve/" in path]
    assert sorted(path.rpartition("/")[2] for path in downloaded) == ["config.json", "model.safetensors"]


def test_an_older_commit_can_be_loaded(run, hub):
    exporters.export("safetensors", run, "best", None, push="me/tiny")
    model = io.load(run / "model" / "best")
    with torch.no_grad():
        model.decoder.load += 1
    io.save(model, run / "model" / "best")
    exporters.export("safetensors", run, "best", None, push="me/tiny")
    assert len(hub.repositories["me/tiny"]) == 2
    older = io.load("me/tiny", revision=stand_in.identity("me/tiny", 0))
    assert torch.allclose(older.decoder.load + 1, io.load("me/tiny").decoder.load)


def test_the_members_of_a_run_get_a_repository_each(run, hub, tmp_path):
    many = tmp_path / "crypto" / "many"
    for name in ("AAA", "BBB"):
        (many / "members" / name).mkdir(parents=True)
        io.save(io.load(run / "model" / "best"), many / "members" / name / "model" / "best")
    exporters.export("safetensors", many, "best", None, push="me/coins")
    assert set(hub.repositories) == {"me/coins-AAA", "me/coins-BBB"}


def test_what_the_hub_refuses_is_said_in_one_line(run, hub, capsys, monkeypatch):
    assert "--push tiny must be OWNER/NAME" in refusal(capsys, monkeypatch, "safetensors", run, "--push", "tiny")
    assert not (run / "exports").exists()
    error = refusal(capsys, monkeypatch, "rp2040", run, "--push", "me/tiny")
    assert "the format rp2040 has no --push; leave it out" in error
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody_else")
    error = refusal(capsys, monkeypatch, "safetensors", run, "--push", "me/tiny")
    assert "is complete, but cannot be uploaded to me/tiny" in error
    assert "Invalid username or password" in error


def test_a_name_that_the_hub_does_not_know_is_no_folder_either(hub, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="'me/nothing' is no folder here, and cannot be downloaded from") as caught:
        io.load("me/nothing")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="cannot be downloaded from the hub"):
        io.load("me/nothing")
    before = len(hub.requests)
    with pytest.raises(ValueError, match="no model in"):
        io.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="revision 'main' is for models on the hub"):
        io.load(tmp_path, revision="main")
    assert len(hub.requests) == before


def test_the_card_has_the_metadata_of_the_hub_and_the_hubs_library_reads_them(run):
    provenance = json.loads((run / "provenance.json").read_text())
    (run / "provenance.json").write_text(json.dumps({**provenance, "data": {"data": {"customers": 20}, "inputs": {}}}))
    exporters.export("safetensors", run, "best", None)
    card = ModelCard.load(run / "exports" / "safetensors" / "README.md")
    data = card.data.to_dict()
    assert {name: data[name] for name in ("license", "library_name", "pipeline_tag", "tags", "datasets")} == {
        "license": "apache-2.0",
        "library_name": "pytorch",
        "pipeline_tag": "reinforcement-learning",
        "tags": ["routing", "safetensors"],
        "datasets": ["cvrp-made-for-cvrp-tiny"],
    }
    ours, baseline = card.data.eval_results
    assert (ours.metric_type, ours.metric_value, ours.dataset_split) == ("cost", 6.25, "test")
    assert (baseline.metric_name, baseline.metric_value) == ("cost: strongest baseline, savings", 6.5)
    assert isinstance(ours, huggingface_hub.EvalResult)


def test_the_hub_is_told_the_model_at_its_best_and_the_strongest_of_the_others():
    rows = {"SVM": 0.9, "siamese": 0.7, "siamese, refined": 0.8, "chance": 0.5}
    accuracies = {
        "table": [{"predictor": name, "accuracy": value} for name, value in rows.items()],
        "decode": "siamese",
    }
    best, rival = ("accuracy", "siamese, refined", 0.8), ("accuracy", "strongest baseline, SVM", 0.9)
    assert cards.headline(accuracies) == [best, rival]
    losses = {"predictors": [{"of": name, "log_loss": value} for name, value in rows.items()], "decode": "siamese"}
    found = cards.headline({"ABC": losses})  # the least, of a coin among several
    assert found == [("log_loss", "siamese", 0.7), ("log_loss", "strongest baseline, chance", 0.5)]


@pytest.mark.parametrize(
    ("source", "section"),
    [
        ("Hugging Face dataset owner/stories", {"source": "owner/stories"}),
        ("embedded story generator, seed 0", {"source": None, "base": "owner/model"}),
        ("ccxt", {"exchange": "binance"}),
        ("not recorded", {}),
    ],
)
def test_the_license_of_weights_that_learnt_from_what_others_publish_is_not_this_projects(run, source, section):
    (run / "provenance.json").write_text(json.dumps({"data": {"data": section, "source": source, "inputs": {}}}))
    exporters.export("safetensors", run, "best", None)
    card = ModelCard.load(run / "exports" / "safetensors" / "README.md").data.to_dict()
    assert (card["license"], card["license_name"]) == ("other", "not-stated")
    assert (card["datasets"] == ["owner/stories"]) is bool(section.get("source"))


def test_the_license_of_weights_that_learnt_from_files_of_the_user_is_the_users_to_state(run):
    data = {
        "data": {"source": "/home/me/secret"},
        "source": "folder /home/me/secret",
        "inputs": {"/home/me/secret": ""},
    }
    (run / "provenance.json").write_text(json.dumps({"data": data}))
    exporters.export("safetensors", run, "best", None)
    card = ModelCard.load(run / "exports" / "safetensors" / "README.md").data.to_dict()
    assert (card["license"], card["license_name"]) == ("other", "not-stated")
    assert card["datasets"] == ["cvrp-files-of-the-user-s-own"]
    exporters.export("safetensors", run, "best", None, license="cc-by-4.0")
    card = ModelCard.load(run / "exports" / "safetensors" / "README.md").data.to_dict()
    assert card["license"] == "cc-by-4.0"
    assert "license_name" not in card
