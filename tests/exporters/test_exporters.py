"""The command, and the manifest of an export."""

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard

from exporters import __main__ as exporters
from exporters import to_safetensors
from models import io
from tests.exporters.commands import command, refusal

SHIPPED = Path(__file__).resolve().parents[2] / "models/pretrained/cvrp-20"


def test_last_and_another_folder_can_be_asked_for(run, tmp_path):
    exporters.export("safetensors", run, "last", tmp_path / "out")
    last, exported = io.load(run / "model" / "last"), io.load(tmp_path / "out")
    assert torch.equal(last.decoder.load, exported.decoder.load)
    assert not (run / "exports").exists()


def test_an_unknown_format_or_run_exits_with_2_and_one_line(run, tmp_path, capsys, monkeypatch):
    error = refusal(capsys, monkeypatch, "coreml", run)
    assert error.startswith("error: unknown format 'coreml'; known formats: ")
    assert "safetensors" in error
    assert error.count("\n") == 1
    assert "did you mean safetensors?" in refusal(capsys, monkeypatch, "safetensor", run)
    error = refusal(capsys, monkeypatch, "safetensors", tmp_path / "nothing")
    assert "no run at" in error
    assert error.count("\n") == 1


def test_a_model_that_comes_with_the_project_is_exported_from_its_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["exporters", "safetensors", str(SHIPPED)])
    exporters.main()
    assert "equal to cvrp-20 in every weight and output" in capsys.readouterr().out
    out = tmp_path / "exports/cvrp-20/safetensors"
    assert json.loads((out / "manifest.json").read_text())["run"] == "cvrp-20"
    assert "# cvrp-20\n" in (out / "README.md").read_text()
    assert not (SHIPPED / "exports").exists()
    assert "leave out --which last" in refusal(capsys, monkeypatch, "onnx", SHIPPED, "--which", "last")
    for word in ("cvrp/cvrp-20", "runs/cvrp/cvrp20"):
        assert f"did you mean {os.path.relpath(SHIPPED)}?" in refusal(capsys, monkeypatch, "web", word)


def test_a_missing_model_is_not_replaced_silently(run, capsys, monkeypatch):
    (run / "model" / "best").rename(run / "model" / "older")
    error = refusal(capsys, monkeypatch, "safetensors", run)
    assert "has no model/best; it has model/last: add --which last" in error
    (run / "model" / "last").rename(run / "model" / "oldest")
    assert "has no model/best; train it first" in refusal(capsys, monkeypatch, "safetensors", run)


def test_the_command_says_what_it_takes():
    done = command("--help")
    assert done.returncode == 0
    assert "python -m exporters safetensors runs/cvrp/dgt-50" in done.stdout


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


@pytest.mark.parametrize("metadata", [b"license: [", b"- a list", b"license: caf\xe9", b"model-index: 3\nlicense: mit"])
def test_a_card_whose_metadata_cannot_be_read_is_named(run, tmp_path, capsys, monkeypatch, metadata):
    folder = run / "model/best"
    (folder / "README.md").write_bytes(b"---\n%s\n---\n\n# Mine\n" % metadata)
    error = refusal(capsys, monkeypatch, "safetensors", folder, "--out", tmp_path / "out")
    assert f"{folder / 'README.md'}: the metadata between its --- cannot be read" in error
    assert not (tmp_path / "out").exists()


def test_files_that_no_manifest_lists_are_not_overwritten(run, tmp_path, capsys, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/README.md").write_text("of mine")
    error = refusal(capsys, monkeypatch, "safetensors", run, "--out", tmp_path / "mine")
    assert f"{tmp_path / 'mine/README.md'} is not of an earlier export, or was changed; give another --out" in error
    assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["of mine"]


def test_a_card_that_was_changed_by_hand_stays_with_its_export(run, capsys, monkeypatch):
    exporters.export("safetensors", run, "best", None)
    out = run / "exports/safetensors"
    (out / "README.md").write_text("by hand")
    assert "README.md is not of an earlier export, or was changed" in refusal(capsys, monkeypatch, "safetensors", run)
    assert (out / "README.md").read_text() == "by hand"
    assert {"manifest.json", "model.safetensors"} < {path.name for path in out.iterdir()}


def test_an_export_that_fails_over_an_earlier_one_leaves_no_manifest(run, tmp_path):
    exporters.export("safetensors", run, "best", tmp_path / "out")
    (tmp_path / "out/model.safetensors").unlink()
    (tmp_path / "out/model.safetensors").mkdir()
    with pytest.raises(OSError, match=r"model\.safetensors"):
        exporters.export("safetensors", run, "best", tmp_path / "out")
    assert not (tmp_path / "out/manifest.json").exists()


def test_an_export_that_was_cut_short_is_made_again(run, tmp_path):
    exporters.export("safetensors", run, "best", tmp_path / "out")
    (tmp_path / "out/manifest.json").unlink()
    exporters.export("safetensors", run, "best", tmp_path / "out")
    assert (tmp_path / "out/manifest.json").is_file()


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "an app"}', '{"files": {}}', '{"files": ["a.html"]}'])
def test_a_manifest_of_something_else_is_left_alone(run, tmp_path, capsys, monkeypatch, text):
    (tmp_path / "manifest.json").write_text(text)
    error = refusal(capsys, monkeypatch, "safetensors", run, "--out", tmp_path)
    assert "is not the manifest of an export; give another --out" in error
    assert (tmp_path / "manifest.json").read_text() == text


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(folder, id=folder.name, marks=pytest.mark.slow if folder.name == "tinystories-real" else ())
        for folder in sorted(SHIPPED.parent.iterdir())
    ],
)
def test_the_card_of_a_model_that_comes_with_the_project_has_no_gap(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert {path.name for path in folder.iterdir()} == {"README.md", "config.json", "model.safetensors", "run.yaml"}
    exporters.export("safetensors", folder, "best", None)
    out = tmp_path / "exports" / folder.name / "safetensors"
    card = ModelCard.load(out / "README.md")
    assert card.data.license not in (None, "other")
    assert card.data.datasets
    assert card.data.library_name == "pytorch"
    for gap in ("not-stated", "Nothing: ", "Not recorded"):
        assert gap not in (out / "README.md").read_text()
    figures = card.data.eval_results
    assert len(figures) >= 2, "the model's and an alternative's"
    for each in figures:
        assert str(each.metric_value) in card.text, f"{each.metric_name}: what the metadata say stands in the text"
    measured = json.loads((out / "evaluation.json").read_text())
    assert {name: value for part in measured.values() for name, value in part.items()} == {
        each.metric_name: each.metric_value for each in figures
    }
    exporters.export("safetensors", out, "best", tmp_path / "again")
    assert (tmp_path / "again/README.md").read_text() == (out / "README.md").read_text()
    exporters.export("safetensors", folder, "best", None, license="cc-by-4.0")
    assert ModelCard.load(out / "README.md").data.license == "cc-by-4.0"


def test_ctrl_c_ends_an_export_with_a_line(run, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(to_safetensors, "export", interrupted)
    monkeypatch.setattr(sys, "argv", ["exporters", "safetensors", str(run)])
    with pytest.raises(SystemExit) as ended:
        exporters.main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "stopped by Ctrl-C\n")
