"""Bases of vision-language comparators: built ones, model folders of ours, the hub's layout, and refusals."""

import json

import pytest
import torch

from models import io
from models.images import tower_size
from models.images.comparator import build as build_small
from models.images.comparator.interface import pixels
from models.images.vlm_comparator import bases
from models.images.vlm_comparator.built import pixel_values
from models.images.vlm_comparator.config import PRESETS
from tests import vlms
from tests.models.images.vlm_comparator.tiny_vlm import make, some_images
from tests.models.tiny import disturb


@pytest.mark.slow
def test_a_preset_is_a_base_in_bfloat16_whose_adapters_train(monkeypatch, tmp_path):
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    preset = {"vision": {**sizes, "image_size": 28, "patch_size": 7}, "text": {**sizes, "vocab_size": 40}}
    monkeypatch.setitem(PRESETS, "llava-1.5-7b", preset)
    for changes in ({}, {"lora": True, "base": "elsewhere"}):
        with pytest.raises(ValueError, match="is itself a base for adapters: set lora=true, leave base out"):
            make(preset="llava-1.5-7b", **changes)
    with pytest.raises(ValueError, match=r"known presets: small, llava-1\.5-7b"):
        make(preset="7b")
    model = make(preset="llava-1.5-7b", lora=True)
    assert {parameter.dtype for parameter in model.parameters() if not parameter.requires_grad} == {torch.bfloat16}
    encoded = model.encode(some_images())
    assert encoded.shape == (3, 1, 16, 16)
    model.train().gradient_checkpointing = True
    model.compare_encoded(encoded, torch.tensor([0, 2]), torch.tensor([1, 0])).float().logsumexp(1).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)
    io.save(disturb(model.eval()), tmp_path)
    assert torch.equal(io.load(tmp_path)(**model.example()), model(**model.example()))


@pytest.mark.slow
def test_the_sizes_of_llava_7b_are_those_published():
    """liuhaotian/llava-v1.5-7b has 7.06 billion parameters in transformers."""
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    preset = PRESETS["llava-1.5-7b"]
    config = LlavaConfig(vision_config=CLIPVisionConfig(**preset["vision"]), text_config=LlamaConfig(**preset["text"]))
    with torch.device("meta"):
        network = LlavaForConditionalGeneration(config)
    assert sum(parameter.numel() for parameter in network.parameters()) == 7_063_427_072


@pytest.mark.slow
def test_adapters_on_a_base_come_back_and_the_base_is_known_by_its_weights(hub_folder, tmp_path):
    model = disturb(make(base=str(hub_folder), lora=True))
    assert len(model.config.revision) == 64
    io.save(model, tmp_path / "model")
    size = (tmp_path / "model" / "model.safetensors").stat().st_size
    assert size < (hub_folder / "model.safetensors").stat().st_size
    again = io.load(tmp_path / "model")
    assert torch.equal(again(**model.example()), model(**model.example()))

    other = tmp_path / "other"
    other.mkdir()
    for path in hub_folder.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    vlms.save("llava", other, seed=1)
    with pytest.raises(ValueError, match=r"weights in base .* are not the ones that this model was trained on"):
        make(base=str(other), lora=True, revision=model.config.revision)


@pytest.mark.slow
def test_adapters_on_a_model_of_ours_start_from_its_answers(tmp_path):
    full = disturb(make())
    io.save(full, tmp_path / "full")
    model = make(base=str(tmp_path / "full"), lora=True)
    torch.testing.assert_close(model(**full.example()), full(**full.example()), rtol=1e-5, atol=1e-5)
    io.save(disturb(model), tmp_path / "adapters")
    assert torch.equal(io.load(tmp_path / "adapters")(**full.example()), model(**full.example()))
    with pytest.raises(ValueError, match="must be a vlm that was trained whole on images of size 32"):
        make(base=str(tmp_path / "full"), lora=True, size=32)
    io.save(build_small({"kind": "siamese", "size": 16, "layers": 2}), tmp_path / "siamese")
    with pytest.raises(ValueError, match="must be a vlm that was trained whole"):
        make(base=str(tmp_path / "siamese"), lora=True)


@pytest.mark.slow
def test_a_base_is_built_anew_from_its_seed_bit_for_bit():
    one, same, other = make(lora=True), make(lora=True), make(lora=True, seed=1)
    weights = [dict(model.base.model.language_model.named_parameters()) for model in (one, same, other)]
    name = next(name for name in weights[0] if "gate_proj" in name)
    assert torch.equal(weights[0][name], weights[1][name])
    assert not torch.equal(weights[0][name], weights[2][name])
    images = some_images()
    (shown,) = pixel_values(pixels(images), one.base.config, torch.float32).values()
    expected = one.processor.image_processor(list(images.expand(-1, 3, -1, -1)), return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(shown, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base": "x"}, "base 'x' is given, so set lora=true too"),
        (
            {"base": "no/where", "lora": True},
            r"base 'no/where' is not a complete folder, is not available from the hub",
        ),
        ({"lora_rank": 0}, "lora_rank is 0; it must be from 1 to 1024"),
        ({"lora_dropout": 1.0}, "lora_dropout is 1.0, lora_alpha 32.0; the first must be from 0 to below 1"),
        ({"lora": True, "lora_targets": [".*"]}, r"lora_targets has '\.\*'; give names of layers, such as q_proj"),
        (
            {"lora": True, "lora_targets": ["qkv"]},
            r"lora_targets \['qkv'\]: the language model of base '' has no such layers; it has down_proj, .*, v_proj",
        ),
        ({"four_bit": True}, "four_bit is for the weights of a base"),
        ({"four_bit": True, "base": "x", "lora": True}, "four_bit needs the package bitsandbytes"),
        ({"channels": 4}, "channels is 4; the vision tower takes 1"),
        ({"size": 18}, r"size 18 is not a multiple of patch 4"),
        ({"width": 18}, "width 18 is not an even multiple of heads 2"),
    ],
)
def test_what_cannot_be_is_refused(changes, message, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=message) as caught:
        make(**changes)
    assert "\n" not in str(caught.value)


def test_what_the_cache_of_the_hub_has_is_no_folder_of_ours(monkeypatch, tmp_path):
    kept = tmp_path / "models--some--one"
    for name, text in (("refs/main", "abc"), ("snapshots/abc/config.json", '{"family": "vlm_comparator"}')):
        (kept / name).parent.mkdir(parents=True)
        (kept / name).write_text(text)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert tower_size.read("some/one", "config.json") == {"family": "vlm_comparator"}
    assert not bases.is_ours("some/one")


@pytest.mark.slow
def test_another_type_of_model_is_refused_with_those_that_fit(hub_folder, tmp_path):
    settings = json.loads((hub_folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings["text_config"]))
    with pytest.raises(ValueError, match=r"is a model of type llama; give one of type llava, llava_next, .*gemma3$"):
        make(base=str(tmp_path), lora=True)


@pytest.mark.slow
def test_a_base_without_chat_template_needs_a_prompt(hub_folder, tmp_path):
    for path in hub_folder.iterdir():
        if path.name != "chat_template.jinja":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match=r"has no chat template; give prompt, with \{question\} and <image> twice"):
        make(base=str(tmp_path), lora=True)
    model = make(base=str(tmp_path), lora=True, prompt="USER: <image> <image> {question} ASSISTANT:", attribute="glow")
    assert model.pair.text.startswith("USER: <image> <image> Which of the two images ranks higher in glow:")
    assert model.describe()["prompt"] == model.pair.text
    for prompt in ("<image> {question}", "{question}"):
        with pytest.raises(ValueError, match=r"its processor does not take two images with this prompt: .* 2 images"):
            make(base=str(tmp_path), lora=True, prompt=prompt)


@pytest.mark.slow
def test_adapters_are_where_the_config_says():
    model = make(lora=True, lora_targets=["up_proj", "q_proj"], lora_rank=3, lora_alpha=6.0, lora_dropout=0.0)
    adapters = {name: p for name, p in model.named_parameters() if "lora_" in name}
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in adapters} == {"up_proj", "q_proj"}
    assert {min(p.shape) for p in adapters.values()} == {3}
    layer = model.base.model.language_model.layers[0].mlp.up_proj
    assert (layer.scaling["default"], layer.lora_dropout["default"].training) == (2.0, False)
