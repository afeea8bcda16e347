"""Tensor programs in ONNX, proved equal, and the examples that use them without the project."""

import ast
import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import ExifTags, Image
from tokenizers import Tokenizer

from exporters import __main__ as exporters
from exporters import onnx, portable, to_onnx
from exporters.onnx import cnn_lstm, examples
from models import io, shipped
from models.images import image_files
from models.images.comparator import build
from models.market.candle_features import NAMES
from tests import towers
from tests.exporters import onnx_examples
from tests.exporters.commands import refusal
from tests.models import hostile, tiny

FEATURES = NAMES
SIGNALS = {
    "features": list(FEATURES),
    "scalers": {coin: {"mean": [0.0] * len(FEATURES), "std": [1.0] * len(FEATURES)} for coin in "AB"},
    "timeframe_ms": 60_000,
}
# What is told when an example is run as its user runs it, without words behind it.
CASES = {
    "gt": ("routing", {}),
    "tiny_transformer": ("tiny_transformer", {}),
    "char_mixture": ("char_mixture", {}),
    "pooled_experts": ("pooled_experts", SIGNALS),
    "siamese": ("comparator", {}),
}


def run_of(name, tmp_path):
    """A run with a small model of one of `hostile.MODELS`; that of stories has a tokenizer, a memory and counts."""
    run = tmp_path / "w" / name
    if name == "tiny_transformer":
        sizes = {"vocabulary": 48, "memory": (64, 128), "counts": 200}
        io.save(tiny.make(**sizes, tokenizer=tiny.trained_tokenizer(48)), run / "model/best")
    else:
        hostile.folder_of(name, run / "model/best", **CASES[name][1] if name in CASES else {})
    return run


def few(monkeypatch):
    for module in (to_onnx, cnn_lstm):
        monkeypatch.setattr(module, "FRESH", 6)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.exhaustive if name in ("gt", "siamese") else pytest.mark.slow)
        for name in CASES
    ],
)
def test_a_model_of_each_workload_is_exported_and_used_without_the_project(name, tmp_path, monkeypatch):
    few(monkeypatch)
    run = run_of(name, tmp_path)
    told = exporters.export("onnx", run, "best", None)
    out = run / "exports" / "onnx"
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["programs"]
    for program in manifest["programs"].values():
        assert 0 <= program["largest_difference"] <= 1e-4
        assert any(isinstance(size, str) for shape in program["inputs"].values() for size in shape)
    onnx_examples.agree(io.load(run / "model/best"), out / "example.py")
    assert f"bytes in {len(manifest['programs'])} programs, at most " in told
    assert {path.name for path in out.iterdir()} == {*manifest["files"], "manifest.json"}
    for path in out.glob("*.onnx"):
        assert str(tmp_path).encode() not in path.read_bytes()
        assert b"site-packages" not in path.read_bytes()
    if name in ("gt", "tiny_transformer", "char_mixture"):  # the others need files to read
        done = subprocess.run(
            [sys.executable, out / "example.py"], capture_output=True, text=True, cwd=tmp_path, check=True
        )
        assert done.stdout.strip()


@pytest.mark.parametrize("lower", [True, False])
def test_the_tokenizer_beside_stories_reads_capitals_as_the_model_does(lower):
    model = tiny.make(tokenizer=tiny.trained_tokenizer(32, lower))
    tokenizer = Tokenizer.from_str(onnx.describe(model).files["tokenizer.json"].decode())
    assert tokenizer.encode("The CAT sat.").ids == model.encoded("The CAT sat.")
    assert (tokenizer.encode("The CAT").ids == tokenizer.encode("the cat").ids) is lower


@pytest.mark.slow
def test_a_program_that_differs_is_not_vouched_for(tmp_path, monkeypatch):
    few(monkeypatch)
    run = tmp_path / "w" / "text"
    hostile.folder_of("char_lstm", run / "model/best")
    converted = to_onnx.converted

    def of_another_model(program):
        with torch.no_grad():
            program.module.model.output.bias[0] += 0.1
        data = converted(program)
        with torch.no_grad():
            program.module.model.output.bias[0] -= 0.1
        return data

    monkeypatch.setattr(to_onnx, "converted", of_another_model)
    with pytest.raises(RuntimeError, match=r"network.onnx differs by 0\.\d+ from the model"):
        exporters.export("onnx", run, "best", None)
    assert not (run / "exports/onnx/manifest.json").exists()


def test_a_family_that_nobody_described_is_refused_by_name(tmp_path, capsys, monkeypatch):
    run = tmp_path / "w" / "waves"
    hostile.folder_of("waves", run / "model/best")
    shutil.copy(hostile.waves.__file__, tmp_path / "lonely_waves.py")  # away from its own description
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(io.FAMILIES, "waves", "lonely_waves")
    error = refusal(capsys, monkeypatch, "onnx", run)
    assert "the family 'waves' has no tensor programs" in error
    assert "with describe(model) beside the model's module, or export safetensors" in error
    assert not (run / "exports").exists()


@pytest.mark.slow
def test_a_policy_whose_distances_are_scaled_by_the_number_of_customers_is_exported(tmp_path):
    said = exporters.export("onnx", shipped.FOLDER / "cvrp-mixed", "best", tmp_path / "out")
    assert "in 2 programs" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "levels"),
    [("clip", 3), *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in (("clip", 0), ("resnet", 3)))],
)
def test_a_siamese_over_a_tower_is_exported_with_the_tower(kind, levels, tmp_path, monkeypatch):
    few(monkeypatch)
    base = towers.save_tower(kind, tmp_path / "base")
    sizes = {"size": 32, "channels": 3, "width": 8, "supports": 9, "levels": levels}
    model = build({"kind": "siamese", "base": base, **sizes}).eval()
    for buffer in model.regressions.buffers():
        buffer.normal_().div_(10)
    model.levels.copy_(torch.arange(levels))
    model.share.copy_(torch.tensor([0.5, -0.2, 0.1, *([0.4, 0.2] if levels else []), 0.3]))
    io.save(model, tmp_path / "w/run/model/best")
    exporters.export("onnx", tmp_path / "w/run", "best", tmp_path / "out")
    images = torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8)
    session = onnxruntime.InferenceSession(tmp_path / "out/encoder.onnx")
    (found,) = session.run(None, {"images": images.numpy()})
    assert (torch.from_numpy(found) - model.encode(images)).abs().max() <= 1e-4 * model.encode(images).abs().max()
    first, second = torch.tensor([[0, 1, 2, 3], [4, 0, 1, 1]])
    session = onnxruntime.InferenceSession(tmp_path / "out/comparison.onnx")
    (answers,) = session.run(None, {"encoded": found, "first": first.numpy(), "second": second.numpy()})
    expected = model.compare_encoded(model.encode(images), first, second)
    assert (torch.from_numpy(answers) - expected).abs().max() <= 1e-3 * expected.abs().max()


def test_a_sparse_policy_is_refused(tmp_path):
    run = tmp_path / "w" / "sparse"
    hostile.folder_of("gat", run / "model/best")
    model = io.load(run / "model/best")
    object.__setattr__(model.config, "neighbors", 5)
    with pytest.raises(ValueError, match=r"sparse graphs \(neighbors=5\).*give a policy with model.neighbors=0"):
        onnx.describe(model)


@pytest.mark.parametrize("name", ["over_low", "BTCUSDT:volatility_20", "4h:volatility_20"])
def test_a_classifier_on_features_that_its_example_cannot_compute_is_refused(name, tmp_path):
    hostile.folder_of("pooled_experts", tmp_path, features=[*FEATURES, name], scalers={}, timeframe_ms=900_000)
    with pytest.raises(ValueError, match=f"there is no feature {name} here: your own, and those of other coins"):
        onnx.describe(io.load(tmp_path))


@pytest.mark.parametrize("family", examples.EXAMPLES)
def test_every_name_in_an_example_is_defined(family, tmp_path):
    (tmp_path / "example.py").write_bytes(examples.script(family))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F,E9", tmp_path / "example.py"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("family", "words", "text"),
    [
        ("comparator", [], "not enough values to unpack (expected 2, got 0)"),
        ("comparator", ["example.py", "example.py"], "cannot identify image file 'example.py'"),
        ("cnn_lstm", [], "list index out of range"),
        ("cnn_lstm", ["candles.csv"], "[Errno 2] No such file or directory: 'candles.csv'"),
        ("cnn_lstm", ["dates.csv"], "could not convert string to float: '2024-01-01'"),
        ("cnn_lstm", ["titled.csv"], "'time' is not in list"),
        ("routing", ["many"], "invalid literal for int() with base 10: 'many'"),
    ],
)
def test_an_example_says_in_a_line_what_it_cannot_use_and_how_it_is_called(family, words, text, tmp_path):
    neighbours = portable.copies("models.market.candle_features", prefix="")
    for name, source in {"example.py": examples.script(family), **neighbours}.items():
        (tmp_path / name).write_bytes(source)
    table = "time,open,high,low,close,volume\n\n2024-01-01,1,1,1,1,1\n"
    (tmp_path / "dates.csv").write_text(table)
    (tmp_path / "titled.csv").write_text(f"www.example.org\n{table}")
    command = [sys.executable, "example.py", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    about, taken, *_ = examples.EXAMPLES[family]
    assert done.stderr.startswith(f"error: {text}; {about}: pip install onnxruntime"), done.stderr
    assert done.stderr.endswith(f"python example.py {taken}.\n")


def test_the_example_reads_candles_with_spaces_and_cells_that_are_empty(tmp_path, monkeypatch):
    (file := tmp_path / "candles.csv").write_text("time, open, high, low, close, volume\n60000, 2, 2, 2, , 5\n")
    read = {}
    monkeypatch.setattr(examples, "probabilities", lambda columns, coin: read.update(columns) or np.zeros((1, 3)))
    monkeypatch.setattr(examples, "settings", lambda: SimpleNamespace(coins=["A"], classes=["up"]))
    monkeypatch.setattr(sys, "argv", ["example.py", str(file)])
    examples.judge_file()
    assert (read["time"].tolist(), read["volume"].tolist()) == ([60_000], [5.0])
    assert np.isnan(read["close"]).all()  # a candle that is missing, whose windows are left out


@pytest.mark.parametrize("step", [60_000, -60_000, 60])
def test_the_example_says_that_candles_are_too_few_or_newest_first(step, monkeypatch):
    known = SimpleNamespace(timeframe_ms=60_000, features=list(FEATURES), lookback=8, coins=["A"])
    monkeypatch.setattr(examples, "settings", lambda: known)
    count = 20 if step == 60_000 else 400  # the features need more candles before the first window
    columns = {name: np.full(count, 2.0) for name in ("open", "high", "low", "close", "volume")}
    with pytest.raises(ValueError, match="too few candles without a gap, the oldest first"):
        examples.probabilities({"time": 1_700_000_040_000 + step * np.arange(count), **columns}, "A")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I;16B", "I"])
def test_the_example_reads_images_as_models_do(mode, tmp_path, monkeypatch):
    monkeypatch.setattr(examples, "settings", lambda: SimpleNamespace(fit="crop", size=16, channels=3))
    levels = np.random.default_rng(0).integers(0, 256, (16, 16, 4), np.uint8)
    if mode.startswith("I"):
        image = Image.fromarray((levels[..., 0] * 257.0).astype({"I;16": "<u2", "I;16B": ">u2", "I": np.int32}[mode]))
    elif mode == "P":  # with a colour that is transparent
        image = Image.fromarray(levels[..., :3]).quantize(8)
        image.info["transparency"] = 0
    else:
        image = Image.fromarray(levels).convert(mode)
        assert mode not in ("LA", "RGBA") or image.getchannel("A").getextrema() != (255, 255)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    image.save(file := tmp_path / ("image.tif" if mode in ("CMYK", "I;16B", "I") else "image.png"), exif=exif)
    if mode == "I":
        with pytest.raises(ValueError, match="32 bits have no known range; save 8 or 16 bits"):
            examples.pixels(Image.open(file))
        return
    found = examples.pixels(Image.open(file)).transpose(1, 2, 0)
    np.testing.assert_array_equal(found, image_files.decode(file, 16, 1000))


@pytest.mark.parametrize("sides", [(900, 9), (8, 520), (50, 80), (33, 32)])
@pytest.mark.parametrize("fit", list(image_files.FITS))
def test_the_example_makes_squares_as_models_do(sides, fit, tmp_path, monkeypatch):
    monkeypatch.setattr(examples, "settings", lambda: SimpleNamespace(fit=fit, size=32, channels=3))
    pixels = np.random.default_rng(0).integers(0, 256, (*reversed(sides), 3), np.uint8)
    Image.fromarray(pixels).save(file := tmp_path / "image.png")
    found = examples.pixels(Image.open(file)).transpose(1, 2, 0)
    np.testing.assert_array_equal(found, image_files.decode(file, 32, 10**6, fit))


def test_copies_import_nothing_of_the_project():
    for prefix in ("", "."):
        files = portable.copies("models.plans.chains", "models.market.candle_features", prefix=prefix)
        assert set(files) == {"chains.py", "kneser_ney.py", "candle_features.py", "candles.py"}
        for source in files.values():
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.ImportFrom):
                    assert (node.module or "").partition(".")[0] not in ("common", "models")
    assert b"from kneser_ney import lookup" in portable.copies("models.plans.chains")["chains.py"]
