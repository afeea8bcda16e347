"""The tiny transformer, what it may see, and how tokens are drawn."""

import json
import math
import re

import numpy as np
import pytest
import torch

from models import io, sampling
from models.stories import rp2040
from models.stories.config import PRESETS, TinyTransformerConfig
from models.stories.tiny_transformer import TinyTransformer
from pipelines.workloads.tinystories.tokenization import train_tokenizer
from tests.models.tiny import SIZES, make, trained_tokenizer


def test_a_position_sees_neither_the_future_nor_beyond_its_context():
    model = make(layers=1, context=4)
    tokens = torch.arange(2, 22)[None]
    before = model(tokens)
    changed = tokens.clone()
    changed[0, 10] = 30
    difference = (model(changed) - before).abs().amax(-1)[0] > 0
    assert difference.nonzero().flatten().tolist() == [10, 11, 12, 13]


def test_layers_widen_what_a_position_sees():
    model = make(layers=3, context=4)
    tokens = torch.arange(2, 30)[None]
    changed = tokens.clone()
    changed[0, 10] = 31
    difference = (model(changed) - model(tokens)).abs().amax(-1)[0] > 0
    assert difference.nonzero().flatten().tolist() == list(range(10, 10 + 3 * 3 + 1))


def test_a_story_in_a_packed_row_is_predicted_as_if_it_were_alone():
    model = make()
    first, second = torch.randint(2, 32, (2, 9), generator=torch.Generator().manual_seed(1))
    packed = model(torch.cat([first, second])[None], torch.tensor([[0] * 9 + [1] * 9]))
    torch.testing.assert_close(packed[0, 9:], model(second[None])[0])
    torch.testing.assert_close(packed[0, :9], model(first[None])[0])


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_have_the_parameters_that_their_sizes_say_and_fit_the_chip(preset):
    config = PRESETS[preset]
    v, d, f = config.vocabulary, config.width, config.hidden
    block = 4 * d * d + 2 * d * f + 5 * d + f + config.heads * config.context
    counted = sum(p.numel() for p in TinyTransformer(config).parameters())
    memory = len(config.memory) * (v * d + 1)  # what follows, and a prior; the rows are no parameters
    assert counted == v * d + v + config.layers * block + memory
    rp2040.check(config)


def test_saved_with_its_tokenizer_it_tells_the_same_story(tmp_path):
    tokenizer = trained_tokenizer(40)
    model = make(vocabulary=40, tokenizer=tokenizer)
    io.save(model, tmp_path)
    loaded = io.load(tmp_path)
    asked = [{"prompt": "The cat"}, {}]
    told = [list(m.predict(asked, length=20, temperature=0.9, top_k=10, seed=3)) for m in (model, loaded)]
    assert told[0] == told[1]
    assert list(model.predict(asked, length=20, temperature=5.0, seed=4)) != list(
        model.predict(asked, length=20, temperature=5.0, seed=5)
    )


def test_prompts_keep_their_capitals_where_the_stories_had_some():
    model = make(tokenizer=trained_tokenizer(32))
    assert not model.lower_case
    assert model.encoded("The") != model.encoded("the")


def test_a_page_begins_with_the_first_words_of_the_likeliest_story(monkeypatch):
    tokenizer = train_tokenizer(["es war einmal ein bär."], 40)
    model = make(vocabulary=tokenizer.get_vocab_size(), tokenizer=json.loads(tokenizer.to_str()))
    (told,) = model.predict([{"prompt": ""}], length=16, temperature=0)
    assert model.lower_case
    assert model.beginning == " ".join(told["text"].split()[:4]).rstrip(".,!?").capitalize()
    cut = "从前有一个小女孩"  # the 16th token may be a part of a character
    for text, begun in (
        (" es war einmal ein. bär", "Es war einmal ein"),
        ("war", "War"),
        ("", ""),
        (f"{cut}\ufffd", cut),
    ):
        del model.beginning
        monkeypatch.setattr(model, "predict", lambda given, text=text, **_: iter([{"text": text}]))
        assert model.beginning == begun
    del model.beginning
    model.lower_case = False  # of stories with capitals it is as the model has it
    monkeypatch.setattr(model, "predict", lambda given, **_: iter([{"text": "“Wer da?” rief Ina"}]))
    assert model.beginning == "“Wer da?” rief Ina"


def test_a_stop_of_capitals_ends_stories_that_have_none():
    tokenizer = train_tokenizer(["the cat sat on the mat.", "a dog met a frog!"], 40)
    model = make(vocabulary=tokenizer.get_vocab_size(), tokenizer=json.loads(tokenizer.to_str()))
    settings = {"length": 30, "temperature": 1.0}
    (whole,) = model.predict([{"prompt": "the"}], **settings)
    stop = re.search("[a-z]{2}", whole["text"])[0]
    (cut,) = model.predict([{"prompt": "the"}], **settings, stop=stop.upper())
    assert (cut["text"], cut["finish"]) == (whole["text"].partition(stop)[0], "stop")
    assert "".join(model.stream({"prompt": "the"}, **settings, stop=["0", stop.upper()])) == cut["text"]


@pytest.mark.parametrize("arithmetic", ["float", "integer"])
def test_a_stream_returns_why_the_story_ended(arithmetic):
    model = make(vocabulary=40, tokenizer=trained_tokenizer(40))
    found = []
    for seed in range(40):
        settings = {"length": 6, "temperature": 2.0, "seed": seed, "arithmetic": arithmetic}
        text, end = ended(model.stream({"prompt": "The"}, **settings, stop="t"))
        (answer,) = model.predict([{"prompt": "The"}], **settings, stop="t")
        assert (text, end) == (answer["text"], answer["finish"])
        found.append(end)
    assert {*found} == {"stop", "length"}


def ended(stream):
    """The whole text of a stream, and what it returns."""
    text = ""
    while True:
        try:
            text += next(stream)
        except StopIteration as end:
            return text, end.value


def test_a_model_without_a_tokenizer_says_so():
    with pytest.raises(ValueError, match="saved without its tokenizer"):
        list(make().predict([{}]))


def test_tokens_are_drawn_as_often_as_they_are_likely():
    logits = torch.tensor([[math.log(p) for p in (0.5, 0.3, 0.15, 0.05)]]).repeat(20_000, 1)
    shares = np.bincount(sampling.choose(logits), minlength=4) / 20_000
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.15, 0.05], atol=0.015)
    assert set(sampling.choose(logits, top_k=2).tolist()) == {0, 1}
    assert set(sampling.choose(logits, top_p=0.79).tolist()) == {0, 1}
    assert set(sampling.choose(logits, top_p=0.81).tolist()) == {0, 1, 2}
    assert set(sampling.choose(logits, temperature=0).tolist()) == {0}
    cold = np.bincount(sampling.choose(logits, temperature=0.5), minlength=4) / 20_000
    np.testing.assert_allclose(cold, np.array([0.25, 0.09, 0.0225, 0.0025]) / 0.365, atol=0.015)


def test_a_token_that_is_drawn_alone_is_that_of_the_first_of_several():
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    for number in range(40):
        assert sampling.choose(logits[:1], number=number) == sampling.choose(logits, number=number)[0]


@pytest.mark.parametrize("setting", [{"temperature": -1}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.1}])
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        sampling.choose(torch.zeros(1, 4), **setting)


def test_sizes_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="heads=3"):
        TinyTransformerConfig(**{**SIZES, "heads": 3})


@pytest.mark.parametrize(("text", "lower"), [("Жил-был Кот. ", False), ("жил-был кот. ", True), ("猫と犬。", True)])
def test_capitals_of_any_script_are_capitals(text, lower):
    tokenizer = train_tokenizer([text * 20], 60)
    assert make(vocabulary=60, tokenizer=json.loads(tokenizer.to_str())).lower_case == lower
