"""Files beside a vision-language comparator: enough for transformers and peft, and never written over others."""

import json

import pytest
import torch

from models import io
from tests.models.images.vlm_comparator.tiny_vlm import make, some_images
from tests.models.tiny import disturb


def asked_by_the_library(network, folder, images, pairs):
    """Logits of the three words, computed from the exported files without this package."""
    from transformers import AutoProcessor

    description = json.loads((folder / "comparator.json").read_text())
    processor = AutoProcessor.from_pretrained(folder / "processor")
    shown = [[images[a].expand(3, -1, -1), images[b].expand(3, -1, -1)] for a, b in pairs]
    inputs = processor(images=shown, text=[description["prompt"]] * len(pairs), return_tensors="pt", padding=True)
    with torch.no_grad():
        return network(**inputs, logits_to_keep=1).logits[:, -1, description["label_ids"]]


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
        with pytest.raises(ValueError, match=f"{part} has files that no complete export wrote; remove them"):
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
