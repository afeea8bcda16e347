"""Completions are judged by words, copies and what was to be masked."""

import pytest

from common.config import build
from models.plans.char_lstm import CharLSTM
from models.plans.char_network import CharLSTMConfig
from pipelines.workloads.bep import filled_form
from pipelines.workloads.bep.config import Config

SENTENCES = "The model is shared. The team checks the model. The plan is read by the team. "
VOCABULARY = "".join(sorted(set(SENTENCES)))
SIZES = {"kind": "embedding", "width": 4, "layers": 1, "dropout": 0.0, "embedding": 4}


def test_completions_are_judged_by_words_copies_and_what_was_to_be_masked(monkeypatch):
    training = SENTENCES * 2
    leak = "the model. Ask jo@example.com or +44 20 7946 0123. "
    config = build(Config, {}, ["evaluation.characters=60", "evaluation.temperatures=[0.5]"], "test")
    model = CharLSTM(CharLSTMConfig(VOCABULARY, **SIZES))
    monkeypatch.setattr(filled_form, "BEGINNINGS", {"copied": "Begin: ", "leaking": "See: "})
    monkeypatch.setattr(model, "complete", lambda prompt, *a, **k: training[5:65] if prompt == "Begin: " else leak)
    figures = filled_form.complete_fields(config, model, training, len(training))[1]["0.5"]
    assert figures["unmasked_strings"] == 2
    assert figures["longest_copied_span"] == 60
    assert figures["copied_share"] == pytest.approx(60 / (60 + len(leak)))
    assert 0.5 < figures["known_words"] < 1
    assert figures["characters"] == 60 + len(leak)


@pytest.mark.parametrize(
    ("prompt", "completion", "words"),
    [
        ("The mod", "el is here. ", ["model", "is", "here"]),
        ("The model", " is here. ", ["is", "here"]),
        ("The model ", "is he", ["is", "he"]),
        ("The model ", "is here and th", ["is", "here", "and"]),  # cut by the limit
        ("The model", "", []),
    ],
)
def test_words_are_judged_whole(prompt, completion, words):
    assert filled_form.whole_words(prompt, completion, 14) == words
