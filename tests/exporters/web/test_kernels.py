"""Kernels of pages, without a browser: they compute what PyTorch does."""

import json
import subprocess

import numpy as np
import pytest
import torch
from PIL import Image

from exporters import __main__ as exporters
from exporters.onnx.cnn_lstm import random_candles
from models import io
from models.images import image_files
from models.images.comparator.familiarity import notes
from models.plans.characters import END
from models.stories.integer_transformer import Sampler
from models.stories.quantization import quantize
from tests.exporters.web.models import MODELS, TEXT, asked, both, run_of

pytestmark = pytest.mark.slow  # they need node

LEAST = 1e-4


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """A function that asks the page of a workload's model, once its own questions have been answered rightly."""
    folder, known = tmp_path_factory.mktemp("web"), {}

    def ask(workload, *questions):
        if workload not in known:
            known[workload] = run_of(workload, folder)
            exporters.export("web", known[workload], "best", None)
        run = known[workload]
        words = asked(run / "exports/web/index.html", questions)
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["difference"] <= LEAST
        return io.load(run / "model/best"), found["answers"]

    return ask


def test_stories_have_the_tokens_of_the_integer_reference(answers):
    settings = [{"length": 90, "temperature": t, "top_k": k, "seed": 3} for t, k in ((0, 0), (0.6, 0), (1.2, 7))]
    prompts = ["", "The cat sat", "é 12\n"]
    asked = [["predict", {"prompt": prompt}, each] for prompt in prompts for each in settings]
    model, found = answers("tinystories", *asked, ["stream", {"prompt": "The dog"}, settings[1]])
    integers = quantize(model)
    for (_, given, each), answer in zip(asked, found[:-1], strict=True):
        ids = model.tokenizer.encode(given["prompt"]).ids
        choose = Sampler(integers, round(256 * each["temperature"]), each["top_k"], 3) if each["temperature"] else None
        assert answer["prompt_tokens"] == ids
        assert answer["tokens"] == list(integers.decode(ids, 90, choose))
    told = list(integers.decode(model.tokenizer.encode("The dog").ids, 90, Sampler(integers, 154, 0, 3)))
    assert "".join(found[-1]) == model.tokenizer.decode(told)


def test_the_emulated_chip_tells_the_story_of_the_kernel(answers):
    prompt, settings = "The cat", {"temperature": 0.8, "top_k": 7, "seed": 5, "length": 60}
    lines = ["/temperature 0.8", "/top_k 7", "/seed 5", "/tokens 60", prompt]
    model, (talk, answer) = answers("tinystories", ["talk", lines], ["predict", {"prompt": prompt}, settings])
    assert "Tiny transformer: vocabulary 32" in talk[0]
    story = talk[-1].replace("\r", "").partition(f"{prompt}\n")[2]
    assert story.partition("\n[")[0].removeprefix(prompt) == answer["text"]
    assert next(model.predict([{"prompt": prompt}], arithmetic="integer", **settings))["text"] == answer["text"]


def test_the_emulated_chip_says_where_it_ends(answers):
    _, (talk,) = answers("tinystories", ["talk", ["/tokens 5", "/bootsel", "The cat"]])
    assert talk[-1] == "the boot ROM, which /bootsel leads to, is not emulated; boot the chip again"


def test_a_prompt_that_is_too_long_is_an_error_in_its_answer(answers):
    _, (answer,) = answers("tinystories", ["predict", {"prompt": "x" * 5000}, {}])
    assert answer == {"error": "the prompt has 5000 bytes; give at most 4000"}


def test_routes_are_those_of_the_policy(answers):
    generator = np.random.default_rng(5)
    problems = []
    for customers in (1, 7, 30):
        size, corner = (700, -100) if customers > 7 else (0.5, 0.3)
        locs = (generator.random((customers + 1, 2)) * size + corner).tolist()
        demands = generator.integers(0, 9, customers).tolist()
        problems.append({"depot": locs[0], "customers": locs[1:], "demands": demands, "capacity": 20})
    plain, whole = {"decode": "greedy", "augment": False}, {"decode": "multistart", "augment": True}
    asked = [["predict", each, settings] for each in problems for settings in (plain, whole)]
    model, found = answers("cvrp", *asked)
    for (_, given, settings), answer in zip(asked, found, strict=True):
        expected = next(model.predict([given], milliseconds=0, **settings))
        assert answer["cost"] == pytest.approx(expected["cost"], rel=LEAST)
        if settings is plain:
            assert answer["routes"] == expected["routes"]


def test_a_problem_that_cannot_be_is_an_error_in_its_answer(answers):
    good = {"depot": [0, 0], "customers": [[1, 1]], "demands": [2], "capacity": 5}
    wrong = [{"demands": [6]}, {"demands": []}, {"capacity": 0}, {"depot": [0, None]}, {"demands": [1.5]}]
    _, found = answers("cvrp", *(["predict", {**good, **each}, {}] for each in wrong))
    assert [answer["error"].split(";")[0] for answer in found] == [
        "demand 1 is 6",
        "there are 0 demands for 1 customers",
        "the capacity is 0",
        "the depot and the customers must be pairs of finite numbers",
        "demand 1 is 1.5",
    ]


def test_characters_have_the_log_probabilities_of_the_mixture(answers):
    # With a heading, words, repetitions that are counted, unknown characters, and the end of a line.
    texts = ["T", "The", TEXT, TEXT + TEXT[:90], "ß the plan\n# The plan\nthe plan, the plan, ", "roles.\n"]
    model, found = answers("bep", *(["ahead", text] for text in texts))
    for text, answer in zip(texts, found, strict=True):
        first, *others = model.characters.encode(text)
        reader = model.reader(first)
        reader.skim(np.array(others, np.int64))
        torch.testing.assert_close(torch.tensor(answer), reader.ahead(), rtol=0, atol=LEAST, check_dtype=False)


def test_a_text_of_the_likeliest_characters_is_that_of_the_model(answers):
    prompt = "The manager shares "
    model, (answer, pieces) = answers(
        "bep",
        ["predict", {"prompt": prompt, "document": TEXT}, {"length": 80, "temperature": 0}],
        ["stream", {"prompt": prompt}, {"length": 30, "temperature": 0}],
    )
    assert answer["text"] == model.complete(prompt, 80, 0, document=TEXT)
    assert "".join(pieces) == model.complete(prompt, 30, 0)
    assert END not in model.characters.encode(answer["text"])


def test_suggestions_are_the_likeliest_characters_each_with_the_word_it_begins(answers):
    prompt = "The manager sha"
    model, (ways,) = answers("bep", ["suggest", {"prompt": prompt}])
    first, *others = model.characters.encode(prompt)
    reader = model.reader(first)
    reader.skim(np.array(others))
    ahead = reader.ahead().clone()
    ahead[: END + 1] = -np.inf
    likeliest = {model.characters.texts[token] for token in ahead.topk(3).indices.tolist()}
    assert {way["text"][0] for way in ways} == likeliest
    assert [way["likelihood"] for way in ways] == sorted((way["likelihood"] for way in ways), reverse=True)
    for way in ways:
        token = model.characters.encode(way["text"][0])
        later, log_prob = reader.fork(), ahead[token[0]].item()
        for number, character in enumerate(way["text"][1:], 1):
            type(later).go_on([later], token)
            assert not way["text"][number - 1].isspace()
            token = [later.ahead().argmax().item()]
            assert model.characters.texts[token[0]] == character
            log_prob += later.ahead()[token[0]].item()
        assert way["likelihood"] == pytest.approx(np.exp(log_prob / len(way["text"])), rel=LEAST)


def columns(count, step_ms):
    """Candles as users give them."""
    candles = random_candles(0, count, step_ms)
    return {name: getattr(candles, name).tolist() for name in ("time", "open", "high", "low", "close", "volume")}


def test_signals_have_the_probabilities_of_the_experts(answers):
    step = MODELS["crypto"]().config.timeframe_ms
    candles = columns(500, step)
    flat = {**candles, "volume": [5.0] * 500}  # of no deviation
    model, found = answers("crypto", *(["signals", {"candles": each}, 60] for each in (candles, flat)))
    for each, answer in zip((candles, flat), found, strict=True):
        expected = model.probabilities(each, now=each["time"][-1] + step)[-60:]
        assert [row["time"] for row in answer] == each["time"][-60:]
        told = torch.tensor([list(row["probabilities"].values()) for row in answer])
        torch.testing.assert_close(told, expected, rtol=0, atol=LEAST)
        assert len({row["signal"] for row in answer}) > 1


def test_candles_that_cannot_be_are_an_error_in_their_answer(answers):
    candles = columns(500, MODELS["crypto"]().config.timeframe_ms)
    wrong = {
        "there is a gap": {"time": [*candles["time"][:-1], 0]},
        "these candles are of 5 minutes, the model learnt from candles of 15": {
            "time": [time // 3 for time in candles["time"]]
        },
        "is impossible": {"low": [*candles["low"][:-1], 1e9]},
        "the candles lack close": {"close": None},
        "of one length": {"open": candles["open"][1:]},
        "there are only 9 candles": {name: values[:9] for name, values in candles.items()},
    }
    _, found = answers("crypto", *(["predict", {"candles": {**candles, **each}}] for each in wrong.values()))
    for said, answer in zip(wrong, found, strict=True):
        assert said in answer["error"]


def test_images_are_compared_and_scored_as_by_the_model(answers):
    generator = np.random.default_rng(0)
    squares = generator.integers(0, 256, (6, 1, 32, 32)).astype(np.uint8)
    squares[5] = 0
    shown = [{"pixels": square.ravel().tolist()} for square in squares]
    model, (ranked, compared) = answers(
        "lmol", ["predict", {"images": shown}], ["predict", {"first": shown[3], "second": shown[1]}]
    )
    noted = [each.get("note") for each in notes(torch.from_numpy(squares), model.reference_images)]
    assert noted[5]
    assert [row.get("note") for row in ranked["ranking"]] == [noted[row["image"]] for row in ranked["ranking"]]
    scores, errors = model.score(torch.from_numpy(squares))
    for row in ranked["ranking"]:
        number = row["image"]
        assert row["score"] == pytest.approx(scores[number].item(), abs=LEAST)
        assert (row["high"] - row["low"]) / 2 == pytest.approx(1.96 * errors[number].item(), rel=LEAST)
    assert [row["image"] for row in ranked["ranking"]] == scores.argsort(descending=True).tolist()
    expected = model.compare(torch.from_numpy(squares[3]), torch.from_numpy(squares[1]))
    assert list(compared.values())[:3] == pytest.approx(expected.tolist(), abs=LEAST)


@pytest.mark.parametrize("kind", ["siamese", "scorer"])
def test_a_page_of_several_attributes_answers_by_each(kind, tmp_path):
    model = both(kind)
    io.save(model, tmp_path / "lmol/both/model/best")
    exporters.export("web", tmp_path / "lmol/both", "best", None)
    squares = np.random.default_rng(0).integers(0, 256, (6, 1, 32, 32)).astype(np.uint8)
    shown = [{"pixels": square.ravel().tolist()} for square in squares]
    settings = [{}, {"attribute": "gloss"}, {"attribute": "shape"}, {"attribute": "taste"}]
    asks = [
        ["predict", given, by]
        for by in settings
        for given in ({"images": shown}, {"first": shown[3], "second": shown[1]})
    ]
    done = subprocess.run(
        asked(tmp_path / "lmol/both/exports/web/index.html", asks), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["difference"] <= LEAST
    ranked, compared = found["answers"][::2], found["answers"][1::2]
    assert ranked[0] == ranked[1]
    assert compared[0] == compared[1]
    assert "the model ranks by gloss, shape" in ranked[3]["error"]
    scores = {name: view.score(torch.from_numpy(squares))[0] for name, view in model.views.items()}
    for name, answer, pair in zip(("gloss", "shape"), ranked[1:3], compared[1:3], strict=True):
        assert [row["image"] for row in answer["ranking"]] == scores[name].argsort(descending=True).tolist()
        for row in answer["ranking"]:
            expected = {by: own[row["image"]].item() for by, own in scores.items()}
            assert row["scores"] == pytest.approx(expected, abs=LEAST)
            assert (row["attribute"], row["score"], row["low"]) == (name, row["scores"][name], row["lows"][name])
        told = model.of(name).compare(torch.from_numpy(squares[3]), torch.from_numpy(squares[1]))
        assert list(pair.values())[:3] == pytest.approx(told.tolist(), abs=LEAST)
        assert pair["attribute"] == name


@pytest.mark.parametrize(("width", "height"), [(32, 32), (50, 80), (300, 171), (9, 40), (1200, 9), (8, 600)])
def test_squares_of_images_have_the_pixels_that_pillow_makes(answers, tmp_path, width, height):
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    rgba = np.concatenate([pixels, np.full((height, width, 1), 255, np.uint8)], 2).ravel().tolist()
    picture = {"width": width, "height": height, "data": rgba}
    asked = (["square", picture, 32, 3, fit] for fit in image_files.FITS)
    _, (grey, *found) = answers("lmol", ["square", picture, 32, 1], *asked)
    for fit, colour in zip(image_files.FITS, found, strict=True):
        square = image_files.decode(tmp_path / "image.png", 32, 10**6, fit)
        assert colour == np.moveaxis(square, 2, 0).ravel().tolist()
    model = MODELS["lmol"]()
    assert grey == model.read(tmp_path / "image.png").ravel().tolist()
