"""Windows, losses and scores of the character LSTM's task."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from accelerate import Accelerator

from common.config import build
from models.plans.characters import END, PAD, SPECIAL_TOKENS, UNKNOWN
from pipelines.distributed import ranks
from pipelines.engine.batches import mapper, stream
from pipelines.workloads.bep import data
from pipelines.workloads.bep.config import Config
from pipelines.workloads.bep.evaluation import evaluate
from pipelines.workloads.bep.mixing import predicted
from pipelines.workloads.bep.task import CharTask, Windows, scored, stream_of

CPU = torch.device("cpu")
LETTERS = "abcdefgh"


def texts(*lengths, seed=0):
    generator = np.random.default_rng(seed)
    first = len(SPECIAL_TOKENS)
    return [
        data.Text(f"{i}.txt", generator.integers(first, first + len(LETTERS), length).astype(np.uint8))
        for i, length in enumerate(lengths)
    ]


@pytest.fixture
def make(monkeypatch, tmp_path):
    """A task over random letters, by words of its config."""

    def make(*words, validation=(70, 1, 45), train=(), **facts):
        parts = {"validation": texts(*validation, seed=1), "test": texts(30, seed=2)}
        parts["train"] = train or texts(200, 90)
        corpus = data.Corpus(vocabulary=tuple(LETTERS), parts=parts, facts=facts)
        monkeypatch.setattr(data, "load", lambda folder, vocabulary=None: corpus)
        config = build(
            Config,
            {"training": {"sequence": 10, "epochs": 1, "unknown": 0}, "model": {"width": 8, "kind": "lstm"}},
            words,
            "test",
        )
        torch.manual_seed(0)
        return CharTask(config, tmp_path, CPU)

    return make


def batch_of(task, *items):
    return task.train.batch(torch.tensor(items))


def test_documents_are_kept_apart_by_ends():
    one, other = texts(3, 2)
    assert stream_of([one.tokens, other.tokens]).tolist() == [END, *one.tokens, END, *other.tokens, END]
    assert stream_of([one.tokens]).dtype == torch.uint8
    assert stream_of([np.array([7, 300], np.uint16)]).dtype == torch.int16


def test_windows_begin_every_stride_and_hold_inputs_and_the_last_target():
    tokens = torch.arange(6, 26, dtype=torch.uint8)
    windows = Windows(tokens, length=8, stride=3, device=CPU)
    batch = windows.batch(torch.tensor([0, 2]))
    assert batch["window"].tolist() == [list(range(6, 15)), list(range(12, 21))]
    assert batch["first"].tolist() == [True, False]
    every = windows.batch(torch.arange(windows.size))["window"]
    assert set(every[:, 1:].flatten().tolist()) - {PAD} == set(range(7, 26))


@pytest.mark.parametrize("lengths", [(70, 1, 45), (3,), (20,), (21, 19, 1, 1)])
def test_every_held_out_character_counts_once_after_at_least_a_sequence(make, lengths):
    task = make(validation=lengths)
    windows = task.validation
    batch = windows.batch(torch.arange(windows.size))
    targets, counted = scored(batch, windows.stride)
    assert np.array_equal(targets[counted].numpy(), np.concatenate([each.tokens for each in texts(*lengths, seed=1)]))
    context = counted.nonzero()[:, 1] + 1
    later = counted.nonzero()[:, 0] > 0
    assert (context[later] > 10).all()


def test_the_score_is_exact_bits_over_the_characters_of_the_documents(make):
    task = make(validation=(15,))  # shorter than a window, so all of it is read from its beginning
    task.model.eval()
    scores = task.score(task.model, task.validation.batch(torch.tensor([0])))
    ids = torch.tensor([[END, *texts(15, seed=1)[0].tokens]])
    nats = F.cross_entropy(task.model(ids[:, :-1])[0][0], ids[0, 1:], reduction="sum")
    assert float(scores["count"]) == 15
    torch.testing.assert_close(scores["loss"].sum(), nats)
    torch.testing.assert_close(scores["bits_per_character"].sum(), nats / math.log(2))


def test_the_loss_is_that_of_every_position_with_the_state_carried_on(make):
    task = make("training.carry=3", "model.dropout=0")
    batch = batch_of(task, 0, 5)
    window = batch["window"].long()
    assert window.shape == (2, 31)
    loss = task.loss(task.model, batch)
    logits, _ = task.model(window[:, :-1])
    torch.testing.assert_close(
        loss.value, F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten(), reduction="sum")
    )
    assert int(loss.count) == 60


def test_gradients_end_where_a_sequence_begins(make):
    task = make("training.carry=2", "model.dropout=0")
    embedding = task.model.embedding.weight
    window = torch.full((1, 21), 8)
    window[0, 0] = 13  # stands in the first sequence alone
    loss = task.loss(task.model, {"window": window.to(torch.uint8)})
    loss.value.backward()
    (whole,) = torch.autograd.grad(
        F.cross_entropy(task.model(window[:, :-1])[0].flatten(0, 1), window[:, 1:].flatten(), reduction="sum"),
        embedding,
    )
    (first,) = torch.autograd.grad(
        F.cross_entropy(task.model(window[:, :10])[0].flatten(0, 1), window[0, 1:11], reduction="sum"), embedding
    )
    torch.testing.assert_close(embedding.grad[13], first[13])
    assert not torch.allclose(embedding.grad[13], whole[13])


def test_padding_neither_counts_nor_costs(make):
    task = make("model.dropout=0")
    length = task.train.length
    window = torch.full((1, length + 1), PAD)
    window[0, :5] = 8
    loss = task.loss(task.model, {"window": window.to(torch.uint8)})
    alone = F.cross_entropy(task.model(window[:, :4])[0][0], window[0, 1:5], reduction="sum")
    assert int(loss.count) == 4
    torch.testing.assert_close(loss.value, alone)


def test_some_characters_are_learnt_as_unknown(make):
    task = make("training.unknown=0.2")
    seen = []

    def model(tokens, state=None):
        seen.append(tokens)
        return task.model(tokens, state)

    batch = task.train.batch(torch.arange(task.train.size))
    before = batch["window"].clone()
    task.loss(model, batch)
    shares = [float((tokens == UNKNOWN).float().mean()) for tokens in seen]
    assert shares == pytest.approx([0.2, 0.2], abs=0.03)
    kept = torch.cat(seen, 1)
    changed = kept != before[:, :-1]
    assert (kept[changed] == UNKNOWN).all()
    assert not (before[:, :-1][changed] == END).any()
    assert torch.equal(batch["window"], before)


def test_few_documents_of_ones_own_are_told_of_the_base_that_ships(make):
    assert len(make().notes) == 1
    assert "model.base=models/pretrained/bep-plans training.steps=600" in make("data.sources=mine").notes[1]
    assert len(make("data.sources=mine", train=texts(50_000)).notes) == 1


def test_both_loaders_give_the_same_batches(make):
    plan = [torch.tensor([3, 0]), torch.tensor([7, 40])]
    resident, streamed = make(), make("data.loader=stream")
    assert resident.train.workers == 0 < streamed.train.workers
    pairs = zip(stream(resident.train, iter(plan), CPU), stream(streamed.train, iter(plan), CPU), strict=True)
    for (items, batch), (other_items, other) in pairs:
        assert torch.equal(items, other_items)
        assert batch.keys() == other.keys()
        assert all(torch.equal(batch[name], other[name]) for name in batch)


def test_what_repeats_is_learnt_from_the_first_characters_on(monkeypatch):
    text = data.Text("abc.txt", np.tile(np.arange(6, 6 + len(LETTERS), dtype=np.uint8), 30))
    corpus = data.Corpus(tuple(LETTERS), {"train": [text], "validation": [text], "test": [text]}, {})
    monkeypatch.setattr(data, "load", lambda folder, vocabulary=None: corpus)
    config = build(
        Config, {}, ["model.kind=lstm", "training.sequence=10", "training.steps=1", "model.width=24"], "test"
    )
    torch.manual_seed(0)
    task = CharTask(config, None, CPU)
    optimizer = torch.optim.Adam(task.model.parameters(), 0.02)
    for step in range(80):
        loss = task.loss(task.model, task.train.batch(torch.arange(step, step + 8) % task.train.size))
        (loss.value / loss.count).backward()
        optimizer.step()
        optimizer.zero_grad()
    task.model.eval()
    scores = task.score(task.model, task.validation.batch(torch.arange(task.validation.size)))
    assert (scores["bits_per_character"].sum() / scores["count"].sum()).item() < 0.3
    assert task.model.complete("cde", 10, temperature=0) == "fghabcdefg"
    assert task.model.complete("h", 3, temperature=0) == "abc"


def test_the_weights_of_a_mixture_are_fitted_by_networks_that_have_not_learnt_the_text(make, monkeypatch):
    words = "model.kind=mixture", "model.mixing_places=50", "training.epochs=null", "training.steps=20"
    task = make(*words, "training.batch_size=8", "training.micro_batch_size=8")
    mixer, learnt = task.mixer, []

    def learn(network, texts, said):
        learnt.append((network, [text.tolist() for text in texts]))
        task.learn(network, texts, said)

    mixer.learn = learn
    before = [parameter.clone() for parameter in task.model.parameters()]
    found = mixer.predictions()
    assert all(torch.equal(*pair) for pair in zip(before, task.model.parameters(), strict=True))
    texts = {tuple(piece[1:-1].tolist()) for piece in mixer.pieces}
    assert set(found) == set(range(len(mixer.pieces)))
    for number, piece in enumerate(mixer.pieces):
        (network,) = (network for network, known in learnt if piece[1:-1].tolist() not in known)
        assert np.array_equal(predicted(network, piece), found[number])
    assert {tuple(text) for _, known in learnt for text in known} == texts
    # No device draws the noise, and nothing depends on what was drawn before.
    monkeypatch.setattr(torch, "rand", lambda *_, **__: pytest.fail("the device's generator"))
    state = torch.random.get_rng_state()
    again = mixer.predictions()
    assert all(np.array_equal(found[number], again[number]) for number in found)
    assert torch.equal(torch.random.get_rng_state(), state)
    # Two processes train some of the networks each, the same ones.
    pretended = {"world": lambda: 2, "agree": lambda call: call(), "gather_on_main": lambda own: [own]}
    for name, function in pretended.items():
        monkeypatch.setattr(ranks, name, function)
    parts = []
    for rank in range(2):
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        learnt.clear()
        parts.append(mixer.predictions())
        assert len(learnt) == 1
    assert not parts[0].keys() & parts[1].keys()
    shared = parts[0] | parts[1]
    assert shared.keys() == found.keys()
    assert all(np.array_equal(found[number], shared[number]) for number in found)


@pytest.mark.slow
def test_networks_for_the_weights_learn_from_as_much_at_once_as_training_does(make):
    words = "model.kind=mixture", "training.epochs=null", "training.steps=20", "training.batch_size=8"
    words = *words, "training.unknown=0.1", "model.dropout=0.3", "training.optimizer=sgd"

    def learnt(most, *given):
        """What the networks predict, and the rows that they were given, of which memory holds `most` at once."""
        mixer, rows = make(*words, *given).mixer, []

        def run_out(module, inputs):
            rows.append(len(inputs[0]))
            if rows[-1] > most:
                raise torch.OutOfMemoryError("pretended")

        mixer.untrained.register_forward_pre_hook(run_out)  # the networks are copies of it
        return mixer.predictions(), rows

    whole, rows = learnt(8)
    assert max(rows) == 8
    for most, given in ((8, "training.micro_batch_size=2"), (3, "training.micro_batch_size=auto")):
        found, rows = learnt(most, given)
        assert sorted(set(rows) - {1}) == ([2] if most == 8 else [2, 4, 8])
        assert all(np.allclose(found[number], whole[number], atol=1e-4) for number in whole)
    with pytest.raises(torch.OutOfMemoryError, match="pretended"):
        learnt(0)


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(300, 250), (600, 500, 700), (900,)])
def test_no_version_of_a_text_tells_what_is_predicted_of_it(make, tmp_path, lengths):
    plain = texts(*lengths)  # each letter is one of eight, with log2(8) = 3 bits for whoever does not know the text
    versions = [replace(text, name=f"new-{text.name}", tokens=text.tokens[9:], family=text.name) for text in plain]
    documents = [text for pair in zip(plain, versions, strict=True) for text in pair]
    words = ["model.kind=mixture", "model.mixing_places=100", "training.epochs=null", "training.steps=5"]
    words += ["evaluation.typed=0"]
    task, learnt = make(*words, train=documents, held_out=False), []
    task.mixer.learn = lambda network, texts, said: learnt.append(b"\0".join(text.tobytes() for text in texts))
    assert min(task.refit(None).values()) > 2.5 * math.log(2)
    for piece in (piece[1:-1].tobytes() for piece in task.mixer.pieces):
        runs = [piece[at : at + 160] for at in range(0, len(piece) - 160, 8)]  # 20 tokens of 8 bytes
        assert any(all(run not in known for run in runs) for known in learnt)
    task.model.eval()
    (found,) = evaluate(task.config, {"default": task.model}, tmp_path, CPU, mapper(Accelerator(cpu=True)))
    assert set(found.examples["document"]) == {text.name for text in (documents if plain[1:] else plain)}
    assert min(row["bits/character"] for row in found.table) > 2.5


def test_the_weights_of_a_mixture_are_fitted_once(make):
    words = "model.kind=mixture", "model.mixing_places=50", "training.epochs=null", "training.steps=20"
    task, other = make(*words), make(*words)
    said = task.refit(None)
    assert set(said) == {"mixture/frozen", "mixture/adapting"}
    task.mixer.learn = other.mixer.learn = lambda *_: pytest.fail("fitted again")
    assert task.refit(None) == said
    other.model.load_state_dict(task.model.state_dict())
    other.load_state_dict(task.state_dict())
    assert other.refit(None) == said
    for state in (
        {},
        {**task.state_dict(), "learning_steps": 9},
    ):  # of an older checkpoint, or of another training.steps
        fresh = make(*words)
        fresh.mixer.learn = task.mixer.learn
        fresh.load_state_dict(state)
        with pytest.raises(pytest.fail.Exception, match="fitted again"):
            fresh.refit(None)
