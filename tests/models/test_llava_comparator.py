"""A vision-language model as a comparator: what trains, what is stored, what a base has to be."""

import copy
import json

import pytest
import torch

from models import comparator, io, llava_comparator
from models.llava_comparator import WORDS
from tests.models.tiny import disturb

TINY = {"size": 16, "width": 16, "layers": 2, "heads": 2, "patch": 4}


def make(**changes):
    torch.manual_seed(0)
    return llava_comparator.build({**TINY, **changes}).eval()


def trained(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def test_adapters_reach_no_vision_weight_and_are_all_that_is_stored(tmp_path):
    """The one test of this file in `make test`: the library alone takes seconds to import."""
    model = disturb(make(lora=True, pool=True))
    names = trained(model)
    assert not any("vision" in name for name in names)
    adapters = {name for name in names if "lora_" in name}
    assert len(adapters) == TINY["layers"] * 4 * 2  # of each of q, k, v, o two matrices
    assert len(names - adapters) == 4  # the projector's two matrices and biases
    assert set(model.state_dict()) == names | {name for name, _ in comparator.Comparator(model.config).named_buffers()}
    io.save(model, tmp_path)
    again = io.load(tmp_path)
    assert torch.equal(again(**model.example()), model(**model.example()))
    assert not torch.equal(make(lora=True, pool=True)(**model.example()), model(**model.example()))
    assert set(again.state_dict()) == set(model.state_dict())


@pytest.fixture(scope="module")
def hub_folder(tmp_path_factory):
    """A small LLaVA in Hugging Face's layout: weights, tokenizer, image processor."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import CLIPImageProcessor, LlavaProcessor, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("hub")
    words = [*WORDS, "<unk>", "Which", "of", "the", "two", "images", "higher", "in", "glow:", "or", "Similar?"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        extra_special_tokens={"image_token": "<image>"},
    )
    network = make().network
    network.resize_token_embeddings(len(words))
    network.save_pretrained(folder)
    LlavaProcessor(
        image_processor=CLIPImageProcessor(
            size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}, image_mean=[0.4] * 3, image_std=[0.3] * 3
        ),
        tokenizer=fast,
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    ).save_pretrained(folder)
    return folder


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


def asked_by_the_library(network, folder, images, pairs):
    """Logits of the words, from what an export says about the question and nothing else of this package."""
    from transformers import AutoProcessor

    description = json.loads((folder / "comparator.json").read_text())
    processor = AutoProcessor.from_pretrained(folder / "processor")
    shown = [[images[a].expand(3, -1, -1), images[b].expand(3, -1, -1)] for a, b in pairs]
    inputs = processor(images=shown, text=[description["prompt"]] * len(pairs), return_tensors="pt", padding=True)
    with torch.no_grad():
        return network(**inputs, logits_to_keep=1).logits[:, -1, description["label_ids"]]


def some_images(count=3):
    return torch.randint(0, 256, (count, 1, 16, 16), generator=torch.Generator().manual_seed(1)).to(torch.uint8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's
def test_what_lies_beside_the_weights_is_enough_for_transformers_and_peft(hub_folder, tmp_path):
    from peft import PeftModel
    from transformers import LlavaForConditionalGeneration

    model = disturb(make(base=str(hub_folder), lora=True, attribute="glow"))
    names = model.save_beside(tmp_path)
    assert {"comparator.json", "adapter/adapter_model.safetensors", "processor/tokenizer.json"} <= set(names)
    network = LlavaForConditionalGeneration.from_pretrained(hub_folder)
    network = PeftModel.from_pretrained(network, tmp_path / "adapter").eval()
    found = asked_by_the_library(network, tmp_path, some_images(), [(0, 1), (2, 0)])
    expected = model(some_images(), torch.tensor([0, 2]), torch.tensor([1, 0]))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    bare = make(base=str(hub_folder), lora=True, attribute="glow")
    assert not torch.allclose(bare(some_images(), torch.tensor([0, 2]), torch.tensor([1, 0])), found, atol=1e-2)


@pytest.mark.slow
def test_files_of_somebody_else_are_not_written_over(tmp_path):
    model = make(lora=True)
    for part, save in (("processor", model.save_beside), ("merged", model.save_merged)):
        (tmp_path / part).mkdir()
        (tmp_path / part / "notes.txt").write_text("mine")
        with pytest.raises(ValueError, match=f"{part} has files of no complete export; take them away"):
            save(tmp_path)
        assert (tmp_path / part / "notes.txt").read_text() == "mine"


@pytest.mark.slow
def test_merged_adapters_need_neither_this_package_nor_peft(tmp_path):
    from transformers import LlavaForConditionalGeneration

    io.save(disturb(make()), tmp_path / "full")
    model = disturb(make(base=str(tmp_path / "full"), lora=True))
    expected = model(some_images(), torch.tensor([0, 2]), torch.tensor([1, 0]))
    assert model.unmergeable is None
    assert make().unmergeable == "it has no adapters"
    assert "does not average tokens" in make(lora=True, pool=True).unmergeable
    out = tmp_path / "out"
    out.mkdir()
    model.save_beside(out)
    names, difference = model.save_merged(out)
    assert "merged/model.safetensors" in names
    assert difference < 1e-4
    network = LlavaForConditionalGeneration.from_pretrained(out / "merged").eval()
    assert not any("lora" in name for name in network.state_dict())
    found = asked_by_the_library(network, out, some_images(), [(0, 1), (2, 0)])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


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
def test_a_preset_is_a_base_in_bfloat16_whose_adapters_train(monkeypatch, tmp_path):
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    preset = {"vision": {**sizes, "image_size": 28, "patch_size": 7}, "text": {**sizes, "vocab_size": 40}}
    monkeypatch.setitem(llava_comparator.PRESETS, "llava-1.5-7b", preset)
    for changes in ({}, {"lora": True, "base": "elsewhere"}):
        with pytest.raises(ValueError, match="is a base for adapters: give lora=true, and no base beside it"):
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
    """Parameters of liuhaotian/llava-v1.5-7b as transformers has them: 7.06 billion."""
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    preset = llava_comparator.PRESETS["llava-1.5-7b"]
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
    with pytest.raises(ValueError, match=r"weights in base .* are not those that this model was trained on"):
        make(base=str(other), lora=True, revision=model.config.revision)


@pytest.mark.slow
def test_adapters_on_a_model_of_ours_start_from_its_answers(tmp_path):
    full = disturb(make())
    io.save(full, tmp_path / "full")
    model = make(base=str(tmp_path / "full"), lora=True)
    torch.testing.assert_close(model(**full.example()), full(**full.example()), rtol=1e-5, atol=1e-5)
    io.save(disturb(model), tmp_path / "adapters")
    assert torch.equal(io.load(tmp_path / "adapters")(**full.example()), model(**full.example()))
    with pytest.raises(ValueError, match="must be a llava that was trained in full on images of size 32"):
        make(base=str(tmp_path / "full"), lora=True, size=32)
    io.save(comparator.build({"kind": "siamese", "size": 16, "layers": 2}), tmp_path / "siamese")
    with pytest.raises(ValueError, match="must be a llava that was trained in full"):
        make(base=str(tmp_path / "siamese"), lora=True)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"lora": True}, {"lora": True, "pool": True}])
def test_encoding_each_image_once_gives_what_encoding_it_for_every_pair_gives(changes):
    model = disturb(make(**changes))
    images = torch.randint(0, 256, (5, 1, 16, 16), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    first, second = torch.randint(5, (2, 12), generator=torch.Generator().manual_seed(2))
    once = model(images, first, second)
    each = model(torch.cat([images[first], images[second]]), torch.arange(12), torch.arange(12, 24))
    torch.testing.assert_close(once, each, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(once, model(None, first, second, encoded=model.encode_all(images)), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"lora": True, "pool": True}])
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
    assert sum(rows for rows, _ in lengths[::2]) <= 7 + 2  # beginnings; those at the ends of a chunk come twice
    assert sum(rows for rows, _ in lengths[1::2]) == 150


@pytest.mark.slow
def test_pooling_leaves_a_quarter_of_the_tokens():
    images = make().example()["images"]
    plain, pooled = make(), make(pool=True)
    tokens, fewer = plain.project(plain.encode(images)), pooled.project(pooled.encode(images))
    assert (tokens.shape, fewer.shape) == ((4, 16, 16), (4, 4, 16))
    torch.testing.assert_close(fewer[:, 0], tokens[:, [0, 1, 4, 5]].mean(1))


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
def test_a_base_is_built_anew_from_its_seed_bit_for_bit():
    one, same, other = make(lora=True), make(lora=True), make(lora=True, seed=1)
    weights = [dict(model.base.model.language_model.named_parameters()) for model in (one, same, other)]
    name = next(name for name in weights[0] if "gate_proj" in name)
    assert torch.equal(weights[0][name], weights[1][name])
    assert not torch.equal(weights[0][name], weights[2][name])


@pytest.mark.slow
def test_a_checkpoint_holds_what_trains_alone_and_restores_it(tmp_path):
    """Through the calls that the engine's checkpoints make."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True, strict=True)
    model = disturb(make(lora=True))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    model(**model.example()).sum().backward()
    optimizer.step()
    weights, moments = copy.deepcopy(get_state_dict(model, optimizer, options=options))
    assert set(weights) == trained(model) | {name for name, _ in comparator.Comparator(model.config).named_buffers()}
    other = make(lora=True)
    again = torch.optim.AdamW([p for p in other.parameters() if p.requires_grad])
    set_state_dict(other, again, model_state_dict=weights, optim_state_dict=moments, options=options)
    assert torch.equal(other(**model.example()), model(**model.example()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base": "x"}, "base 'x' is given, so give lora=true too"),
        (
            {"base": "no/where", "lora": True},
            r"base 'no/where' is neither a complete folder nor to be had from the hub",
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
