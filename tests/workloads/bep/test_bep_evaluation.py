"""What is measured of a character LSTM, on models whose figures are known beforehand."""

import re

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from common.config import build
from common.errors import UserError
from models.plans.char_lstm import CharLSTM
from models.plans.characters import MASKS, Characters
from models.plans.lstm_network import CharLSTMConfig
from pipelines.engine.batches import mapper
from pipelines.workloads.bep import comparison, data, evaluation
from pipelines.workloads.bep.config import Config

CPU = torch.device("cpu")
SENTENCES = "The model is shared. The team checks the model. The plan is read by the team. "
VOCABULARY = "".join(sorted(set(SENTENCES)))
BY_HEART = "".join(np.random.default_rng(0).choice(list(VOCABULARY), 700))
SIZES = {"kind": "embedding", "width": 4, "layers": 1, "dropout": 0.0, "embedding": 4}


def corpus(**parts):
    characters = Characters(VOCABULARY)
    found = {
        name: [data.Text(f"{name}{i}", np.array(characters.encode(text), np.uint8)) for i, text in enumerate(texts)]
        for name, texts in parts.items()
    }
    return data.Corpus(vocabulary=tuple(VOCABULARY), parts=found, facts={})


class Foreseeing(CharLSTM):
    """Goes on token by token as `forward` does."""

    def steps(self):
        return lambda tokens, state: (torch.log_softmax(self(tokens[:, None])[0][:, 0], -1), state)


class Uniform(Foreseeing):
    """Knows nothing: every token is as likely as another."""

    def forward(self, tokens, state=None):
        return torch.zeros((*tokens.shape, len(self.characters))), state


class Oracle(Foreseeing):
    """Knows the whole text by heart, as long as it has read some of it."""

    def forward(self, tokens, state=None):
        logits = torch.zeros((*tokens.shape, len(self.characters)))
        successors = torch.tensor(self.characters.encode(BY_HEART))
        window = successors.unfold(0, 9, 1)
        for row, place in np.ndindex(tokens.shape):
            read = tokens[row, max(0, place - 7) : place + 1]
            if len(read) == 8 and len(found := window[(window[:, :8] == read).all(1)]):
                logits[row, place, found[0, 8]] = 20.0
        return logits, state


def evaluate(cls, monkeypatch, tmp_path, *words, parts=None):
    model = cls(CharLSTMConfig(VOCABULARY, **SIZES)).eval()
    parts = parts or {"train": [SENTENCES * 5], "validation": [SENTENCES * 3], "test": [SENTENCES * 9, SENTENCES]}
    monkeypatch.setattr(data, "load", lambda folder, vocabulary=None: corpus(**parts))
    words = [
        "model.kind=lstm",
        "training.steps=1",
        "training.sequence=20",
        "evaluation.typed=0",
        "evaluation.clauses=0",
        *words,
    ]
    config = build(Config, {}, words, "test")
    return evaluation.evaluate(config, {"default": model}, tmp_path, CPU, mapper(Accelerator(cpu=True)))


def test_a_model_that_knows_nothing_is_told_so_in_exact_figures(monkeypatch, tmp_path):
    validation, test = evaluate(Uniform, monkeypatch, tmp_path)
    bits = np.log2(len(VOCABULARY) + 6)
    for found, characters in ((validation, 3 * len(SENTENCES)), (test, 10 * len(SENTENCES))):
        assert found.summary["n"] == characters
        assert found.summary["bits_per_character"] == pytest.approx(bits)
        assert found.summary["verdict"] == f"not better than {found.summary['strongest_baseline']}: add documents"
        rows = {row["predictor"]: row["bits/character"] for row in found.table}
        kinds = [re.sub(r"order \d+", "order n", name) for name in rows]
        assert kinds == [
            "lstm",
            "Kneser-Ney, order n",
            "Kneser-Ney, order n, adapting",
            "PPMd, order n, adapting",
            "xz -9e, alone",
            "xz -9e, after training",
        ]
        assert max(rows[name] for name in list(rows)[1:4]) < bits
    assert sum(test.examples["characters"]) == 10 * len(SENTENCES)
    assert set(test.examples["document"]) == {"test0", "test1"}


def test_a_model_that_knows_the_text_is_better_by_an_interval_above_zero(monkeypatch, tmp_path):
    other = "".join(sorted(SENTENCES)) * 3
    parts = {"train": [other], "validation": [SENTENCES * 3], "test": [BY_HEART[:400], BY_HEART[400:]]}
    _, test = evaluate(Oracle, monkeypatch, tmp_path, parts=parts)
    low, high = test.summary["gain_percent_interval"]
    assert 0 < low <= test.summary["gain_percent"] <= high
    told = f"better than {test.summary['strongest_baseline']} by {test.summary['gain_percent']:.1f} % ["
    assert test.summary["verdict"].startswith(told)


@pytest.mark.parametrize(
    ("gain", "interval", "told"),
    [
        (6.04, [5.0, 7.0], "better than PPMd by 6.0 % [5.0, 7.0]"),
        (1.0, [-0.5, 2.5], "not better than PPMd: add documents"),
        (-4.0, [-5.0, -3.0], "not better than PPMd: add documents"),
        (9.0, None, "not better than PPMd: add documents"),
    ],
)
def test_the_verdict_follows_the_interval(gain, interval, told):
    assert comparison.verdict(gain, interval, "PPMd") == told


def test_another_vocabulary_than_the_models_is_refused(monkeypatch, tmp_path):
    model = CharLSTM(CharLSTMConfig("xyz", **SIZES))
    monkeypatch.setattr(data, "load", lambda folder, vocabulary=None: corpus(train=[], validation=[], test=[]))
    with pytest.raises(UserError, match="other characters than those in"):
        evaluation.evaluate(Config(), {"default": model}, tmp_path, CPU, None)


def test_masks_count_as_one_character_each(monkeypatch, tmp_path):
    masked = SENTENCES + next(iter(MASKS)) + SENTENCES
    _, test = evaluate(
        Uniform, monkeypatch, tmp_path, parts={"train": [masked], "validation": [masked], "test": [masked] * 2}
    )
    assert test.summary["n"] == 2 * len(masked)
    assert test.summary["bits_per_character"] == pytest.approx(np.log2(len(VOCABULARY) + 6))
