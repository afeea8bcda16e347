"""The image side that a vision tower expects, read from its files without torch."""

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.disk.files import read_json

EFFICIENTNET, EFFICIENTNET_SIDE = "efficientnet-lite0", 224  # of PyPI


def side(base: str) -> int | None:
    """Return the side in pixels of the images of a base, in a folder or the hub's cache; None if no file says it."""
    if base == EFFICIENTNET:
        return EFFICIENTNET_SIDE
    settings, processor = read(base, "config.json"), read(base, "preprocessor_config.json")
    return stated(settings.get("vision_config", settings), processor)


def stated(settings: Mapping[str, Any], processor: Mapping[str, Any]) -> int | None:
    """Return the side that the settings of a network, or else those of its image processor, state."""
    size = settings.get("image_size")
    if size is None and settings.get("num_patches"):  # SigLIP 2 with any aspect ratio
        return math.isqrt(settings["num_patches"]) * int(settings.get("patch_size", 1))
    crop = processor.get("crop_size") or processor.get("size") or {}
    if size is None and isinstance(crop, Mapping):
        size = crop.get("height") or crop.get("shortest_edge")
    size = size[0] if isinstance(size, list | tuple) and size else size
    return size if isinstance(size, int) else None


def read(base: str, name: str) -> dict[str, Any]:
    """Return the object in a JSON file of a base, in a folder or the hub's cache; {} if there is none."""
    path = Path(base) / name
    if not Path(base).is_dir():
        from huggingface_hub import try_to_load_from_cache

        with contextlib.suppress(ValueError):  # not a valid hub id; loading the base reports that
            path = Path(str(try_to_load_from_cache(base, name) or ""))
    return read_json(path, dict)
