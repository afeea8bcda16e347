"""Ask exported vision-language models with transformers and peft alone: outside.py, in an empty folder.

Reads lines [export, base, folder of a.png and b.png] and prints {"adapters": ..., "merged": ...} for each, the logits
of the answers in comparator.json for the two images, and of the levels of each. transformers makes the parts of
processors that are for videos only with torchvision, which has no build for every torch; without one, a package of that
name stands in, of which nothing is called.
"""

import importlib.util
import json
import sys
import tempfile
from pathlib import Path

STAND_IN = {
    "torchvision/__init__.py": "__version__ = '0.28.0'\n",
    "torchvision/io.py": "",
    "torchvision/transforms/__init__.py": "import enum\nNAMES = 'NEAREST NEAREST_EXACT BILINEAR BICUBIC BOX HAMMING '\n"
    "InterpolationMode = enum.Enum('InterpolationMode', NAMES + 'LANCZOS')\n",
    "torchvision/transforms/functional.py": "pil_to_tensor = None\n",
    "torchvision/transforms/v2/__init__.py": "",
    "torchvision/transforms/v2/functional.py": "",
    "torchvision-0.28.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0\n",
}


def stand_in():
    """Put a package named torchvision where none is installed."""
    folder = Path(tempfile.mkdtemp())
    for name, text in STAND_IN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    sys.path.append(str(folder))


def logits(network, processor, told, shown):
    """The logits of the answers after a prompt with images."""
    import torch

    bos = processor.tokenizer.bos_token
    starts = {"add_special_tokens": False} if bos and told["prompt"].startswith(bos) else {}
    inputs = processor(text=[told["prompt"]], images=[shown], return_tensors="pt", **starts)
    inputs.pop("labels", None)
    with torch.no_grad():
        return network(**inputs).logits[0, -1, told["label_ids"]].tolist()


def asked(export, base, pictures):
    """Load both exports, and ask them."""
    from peft import PeftModel
    from PIL import Image
    from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoProcessor

    told = json.loads((export / "comparator.json").read_text())
    images = [Image.open(pictures / name) for name in ("a.png", "b.png")]
    adapted = PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained(base), export / "adapter")
    merged = AutoModelForImageTextToText.from_pretrained(export / "merged")
    found = {}
    for name, network, folder in (("adapters", adapted, "processor"), ("merged", merged, "merged")):
        processor = AutoProcessor.from_pretrained(export / folder)
        video = getattr(processor, "video_processor", None)
        # The project scales images by PIL, which torchvision rounds in another way.
        processor.image_processor = AutoImageProcessor.from_pretrained(export / folder, backend="pil")
        found[name] = {
            "pair": logits(network.eval(), processor, told, images),
            "levels": [logits(network, processor, told["levels"], [image]) for image in images],
            "video": video is not None,
        }
    return found


def main():
    """Answer line by line."""
    for name in ("models", "common", "exporters"):
        assert importlib.util.find_spec(name) is None, f"{name} of the project can be imported"
    if importlib.util.find_spec("torchvision") is None:
        stand_in()
    for line in sys.stdin:
        export, base, pictures = json.loads(line)
        print("answer:", json.dumps(asked(Path(export), base, Path(pictures))), flush=True)


main()
