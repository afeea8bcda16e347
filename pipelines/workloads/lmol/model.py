"""The comparator of a config, built for prepared images."""

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

from common.config.mistakes import nearest
from common.errors import UserError, as_user_error
from models import hub, io
from models.images import efficientnet, reliability
from models.images.comparator import build
from models.images.comparator.interface import Comparator
from models.images.comparator.scorer import Scorer
from models.images.comparator.siamese import TowerSiamese
from models.images.regressions import MOST_IMAGES
from pipelines.run.folder import Run
from pipelines.workloads.lmol import data
from pipelines.workloads.lmol.config import Config

MOST_LEVELS = 20  # distinct scores up to which predictors may classify images by score


def make_model(config: Config, comparisons: data.Comparisons, *others: data.Comparisons) -> Comparator:
    """Return the config's comparator for these images, with the references by which it scores others.

    With `others`, the same images by further attributes, one comparator serves all attributes.
    """
    model, question = config.model, _question(config, comparisons)
    if model.base:
        _check_named(model.base, model.kind)
    with as_user_error("model: "):
        if model.kind == "vlm":
            built: Comparator = _vlm(config, question)
        else:
            each = [_sizes(config, found, model.kind) for found in (comparisons, *others)]
            built = build({"attributes": each} if others else each[0])
    for view, found in zip(built.views.values(), (comparisons, *others), strict=True):
        check_unseen(model.base, found)
        references = found.references[: view.config.references]  # a scorer has none
        view.reference_images.copy_(torch.from_numpy(found.images[references]).movedim(-1, 1))
        view.reference_scores.copy_(torch.from_numpy(found.scores[references]))
        view.prior.copy_(prior(found))
        if isinstance(view, TowerSiamese) and view.config.levels:
            view.levels.copy_(view.prior.unique())
    return built


def _sizes(config: Config, comparisons: data.Comparisons, kind: str) -> dict[str, object]:
    """Return the fields of `models.images.comparator.config.ComparatorConfig` of a siamese comparator or a scorer."""
    model, question = config.model, {"kind": kind, **_question(config, comparisons)}
    if kind == "scorer" or not model.base:
        return {**question, **_convolutional(config, comparisons), **({"references": 0} if kind == "scorer" else {})}
    sizes = {"layers": 2, "base": model.base, "tune": model.tune or "head", **_given(config)}
    sizes["supports"] = min(len(comparisons.parts["train"]), MOST_IMAGES)
    different = len(prior(comparisons).unique())
    return {**sizes, "levels": different if different <= MOST_LEVELS else 0, **question}


def _check_named(base: str, kind: str) -> None:
    """Raise UserError for a base that is neither a folder nor a possible id on the hub."""
    if base == efficientnet.NAME or os.path.exists(base) or hub.NAME.fullmatch(base):
        return
    known = {efficientnet.NAME: efficientnet.NAME}
    if kind == "vlm":  # its base may be a run's model
        runs = [Run("lmol", name) for name in Run("lmol", "any").names()]
        known = {word: str(run.best) for run in runs if run.best.is_dir() for word in (run.name, str(run.best))}
    found = nearest(base, known, 3) or list(known)[:6]
    near = " or ".join(dict.fromkeys(f"model.base={known[word]}" for word in found))
    way = f"did you mean {near}?" if near else "give the folder of a model, such as runs/lmol/NAME/model/best"
    raise UserError(f"model.base={base}: there is no such folder, and names on the hub are owner/name; {way}")


def check_unseen(base: str | None, comparisons: data.Comparisons) -> None:
    """Raise UserError for a base trained on images of validation or test here, as its stored references show."""
    if not base or not (Path(base) / io.WEIGHTS).is_file():
        return
    with safe_open(Path(base) / io.WEIGHTS, "numpy") as stored:
        if "reference_images" not in stored.keys():  # noqa: SIM118, as it is no dict
            return
        trained = {image.tobytes() for image in np.moveaxis(stored.get_tensor("reference_images"), 1, -1)}
    for part in ("validation", "test"):
        seen = next((row for row in comparisons.parts[part] if comparisons.images[row].tobytes() in trained), None)
        if seen is not None:
            saw = f"model.base={base} was trained on {comparisons.names[seen]}, an image of the {part} part here"
            way = "train it on the same data section (data.source, data.seed, data.folds and data.fold)"
            raise UserError(f"{saw}; {way}")


def scorer_for(config: Config, comparisons: data.Comparisons) -> Scorer:
    """Return an untrained scorer with the encoder of a siamese comparator for these images."""
    found = build(_sizes(config, comparisons, "scorer"))
    assert isinstance(found, Scorer)
    found.prior.copy_(prior(comparisons))
    return found


def prior(comparisons: data.Comparisons) -> torch.Tensor:
    """Return quantiles of the training images' scores, on the user's scale."""
    scores = torch.from_numpy(comparisons.scores[comparisons.parts["train"]])
    return reliability.quantiles(scores.double() * comparisons.unit)


def _question(config: Config, comparisons: data.Comparisons) -> dict[str, object]:
    """Return the fields of `models.images.comparator.config.Question`."""
    return {
        "size": comparisons.images.shape[1],
        "fit": config.data.fit,
        "channels": comparisons.images.shape[3],
        "attribute": comparisons.attribute,
        "theta": comparisons.theta,
        "unit": float(comparisons.unit),
        "references": len(comparisons.references),
    }


def _given(config: Config) -> dict[str, int]:
    return {name: value for name in ("width", "layers", "heads") if (value := getattr(config.model, name))}


def _convolutional(config: Config, comparisons: data.Comparisons) -> dict[str, object]:
    """Return the sizes of a siamese comparator's encoder, which the scorer has too."""
    own, size = config.model.kind in ("siamese", "scorer"), comparisons.images.shape[1]
    # An encoder that judges by shapes halves the sides down to about four pixels.
    halvings = max(1, (size // 4).bit_length() - 1)
    sizes = {"texture": True, "layers": 2, "width": 24} if config.fine else {"layers": halvings}
    if not own and size % 2**halvings:
        sizes = {"texture": True, "layers": 2}  # takes images of any size
    return {**sizes, **(_given(config) if own else {})}


def _vlm(config: Config, question: Mapping[str, object]) -> Comparator:
    from models.images import vlm_comparator
    from models.images.vlm_comparator.config import VlmComparatorConfig

    known = {each.name for each in fields(VlmComparatorConfig)}
    choices = {name: value for name, value in config.model if name in known and value is not None}
    built = vlm_comparator.build({**question, **choices, "seed": config.seed})
    built.attention = config.model.attention
    return built
