"""Weights, config and a card for Hugging Face's hub."""

import hashlib
import json

import pytest
import torch
from safetensors import safe_open

from exporters import __main__ as exporters
from exporters import cards, to_safetensors
from models import io
from models.plans.char_mixture import CharMixture, CharMixtureConfig
from models.plans.lstm_network import EXPOSURE
from models.routing.policy import RoutingPolicy
from tests.exporters.commands import command, refusal
from tests.stages import ROOT


@pytest.mark.slow
def test_the_command_writes_an_artifact_that_is_equal_and_proved_so(run):
    done = command("safetensors", run)
    assert (done.returncode, done.stderr) == (0, "")
    out = run / "exports" / "safetensors"
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "config.json",
        "evaluation.json",
        "manifest.json",
        "model.safetensors",
    ]
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["maximum_absolute_difference"] == {"weights": 0.0, "output": 0.0}
    assert manifest["source"] == "model/best"
    original, exported = io.load(run / "model" / "best"), io.load(out)
    assert manifest["num_parameters"] == sum(parameter.numel() for parameter in original.parameters())
    assert manifest["files"].keys() == {"README.md", "config.json", "evaluation.json", "model.safetensors"}
    for name, facts in manifest["files"].items():
        data = (out / name).read_bytes()
        assert facts == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    for name, tensor in original.state_dict().items():
        assert torch.equal(tensor, exported.state_dict()[name])
    with safe_open(out / "model.safetensors", "pt") as file:
        assert file.metadata()["commit"] == "abc123"
        assert file.metadata()["run"] == "cvrp/tiny"
    assert f"{manifest['num_parameters']:,} parameters" in done.stdout


def test_the_card_states_measured_figures_provenance_and_configuration(run):
    exporters.export("safetensors", run, "best", None)
    card = (run / "exports" / "safetensors" / "README.md").read_text()
    assert card.startswith("---\n")
    for line in (
        "license: other",
        "# cvrp/tiny",
        "### test",
        "| cost | 6.25 |",
        "| cost_interval | 6.2, 6.3 |",
        "| decode | dgt, multistart \\| 8 |",
        "| timing.seconds | 12 |",
        "| method | cost | gap % |",
        "| savings | 6.5 |  |",
        "| dgt | 6.25 | 1.125 |",
        "| commit | abc123 |",
        "| versions.torch | 2.13.0 |",
        "````yaml",
        "seed: 7",
    ):
        assert line in card.splitlines()
    assert "tours" not in card.split("## Measured")[1].split("## Provenance")[0]


def test_the_card_of_a_model_of_text_says_what_it_is_for_and_what_it_gives_away(tmp_path):
    sizes = {"vocabulary": "ab", "kind": "embedding", "width": 4, "layers": 1, "dropout": 0.0, "embedding": 2}
    card = cards.card(CharMixture(CharMixtureConfig(**sizes)), tmp_path, "model/best", {}, {})
    own = card.split("## Intended use")[1].split("## Measured")[0]
    assert own.index("## Data") < own.index("## Privacy")
    for told in ("documents word for word", "exposure", "model.min_documents=2", "memorisation.py"):
        assert told in own.split("## Privacy")[1]


def test_the_card_says_how_much_is_remembered_as_it_was_measured():
    found = json.loads((ROOT / "docs/evidence.json").read_text())["bep-canaries"]["figures"]
    lstm = [f"{found['LSTM'][times]['mean']:.1f}" for times in ("1", "4", "16")]
    fewer = found["mixture, min_documents=2"]
    assert f"1, 4 and 16 times, an LSTM has {', '.join(lstm[:2])} and {lstm[2]} bits" in EXPOSURE
    assert f"mixture has {found['mixture']['1']['mean']:.0f} from" in EXPOSURE
    cost = fewer["bits_per_character"] / found["mixture"]["bits_per_character"] - 1
    assert f"{fewer['1']['mean']:.1f} bits, and needs {100 * cost:.0f} % more" in EXPOSURE


def test_a_run_without_evaluations_says_so(run):
    for path in (run / "evaluations").iterdir():
        path.unlink()
    (run / "provenance.json").unlink()
    (run / "config.yaml").unlink()
    exporters.export("safetensors", run, "last", None)
    card = (run / "exports" / "safetensors" / "README.md").read_text()
    assert "Nothing: this run has no evaluations yet." in card
    assert "Not recorded." in card
    assert "`model/last`" in card


def test_exporting_again_gives_the_same_bytes(run):
    exporters.export("safetensors", run, "best", None)
    before = (run / "exports" / "safetensors" / "manifest.json").read_bytes()
    exporters.export("safetensors", run, "best", None)
    assert (run / "exports" / "safetensors" / "manifest.json").read_bytes() == before


def test_no_manifest_vouches_for_an_export_that_differs(run, monkeypatch):
    exporters.export("safetensors", run, "best", None)
    save = io.save

    def save_wrongly(model, folder, metadata):
        with torch.no_grad():
            wrong = RoutingPolicy(model.config)
            wrong.load_state_dict(model.state_dict())
            wrong.decoder.load[0] += 1e-6
        save(wrong, folder, metadata)

    monkeypatch.setattr(to_safetensors.io, "save", save_wrongly)
    with pytest.raises(RuntimeError, match=r"exported weights differ from the original in decoder.load"):
        exporters.export("safetensors", run, "best", None)
    assert not (run / "exports" / "safetensors" / "manifest.json").exists()


def test_outputs_are_compared_too(run):
    model, other = io.load(run / "model" / "best"), io.load(run / "model" / "best")
    assert to_safetensors.prove_equal(model, other) == {"weights": 0.0, "output": 0.0}
    other.forward = lambda instances, num_starts: model(instances, num_starts)._replace(cost=torch.zeros(2, 10))
    with pytest.raises(RuntimeError, match="exported output differ"):
        to_safetensors.prove_equal(model, other)


def test_where_nothing_can_be_merged_nothing_is_written(run, capsys, monkeypatch):
    error = refusal(capsys, monkeypatch, "safetensors", run, "--merged")
    assert "leave --merged out for " in error
    assert error.endswith("model/best: it has no adapters\n")
    error = refusal(capsys, monkeypatch, "rp2040", run, "--merged")
    assert "the format rp2040 has no --merged; leave it out" in error
    assert not (run / "exports").exists()


def test_damage_is_named_with_exit_code_2(run, capsys, monkeypatch):
    (run / "evaluations" / "test.json").write_text("{")
    error = refusal(capsys, monkeypatch, "safetensors", run)
    assert "test.json is not JSON" in error
    weights = run / "model" / "best" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    error = refusal(capsys, monkeypatch, "safetensors", run)
    assert "model.safetensors is damaged" in error
    assert error.count("\n") == 1


def test_the_model_is_not_overwritten_by_its_export(run, capsys, monkeypatch):
    best = run / "model" / "best"
    assert "is the model's own folder" in refusal(capsys, monkeypatch, "safetensors", run, "--out", best)
    file = best / "config.json"
    assert (
        refusal(capsys, monkeypatch, "safetensors", run, "--out", file)
        == f"error: --out {file} is no folder; give another\n"
    )
    assert not (best / "README.md").exists()


def test_weights_that_are_not_finite_are_not_exported(run, capsys, monkeypatch):
    model = io.load(run / "model" / "best")
    with torch.no_grad():
        model.decoder.load[0] = torch.nan
    io.save(model, run / "model" / "best")
    assert "decoder.load has values that are not finite" in refusal(capsys, monkeypatch, "safetensors", run)
