"""What the loop counts and averages, held against sums by hand: noise, rates, averages, records, patience, epochs."""

import json
import math
from pathlib import Path

import pytest
import torch

from common import noise
from models import io
from pipelines.engine.batches import Order
from pipelines.engine.stepping import Average, NotFiniteError
from tests.engine import toy
from tests.engine.test_update import updater_of, weights

__all__ = ["updater_of"]  # a fixture


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Trains the toy in this process; returns {key: {step: value}} of its records."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(io, "save", io.save)  # put back what training replaces

    def train(name, **training):
        toy.train(name, training, {})
        lines = [json.loads(line) for line in Path("runs/toy", name, "metrics.jsonl").read_text().splitlines()]
        return {key: {line["step"]: line[key] for line in lines if key in line} for line in lines for key in line}

    return train


def masks(updater, updates):
    """What the same four items would have dropped in each forward pass."""
    found, whole = [], updater.task.loss

    def loss(model, batch):
        with noise.rows(torch.arange(4)):
            found.append(noise.dropout(torch.ones(4, 64), 0.5))
        return whole(model, batch)

    updater.task.loss = loss
    batches = updater.batches()
    for _ in range(updates):
        updater.update(batches)
    return found


def test_noise_is_new_at_each_step_and_the_same_in_each_micro_batch_and_run(updater_of):
    first, second, third = masks(updater_of(), 3)
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)
    halves = masks(updater_of(micro_batch_size=8), 2)
    assert [torch.equal(each, first) for each in halves] == [True, True, False, False]
    assert [torch.equal(each, second) for each in halves] == [False, False, True, True]


def test_each_update_has_the_rate_of_its_number(updater_of, monkeypatch):
    updater = updater_of(warmup_steps=4)
    batches, rates = updater.batches(), []
    for _ in range(6):
        updater.update(batches)
        rates.append(updater.optimizers[0].param_groups[0]["lr"])
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])


def test_the_average_takes_in_each_update_once_with_the_decay_of_its_number(updater_of):
    updater = updater_of(ema=0.9)
    batches, by_hand = updater.batches(), weights(updater)
    for step in range(1, 5):
        updater.update(batches)
        decay = min(0.9, (1 + step) / (10 + step))
        by_hand = [decay * old + (1 - decay) * new for old, new in zip(by_hand, weights(updater), strict=True)]
    torch.testing.assert_close(updater.average.values, by_hand)


def test_a_record_is_the_mean_over_all_examples_since_the_one_before(train):
    each, third = train("each", steps=7, log_steps=1), train("third", steps=7, log_steps=3)
    order, valid = Order(toy.ITEMS, 16, 0), toy.ToyTask().train.tensors["valid"]
    counts = {step: int(valid[order.items(step - 1)].sum()) for step in range(1, 8)}
    assert len(set(counts.values())) > 1
    task = toy.ToyTask()
    batch = task.train.batch(order.items(0))
    assert each["train/loss"][1] == pytest.approx(task.loss(task.model, batch).value.item() / counts[1], rel=1e-5)
    for end, steps in ((3, (1, 2, 3)), (6, (4, 5, 6)), (7, (7,))):
        total = sum(counts[step] for step in steps)
        for key in ("train/loss", "train/error"):
            mean = sum(each[key][step] * counts[step] for step in steps) / total
            assert third[key][end] == pytest.approx(mean, rel=1e-6), (key, end)
        norms = [each["train/grad_norm"][step] for step in steps]
        assert third["train/grad_norm"][end] == pytest.approx(sum(norms) / len(norms), rel=1e-6)
    assert third["train/loss"].keys() == {3, 6, 7}


def test_a_validation_weighs_examples_by_their_count(train, monkeypatch):
    def score(task, model, batch):
        return {"item": batch["item"] * 1.0, "count": 1.0 + batch["item"] % 5}

    monkeypatch.setattr(toy.ToyTask, "score", score)
    items = torch.arange(toy.ITEMS)
    found = train("weighed", steps=1, validation_steps=1, micro_batch_size=4, metric="val/item")
    assert found["val/item"][1] == pytest.approx(items.sum().item() / (1 + items % 5).sum().item())


@pytest.mark.parametrize(("patience", "last"), [(1, 2), (2, 5), (3, 7)])
def test_patience_begins_anew_with_each_better_validation(train, monkeypatch, patience, last):
    values = iter([3.0, 4.0, 2.0, 2.0, 5.0, 1.9, 6.0, 1.8, 1.7] if patience < 3 else [3.0, 4, 4, 2, 2, 2, 2, 1])
    current = {}

    def score(task, model, batch):
        if batch["item"][0] == 0:
            current["value"] = next(values)
        return {"error": torch.full((len(batch["x"]),), current["value"])}

    monkeypatch.setattr(toy.ToyTask, "score", score)
    found = train("patient", steps=9, validation_steps=1, checkpoint_steps=9, patience=patience)
    assert max(found["val/error"]) == last
    progress = json.loads(Path(f"runs/toy/patient/checkpoints/step-{last:06d}/progress.json").read_text())
    assert progress["stale"] == patience
    assert progress["best"] == min(list(found["val/error"].values()))


def test_each_epoch_has_every_item_once_in_an_order_of_its_own():
    order = Order(10, 4, 0)
    items = torch.cat([order.items(step) for step in range(5)]).split(10)
    assert all(sorted(epoch.tolist()) == list(range(10)) for epoch in items)
    assert not torch.equal(*items)
    assert not torch.equal(order.items(0), Order(10, 4, 1).items(0))


def test_epochs_end_with_the_update_that_completes_them(train):
    found = train("epochs", epochs=1.2, batch_size=32)
    assert max(found["train/loss"]) == math.ceil(1.2 * toy.ITEMS / 32)


def test_an_average_moves_by_what_is_left_of_its_decay():
    weight = torch.nn.Parameter(torch.zeros(1))
    average = Average([weight], 0.75)
    with torch.no_grad():
        weight.fill_(1.0)
    average.update(1000)
    assert average.values[0].item() == 0.25


def test_a_loss_found_not_finite_only_when_figures_are_summed_is_named_by_its_step(updater_of):
    updater = updater_of()
    batches = updater.batches()
    for _ in range(3):
        updater.update(batches)
    updater.figures[1]["grad_norm"] = updater.figures[1]["loss"] = torch.tensor(math.nan)  # as on a GPU, unread so far
    with pytest.raises(NotFiniteError, match="not finite at step 2 "):
        updater.sum_up()
