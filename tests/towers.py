"""Tiny vision models with random weights, saved in folders in the layout of Hugging Face's hub."""

import torch

SHAPE = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
MEAN, STD = [0.4, 0.5, 0.6], [0.3, 0.2, 0.1]


def vision_config(kind, **changes):
    """The config in transformers of a tiny tower of 4 x 4 patches."""
    from transformers import CLIPVisionConfig, Dinov2Config, SiglipVisionConfig

    settings = {**SHAPE, "image_size": 16, "patch_size": 4, **changes}
    if kind == "dinov2":
        return Dinov2Config(**settings)
    return {"clip": CLIPVisionConfig, "siglip": SiglipVisionConfig}[kind](intermediate_size=32, **settings)


def save(network, folder, size=16):
    """Save a model and its image processor; returns the folder's path as a string."""
    from transformers import BitImageProcessor, CLIPImageProcessor, SiglipImageProcessor

    network.save_pretrained(folder)
    scale = {"image_mean": MEAN, "image_std": STD}
    name = type(network).__name__
    if name.startswith("Siglip"):
        processor = SiglipImageProcessor(size={"height": size, "width": size}, **scale)
    else:
        kind = BitImageProcessor if name.startswith("Dinov2") else CLIPImageProcessor
        processor = kind(size={"shortest_edge": size}, crop_size={"height": size, "width": size}, **scale)
    processor.save_pretrained(folder)
    return str(folder)


def tower(kind, seed=0, **changes):
    """A tiny tower, determined by its arguments."""
    from transformers import AutoModel

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = AutoModel.from_config(vision_config(kind, **changes)).eval()
        for parameter in network.parameters():  # with freshly drawn weights, images and places hardly differ
            parameter.data += 0.2 * torch.randn_like(parameter)
    return network


def save_tower(kind, folder, seed=0, **changes):
    """Save a tiny tower; returns its folder."""
    return save(tower(kind, seed, **changes), folder, changes.get("image_size", 16))
