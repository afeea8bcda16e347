"""Texts that are written side by side: each is, to the last bit, what it is alone."""

import pytest
import torch

from models.plans import text_writer
from models.plans.inputs import TextInput, TextSettings
from tests.models.plans.test_char_lstm import always, tiny
from tests.models.plans.test_char_mixture import mixture, wording

MODELS = {
    "mixture": lambda: mixture(wording(0), width=61),
    "lstm": lambda: tiny(width=61),
    "two layers": lambda: tiny(width=29, layers=2),
}
ASKED = [
    ({"prompt": "abc d"}, {"length": 25, "temperature": 1.0}),
    ({"prompt": "b", "document": wording(5)}, {"length": 4, "temperature": 0.7, "seed": 3}),
    ({"prompt": "abc d", "item": 2}, {"length": 25, "temperature": 1.0}),
    ({"prompt": "dab\n#", "document": "dad cab "}, {"length": 60, "temperature": 1.3, "top_p": 0.9}),
    ({"prompt": "bad"}, {"length": 12, "temperature": 0}),
    ({"prompt": "# dab\n"}, {"length": 30, "temperature": 1.0, "top_k": 5, "stop": "a"}),
]


def texts_of(writer):
    return [writer.begun(TextInput(**given), TextSettings(**settings)) for given, settings in ASKED]


@pytest.mark.parametrize("name", MODELS)
def test_a_text_is_to_the_last_bit_what_it_is_alone_whatever_is_beside_it(name):
    writer = MODELS[name]().writer()
    alone, beside = texts_of(writer), texts_of(writer)
    going, step = [], 0
    while step == 0 or going:
        going = [text for text in [*going, *beside[2 * step : 2 * step + 2]] if not text.ended]
        if going:
            expected = going[0].reader.expected([text.reader for text in going])
            for row, text in zip(expected, going, strict=True):
                own = alone[beside.index(text)]
                assert torch.equal(own.reader.ahead(), row)
                writer.advance([own])
            writer.advance(going)
        step += 1
    assert [text.answer() for text in beside] == [text.answer() for text in alone]
    assert len({len(text.text) for text in beside}) > 3  # they do not end together


def test_what_is_taken_while_a_text_grows_is_the_text():
    writer = mixture(wording(0)).writer()
    (text, *_), pieces = texts_of(writer), []
    while not text.ended:
        writer.advance([text])
        pieces.append(text.taken())
    assert ("".join(pieces), max(map(len, pieces))) == (text.text, 1)
    assert text.taken() == ""


def test_documents_that_are_long_together_are_read_one_after_the_other(monkeypatch):
    model, most = always(tiny(), "abc"), []
    advance = text_writer.Writer.advance
    inputs = [{"prompt": "abc", "document": "abc" * number} for number in (10, 1, 30, 2, 1)]
    expected = [next(model.predict([each], length=7)) for each in inputs]
    monkeypatch.setattr(text_writer, "MOST_READ", 60)
    monkeypatch.setattr(
        text_writer.Writer, "advance", lambda own, texts: most.append(sizes(texts)) or advance(own, texts)
    )
    assert list(model.predict(inputs, length=7)) == expected
    assert {tuple(each) for each in most} == {(33, 6), (93,), (9, 6)}


def sizes(texts):
    return [len(text.given.document + text.given.prompt) for text in texts]
