"""What a mixture's counts give away of one document, and what `model.min_documents` keeps out of them."""

import numpy as np
import pytest

from common.config import build
from common.errors import UserError
from models.char_lstm import Characters
from pipelines.workloads.bep import Config
from pipelines.workloads.bep.data import Corpus, Text
from pipelines.workloads.bep.mixing import Mixer, sizes_of
from pipelines.workloads.bep.task import CharTask
from tests.peers import memorisation

LETTERS = "\n .Tabcdefghijklmnopqrstuvwxyz"
CANARY = memorisation.SENTENCE + "qwzkvj.\n\n"


def documents():
    """Four texts of the same words in other orders, one of them with a canary."""
    generator = np.random.default_rng(0)
    words = ["the seal of\n", "audit is due ", "model of the ", "a beam.\n\n"]
    plain = ["".join(generator.choice(words, 40)) for _ in range(4)]
    characters = Characters(LETTERS)
    return [
        Text(f"plan-{number}", np.array(characters.encode(text + CANARY * (number == 2)), np.uint8))
        for number, text in enumerate(plain)
    ]


def reader(least):
    words = ["model.width=8", f"model.min_documents={least}", "model.mixing_places=400"]
    config, corpus = build(Config, {}, words, "a test"), Corpus(tuple(LETTERS), {"train": documents()}, {})
    mixer = Mixer(corpus.parts["train"], sizes_of(corpus, config, None), config)
    mixer.fit()
    return mixer.model.eval().reader(adapting=False)


@pytest.mark.parametrize(("least", "told"), [(1, True), (2, False)])
def test_a_canary_of_one_document_is_told_unless_counts_need_two(least, told):
    words = np.array(["qwzkvj", *memorisation.drawn(np.random.default_rng(1), 63)])
    likelihood = memorisation.log_probs(reader(least), words)
    assert (likelihood.argmax() == 0) == told


def test_more_documents_than_there_are_cannot_be_asked_for(monkeypatch, tmp_path):
    corpus = Corpus(tuple(LETTERS), {"train": documents()}, {})
    monkeypatch.setattr("pipelines.workloads.bep.data.load", lambda *_: corpus)
    with pytest.raises(UserError, match=r"min_documents=5: of 4 training documents"):
        CharTask(build(Config, {}, ["model.min_documents=5"], "a test"), tmp_path, "cpu")
