"""`predict` of every kind of model: answers in order, errors in place, and the same answer wherever an input stands."""

import base64
import io
import itertools

import pytest
import torch
from PIL import Image

from exporters.rp2040 import layout
from models import sampling
from models.market.signal_model import signal
from models.stories.quantization import quantize
from models.stories.tokens import END
from tests.exporters.rp2040.c_reader import CReader
from tests.models.images.comparator.test_interface import brightness
from tests.models.market.test_signal_models import NEEDED, STEP, candles
from tests.models.market.test_signal_models import make as make_signals
from tests.models.plans.test_char_lstm import tiny
from tests.models.plans.test_char_mixture import mixture, wording
from tests.models.routing.policies import length_of, make_policy
from tests.models.tiny import make, trained_tokenizer

SQUARE = {"depot": [0, 0], "customers": [[0, 1], [1, 1], [1, 0], [2, 2]], "demands": [1, 1, 1, 1], "capacity": 2}


def stories(**sizes):
    return make(vocabulary=40, tokenizer=trained_tokenizer(40), **sizes)


def png(level):
    file = io.BytesIO()
    Image.new("L", (20, 16), level).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def columns(**changes):
    return {"coin": "AUSDT", "candles": {name: column.tolist() for name, column in candles().items()}, **changes}


# Of each kind: the model, two inputs, one that cannot be used with its fault, and settings.
CASES = {
    "routing": (
        lambda: make_policy("gt"),
        [{**SQUARE, "name": "one"}, {**SQUARE, "capacity": 3, "rounding": "round"}],
        ({**SQUARE, "capacity": 0}, "capacity: Input should be greater than or equal to 1"),
        {"augment": False},
    ),
    "stories": (
        stories,
        [{"prompt": "The cat"}, {"prompt": "A dog and"}],
        ({"promt": "The cat"}, "promt: unknown key; did you mean 'prompt'?"),
        {"length": 12, "seed": 3},
    ),
    "text": (
        lambda: tiny(),
        [{"prompt": "a plan", "field": "scope"}, {"prompt": "the"}],
        ({"field": "scope"}, "prompt is missing or empty; give the text"),
        {"length": 12, "seed": 3, "temperature": 1.0},
    ),
    "mixture": (
        lambda: mixture(wording(0)),
        [{"prompt": "abc ", "document": "dad cab dad "}, {"prompt": "bad"}],
        ({"prompt": "a" * 10_001}, "prompt: String should have at most 10000 characters"),
        {"length": 12, "temperature": 1.0},
    ),
    "images": (
        brightness,
        [{"images": [png(200), png(30)]}, {"first": png(30), "second": png(200)}],
        ({"first": png(30), "second": "data:image/png;base64,AAAA"}, "not an image"),
        {"comparisons": 8},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_answers_come_in_order_with_errors_in_place_and_do_not_depend_on_each_other(name):
    build, (one, other), (wrong, fault), settings = CASES[name]
    model = build()
    found = list(model.predict([one, wrong, other, 3, one], **settings))
    assert len(found) == 5
    assert fault in found[1]["error"]
    assert "it must be an object with" in found[3]["error"]
    assert found[0] == found[4]
    assert "error" not in found[0]
    assert [*model.predict(iter([other]), at_once=1, **settings)] == [found[2]]
    with pytest.raises(ValueError, match="settings: lenght: unknown key; "):
        model.predict([], lenght=3)  # refused before an answer is asked for


def test_routes_are_a_solution_and_their_cost_is_that_of_the_metric():
    first, second = make_policy("gt").predict(
        [{**SQUARE, "name": "one"}, {**SQUARE, "customers": [[0, 1.4], [1, 1], [1, 0], [2, 2]], "rounding": "trunc"}]
    )
    assert sorted(itertools.chain(*first["routes"])) == [1, 2, 3, 4]
    assert max(map(len, first["routes"])) <= 2
    locs = [SQUARE["depot"], *SQUARE["customers"]]
    assert first["cost"] == pytest.approx(length_of(locs, first["routes"]))
    assert first["name"] == "one"
    assert second["cost"] == int(second["cost"])


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"demands": [1, 1, 1]}, "demands must have 4 rows"),
        ({"demands": [1, 1, 5, 1]}, "customer 3 asks for 5, more than the capacity of 2; split"),
        ({"demands": [1, 1, 0.5, 1]}, "demands: "),
        ({"customers": [[0, 1], [1, 1], [1, float("nan")], [2, 2]]}, "customers: "),
        ({"customers": []}, "customers: "),
        ({"capacity": 2**40}, "capacity: "),
    ],
)
def test_what_is_no_problem_is_told(changes, fault):
    (found,) = make_policy("gt").predict([{**SQUARE, **changes}])
    assert fault in found["error"]
    assert "\n" not in found["error"]


def test_more_starts_than_a_problem_has_customers_are_an_error_of_that_problem():
    found = list(make_policy("gt").predict([SQUARE, {**SQUARE, "customers": [[1, 1]], "demands": [1]}], starts=3))
    assert "routes" in found[0]
    assert "starts is 3, but there are only 1" in found[1]["error"]


@pytest.mark.parametrize("sizes", [{}, {"memory": (16, 16)}])
def test_a_story_is_what_the_whole_text_makes_likeliest_after_each_token(sizes):
    model = stories(**sizes)
    prompts = ["The cat sat on the mat. The cat", "A", "The dog met a cat and a frog and 12 cats"]
    for prompt, answer in zip(
        prompts, model.predict([{"prompt": each} for each in prompts], temperature=0, length=15), strict=True
    ):
        tokens = [END, *model.tokenizer.encode(prompt).ids]
        with torch.no_grad():
            for _ in range(15):
                chosen = int(sampling.choose(model(torch.tensor([tokens]))[:, -1], temperature=0))
                if chosen == END:
                    break
                tokens.append(chosen)
        known = len(model.tokenizer.encode(prompt).ids) + 1
        assert answer["text"] == model.tokenizer.decode(tokens[known:])


@pytest.mark.parametrize("name", ["stories", "text", "mixture"])
def test_pieces_are_together_what_is_predicted_and_items_differ(name):
    build, (one, _), (wrong, fault), settings = CASES[name]
    model = build()
    (found,) = model.predict([one], **settings)
    assert "".join(model.stream(one, **settings)) == found["text"]
    several = [answer["text"] for answer in model.predict([{**one, "item": item} for item in (0, 1, 2)], **settings)]
    assert several[0] == found["text"]
    assert len(set(several)) > 1
    stop = found["text"][3:5]
    (ended,) = model.predict([one], **settings, stop=stop)
    assert ended == {**found, "text": found["text"].partition(stop)[0], "finish": "stop"}
    assert "".join(model.stream(one, **settings, stop=stop)) == ended["text"]
    with pytest.raises(ValueError, match=fault.partition(";")[0]):
        model.stream(wrong)  # when called


@pytest.mark.parametrize(("temperature", "top_k"), [(0, 0), (0.8, 0), (1.2, 7)])
def test_in_integers_a_story_is_what_the_chips_own_reader_tells(temperature, top_k):
    model = make(vocabulary=32, tokenizer=trained_tokenizer(32), memory=(16, 64))
    vocabulary = layout.pack_vocabulary(model.config.tokenizer)
    reader = CReader(layout.pack_model(quantize(model), vocabulary), vocabulary)
    settings = {"length": 40, "temperature": temperature, "top_k": top_k, "seed": 3, "arithmetic": "integer"}
    prompts = [{"prompt": "The cat"}, {"prompt": "", "item": 4}]
    for given, answer in zip(prompts, model.predict(prompts, **settings), strict=True):
        ids, seed = reader.encode(given["prompt"].encode()), 3 + given.get("item", 0)
        told = reader.decode(reader.tokens(ids, 40, round(256 * temperature), top_k, seed))
        assert answer["text"] == told.decode()
        assert "".join(model.stream(given, **settings)) == answer["text"]
    with pytest.raises(ValueError, match="need arithmetic=float"):
        model.predict(prompts, **{**settings, "top_p": 0.9})


def test_the_newest_candle_gives_the_signal():
    signals = make_signals()
    given, later = columns(), columns(coin="BUSDT")
    now = given["candles"]["time"][-1] + STEP
    found, unknown, short, again = signals.predict(
        [given, later, columns(candles={name: column[-9:] for name, column in given["candles"].items()}), given],
        now=now,
    )
    expected = signals.probabilities(candles(), now=now)[-1]
    assert list(found["probabilities"].values()) == pytest.approx(expected.tolist(), abs=1e-6)
    assert (found["coin"], found["time"]) == ("AUSDT", given["candles"]["time"][-1])
    assert "does not know the coin 'BUSDT'" in unknown["error"]
    assert f"only 9 candles; give {NEEDED}" in short["error"]
    assert found == again
    assert "is stale" in next(signals.predict([given]))["error"]
    alone = next(signals.predict([given], now="newest", threshold=0.99))
    assert alone["probabilities"] == pytest.approx(found["probabilities"], abs=1e-6)
    assert alone["signal"] == "NO_TRADE"


def test_a_signal_is_the_likeliest_class_or_a_side_that_reaches_the_threshold():
    assert [signal(each, None) for each in ((0.2, 0.5, 0.3), (0.5, 0.2, 0.3))] == ["NO_TRADE", "SHORT"]
    assert [signal((0.2, 0.4, 0.4), threshold) for threshold in (0.4, 0.41)] == ["LONG", "NO_TRADE"]
    assert signal((0.4, 0.2, 0.4), 0.4) == "NO_TRADE"


def test_images_are_ranked_by_number_and_one_that_is_none_is_named(tmp_path):
    Image.new("L", (20, 16), 110).save(tmp_path / "grey.png")
    given = {"images": [png(30), "data:,AAAA", str(tmp_path / "grey.png"), str(tmp_path / "none.png")]}
    pairs = [{"first": png(30), "second": png(200)}, {"first": png(30)}, {"second": png(30)}]
    found, pair, *halves, neither = brightness().predict([given, *pairs, {}])
    assert [row["image"] for row in found["ranking"]] == [str(tmp_path / "grey.png"), 0]
    assert all(row["low"] < row["score"] < row["high"] for row in found["ranking"])
    assert [error["image"] for error in found["errors"]] == [1, str(tmp_path / "none.png")]
    assert pair["second_is_higher"] > 0.99
    assert sum(pair.values()) == pytest.approx(1)
    assert [half["error"].split("; ")[-1] for half in halves] == [
        "give it too, as in second=b.png",
        "give it too, as in first=a.png",
    ]
    assert "give images, which are ranked, or first and second" in neither["error"]
