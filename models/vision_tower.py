"""Pretrained models as bases: found, known again by their weights, shown images, and left out of what is saved.

    base = Base("a/folder", revision="")         # or an id on the hub; `base.settings`, `base.load(AutoTokenizer)`
    tower = Tower("a/folder", revision="")       # the part of a base that sees, frozen
    tower(images)                                # (U, T, V): features of the cells of a grid
    leave_out(model, "tower")                    # of every state_dict, as the constructor makes it again

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

# Types of config of the towers that are known, and how many tokens they have before those of the patches.
TOWERS = {"clip_vision_model": 1, "siglip_vision_model": 0, "dinov2": 1}
# The second to last hidden state: the last layer serves the task that the tower was trained on, of CLIP and SigLIP to
# match a text by one vector, and its patches tell less of their places. LLaVA reads CLIP there (Liu et al. 2023), and
# Prismatic SigLIP and DINOv2 too (Karamcheti et al. 2024).
LAYER = -2
GRID = 8  # most cells a side: 64 cells of 1024 channels are 256 KiB in float32 for each image that is kept
AT_ONCE = 16  # images in a pass, of which a tower keeps all hidden states: of DINOv2 large at 518 pixels 2 GiB


class Base:
    """A model in a folder, in Hugging Face's layout, or on the hub. What cannot be had is a ValueError in one line.

    settings   transformers' config of it
    dtype      what to compute with: bfloat16 for weights of 16 bits, as no activation leaves its range, else float32
    """

    def __init__(self, name: str, revision: str = ""):
        from transformers import AutoConfig

        self.name, self.wanted, self.folder = name, revision, Path(name)
        self.given = {} if self.folder.is_dir() or not revision else {"revision": revision}
        self.settings = self.load(AutoConfig)
        self.dtype = torch.float32 if self.settings.dtype in (None, torch.float32) else torch.bfloat16

    def load(self, loader: Any, **arguments: Any) -> Any:
        """What `loader.from_pretrained` makes of the base."""
        try:
            with quietly():
                return loader.from_pretrained(self.name, **self.given, **arguments)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:  # RuntimeError: shapes that do not fit
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"base {self.name!r} is neither a complete folder nor to be had from the hub, or transformers does not "
                f"know it ({said}); give a folder in Hugging Face's layout, or go online and unset HF_HUB_OFFLINE"
            ) from error

    def revision(self) -> str:
        """The hub's commit, or the SHA-256 of the folder's weights; ValueError if these are not those wanted."""
        if not self.folder.is_dir():
            return self.settings._commit_hash
        return unchanged(self.name, self.wanted, sorted(self.folder.glob("*.safetensors")))


def unchanged(name: str, revision: str, paths: Sequence[Path]) -> str:
    """SHA-256 of the files of weights of base `name`.

    Raises ValueError if it is another than `revision`, unless that is empty, or if there are no weights.
    """
    if not paths or not all(path.is_file() for path in paths):
        raise ValueError(f"base {name} has no weights (*.safetensors); copy them there")
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    if revision not in ("", digest.hexdigest()):
        raise ValueError(
            f"the weights in base {name} are not those that this model was trained on "
            f"(SHA-256 {digest.hexdigest()[:12]}..., then {revision[:12]}...); bring the old ones back"
        )
    return digest.hexdigest()


def leave_out(model: nn.Module, part: str) -> None:
    """Leave what does not train of the model's `part`, which its constructor makes again, out of every state_dict."""
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
    """How a vision tower is shown images, and which of the tokens that it makes of them are taken."""

    def __init__(self, size: int, mean: Sequence[float] | None, std: Sequence[float] | None, layer: int, skip: int):
        super().__init__()
        if mean is None or std is None:
            raise ValueError("the base's image processor states no image_mean and image_std; give a base that does")
        self.size, self.layer, self.skip = size, layer, skip  # pixels a side; the hidden state; tokens before patches'
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1), persistent=False)

    def forward(self, tower: nn.Module, images: Tensor) -> Tensor:
        """(U, T, V) tokens of patches, from images (U, C, S, S) in 0 to 1."""
        x = images.expand(-1, 3, -1, -1)
        if x.shape[-1] != self.size:
            x = F.interpolate(x, size=(self.size,) * 2, mode="bicubic", antialias=True).clamp(0, 1)
        x = ((x - self.mean) / self.std).to(next(tower.parameters()).dtype)
        return tower(x, output_hidden_states=True).hidden_states[self.layer][:, self.skip :]


class Tower(nn.Module):
    """The frozen vision tower of a base: of CLIP, SigLIP or DINOv2, or of a larger model, such as LLaVA, that has one.

    Never in training mode: features that are kept are those without dropout. Raises ValueError, in one line, for a
    base that is not there, has changed, has no such tower, or lacks some of its weights.
    """

    def __init__(self, name: str, revision: str = ""):
        super().__init__()
        from transformers import AutoImageProcessor, AutoModel

        base = Base(name, revision)
        settings = getattr(base.settings, "vision_config", base.settings)
        kind = getattr(settings, "model_type", type(settings).__name__)
        if kind not in TOWERS:
            raise ValueError(
                f"base {name} has a vision tower of type {kind}, or none; give a model whose tower is that of CLIP, "
                f"SigLIP or DINOv2 (types {', '.join(TOWERS)})"
            )
        self.revision = base.revision()
        processor = base.load(AutoImageProcessor)
        self.network, report = base.load(
            AutoModel,
            config=settings,
            dtype=base.dtype,
            use_safetensors=True,  # never a pickle
            key_mapping={r"^(model\.)?vision_tower\.(vision_model\.)?": ""},  # as LLaVA and its like name it
            output_loading_info=True,
        )
        if report["missing_keys"]:
            missing = sorted(report["missing_keys"])
            raise ValueError(f"base {name} lacks {len(missing)} of its tower's weights ({missing[0]}); give it whole")
        self.requires_grad_(False).eval()
        self.side = settings.image_size // settings.patch_size  # patches
        self.channels = settings.hidden_size  # V
        self.cells = min(self.side, GRID) ** 2  # T
        self.sight = Sight(settings.image_size, *normalisation(processor), LAYER, TOWERS[kind])

    def train(self, mode: bool = True) -> "Tower":
        """Stays as it is, whatever the mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """(U, T, V) in the tower's type, from images (U, C, S, S) in 0 to 1."""
        return torch.cat([self._cells(self.sight(self.network, part)) for part in images.split(AT_ONCE)])

    def _cells(self, tokens: Tensor) -> Tensor:
        """(U, T, V), the means of the cells' patches, from tokens (U, side², V).

        Before that, layer norm without weights: it brings all towers' features to one scale, and with them the few
        patches of very large norm that do not tell of their own place (Darcet et al. 2024).
        """
        patches = F.layer_norm(tokens.float(), tokens.shape[-1:]).transpose(1, 2).unflatten(2, (self.side, self.side))
        return F.adaptive_avg_pool2d(patches, min(self.side, GRID)).flatten(2).transpose(1, 2).to(tokens.dtype)


def normalisation(processor: Any) -> tuple[Sequence[float] | None, Sequence[float] | None]:
    """Mean and deviation of pixels by which an image processor normalises, None where it does not say."""
    return getattr(processor, "image_mean", None), getattr(processor, "image_std", None)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without transformers' bars, and its table of the weights that are not the tower's."""
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
