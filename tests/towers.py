"""Tiny vision models with random weights, saved in folders in the layout of Hugging Face's hub."""

import torch

SHAPE = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
MEAN, STD = [0.4, 0.5, 0.6], [0.3, 0.2, 0.1]


STAGES = {"depths": [1, 1, 1], "num_channels": 3}  # of networks that halve the sides from stage to stage
KINDS = {  # the class of each tower's config, and what it has beyond SHAPE, which stages have instead
    "clip": ("CLIPVisionConfig", {"intermediate_size": 32}),
    "siglip": ("SiglipVisionConfig", {"intermediate_size": 32}),
    "siglip2": ("Siglip2VisionConfig", {"intermediate_size": 32, "num_patches": 16}),
    "vit": ("ViTConfig", {"intermediate_size": 32}),
    "dinov2": ("Dinov2Config", {}),
    "dinov2_with_registers": ("Dinov2WithRegistersConfig", {"num_register_tokens": 4}),
    "dinov3_vit": ("DINOv3ViTConfig", {"intermediate_size": 32, "num_register_tokens": 4}),
    "swin": ("SwinConfig", {"embed_dim": 8, "num_heads": [1, 1, 1], "window_size": 2, "patch_size": 2, **STAGES}),
    "convnext": ("ConvNextConfig", {"hidden_sizes": [4, 8, 16], "num_stages": 3, "patch_size": 2, **STAGES}),
    "resnet": ("ResNetConfig", {"embedding_size": 4, "hidden_sizes": [4, 8, 16], "layer_type": "basic", **STAGES}),
}
BEFORE = {  # tokens before those of the patches
    "clip": 1,
    "siglip": 0,
    "siglip2": 0,
    "vit": 1,
    "dinov2": 1,
    "dinov2_with_registers": 5,
    "dinov3_vit": 5,
}


def vision_config(kind, **changes):
    """The config in transformers of a tiny tower; of 4 x 4 patches, if it has patches of one size."""
    import transformers

    name, further = KINDS[kind]
    shape = {**SHAPE, "patch_size": 4} if kind in BEFORE else {}
    settings = {**shape, "image_size": 16, **further, **changes}
    if kind in ("siglip2", "resnet"):  # which have no size of their own
        del settings["image_size"]
    return getattr(transformers, name)(**settings)


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
