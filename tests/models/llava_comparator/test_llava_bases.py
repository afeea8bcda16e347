"""Bases of LLaVA comparators: built ones, model folders of ours, the hub's layout, and refusals."""

import json

import pytest
import torch

from models import io
from models.comparator import build as build_small
from models.llava_comparator.config import PRESETS, WORDS
from tests.models.llava_comparator.tiny_llava import make, some_images
from tests.models.tiny import disturb


@pytest.mark.slow
def test_a_base_in_the_hubs_layout_answers_as_the_library_would(hub_folder):
    from transformers import AutoProcessor, LlavaForConditionalGeneration

    model = make(base=str(hub_folder), lora=True, attribute="glow")
    images = torch.randint(0, 256, (3, 1, 16, 16), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    found = model(images, torch.tensor([0, 2]), torch.tensor([1, 0]))
    processor = AutoProcessor.from_pretrained(hub_folder)
    network = LlavaForConditionalGeneration.from_pretrained(hub_folder).eval()
    shown = [[images[a].expand(3, -1, -1), images[b].expand(3, -1, -1)] for a, b in ((0, 1), (2, 0))]
    text = "USER: <image>\n<image>\nWhich of the two images ranks higher in glow: First, Second or Similar? ASSISTANT:"
    inputs = processor(images=shown, text=[text] * 2, return_tensors="pt", padding=True)
    logits = network(**inputs, logits_to_keep=1).logits[:, -1]
    expected = logits[:, [WORDS.index(word) for word in ("First", "Second", "Similar")]]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


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
    assert encoded.shape == (3, 16, 16)
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
    network = disturb(make()).network
    network.resize_token_embeddings(len(model.base.get_input_embeddings().weight))
    network.save_pretrained(other)
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
    with pytest.raises(ValueError, match="must be a llava that was trained whole on images of size 32"):
        make(base=str(tmp_path / "full"), lora=True, size=32)
    io.save(build_small({"kind": "siamese", "size": 16, "layers": 2}), tmp_path / "siamese")
    with pytest.raises(ValueError, match="must be a llava that was trained whole"):
        make(base=str(tmp_path / "siamese"), lora=True)


@pytest.mark.slow
def test_a_base_is_built_anew_from_its_seed_bit_for_bit():
    one, same, other = make(lora=True), make(lora=True), make(lora=True, seed=1)
    weights = [dict(model.base.model.language_model.named_parameters()) for model in (one, same, other)]
    name = next(name for name in weights[0] if "gate_proj" in name)
    assert torch.equal(weights[0][name], weights[1][name])
    assert not torch.equal(weights[0][name], weights[2][name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base": "x"}, "base 'x' is given, so set lora=true too"),
        (
            {"base": "no/where", "lora": True},
            r"base 'no/where' is not a complete folder, is not available from the hub",
        ),
        ({"four_bit": True}, "four_bit is for the weights of a base"),
        ({"four_bit": True, "base": "x", "lora": True}, "four_bit needs the package bitsandbytes"),
        ({"channels": 4}, "channels is 4; the vision tower takes 1"),
        ({"size": 18}, r"size 18 is not a multiple of 4"),
        ({"size": 20, "pool": True}, r"size 20 is not a multiple of 8"),
        ({"width": 18}, "width 18 is not an even multiple of heads 2"),
    ],
)
def test_what_cannot_be_is_refused(changes, message, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=message) as caught:
        make(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_another_type_of_model_is_no_base(hub_folder, tmp_path):
    settings = json.loads((hub_folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings["text_config"]))
    with pytest.raises(ValueError, match="is a model of type llama; give one of type llava"):
        make(base=str(tmp_path), lora=True)
