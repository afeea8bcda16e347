"""The export to the RP2040 as a command."""

import binascii
import hashlib
import json
import os
import struct
import sys
from pathlib import Path

import pytest
import torch

from exporters import __main__ as exporters
from exporters import export_folder, to_rp2040
from exporters.rp2040 import uf2
from exporters.rp2040.settings import Settings
from models import io
from models.routing.config import RoutingConfig
from models.routing.policy import RoutingPolicy
from models.stories.quantization import quantize
from models.stories.tiny_transformer import TinyTransformer
from tests.exporters.commands import command, refusal
from tests.exporters.rp2040 import read_back
from tests.exporters.rp2040.files import bootable
from tests.models.tiny import make, trained_tokenizer

NAMES = ["config_32p.json", "manifest.json", "model_32p.bin", "story.uf2", "vocab_32p.bin"]


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    """A run folder with an untrained model, and a runtime that does nothing."""
    run = tmp_path / "tinystories" / "tiny"
    io.save(make(tokenizer=trained_tokenizer(32)), run / "model" / "best")
    (tmp_path / "runtime.bin").write_bytes(bootable())
    monkeypatch.setattr(to_rp2040, "RUNTIME", tmp_path / "runtime.bin")
    return run


def test_the_command_writes_files_that_tell_the_reference_story(run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["exporters", "rp2040", str(run)])
    exporters.main()
    out = run / "exports" / "rp2040"
    assert sorted(path.name for path in out.iterdir()) == NAMES
    manifest = json.loads((out / "manifest.json").read_text())
    model = io.load(run / "model" / "best")
    integers = quantize(model)
    expected = manifest["expected"]
    assert expected["tokens"] == list(integers.decode(expected["prompt_tokens"], to_rp2040.NUM_TOKENS))
    assert expected["text"] == model.tokenizer.decode(expected["prompt_tokens"] + expected["tokens"])
    files = [(out / name).read_bytes() for name in ("model_32p.bin", "vocab_32p.bin")]
    assert read_back.Vocabulary(files[1]).encode(expected["prompt"].encode()) == expected["prompt_tokens"]
    told = read_back.read_model(files[0]).decode(expected["prompt_tokens"], to_rp2040.NUM_TOKENS)
    assert list(told) == expected["tokens"]
    assert capsys.readouterr().out.startswith(f"{out}: {manifest['num_parameters']:,} parameters")


def test_the_manifest_has_sums_sizes_and_errors(run):
    exporters.export("rp2040", run, "best", None)
    out = run / "exports" / "rp2040"
    manifest = json.loads((out / "manifest.json").read_text())
    assert sorted(manifest["files"]) == [name for name in NAMES if name != "manifest.json"]
    for name, facts in manifest["files"].items():
        data = (out / name).read_bytes()
        assert facts == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    model = io.load(run / "model" / "best")
    assert manifest["format"] == "rp2040"
    assert manifest["source"] == "model/best"
    assert manifest["num_parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert manifest["flash_bytes"] == 2**16 + sum(
        -(-manifest["files"][name]["bytes"] // 256) * 256 for name in ("model_32p.bin", "vocab_32p.bin")
    )
    assert 10_000 < manifest["sram_bytes"] < 2**18
    error = manifest["quantization"]
    assert 0 < error["root_mean_square"] < error["largest"] < 0.2
    described = json.loads((out / "config_32p.json").read_text())
    assert (described["version"], described["memory"]) == (1, [])
    assert (described["vocabulary"], described["context"]) == (32, 6)
    assert described["files"] == {"model": "model_32p.bin", "vocabulary": "vocab_32p.bin", "uf2": "story.uf2"}


def test_the_uf2_file_holds_runtime_model_and_vocabulary(run):
    exporters.export("rp2040", run, "best", None)
    out = run / "exports" / "rp2040"
    parts = read_back.split((out / "story.uf2").read_bytes())
    files = [(out / name).read_bytes() for name in ("model_32p.bin", "vocab_32p.bin")]
    assert parts == (bootable().ljust(2**16 - 256, b"\0"), Settings().pack(), *files)


def test_how_the_run_tells_its_stories_is_how_the_board_begins(run, capsys, monkeypatch):
    (run / "config.yaml").write_text(
        "evaluation:\n  temperature: 0.6\n  top_k: 12\n  sample_tokens: 90\n  prompts: [The cat, A dog]\n"
    )
    exporters.export("rp2040", run, "best", None)
    _, page, *_ = read_back.split((run / "exports" / "rp2040" / "story.uf2").read_bytes())
    assert page == Settings(0.6, 12, 90, "The cat").pack()
    for most in (Settings(0.05, 4096, 99_999, "é" * 116), Settings(10.0, 0, 1), Settings(0.0)):
        assert len(most.pack()) == 256
    for beyond in (
        Settings(0.049),
        Settings(10.1),
        Settings(top_k=4097),
        Settings(tokens=0),
        Settings(prompt="é" * 117),
    ):
        with pytest.raises(ValueError, match="does not fit the board, which takes "):
            beyond.pack()
    for content, said in (
        ("evaluation:\n  temperature: 0.01\n", "evaluation.temperature=0.01 does not fit the board"),
        ("evaluation:\n  temperature: 0.001\n", "evaluation.temperature=0.001 does not fit the board"),
        ("evaluation:\n  temperature: .inf\n", "evaluation.temperature=inf does not fit the board"),
        ("evaluation: 3\n", "its `evaluation` is not that of a tinystories run"),
        ("a: &a [1]\nb: *a\n", "config.yaml"),
    ):
        (run / "config.yaml").write_text(content)
        assert said in refusal(capsys, monkeypatch, "rp2040", run)


def test_a_model_with_a_memory_is_exported(run):
    io.save(make(tokenizer=trained_tokenizer(32), memory=(16, 64)), run / "model" / "best")
    exporters.export("rp2040", run, "best", None)
    described = json.loads((run / "exports" / "rp2040" / "config_32p.json").read_text())
    assert (described["version"], described["memory"]) == (2, [16, 64])


def test_a_model_with_counts_is_exported(run):
    model = make(tokenizer=trained_tokenizer(32), counts=60)
    io.save(model, run / "model" / "best")
    exporters.export("rp2040", run, "best", None)
    described = json.loads((run / "exports" / "rp2040" / "config_32p.json").read_text())
    assert (described["version"], described["memory"], described["counts"]) == (3, [], 60)


def test_two_exports_are_equal(run, tmp_path):
    exporters.export("rp2040", run, "best", None)
    exporters.export("rp2040", run, "best", tmp_path / "again")
    for name in NAMES:
        assert (tmp_path / "again" / name).read_bytes() == (run / "exports" / "rp2040" / name).read_bytes()


@pytest.mark.parametrize("lower", [False, True])
def test_what_a_device_has_to_answer_begins_with_words_of_the_model(run, lower):
    io.save(model := make(tokenizer=trained_tokenizer(32, lower=lower)), run / "model" / "best")
    exporters.export("rp2040", run, "best", None)
    expected = json.loads((run / "exports/rp2040/manifest.json").read_text())["expected"]
    assert expected["prompt"] == model.beginning
    assert expected["prompt_tokens"] == model.encoded(model.beginning)


def test_a_model_of_another_family_is_refused(run, capsys, monkeypatch):
    io.save(RoutingPolicy(RoutingConfig("dgt", width=8, heads=2, layers=1)), run / "model" / "best")
    error = refusal(capsys, monkeypatch, "rp2040", run)
    assert "holds a model of the family 'routing'; only a tiny_transformer runs on the RP2040" in error


def test_models_that_do_not_fit_are_refused(run, capsys, monkeypatch):
    best = run / "model" / "best"
    io.save(make(width=128, layers=8, context=256, tokenizer=trained_tokenizer(32)), best)
    assert "bytes of SRAM" in refusal(capsys, monkeypatch, "rp2040", run)
    io.save(make(context=5, tokenizer=trained_tokenizer(32)), best)
    assert "model.context=5 must be 2 to 256" in refusal(capsys, monkeypatch, "rp2040", run)
    io.save(make(), best)
    assert "this model was saved without its tokenizer; train it again" in refusal(capsys, monkeypatch, "rp2040", run)
    io.save(make(vocabulary=64, tokenizer=trained_tokenizer(32)), best)
    assert "the tokenizer has 32 tokens, the model 64" in refusal(capsys, monkeypatch, "rp2040", run)
    model = make(tokenizer=trained_tokenizer(32))
    with torch.no_grad():
        model.blocks[0].up.weight[0, 0] = torch.nan
    io.save(model, best)
    assert "blocks.0.up.weight has values that are not finite" in refusal(capsys, monkeypatch, "rp2040", run)


def test_the_model_is_not_overwritten_by_its_export(run, capsys, monkeypatch):
    assert "is the model's own folder" in refusal(capsys, monkeypatch, "rp2040", run, "--out", run / "model" / "best")


def test_a_folder_that_cannot_be_written_is_named(run, tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    assert "file" in refusal(capsys, monkeypatch, "rp2040", run, "--out", tmp_path / "file")
    assert "file" in refusal(capsys, monkeypatch, "rp2040", run, "--out", tmp_path / "file" / "out")
    if os.geteuid():  # root writes everywhere
        (tmp_path / "locked").mkdir(mode=0o500)
        assert "Permission denied" in refusal(capsys, monkeypatch, "rp2040", run, "--out", tmp_path / "locked")


def test_an_export_that_was_cut_short_has_no_manifest(run, capsys, monkeypatch):
    exporters.export("rp2040", run, "best", None)
    write = export_folder.write_whole

    def write_until_the_disk_is_full(path, data):
        if path.name == "story.uf2":
            raise OSError(28, "No space left on device", str(path))
        write(path, data)

    monkeypatch.setattr(export_folder, "write_whole", write_until_the_disk_is_full)
    assert "No space left on device" in refusal(capsys, monkeypatch, "rp2040", run)
    assert not (run / "exports" / "rp2040" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("model_32p.bin", lambda data: wrong_weight(data), "model_32p.bin differs"),
        ("story.uf2", lambda data: uf2.join(bootable(b"else"), *read_back.split(data)[1:]), "story.uf2 differs"),
    ],
)
def test_no_manifest_vouches_for_files_that_differ(run, monkeypatch, name, damage, said):
    exporters.export("rp2040", run, "best", None)
    write = export_folder.write_whole

    def write_wrongly(path, data):
        write(path, damage(data) if path.name == name else data)

    monkeypatch.setattr(export_folder, "write_whole", write_wrongly)
    monkeypatch.setattr(TinyTransformer, "beginning", "The cat")
    with pytest.raises(RuntimeError, match=said):
        exporters.export("rp2040", run, "best", None)
    assert not (run / "exports" / "rp2040" / "manifest.json").exists()


def wrong_weight(data: bytes) -> bytes:
    changed = data[:-1] + bytes([data[-1] ^ 1 or 2])
    return changed[:12] + struct.pack("<I", binascii.crc32(changed[16:])) + changed[16:]


def test_the_command_works_with_the_runtime_of_the_repository(tmp_path):
    run = tmp_path / "tinystories" / "tiny"
    io.save(make(tokenizer=trained_tokenizer(32)), run / "model" / "best")
    done = command("rp2040", run)
    assert (done.returncode, done.stderr) == (0, "")
    runtime, *_ = read_back.split((run / "exports" / "rp2040" / "story.uf2").read_bytes())
    assert runtime.startswith(to_rp2040.RUNTIME.read_bytes())
    read_back.check_boot(to_rp2040.RUNTIME_RP2350.read_bytes(), uf2.FAMILY_RP2350)
