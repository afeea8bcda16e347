"""Each family of vision-language models: answers equal to transformers' own, trained, stored and merged."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from models import io
from models.images.vision_tower import Base
from models.images.vlm_comparator import build
from models.images.vlm_comparator.bases import FAMILIES, load_processor
from tests import vlms
from tests.models.tiny import disturb

pytestmark = [
    pytest.mark.slow,  # importing transformers alone takes seconds
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),  # peft's
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # PaliGemma's processor's
]
PAIRS = [(0, 1), (2, 0), (2, 1)]
QUESTION = "Which of the two images ranks higher in glow: First, Second or Similar?"


@pytest.fixture(scope="module", params=vlms.FAMILIES)
def folder(request, tmp_path_factory):
    return vlms.save(request.param, tmp_path_factory.mktemp(request.param))


def make(folder, **changes):
    torch.manual_seed(0)
    return build(
        {"size": vlms.SIZE, "channels": 3, "base": folder, "lora": True, "attribute": "glow", **changes}
    ).eval()


def pictures():
    return torch.randint(0, 256, (3, 3, vlms.SIZE, vlms.SIZE), generator=torch.Generator().manual_seed(1)).byte()


def asked_by_the_library(network, processor, images, label_ids):
    """Logits of the three words, a pair at a time, by transformers' own processor, chat template and forward."""
    from transformers import ProcessorMixin

    shown = [Image.fromarray(image.movedim(0, -1).numpy()) for image in images]
    found = []
    for pair in PAIRS:
        pair = [shown[i] for i in pair]
        if processor.chat_template:
            content = [*({"type": "image", "image": image} for image in pair), {"type": "text", "text": QUESTION}]
            inputs = ProcessorMixin.apply_chat_template(
                processor,
                [{"role": "user", "content": content}],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
            )
        else:
            inputs = processor(text=f"<image><image>answer en {QUESTION}", images=[pair], return_tensors="pt")
            inputs.pop("labels")
        with torch.no_grad():
            found.append(network(**inputs).logits[0, -1, label_ids])
    return torch.stack(found)


def test_every_family_that_is_known_is_tested():
    assert vlms.FAMILIES.keys() == FAMILIES.keys()


def test_answers_are_those_of_transformers_own_forward(folder):
    from transformers import AutoModelForImageTextToText

    model, images = make(folder), pictures()
    network, processor = AutoModelForImageTextToText.from_pretrained(folder).eval(), load_processor(Base(folder))
    expected = asked_by_the_library(network, processor, images, model.pair.answers)
    assert (expected[0] - expected[1]).abs().max() > 1e-2
    words = [processor.tokenizer.convert_ids_to_tokens(int(i)) for i in model.pair.answers]
    assert words == ["First", "Second", "Similar"]
    first, second = torch.tensor(PAIRS).T
    torch.testing.assert_close(model(images, first, second), expected, rtol=1e-4, atol=1e-4)
    with torch.no_grad():  # reads a first image once
        torch.testing.assert_close(model(images, first, second), expected, rtol=1e-4, atol=1e-4)
        model.attention = "eager"
        assert {module.config._attn_implementation for module in layers_that_attend(model)} == {"eager"}
        torch.testing.assert_close(model(images, first, second), expected, rtol=1e-4, atol=1e-4)
        with pytest.raises(ValueError, match="attention=flash_attention_2 needs a CUDA device; set attention=sdpa"):
            model.attention = "flash_attention_2"


def layers_that_attend(model):
    """The language model's attention modules."""
    named = model.base.model.named_modules()
    return [module for name, module in named if name.endswith("self_attn") and "vision" not in name]


def test_levels_are_those_of_transformers_own_forward_of_one_image(folder):
    from transformers import AutoModelForImageTextToText

    model, images = make(folder, question="levels"), pictures()
    network, processor = AutoModelForImageTextToText.from_pretrained(folder).eval(), load_processor(Base(folder))
    told = model.describe()["levels"]
    words = [processor.tokenizer.convert_ids_to_tokens(i) for i in told["label_ids"]]
    assert words == ["Bad", "Poor", "Fair", "Good", "Excellent"] == told["words"]
    starts = told["prompt"].startswith(processor.tokenizer.bos_token)
    expected = []
    for image in images:
        shown = [[Image.fromarray(image.movedim(0, -1).numpy())]]
        if network.config.model_type == "llava_onevision":  # it would cut up an image that comes alone
            shown, prompt = [[*shown[0], *shown[0]]], model.level.text
        else:
            prompt = told["prompt"]
        inputs = processor(text=[prompt], images=shown, return_tensors="pt", add_special_tokens=not starts)
        inputs.pop("labels", None)
        if network.config.model_type == "llava_onevision":
            marks = (inputs["input_ids"][0] == network.config.image_token_id).nonzero().flatten()
            half = len(marks) // 2
            kept = torch.ones(inputs["input_ids"].shape[1], dtype=torch.bool)
            kept[marks[half - 1] + 1 : marks[-1] + 1] = False
            features = network.model.get_image_features(
                inputs["pixel_values"], inputs["image_sizes"], batch_num_images=torch.tensor([2])
            ).pooler_output
            embedded = network.get_input_embeddings()(inputs["input_ids"][:, kept])
            embedded[0, marks[:half]] = features[0]
            inputs = {"inputs_embeds": embedded}
        with torch.no_grad():
            expected.append(network(**inputs).logits[0, -1, told["label_ids"]])
    expected = torch.stack(expected)
    assert (expected[0] - expected[1]).abs().max() > 1e-3
    with torch.no_grad():
        torch.testing.assert_close(model.levels(model.encode(images)), expected, rtol=1e-4, atol=1e-4)


def test_adapters_and_projector_train_are_stored_and_merged(folder, tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText

    model, images, (first, second) = make(folder).train(), pictures(), torch.tensor(PAIRS).T
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert {part for part in ("lora_", *model.projectors) if not any(part in name for name in trained)} == set()
    assert not any(part in name for name in trained for part in ("vision_tower", "vision_model", "visual.blocks"))
    optimizer, losses = torch.optim.AdamW(trained.values(), lr=1e-2, weight_decay=0.0), []
    before = {name: p.detach().clone() for name, p in trained.items()}
    encoded = model.encode(images)
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(model(None, first, second, encoded=encoded), torch.tensor([0, 1, 2]))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert not [name for name, p in trained.items() if torch.equal(p, before[name])]

    model.eval()
    io.save(model, tmp_path / "model")
    stored = (tmp_path / "model" / "model.safetensors").stat().st_size
    again = io.load(tmp_path / "model")
    with torch.no_grad():
        expected = model(images, first, second)
        assert torch.equal(again(images, first, second), expected)
    out = tmp_path / "out"
    out.mkdir()
    assert again.unmergeable is None
    again.save_beside(out)
    _, difference = again.save_merged(out)
    assert difference < 1e-4
    assert stored < (out / "merged" / "model.safetensors").stat().st_size
    label_ids = json.loads((out / "comparator.json").read_text())["label_ids"]
    adapted = PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained(folder), out / "adapter").eval()
    merged = AutoModelForImageTextToText.from_pretrained(out / "merged").eval()
    for network in (adapted, merged):
        processor = load_processor(Base(folder if network is adapted else str(out / "merged")))
        found = asked_by_the_library(network, processor, images, label_ids)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    """A process that cannot import the project, asked for all families, and the file of its errors."""
    command = [sys.executable, "-P", Path(__file__).with_name("outside.py")]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    elsewhere, pipe = tmp_path_factory.mktemp("elsewhere"), subprocess.PIPE
    errors = elsewhere / "errors.txt"
    with (
        errors.open("w") as written,
        subprocess.Popen(
            command, cwd=elsewhere, env=environment, stdin=pipe, stdout=pipe, stderr=written, text=True
        ) as it,
    ):
        yield it, errors


def test_both_exports_answer_in_a_process_that_cannot_import_the_project(folder, tmp_path, outside):
    kind = json.loads((Path(folder) / "config.json").read_text())["model_type"]
    model, images = disturb(make(folder, question="both")), pictures()[:2]
    for image, name in zip(images, ("a.png", "b.png"), strict=True):
        Image.fromarray(image.movedim(0, -1).numpy()).save(tmp_path / name)
    out = tmp_path / "out"
    out.mkdir()
    with torch.no_grad():
        encoded = model.encode(images)
        pair = model.compare_encoded(encoded, torch.tensor([0]), torch.tensor([1]))
        levels = model.levels(encoded)
    model.save_beside(out)
    model.save_merged(out)
    process, errors = outside
    process.stdin.write(json.dumps([str(out), str(folder), str(tmp_path)]) + "\n")
    process.stdin.flush()
    answer = next((line for line in process.stdout if line.startswith("answer: ")), None)
    assert answer is not None, errors.read_text()
    for found in json.loads(answer.removeprefix("answer: ")).values():
        assert found["video"] == (kind in vlms.VIDEO)
        assert (torch.tensor([found["pair"]]) - pair).abs().max() <= 1e-5
        if kind != "llava_onevision":  # whose processor cuts up an image that comes alone
            assert (torch.tensor(found["levels"]) - levels).abs().max() <= 1e-5
