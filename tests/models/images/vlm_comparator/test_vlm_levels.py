"""Levels instead of comparisons: distributions to learn, scores in one pass, storing, what is asked of one image."""

import pytest
import torch

from models import io
from models.images.vlm_comparator.levels import WORDS, distribution, moments
from tests.models.images.vlm_comparator.tiny_vlm import make, some_images
from tests.models.tiny import disturb


def test_a_distribution_has_the_mean_of_the_score_and_the_spread_of_its_error():
    places = torch.linspace(0, 4, 33)
    exact = distribution(places, torch.zeros(33))
    assert ((exact > 1e-5).sum(1) <= 2).all()
    levels = torch.arange(5.0, dtype=torch.float64)
    torch.testing.assert_close(exact @ levels, places.double(), rtol=0, atol=1e-5)
    drawn = torch.randn(400_000, generator=torch.Generator().manual_seed(0))
    for place, error in ((2.0, 0.3), (1.4, 0.6), (3.9, 0.8), (0.0, 2.0)):
        seen = (place + error * drawn).clamp(0, 4)
        low = seen.floor().clamp(max=3)
        expected = torch.zeros(5).index_add_(0, low.long(), 1 - (seen - low)).index_add_(0, low.long() + 1, seen - low)
        (found,) = distribution(torch.tensor([place]), torch.tensor([error]))
        torch.testing.assert_close(found.float(), expected / len(drawn), rtol=0, atol=3e-3)
        assert found.sum() == pytest.approx(1)
        mean, variance = moments(found[None].log())
        assert float(mean) == pytest.approx(float(seen.mean()), abs=5e-3)
        assert float(variance) > min(error, 0.7) ** 2 / 2


def scored(question, **changes):
    """A tiny model that is asked for levels, with references and a scale."""
    model = disturb(make(question=question, references=6, theta=1, **changes))
    model.reference_images.copy_(some_images(6))
    model.reference_scores.copy_(torch.arange(6))
    model.prior.copy_(torch.linspace(0, 8, len(model.prior)))
    model.fit_scale(4)
    model.rely(model.encode_all(some_images(12)), torch.arange(12.0) % 9, budget=4)
    return model


def rows_read(model):
    """A list that grows by the rows and tokens of each pass through the language model."""
    rows = []
    model.base.model.language_model.register_forward_pre_hook(
        lambda module, args, words: rows.append(tuple(words["inputs_embeds"].shape[:2])), with_kwargs=True
    )
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("question", ["levels", "both"])
@pytest.mark.parametrize("lora", [False, True])
def test_a_score_takes_one_pass_and_is_the_same_when_read_back(question, lora, tmp_path):
    model = scored(question, lora=lora)
    rows = rows_read(model)
    scores, errors = model.score(some_images(5))
    tokens = (16 // 4) ** 2
    assert rows == [(5, tokens + len(model.level.text.split()) - 2)]
    assert (errors > 0).all()
    io.save(model, tmp_path)
    again = io.load(tmp_path)
    assert torch.equal(again.score(some_images(5))[0], scores)
    assert torch.equal(again(**again.example()), model(**model.example()))
    rows.clear()
    model.score_encoded(model.encode_all(some_images(5)), budget=4, compared=True)
    assert model.compared == 5 * 4 * 2
    assert sum(count for count, _ in rows) > 5


@pytest.mark.slow
def test_answers_to_pairs_are_those_of_the_scores_unless_pairs_are_asked_about_too():
    images = some_images(6)
    first, second = torch.tensor([[0, 1, 2, 4], [3, 5, 0, 1]])
    model = scored("levels")
    with torch.no_grad():
        logits, levels = model(images, first, second, with_encodings=True)
        swapped = model(images, second, first)
    assert torch.equal(logits, swapped[:, [1, 0, 2]])
    assert not model(images, first, second).requires_grad  # they teach the levels nothing
    means, variances = moments(levels)
    _, information = model.estimates(model.encode(images))
    torch.testing.assert_close(information.float(), 1 / (4 * variances))
    discrimination = float(model.fitted[0]) * 2  # for each level, of which one is two units
    torch.testing.assert_close(logits[:, 0] - logits[:, 1], discrimination * (means[first] - means[second]))
    both = scored("both")
    rows = rows_read(both)
    with torch.no_grad():
        asked, _ = both(images, first, second, with_encodings=True)
    pairs = make(question="pairs")
    assert len(pairs.base.get_input_embeddings().weight) == 14  # as models that were stored before there were levels
    assert sum(count for count, _ in rows) >= len(first) + len(images)
    assert not torch.equal(asked, both(images, second, first)[:, [1, 0, 2]])


@pytest.mark.slow
def test_levels_are_learnt_from_scores_and_their_errors():
    model = make(question="levels", width=32).train()
    model.prior.copy_(torch.linspace(0, 8, len(model.prior)))
    images = (torch.arange(8)[:, None, None, None] * 30).expand(-1, 1, 16, 16).to(torch.uint8)
    goals = model.goals(torch.arange(8.0), torch.full((8,), 0.5))
    torch.testing.assert_close(goals.sum(1), torch.ones(8))
    pair = torch.tensor([0])
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    losses = []
    for _ in range(150):
        _, levels = model(images, pair, pair, with_encodings=True)
        loss = model.score_loss(levels, goals).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 10
    scores, _ = model.eval().estimates(model.encode(images).detach())
    assert torch.corrcoef(torch.stack([scores, torch.arange(8.0).double()]))[0, 1] > 0.95
    assert (model.goals(torch.tensor([-3.0, 11.0]), None).argmax(1) == torch.tensor([0, 4])).all()


@pytest.mark.slow
def test_a_base_that_has_no_words_for_levels_is_refused_and_one_that_has_them_serves_both(tmp_path):
    io.save(make(), tmp_path / "pairs")
    with pytest.raises(ValueError, match=r"knows no words for levels, since it was trained with question=pairs; give"):
        make(base=str(tmp_path / "pairs"), lora=True, question="levels")
    with pytest.raises(ValueError, match="question is 'level'; known questions: pairs, levels, both"):
        make(question="level")
    io.save(make(question="levels"), tmp_path / "levels")
    for question in ("levels", "both", "pairs"):
        model = make(base=str(tmp_path / "levels"), lora=True, question=question)
        assert model(**model.example()).isfinite().all()
    assert model.describe().get("levels") is None


@pytest.mark.slow
def test_the_question_is_put_in_words_of_the_attribute(hub_folder):
    prompt = "USER: <image> <image> {question} Look at {attribute} ASSISTANT:"
    model = make(base=str(hub_folder), lora=True, question="levels", attribute="glow", prompt=prompt)
    told = model.describe()["levels"]
    assert told["words"] == list(WORDS)
    assert told["prompt"] == (
        "USER: <image> How would you rate the glow of the image: Excellent, Good, Fair, Poor or Bad? Look at glow "
        "ASSISTANT:"
    )
