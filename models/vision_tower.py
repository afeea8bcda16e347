"""Pretrained models as bases: loaded, identified by their weights, shown images, and left out of saved files.

    base = Base("a/folder", revision="")         # or an id on the hub; `base.settings`, `base.load(AutoTokenizer)`
    tower = Tower("a/folder", revision="")       # the vision tower of a base, frozen
    tower(images)                                # (U, T, V): features of the cells of a grid
    leave_out(model, "tower")                    # of every state_dict, since the constructor loads it again

Shapes: U images, C channels (1 or 3), S pixels a side, T cells or tokens of an image, V channels of the tower.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import Tensor, nn

from models import limits

# Config types of the supported towers, and the number of tokens that each puts before those of the patches.
TOWERS = {"clip_vision_model": 1, "siglip_vision_model": 0, "dinov2": 1}
# The second to last hidden state. The last layer serves the task that the tower was trained on (CLIP and SigLIP match a
# text by one vector), so its patches say less about their places. LLaVA reads CLIP at this layer (Liu et al. 2023),
# Prismatic SigLIP and DINOv2 (Karamcheti et al. 2024).
LAYER = -2
GRID = 8  # at most so many cells a side: 64 cells of 1024 channels take 256 KiB in float32 for each stored image
AT_ONCE = 16  # images in a pass, which holds all hidden states: 2 GiB for DINOv2 large at 518 pixels


class Base:
    """A model in a folder in Hugging Face's layout, or on the hub; ValueError, in one line, for one that fails to load.

    settings   its config in transformers
    dtype      the type to compute in: bfloat16 for weights of 16 bits (no activation leaves its range), else float32
    """

    def __init__(self, name: str, revision: str = ""):
        from transformers import AutoConfig

        self.name, self.wanted, self.folder = name, revision, Path(name)
        self.given = {} if self.folder.is_dir() or not revision else {"revision": revision}
        self.settings = self.load(AutoConfig)
        self.dtype = torch.float32 if self.settings.dtype in (None, torch.float32) else torch.bfloat16

    def load(self, loader: Any, **arguments: Any) -> Any:
        """Return the result of `loader.from_pretrained` on the base."""
        try:
            with quietly(), limits.paused():
                return loader.from_pretrained(self.name, **self.given, **arguments)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:  # RuntimeError: shapes that do not fit
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"base {self.name!r} is not a complete folder, is not available from the hub, or is unknown to "
                f"transformers ({said}); give a folder in Hugging Face's layout, or go online and unset HF_HUB_OFFLINE"
            ) from error

    def revision(self) -> str:
        """Return the hub's commit, or the SHA-256 of the folder's weights; ValueError if the weights have changed."""
        if not self.folder.is_dir():
            return self.settings._commit_hash
        return unchanged(self.name, self.wanted, sorted(self.folder.glob("*.safetensors")))


def unchanged(name: str, revision: str, paths: Sequence[Path]) -> str:
    """Return the SHA-256 of the weight files of base `name`.

    Raises ValueError if it differs from a `revision` that is not empty, or if there are no weights.
    """
    if not paths or not all(path.is_file() for path in paths):
        raise ValueError(f"base {name} has no weights (*.safetensors); copy them there")
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    if revision not in ("", digest.hexdigest()):
        raise ValueError(
            f"the weights in base {name} are not the ones that this model was trained on "
            f"(SHA-256 {digest.hexdigest()[:12]}..., expected {revision[:12]}...); restore the original files"
        )
    return digest.hexdigest()


def layers_of(network: Any) -> list[str]:
    """Return the class names of the layers of a model of transformers, as far as it has such layers."""
    present = {type(module).__name__ for module in network.modules()}
    return sorted(present.intersection(network._no_split_modules or ()))


def leave_out(model: nn.Module, part: str) -> None:
    """Leave the frozen tensors of the model's `part`, which its constructor loads again, out of every state_dict."""
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    borrowed = {name for name in model.state_dict() if name.startswith(f"{part}.")} - trained

    def drop(module: nn.Module, state: dict[str, Tensor], prefix: str, metadata: Any) -> None:
        for name in borrowed:
            del state[prefix + name]

    def not_missed(module: nn.Module, keys: Any) -> None:
        keys.missing_keys[:] = [key for key in keys.missing_keys if key.removeprefix("module.") not in borrowed]

    model.register_state_dict_post_hook(drop)
    model.register_load_state_dict_post_hook(not_missed)


class Sight(nn.Module):
    """Preparation of images for a vision tower, and the choice of the tokens taken from it.

    `size` is in pixels a side, `layer` the number of the hidden state, `skip` the number of tokens before the patches'.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, size: int, mean: Sequence[float] | None, std: Sequence[float] | None, layer: int, skip: int):
        super().__init__()
        if mean is None or std is None:
            raise ValueError("the base's image processor states no image_mean and image_std; give a base that does")
        self.size, self.layer, self.skip = size, layer, skip
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1), persistent=False)

    def forward(self, tower: nn.Module, images: Tensor) -> Tensor:
        """Return the tokens of patches (U, T, V) of images (U, C, S, S) with values from 0 to 1."""
        x = images.expand(-1, 3, -1, -1)
        if x.shape[-1] != self.size:
            x = F.interpolate(x, size=(self.size,) * 2, mode="bicubic", antialias=True).clamp(0, 1)
        x = ((x - self.mean) / self.std).to(next(tower.parameters()).dtype)
        return tower(x, output_hidden_states=True).hidden_states[self.layer][:, self.skip :]


class Tower(nn.Module):
    """The frozen vision tower of a base: of CLIP, SigLIP, DINOv2, or a larger model that contains one, such as LLaVA.

    It never enters training mode, because dropout must not touch features that are kept. Raises ValueError, in one
    line, for a base that is missing, has changed, has no such tower, or lacks some of its weights.
    """

    def __init__(self, name: str, revision: str = ""):
        super().__init__()
        from transformers import AutoImageProcessor, AutoModel

        base = Base(name, revision)
        settings = getattr(base.settings, "vision_config", base.settings)
        kind = getattr(settings, "model_type", type(settings).__name__)
        if kind not in TOWERS:
            raise ValueError(
                f"base {name}, of type {kind}, has no supported vision tower; give a model with the tower of CLIP, "
                f"SigLIP or DINOv2 (types {', '.join(TOWERS)})"
            )
        self.revision = base.revision()
        processor = base.load(AutoImageProcessor)
        self.network, report = base.load(
            AutoModel,
            config=settings,
            dtype=base.dtype,
            use_safetensors=True,  # never a pickle
            key_mapping={r"^(model\.)?vision_tower\.(vision_model\.)?": ""},  # the names in LLaVA and similar models
            output_loading_info=True,
        )
        if report["missing_keys"]:
            missing = sorted(report["missing_keys"])
            raise ValueError(
                f"base {name} lacks {len(missing)} of its tower's weights ({missing[0]}); give a complete model"
            )
        self.requires_grad_(False).eval()
        self.side = settings.image_size // settings.patch_size  # patches
        self.channels = settings.hidden_size  # V
        self.cells = min(self.side, GRID) ** 2  # T
        self.sight = Sight(settings.image_size, *normalisation(processor), LAYER, TOWERS[kind])

    def train(self, mode: bool = True) -> "Tower":
        """Stay in evaluation mode whatever `mode` is."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """Return features (U, T, V), in the tower's type, of images (U, C, S, S) with values from 0 to 1."""
        return torch.cat([self._cells(self.sight(self.network, part)) for part in images.split(AT_ONCE)])

    def _cells(self, tokens: Tensor) -> Tensor:
        """Return features (U, T, V), the means over each cell's patches, from tokens (U, side², V).

        Layer norm without weights comes first. It brings the features of all towers to one scale, and with them the
        few patches of very large norm that say nothing about their own place (Darcet et al. 2024).
        """
        patches = F.layer_norm(tokens.float(), tokens.shape[-1:]).transpose(1, 2).unflatten(2, (self.side, self.side))
        return F.adaptive_avg_pool2d(patches, min(self.side, GRID)).flatten(2).transpose(1, 2).to(tokens.dtype)


def normalisation(processor: Any) -> tuple[Sequence[float] | None, Sequence[float] | None]:
    """Return the mean and deviation by which an image processor normalises pixels, None where it states none."""
    return getattr(processor, "image_mean", None), getattr(processor, "image_std", None)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silence transformers' progress bars and its table of the weights that are not the tower's."""
    from transformers.utils import logging

    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()
