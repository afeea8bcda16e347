"""What a mixture's counts give away of one document, and what `model.min_documents` keeps out of them."""

from dataclasses import replace

import numpy as np
import pytest

from common.config import build
from common.errors import UserError
from models.plans.characters import Characters
from pipelines.workloads.bep.config import Config
from pipelines.workloads.bep.data import Corpus, Text
from pipelines.workloads.bep.mixing import Mixer, sizes_of
from pipelines.workloads.bep.task import CharTask
from tests.peers import memorisation

LETTERS = "\n .Tabcdefghijklmnopqrstuvwxyz"
CANARY = memorisation.SENTENCE + "qwzkvj.\n\n"


def documents(versions=False):
    """Four texts of the same words in other orders, one of them with a canary; that one once more as a version."""
    generator = np.random.default_rng(0)
    words = ["the seal of\n", "audit is due ", "model of the ", "a beam.\n\n"]
    plain = ["".join(generator.choice(words, 40)) for _ in range(4)]
    characters = Characters(LETTERS)
    found = [
        Text(f"plan-{number}", np.array(characters.encode(text + CANARY * (number == 2)), np.uint8), f"plan-{number}")
        for number, text in enumerate(plain)
    ]
    return [*found, replace(found[2], name="plan-2-v2")] if versions else found


def mixer(least=1, versions=False):
    words = ["model.width=8", f"model.min_documents={least}", "model.mixing_places=400"]
    config, corpus = build(Config, {}, words, "a test"), Corpus(tuple(LETTERS), {"train": documents(versions)}, {})
    return Mixer(corpus.parts["train"], sizes_of(corpus, config, None), config)


@pytest.mark.parametrize(
    ("least", "versions", "told"),
    [(1, False, True), pytest.param(2, False, False, marks=pytest.mark.slow), (2, True, False)],
)
def test_a_canary_of_one_document_is_told_unless_counts_need_two(least, versions, told):
    words = np.array(["qwzkvj", *memorisation.drawn(np.random.default_rng(1), 63)])
    fitted = mixer(least, versions)
    fitted.fit()
    likelihood = memorisation.log_probs(fitted.model.eval().reader(adapting=False), words)
    assert (likelihood.argmax() == 0) == told


@pytest.mark.parametrize(("least", "held_out"), [(5, True), (4, True), (3, False)])
def test_more_documents_than_are_counted_cannot_be_asked_for(monkeypatch, tmp_path, least, held_out):
    corpus = Corpus(tuple(LETTERS), {"train": documents()}, {"held_out": held_out})
    monkeypatch.setattr("pipelines.workloads.bep.data.load", lambda *_: corpus)
    with pytest.raises(UserError, match=rf"min_documents={least}: of 4 training documents"):
        CharTask(build(Config, {}, [f"model.min_documents={least}"], "a test"), tmp_path, "cpu")


def test_versions_do_not_lower_how_many_documents_can_be_asked_for(monkeypatch, tmp_path):
    found = documents()
    parts = {"train": [*found, *(replace(each, name=f"{each.name}-v2") for each in found)], "validation": found[:1]}
    monkeypatch.setattr("pipelines.workloads.bep.data.load", lambda *_: Corpus(tuple(LETTERS), parts, {}))
    task = CharTask(build(Config, {}, ["model.min_documents=3", "model.width=8"], "a test"), tmp_path, "cpu")
    assert task.mixer.model.config.rows
    with pytest.raises(UserError, match=r"of 8 training documents, at most 3 \(versions of"):
        CharTask(build(Config, {}, ["model.min_documents=4"], "a test"), tmp_path, "cpu")
