"""Features of all prepared images by a frozen tower: computed once for images and tower, and kept beside the data.

The bits depend on the images per pass and on the number of threads, so all images are encoded in their order, and all
that decides the bits is hashed into the name. Folds, runs and evaluations of the same images map the same file.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from common.disk import prepared
from common.disk.files import sha256
from models.images.comparator.interface import AT_ONCE, Comparator
from models.images.comparator.siamese import TowerSiamese
from pipelines.distributed import deferred, ranks
from pipelines.workloads.lmol import data

FEATURES, LAYOUT = "features.npy", 1  # count LAYOUT up when `TowerSiamese.encode` computes something else


def home(model: Comparator, folder: Path, device: torch.device) -> Path | None:
    """Return the folder of the features of the images in `folder`; None for a model without a frozen tower."""
    if not (isinstance(seen := model.of(None), TowerSiamese) and seen.frozen):
        return None
    bits = [torch.get_num_threads() if device.type == "cpu" else torch.get_float32_matmul_precision(), device.type]
    versions = [metadata.version(name) for name in ("torch", "transformers")]
    decide = [*seen.tower.identity, sha256(folder / data.IMAGES), *bits, *versions]
    return folder.parent / f"features-{hashlib.sha256(json.dumps([LAYOUT, *decide]).encode()).hexdigest()[:32]}"


def of_all(
    model: Comparator, sets: Sequence[data.Comparisons], folder: Path, device: torch.device, together: bool = False
) -> tuple[Tensor, float] | None:
    """Return features (N, F) of all images, and seconds per image; None without a frozen tower.

    None as well where none are stored and none can be. The model's references take their features from these. Several
    processes that could encode `together` use only stored features that all of them see.
    """
    if (at := home(model, folder, device)) is None:
        return None
    is_kept = (at / prepared.MANIFEST).exists()
    if not (all(ranks.gather(is_kept)) if together and ranks.world() > 1 else is_kept or os.access(at.parent, os.W_OK)):
        return None

    def write(temporary: Path) -> dict[str, float]:
        images, began = data.Images(sets[0].images, np.arange(len(sets[0].images))), time.perf_counter()
        with deferred.lent(model, device):
            found = in_parts(lambda items: model.encode_all(images[items]), images.size, torch.device("cpu"))
        seconds = (time.perf_counter() - began) / images.size
        np.save(temporary / FEATURES, found.numpy())
        return {"seconds": seconds}

    seconds = prepared.prepare(at, {}, write, lambda: ())["seconds"]
    assert isinstance(seconds, float)
    found = torch.from_numpy(np.load(at / FEATURES, mmap_mode="c"))
    for view, own in zip(model.views.values(), sets, strict=True):
        if np.array_equal(view.reference_images.cpu().movedim(1, -1).numpy(), own.images[own.references]):
            view.encoded_references(found[own.references])
    return found, seconds


def in_parts(function: Callable[[Tensor], Tensor], count: int, kept_on: torch.device) -> Tensor:
    """Return function(items) (N, ...) of all items below `count`, computed in batches and kept on a device."""
    whole = torch.empty(0)
    for items in torch.arange(count).split(AT_ONCE):
        part = function(items).to(kept_on)
        if not len(whole):
            whole = part.new_empty(count, *part.shape[1:])
        whole[items] = part
    return whole
