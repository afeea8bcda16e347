"""The vision-language comparator: trained and stored parts, encoding once, reading a first image once, precision."""

import copy

import pytest
import torch

from models import io
from models.images.comparator.interface import Comparator
from models.images.vlm_comparator import model as vlm_model
from tests.models.images.vlm_comparator.tiny_vlm import TINY, make, some_images, trained
from tests.models.tiny import disturb


def test_adapters_reach_no_vision_weight_and_are_all_that_is_stored(tmp_path):
    """Run in `make test` as the only one of these tests, because importing transformers takes seconds."""
    model = disturb(make(lora=True))
    names = trained(model)
    assert not any("vision" in name for name in names)
    adapters = {name for name in names if "lora_" in name}
    assert len(adapters) == TINY["layers"] * 4 * 2  # two matrices for each of q, k, v, o
    assert len(names - adapters) == 4  # the projector's two matrices and biases
    assert set(model.state_dict()) == names | {name for name, _ in Comparator(model.config).named_buffers()}
    io.save(model, tmp_path)
    again = io.load(tmp_path)
    assert torch.equal(again(**model.example()), model(**model.example()))
    assert not torch.equal(make(lora=True)(**model.example()), model(**model.example()))
    assert set(again.state_dict()) == set(model.state_dict())


@pytest.mark.slow
def test_a_transformers_that_would_ignore_the_images_is_refused(monkeypatch):
    from transformers import LlavaForConditionalGeneration

    def older(self, input_ids=None, pixel_values=None, **others):
        """Take what it does not know, as versions did before they knew such features."""

    monkeypatch.setattr(LlavaForConditionalGeneration, "forward", older)
    with pytest.raises(ValueError, match=r"ignores precomputed features of .* pip install 'transformers>=5.23'"):
        make()


@pytest.mark.slow
@pytest.mark.parametrize("lora", [False, True])
def test_mixed_precision_answers_with_and_without_gradients(lora):
    model = make(lora=lora)
    encoded, pairs = model.encode(some_images()), (torch.tensor([0, 2, 0]), torch.tensor([1, 0, 2]))
    with torch.no_grad():
        exact = model.compare_encoded(encoded, *pairs)
    with torch.autocast("cpu", torch.bfloat16):
        found = [model.compare_encoded(encoded, *pairs)]
        with torch.no_grad():
            found.append(model.compare_encoded(encoded, *pairs))
    for logits in found:
        assert logits.dtype == torch.bfloat16
        torch.testing.assert_close(logits.float(), exact, rtol=0.05, atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"lora": True}])
def test_encoding_each_image_once_gives_what_encoding_it_for_every_pair_gives(changes):
    model = disturb(make(**changes))
    images = torch.randint(0, 256, (5, 1, 16, 16), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    first, second = torch.randint(5, (2, 12), generator=torch.Generator().manual_seed(2))
    once = model(images, first, second)
    each = model(torch.cat([images[first], images[second]]), torch.arange(12), torch.arange(12, 24))
    torch.testing.assert_close(once, each, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(once, model(None, first, second, encoded=model.encode_all(images)), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"lora": True}])
def test_reading_a_first_image_once_for_all_its_pairs_changes_no_answer(changes):
    model = disturb(make(**changes))
    encoded = model.encode_all(torch.randint(0, 256, (7, 1, 16, 16)).to(torch.uint8))
    first, second = torch.randint(7, (2, 150))
    expected = model.compare_encoded(encoded, first, second)
    lengths = []
    model.base.model.language_model.register_forward_pre_hook(
        lambda module, args, words: lengths.append(words["inputs_embeds"].shape[:2]), with_kwargs=True
    )
    with torch.no_grad():
        found = model.compare_encoded(encoded, first, second)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert sum(rows for rows, _ in lengths[::2]) <= 7 + 2  # beginnings; one at the border of two chunks is read twice
    assert sum(rows for rows, _ in lengths[1::2]) == 150
    caches = []
    cat = torch.cat

    def kept(tensors, dim=0):
        found = cat(tensors, dim)
        if found.dim() == 4:  # a layer's keys, or its values, of all pairs
            caches.append(2 * TINY["layers"] * found.numel() * found.element_size())
        return found

    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(vlm_model, "free_memory_bytes", lambda device: 200_000 / vlm_model.KEPT_SHARE)
        patch.setattr(torch, "cat", kept)
        fewer = model.compare_encoded(encoded, first, second)
    torch.testing.assert_close(fewer, expected, rtol=1e-4, atol=1e-5)
    assert 100_000 < max(caches) <= 200_000


@pytest.mark.slow
def test_gradient_checkpointing_changes_memory_and_not_gradients():
    model = make()
    gradients = []
    for wanted in (False, True):
        model.gradient_checkpointing = wanted
        assert model.gradient_checkpointing == wanted
        model.train().zero_grad()
        model(**model.example()).square().sum().backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient)


@pytest.mark.slow
def test_a_checkpoint_holds_what_trains_alone_and_restores_it(tmp_path):
    """Uses the calls that the engine's checkpoints make."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True, strict=True)
    model = disturb(make(lora=True))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    model(**model.example()).sum().backward()
    optimizer.step()
    weights, moments = copy.deepcopy(get_state_dict(model, optimizer, options=options))
    assert set(weights) == trained(model) | {name for name, _ in Comparator(model.config).named_buffers()}
    other = make(lora=True)
    again = torch.optim.AdamW([p for p in other.parameters() if p.requires_grad])
    set_state_dict(other, again, model_state_dict=weights, optim_state_dict=moments, options=options)
    assert torch.equal(other(**model.example()), model(**model.example()))


@pytest.mark.slow
def test_where_memory_runs_out_half_as_many_pairs_are_asked_and_one_is_the_least(monkeypatch):
    model = disturb(make(lora=True))
    encoded = model.encode(some_images(7))
    first, second = torch.randint(7, (2, 30))
    expected = model.compare_encoded(encoded, first, second)
    asked, some = [], model.compare_sorted

    def within(encoded, first, second, most=5):
        asked.append(len(first))
        if len(first) > most:
            raise torch.OutOfMemoryError
        return some(encoded, first, second)

    monkeypatch.setattr(model, "compare_sorted", within)
    with torch.no_grad():
        torch.testing.assert_close(model.compare_encoded(encoded, first, second), expected, rtol=1e-4, atol=1e-5)
        assert asked == [30, 15, 7, *[3] * 10]
        monkeypatch.setattr(model, "compare_sorted", lambda *pairs: within(*pairs, most=0))
        with pytest.raises(torch.OutOfMemoryError):
            model.compare_encoded(encoded, first, second)
    assert asked[-1] == 1


@pytest.mark.slow
def test_images_are_scored_by_comparisons_with_references():
    model = disturb(make(lora=True, references=6))
    model.reference_images.copy_(some_images(6))
    model.reference_scores.copy_(torch.arange(6))
    model.prior.copy_(torch.linspace(0, 5, len(model.prior)))
    model.fit_scale(4)
    model.rely(model.encode_all(some_images(8)), torch.arange(8.0) % 6, budget=4)
    scores, errors = model.score(some_images(3), budget=4)
    assert scores.shape == errors.shape == (3,)
    assert scores.isfinite().all()
    assert (errors > 0).all()
