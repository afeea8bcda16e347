"""What a frozen tower sees of all prepared images: computed once for images and tower, and kept beside the data.

The bits depend on how many images a pass takes and on the number of threads, so all images are encoded in their order,
and what decides the bits is in the name. Folds, runs and evaluations of the same images map the same file.
"""

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import transformers
from torch import Tensor

from common.disk import prepared
from common.disk.files import sha256
from common.errors import UserError
from common.plain import Plain
from models.images.comparator.interface import AT_ONCE, Comparator
from models.images.comparator.siamese import TowerSiamese
from pipelines.distributed import deferred
from pipelines.workloads.lmol import data

FEATURES, LAYOUT = "features.npy", 1  # LAYOUT grows when `TowerSiamese.encode` computes something else
Timed = tuple[Tensor, float]  # features (N, F) of all images, and the seconds that an image takes


def home(model: Comparator, folder: Path, device: torch.device) -> Path | None:
    """Return the folder of the features of the images in `folder`; None for a model without a frozen tower."""
    if not (isinstance(seen := model.of(None), TowerSiamese) and seen.frozen):
        return None
    bits = [torch.get_num_threads() if device.type == "cpu" else torch.get_float32_matmul_precision(), device.type]
    bits += [torch.__version__, transformers.__version__, LAYOUT]
    decide = json.dumps([*seen.tower.identity, sha256(folder / data.IMAGES), *bits])
    return folder.parent / f"features-{hashlib.sha256(decide.encode()).hexdigest()[:32]}"


def of_all(model: Comparator, sets: Sequence[data.Comparisons], at: Path, device: torch.device) -> Timed:
    """Return the features that are in the folder `at`, or are computed, and kept there where the disk allows it.

    References among the images are not encoded again.
    """
    images, made = data.Images(sets[0].images, np.arange(len(sets[0].images))), list[Timed]()

    def make() -> Timed:
        began = time.perf_counter()
        with deferred.lent(model, device):
            found = in_parts(lambda items: model.encode_all(images[items]), images.size, torch.device("cpu"))
        return found, (time.perf_counter() - began) / images.size

    def write(temporary: Path) -> dict[str, Plain]:
        made.append(make())
        np.save(temporary / FEATURES, made[0][0].numpy())
        return {"seconds": made[0][1]}

    try:
        facts = prepared.prepare(at, {}, write, lambda: ())
        found, seconds = torch.from_numpy(np.load(at / FEATURES, mmap_mode="c")), facts["seconds"]
        assert isinstance(seconds, float)
    except UserError:  # the disk is full or read-only
        found, seconds = made[0] if made else make()
    for view, own in zip(model.views.values(), sets, strict=True):
        if np.array_equal(view.reference_images.cpu().movedim(1, -1).numpy(), own.images[own.references]):
            view.encoded_references(found[own.references])
    return found, seconds


def in_parts(function: Callable[[Tensor], Tensor], count: int, kept_on: torch.device) -> Tensor:
    """Return function(items) (N, ...) of all items below `count`, computed a part at a time, on a device."""
    whole = torch.empty(0)
    for items in torch.arange(count).split(AT_ONCE):
        part = function(items).to(kept_on)
        if not len(whole):
            whole = part.new_empty(count, *part.shape[1:])
        whole[items] = part
    return whole
