"""The export as a command, and the UF2 file."""

import binascii
import hashlib
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from exporters import __main__ as exporters
from exporters import to_rp2040
from exporters.rp2040 import inference, layout, uf2
from models import io
from models.integer_transformer import quantize
from models.routing.policy import RoutingConfig, RoutingPolicy
from tests.models.tiny import make, trained_tokenizer

ROOT = Path(__file__).resolve().parents[3]
NAMES = ["config_32p.json", "inference.py", "manifest.json", "model_32p.bin", "story.uf2", "vocab_32p.bin"]


def bootable(code: bytes = b"runtime") -> bytes:
    stage = bytes(range(252))
    return stage + struct.pack("<I", uf2.boot_sum(stage)) + code


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    """A run folder with an untrained model, and a runtime that does nothing."""
    run = tmp_path / "tinystories" / "tiny"
    io.save(make(tokenizer=trained_tokenizer(32)), run / "model" / "best")
    (tmp_path / "runtime.bin").write_bytes(bootable())
    monkeypatch.setattr(to_rp2040, "RUNTIME", tmp_path / "runtime.bin")
    return run


def command(monkeypatch, *words: str | Path) -> int:
    """The exit status of `python -m exporters rp2040 ...`."""
    monkeypatch.setattr(sys, "argv", ["exporters", "rp2040", *map(str, words)])
    try:
        exporters.main()
    except SystemExit as stop:
        return stop.code
    return 0


def refusal(capsys, monkeypatch, *words: str | Path) -> str:
    assert command(monkeypatch, *words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    return said.err


def test_the_command_writes_files_that_tell_the_reference_story(run, capsys, monkeypatch):
    assert command(monkeypatch, run) == 0
    out = run / "exports" / "rp2040"
    assert sorted(path.name for path in out.iterdir()) == NAMES
    manifest = json.loads((out / "manifest.json").read_text())
    model = io.load(run / "model" / "best")
    integers = quantize(model)
    expected = manifest["expected"]
    assert expected["tokens"] == list(integers.decode(expected["prompt_tokens"], to_rp2040.NUM_TOKENS))
    assert expected["text"] == model.tokenizer.decode(expected["prompt_tokens"] + expected["tokens"])
    story = inference.Story(out / "model_32p.bin", out / "vocab_32p.bin")
    assert list(story.tokens(story.encode(expected["prompt"].encode()), to_rp2040.NUM_TOKENS)) == expected["tokens"]
    assert (out / "inference.py").read_bytes() == Path(inference.__file__).read_bytes()
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
    assert 0.4 < error["largest_weight_error"] < 0.55
    described = json.loads((out / "config_32p.json").read_text())
    assert (described["vocabulary"], described["context"]) == (32, 6)
    assert described["files"] == {"model": "model_32p.bin", "vocabulary": "vocab_32p.bin", "uf2": "story.uf2"}


def test_the_weight_error_is_that_of_a_wrong_weight():
    model = make()
    integers = quantize(model)
    for name in ("qkv", "out", "up", "down"):
        weights = getattr(integers.layers[1], name).weights
        weights[2, 3] += 5
        assert 4.4 < to_rp2040.weight_error(model, integers) < 5.6
        weights[2, 3] -= 5
    assert 0.4 < to_rp2040.weight_error(model, integers) < 0.55


def test_the_uf2_file_holds_runtime_model_and_vocabulary(run):
    exporters.export("rp2040", run, "best", None)
    out = run / "exports" / "rp2040"
    parts = uf2.split((out / "story.uf2").read_bytes())
    files = [(out / name).read_bytes() for name in ("model_32p.bin", "vocab_32p.bin")]
    assert parts == (bootable().ljust(2**16, b"\0"), *files)


def test_two_exports_are_equal(run, tmp_path):
    exporters.export("rp2040", run, "best", None)
    exporters.export("rp2040", run, "best", tmp_path / "again")
    for name in NAMES:
        assert (tmp_path / "again" / name).read_bytes() == (run / "exports" / "rp2040" / name).read_bytes()


def test_the_prompt_goes_as_far_as_the_alphabet():
    vocabulary = layout.read_vocabulary(layout.pack_vocabulary(trained_tokenizer(32)))
    assert to_rp2040._known_beginning(b"The cat zooms", vocabulary) == b"The cat "
    assert to_rp2040._known_beginning(b"The cat", vocabulary) == b"The cat"
    assert to_rp2040._known_beginning(b"Zebra", vocabulary) == b""


def test_a_model_of_another_family_is_refused(run, capsys, monkeypatch):
    io.save(RoutingPolicy(RoutingConfig("dgt", width=8, heads=2, layers=1)), run / "model" / "best")
    error = refusal(capsys, monkeypatch, run)
    assert "holds a model of the family 'routing'; only a tiny_transformer runs on the RP2040" in error


def test_a_missing_runtime_is_named_with_the_command_that_makes_it(run, capsys, monkeypatch):
    to_rp2040.RUNTIME.unlink()
    assert "runtime.bin; build it: make -C " in refusal(capsys, monkeypatch, run)


def test_a_runtime_that_would_not_boot_is_refused(run, capsys, monkeypatch):
    to_rp2040.RUNTIME.write_bytes(bytes(1000))
    assert "no second boot stage with its sum" in refusal(capsys, monkeypatch, run)
    assert not (run / "exports" / "rp2040" / "manifest.json").exists()


def test_models_that_do_not_fit_are_refused(run, capsys, monkeypatch):
    best = run / "model" / "best"
    io.save(make(width=128, hidden=1024, tokenizer=trained_tokenizer(32)), best)
    assert "bytes of SRAM" in refusal(capsys, monkeypatch, run)
    io.save(make(context=5, tokenizer=trained_tokenizer(32)), best)
    assert "model.context=5 must be 2 to 256" in refusal(capsys, monkeypatch, run)
    io.save(make(), best)
    assert "this model was saved without its tokenizer; train it again" in refusal(capsys, monkeypatch, run)
    io.save(make(vocabulary=64, tokenizer=trained_tokenizer(32)), best)
    assert "the tokenizer has 32 tokens, the model 64" in refusal(capsys, monkeypatch, run)
    model = make(tokenizer=trained_tokenizer(32))
    with torch.no_grad():
        model.blocks[0].up.weight[0, 0] = torch.nan
    io.save(model, best)
    assert "blocks.0.up.weight has values that are not finite" in refusal(capsys, monkeypatch, run)


def test_the_model_is_not_overwritten_by_its_export(run, capsys, monkeypatch):
    assert "is the model's own folder" in refusal(capsys, monkeypatch, run, "--out", run / "model" / "best")


def test_a_folder_that_cannot_be_written_is_named(run, tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    assert "file" in refusal(capsys, monkeypatch, run, "--out", tmp_path / "file")
    assert "file" in refusal(capsys, monkeypatch, run, "--out", tmp_path / "file" / "out")
    if os.geteuid():  # root writes everywhere
        (tmp_path / "locked").mkdir(mode=0o500)
        assert "Permission denied" in refusal(capsys, monkeypatch, run, "--out", tmp_path / "locked")


def test_an_export_that_was_cut_short_has_no_manifest(run, capsys, monkeypatch):
    exporters.export("rp2040", run, "best", None)
    write = to_rp2040.write_whole

    def write_until_the_disk_is_full(path, data):
        if path.name == "story.uf2":
            raise OSError(28, "No space left on device", str(path))
        write(path, data)

    monkeypatch.setattr(to_rp2040, "write_whole", write_until_the_disk_is_full)
    assert "No space left on device" in refusal(capsys, monkeypatch, run)
    assert not (run / "exports" / "rp2040" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("model_32p.bin", lambda data: wrong_weight(data), "the model file differs from the quantised model"),
        ("story.uf2", lambda data: uf2.join(bootable(b"else"), *uf2.split(data)[1:]), "story.uf2 differs"),
        ("inference.py", lambda data: data.replace(b"y[i] > y[best]", b"y[i] < y[best]"), "tells another story"),
        ("inference.py", lambda data: data.replace(b"65 <= byte <= 90 or ", b""), "encodes the prompt differently"),
    ],
)
def test_no_manifest_vouches_for_files_that_differ(run, monkeypatch, name, damage, said):
    exporters.export("rp2040", run, "best", None)
    write = to_rp2040.write_whole

    def write_wrongly(path, data):
        write(path, damage(data) if path.name == name else data)

    monkeypatch.setattr(to_rp2040, "write_whole", write_wrongly)
    monkeypatch.setattr(to_rp2040, "PROMPT", "The cat")
    with pytest.raises(RuntimeError, match=said):
        exporters.export("rp2040", run, "best", None)
    assert not (run / "exports" / "rp2040" / "manifest.json").exists()


def wrong_weight(data: bytes) -> bytes:
    changed = data[:-1] + bytes([data[-1] ^ 1 or 2])
    return changed[:12] + struct.pack("<I", binascii.crc32(changed[16:])) + changed[16:]


def small_parts() -> tuple[bytes, bytes, bytes]:
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    return bootable(), layout.pack_model(quantize(make()), vocabulary), vocabulary


def test_a_uf2_file_has_the_bytes_that_its_specification_says():
    runtime, model, vocabulary = small_parts()
    data = uf2.join(runtime, model, vocabulary)
    total = 256 + -(-len(model) // 256) + -(-len(vocabulary) // 256)
    assert len(data) == 512 * total
    first, second = data[:512], data[512:1024]
    start = struct.pack("<8I", 0x0A324655, 0x9E5D5157, 0x2000, 0x10000000, 256, 0, total, 0xE48BFF56)
    assert first == start + runtime[:256] + bytes(220) + b"\x30\x6f\xb1\x0a"
    assert struct.unpack_from("<6I", second, 8) == (0x2000, 0x10000100, 256, 1, total, 0xE48BFF56)
    assert second[32:288] == b"runtime" + bytes(249)
    of_model = data[512 * 256 :]
    assert struct.unpack_from("<I", of_model, 12) == (0x10010000,)
    assert of_model[32:288] == model[:256]


def test_the_sum_of_the_boot_stage_is_that_of_the_catalogue():
    assert uf2.boot_sum(b"123456789") == 0x0376E6E7  # the check value of CRC-32/MPEG-2


def test_what_does_not_fit_flash_is_not_joined():
    runtime, model, vocabulary = small_parts()
    assert uf2.split(uf2.join(runtime.ljust(2**16, b"x"), model, vocabulary))[0].endswith(b"x")
    with pytest.raises(ValueError, match="the runtime has 65,537 bytes; flash has 65,536 for it"):
        uf2.join(runtime.ljust(2**16 + 1, b"x"), model, vocabulary)
    most = 2**21 - 2**16 - -(-len(vocabulary) // 256) * 256
    assert len(uf2.join(runtime, bytes(most), vocabulary)) == 2 * 2**21
    with pytest.raises(ValueError, match="need 2,097,408 bytes of flash; the Pico has 2,097,152"):
        uf2.join(runtime, bytes(most + 1), vocabulary)
    for short in (b"", runtime[:255], b"x" + runtime[1:]):
        with pytest.raises(ValueError, match="no second boot stage with its sum"):
            uf2.join(short, model, vocabulary)


def test_a_damaged_uf2_file_is_refused():
    data = uf2.join(*small_parts())
    blocks = len(data) // 512
    model_block = 512 * 256
    for place, new, said in (
        (0, b"V", "damaged in block 0"),
        (512 + 4, b"\0", "damaged in block 1"),
        (512 + 8, b"\1", "damaged in block 1"),
        (512 + 13, b"\2", "damaged in block 1"),
        (512 + 16, b"\xff", "damaged in block 1"),
        (512 + 20, b"\2", "damaged in block 1"),
        (512 + 24, b"\0\0", "damaged in block 1"),
        (512 + 28, b"\x57", "damaged in block 1"),
        (512 + 300, b"\1", "damaged in block 1"),
        (512 + 511, b"\0", "damaged in block 1"),
        (32 + 7, b"\xff", "no second boot stage with its sum"),
        (model_block + 32, b"X", "has no model where it should be"),
        (model_block + 32 + 8, b"\0\0\0\0", "model does not fill its place"),
        (model_block + 32 + 8, b"\xff\xff\xff\xff", "model does not fill its place"),
        (len(data) - 512 + 32 + 255, b"\1", "vocabulary does not fill its place"),
    ):
        with pytest.raises(ValueError, match=said):
            uf2.split(data[:place] + new + data[place + len(new) :])
    for cut, said in ((data[:-1], "not a multiple of 512"), (b"", "has 0 bytes"), (data[:-512], f"of {blocks - 1}")):
        with pytest.raises(ValueError, match=said):
            uf2.split(cut)
    with pytest.raises(ValueError, match="holds 2,097,408 bytes of flash"):
        uf2.split(bytes(512 * 8193))
    with pytest.raises(ValueError, match="goes on for 256 bytes after the vocabulary"):
        uf2.split(renumbered(data + data[-512:]))


def renumbered(data: bytes) -> bytes:
    total = len(data) // 512
    blocks = [data[512 * i : 512 * (i + 1)] for i in range(total)]
    return b"".join(
        block[:12] + struct.pack("<4I", 0x10000000 + 256 * i, 256, i, total) + block[28:]
        for i, block in enumerate(blocks)
    )


def test_the_command_works_with_the_runtime_of_the_repository(tmp_path):
    run = tmp_path / "tinystories" / "tiny"
    io.save(make(tokenizer=trained_tokenizer(32)), run / "model" / "best")
    done = subprocess.run(
        [sys.executable, "-m", "exporters", "rp2040", run], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    runtime, *_ = uf2.split((run / "exports" / "rp2040" / "story.uf2").read_bytes())
    assert runtime.startswith(to_rp2040.RUNTIME.read_bytes())
