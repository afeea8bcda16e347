"""The loss over both orders, validation, and the speed gained by encoding once."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from models.images.ranking import SIMILAR
from pipelines.workloads.lmol.task import logits_of_orders
from pipelines.workloads.lmol.training.batches import Pairs
from tests.workloads.lmol.small import config, make


@pytest.mark.parametrize("kind", ["siamese", "scorer"])
def test_the_loss_of_a_batch_is_the_sum_over_its_parts(whole, kind):
    subject = whole[kind]
    together = subject.loss(subject.model, subject.train.batch(torch.arange(12)))
    parts = [subject.loss(subject.model, subject.train.batch(items)) for items in torch.arange(12).split(3)]
    assert together.count == sum(part.count for part in parts) == 12
    assert together.value.item() == pytest.approx(sum(part.value.item() for part in parts), rel=1e-5)
    for name, value in together.metrics.items():
        assert value.item() == pytest.approx(sum(part.metrics[name].item() for part in parts), rel=1e-4, abs=1e-6)


def test_a_pair_and_the_same_pair_swapped_have_the_same_loss(whole):
    subject, model = whole["siamese"], Leaning(whole["siamese"].model)
    batch = subject.train.batch(torch.arange(20))
    other = {**batch, "first": batch["second"], "second": batch["first"]}
    other["label"] = torch.tensor([1, 0, 2])[batch["label"]]
    one, swapped = subject.loss(model, batch), subject.loss(model, other)
    assert one.value.item() == pytest.approx(swapped.value.item(), rel=1e-5)


def test_inconsistency_costs_as_much_as_its_weight(whole, monkeypatch):
    losses, subject = {}, whole["siamese"]
    model = Leaning(subject.model)
    for weight in (0.0, 2.0):
        monkeypatch.setattr(subject, "config", config(training={"consistency": weight}))
        losses[weight] = subject.loss(model, subject.train.batch(torch.arange(20)))
    found = losses[0.0].metrics["order_loss"].item()
    orders = logits_of_orders(model, subject.train.batch(torch.arange(20)))[:2]
    one, other = (logits.log_softmax(-1) for logits in orders)
    forwards = nn.functional.kl_div(other, one, log_target=True, reduction="sum")
    backwards = nn.functional.kl_div(one, other, log_target=True, reduction="sum")
    assert found == pytest.approx((forwards + backwards).item() / 2, rel=1e-4)
    assert found > 0.1
    assert (losses[2.0].value - losses[0.0].value).item() == pytest.approx(2 * found, rel=1e-4)
    assert subject.loss(subject.model, subject.train.batch(torch.arange(20))).metrics["order_loss"] == 0


def test_answers_of_raters_who_guess_do_not_teach_similar_where_nobody_said_so(whole):
    subject = whole["siamese"]
    pairs = subject.comparisons.pairs["train"]
    sure = pairs[pairs[:, 2] != SIMILAR]
    found = replace(subject.comparisons, pairs={"train": sure}, theta=0, scored=False, trust=np.zeros(len(sure)))
    assert subject._likely(found)[:, SIMILAR].max() < 0.05


class Leaning(nn.Module):
    """A comparator that prefers the image that is shown first."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *given, **further):
        return self.model(*given, **further) + torch.tensor([1.0, 0.0, 0.0])


def test_images_that_are_set_aside_are_named_before_training(whole, monkeypatch, tmp_path):
    subject = whole["siamese"]
    for count, lines in ((0, 0), (2, 2), (14, 11)):
        aside = {f"{number}.heic": "damaged" for number in range(count)}
        facts = {**subject.comparisons.facts, "quarantined": aside}
        monkeypatch.setattr(subject, "sets", [replace(subject.comparisons, facts=facts)])
        shown = [note for note in subject.data_notes(tmp_path, 5, 0.1) if note.startswith("set aside: ")]
        assert len(shown) == lines
        assert not shown or shown[0] == "set aside: 0.heic: damaged"
    assert shown[-1] == f"set aside: 14 images in all; {tmp_path}/manifest.json lists them as quarantined"


def test_the_attribute_is_asked_for_where_nobody_says_what_scores_are_of(whole, monkeypatch, tmp_path):
    subject = whole["siamese"]
    assert not any("data.attribute" in note for note in subject.data_notes(tmp_path, 5, 0.1))
    monkeypatch.setattr(subject, "comparisons", replace(subject.comparisons, attribute="score"))
    assert any("give data.attribute=quality" in note for note in subject.data_notes(tmp_path, 5, 0.1))


def test_a_folder_of_the_name_of_embedded_data_is_told_apart(whole, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert not any("./digits" in note for note in whole["siamese"].data_notes(tmp_path, 5, 0.1))
    (tmp_path / "digits").mkdir()
    assert any("the folder of that name is ./digits" in note for note in whole["siamese"].data_notes(tmp_path, 5, 0.1))


class Constant(nn.Module):
    """Model whose answer does not depend on the images."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, images, first, second, encoded=None, numbers=None):
        return self.logits.expand(len(first), 3)


def test_what_is_learned_are_the_frequencies_of_unselected_pairs(whole):
    """They are the optimum of a model that ignores the images, though Similar is a third of the training pairs."""
    subject = whole["siamese"]
    scores = subject.comparisons.scores[subject.comparisons.parts["train"]]
    alike = (scores[:, None] == scores).sum() - len(scores)
    similar = alike / (len(scores) * (len(scores) - 1))
    assert similar < 0.2
    assert (subject.train.pairs[:, 2] == 2).double().mean() == pytest.approx(1 / 3, abs=0.01)
    natural = torch.tensor([(1 - similar) / 2, (1 - similar) / 2, similar]).float()
    model = Constant(natural.log())
    subject.loss(model, subject.train.batch(torch.arange(subject.train.size))).value.backward()
    assert (model.logits.grad / subject.train.size).abs().max() < 0.005


def test_validation_counts_a_pair_as_right_by_the_mean_of_both_orders(whole):
    subject = whole["siamese"]
    model = Leaning(subject.model)
    batch = subject.validation.batch(torch.arange(100))
    scores = subject.score(model, batch)
    assert {name: tuple(values.shape) for name, values in scores.items()} == dict.fromkeys(
        ("loss", "accuracy", "swap_consistency"), (100,)
    )
    one, other, _ = logits_of_orders(model, batch)
    probabilities = (one.softmax(-1) + other.softmax(-1)) / 2
    assert torch.equal(scores["accuracy"] == 1, probabilities.argmax(-1) == batch["label"])


def test_test_images_are_not_on_the_device(whole):
    subject = whole["siamese"]
    comparisons = subject.comparisons
    held = {bytes(image) for image in subject.train.images.movedim(1, -1).contiguous().numpy()}
    training = {
        bytes(image) for part in ("train", "validation") for image in comparisons.images[comparisons.parts[part]]
    }
    assert held <= training


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "least"), [("vlm", 1.1)])
def test_kept_features_and_encoding_once_make_steps_faster(prepared, kind, least):
    """Compared with the same model encoding both images of every pair in both orders, in alternation.

    Measured: the vlm, whose language model reads all patches, 1.25 to 1.29 times as many steps.
    """
    subject = make(prepared, kind, width=None, layers=None, heads=None, lora=kind == "vlm")
    model = subject.model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    every = Pairs(subject.train.images, subject.train.pairs)

    def kept(items):
        return subject.loss(model, subject.train.batch(items)).value

    def encoded_each_time(items):
        batch = every.batch(items)
        first, second = batch["first"], batch["second"]
        shown = torch.cat([first, second, second, first])
        rows = torch.arange(4 * len(items)).view(4, -1)

        def call(images, both_first, both_second, encoded, numbers):
            return model(images[shown], rows[[0, 2]].flatten(), rows[[1, 3]].flatten())

        return subject.loss(call, batch).value

    torch.testing.assert_close(kept(torch.arange(4)), encoded_each_time(torch.arange(4)), rtol=0.2, atol=0.2)
    seconds = {kept: [], encoded_each_time: []}
    for step in range(8):
        for way, times in seconds.items():
            began = time.process_time()
            way(torch.arange(32) + 32 * (step % 7)).backward()
            optimizer.step()
            optimizer.zero_grad()
            times.append(time.process_time() - began)
    ratio = min(seconds[encoded_each_time]) / min(seconds[kept])
    print(f"{kind}: {1 / min(seconds[kept]):.1f} steps/s, {ratio:.2f} times as many as without")
    assert ratio >= least
