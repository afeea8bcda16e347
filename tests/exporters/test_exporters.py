import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from exporters import __main__ as exporters
from exporters import to_safetensors
from models import io
from models.routing.policy import RoutingConfig, RoutingPolicy

ROOT = Path(__file__).resolve().parents[2]
EVALUATION = {
    "cost": 6.25,
    "cost_interval": [6.2, 6.3],
    "gap": None,
    "n": 1000,
    "decode": "multistart | 8",
    "timing": {"seconds": 12.0},
    "table": [{"method": "savings", "cost": 6.5}, {"method": "dgt", "cost": 6.25, "gap %": 1.125}],
}


@pytest.fixture
def run(tmp_path) -> Path:
    """A run folder as training and evaluation leave it."""
    run = tmp_path / "cvrp" / "tiny"
    for which in ("best", "last"):
        io.save(RoutingPolicy(RoutingConfig("dgt", width=8, heads=2, layers=1)), run / "model" / which)
    (run / "evaluations").mkdir()
    (run / "evaluations" / "test.json").write_text(json.dumps(EVALUATION))
    (run / "evaluations" / "test.tours.json").write_text("[1, 2]")
    (run / "config.yaml").write_text("seed: 7\nmodel:\n  kind: dgt  # ``` inside\n")
    versions = {"torch": "2.13.0"}
    (run / "provenance.json").write_text(
        json.dumps({"command": ["train.py"], "commit": "abc123", "versions": versions})
    )
    return run


def command(*words: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "exporters", *map(str, words)], capture_output=True, text=True, cwd=ROOT, check=False
    )


def refusal(capsys, monkeypatch, *words: str | Path) -> str:
    monkeypatch.setattr(sys, "argv", ["exporters", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        exporters.main()
    assert stop.value.code == 2
    return capsys.readouterr().err


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
    assert card.startswith("---\nlibrary_name: pytorch\ntags:\n- routing\n- safetensors\n---\n")
    for line in (
        "# cvrp/tiny",
        "### test",
        "| cost | 6.25 |",
        "| cost_interval | 6.2, 6.3 |",
        "| decode | multistart \\| 8 |",
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


def test_last_and_another_folder_can_be_asked_for(run, tmp_path):
    exporters.export("safetensors", run, "last", tmp_path / "out")
    last, exported = io.load(run / "model" / "last"), io.load(tmp_path / "out")
    assert torch.equal(last.decoder.load, exported.decoder.load)
    assert not (run / "exports").exists()


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


def test_an_unknown_format_or_run_exits_with_2_and_one_line(run, tmp_path, capsys, monkeypatch):
    error = refusal(capsys, monkeypatch, "onnx", run)
    assert error.startswith("error: unknown format 'onnx'; known formats: ")
    assert "safetensors" in error
    assert error.count("\n") == 1
    error = refusal(capsys, monkeypatch, "safetensors", tmp_path / "nothing")
    assert "no run at" in error
    assert error.count("\n") == 1


def test_where_nothing_can_be_merged_nothing_is_written(run, capsys, monkeypatch):
    error = refusal(capsys, monkeypatch, "safetensors", run, "--merged")
    assert "leave --merged out for " in error
    assert error.endswith("model/best: it has no adapters\n")
    error = refusal(capsys, monkeypatch, "rp2040", run, "--merged")
    assert "the format rp2040 has nothing to merge; leave --merged out" in error
    assert not (run / "exports").exists()


def test_a_new_export_takes_away_the_old_ones_files_and_no_others(run, tmp_path):
    out = tmp_path / "out"
    exporters.export("safetensors", run, "best", out)
    manifest = json.loads((out / "manifest.json").read_text())
    contents = {"old.bin": b"of the export", "mine.bin": b"changed since"}
    for name, content in contents.items():
        (out / name).write_bytes(content)
    (tmp_path / "outside.bin").write_bytes(b"of the export")
    digest = hashlib.sha256(b"of the export").hexdigest()
    for name in ("old.bin", "mine.bin", "../outside.bin", "gone.bin"):
        manifest["files"][name] = {"bytes": 13, "sha256": digest}
    (out / "manifest.json").write_text(json.dumps(manifest))
    exporters.export("safetensors", run, "best", out)
    assert not (out / "old.bin").exists()
    assert (out / "mine.bin").exists()
    assert (tmp_path / "outside.bin").exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "an app"}', '{"files": ["a.html"]}'])
def test_a_manifest_of_something_else_is_left_alone(run, tmp_path, capsys, monkeypatch, text):
    (tmp_path / "manifest.json").write_text(text)
    error = refusal(capsys, monkeypatch, "safetensors", run, "--out", tmp_path)
    assert "is not the manifest of an export; give another --out" in error
    assert (tmp_path / "manifest.json").read_text() == text


def test_a_missing_model_is_not_replaced_silently(run, capsys, monkeypatch):
    (run / "model" / "best").rename(run / "model" / "older")
    error = refusal(capsys, monkeypatch, "safetensors", run)
    assert "has no model/best; it has model/last: add --which last" in error
    (run / "model" / "last").rename(run / "model" / "oldest")
    assert "has no model/best; train it first" in refusal(capsys, monkeypatch, "safetensors", run)


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
    assert not (best / "README.md").exists()


def test_weights_that_are_not_finite_are_not_exported(run, capsys, monkeypatch):
    model = io.load(run / "model" / "best")
    with torch.no_grad():
        model.decoder.load[0] = torch.nan
    io.save(model, run / "model" / "best")
    assert "decoder.load has values that are not finite" in refusal(capsys, monkeypatch, "safetensors", run)


def test_the_command_says_what_it_takes():
    done = command("--help")
    assert done.returncode == 0
    assert "python -m exporters safetensors runs/cvrp/dgt-50" in done.stdout
