"""Which of two images ranks higher, and what scores many such answers give."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from common.config import Section
from common.lazy import lazily
from pipelines.engine.config import BaseConfig, LoadedData, Training
from pipelines.engine.workload import Metric, Workload


class Data(LoadedData):
    """Which images, what they are ranked by, and which pairs of them are asked about."""

    source: str = Field(
        "digits",
        description="digits, photos (both embedded), a folder with a CSV of images and scores, or a CSV of pairs",
    )
    attribute: str | None = Field(None, description="what ranks higher has more of it; null: the source's")
    theta: float | None = Field(
        None, ge=0, description="scores that differ by no more are similar, on the source's scale; null: the source's"
    )
    folds: int = Field(5, ge=3, description="parts that groups of images are split into: one to test, one to validate")
    fold: int = Field(0, ge=0, description="which of the parts is the test")
    size: int = Field(32, ge=8, description="pixels a side that images are brought to")
    train_pairs: int = Field(15_000, ge=1, description="pairs to train on, of each answer")
    evaluation_pairs: int = Field(3_000, ge=1, description="pairs to validate on, and to test on, as frequent as found")
    degree: int = Field(200, ge=1, description="most training pairs that an image is in")
    photos_crops: int = Field(8, ge=1, description="crops of each photo, for the source photos")
    maximum_pixels: int = Field(50_000_000, ge=1, description="of an image file; a larger one is set aside undecoded")
    seed: int = Field(0, ge=0, description="seed of the split, the pairs and the embedded photos' distortions")

    layout: ClassVar[int] = 2

    def inputs(self) -> Sequence[Path]:
        """The files that the images come from; none for the embedded ones."""
        from pipelines.workloads.lmol import sources

        return sources.inputs(self.source)

    @model_validator(mode="after")
    def _fold_exists(self) -> "Data":
        if self.fold >= self.folds:
            raise ValueError(f"data.fold={self.fold} must be below data.folds={self.folds}; folds are counted from 0")
        return self


class Model(Section):
    """The comparator."""

    kind: Literal["siamese", "cross", "llava"] = Field(
        "siamese",
        description="siamese: small convolutional network; cross: attention between frozen features; "
        "llava: vision-language model",
    )
    width: int | None = Field(None, ge=4, description="channels; null: the kind's")
    layers: int | None = Field(None, ge=1, description="blocks; null: the kind's")
    heads: int | None = Field(None, ge=1, description="attention heads of cross and llava; null: the kind's")
    texture: bool | None = Field(
        None,
        description="siamese: judge by fine detail wherever it is, not by shapes; null: where the source is photos",
    )
    base: str | None = Field(
        None,
        description="folder or hub id; cross: of a CLIP, SigLIP or DINOv2, or of a model with such a vision tower, "
        "which makes the features, null: a dictionary of training images' patches; llava: of what adapters are trained "
        "on, or the model folder of a run, null: built from config",
    )
    preset: Literal["small", "llava-1.5-7b"] = Field(
        "small",
        description="llava without a base: a small model, or random weights of LLaVA-1.5-7B's sizes in bfloat16, with "
        "lora, by which speed and memory are measured without a download",
    )
    lora: bool = Field(False, description="llava: train adapters and the projector only, not the whole model")
    pool: bool | None = Field(
        None, description="llava: average each 2 x 2 of an image's tokens; null: as the base did, and if it is small"
    )
    four_bit: bool = Field(False, description="llava: the base's weights in 4 bits; needs bitsandbytes and CUDA")

    @model_validator(mode="after")
    def _only_what_the_kind_has(self) -> "Model":
        kinds = {
            "base": ("cross", "llava"),
            "lora": ("llava",),
            "pool": ("llava",),
            "four_bit": ("llava",),
            "heads": ("cross", "llava"),
            "texture": ("siamese",),
            "preset": ("llava",),
        }
        given = [name for name in kinds if getattr(self, name) and getattr(self, name) != "small"]
        given = [name for name in given if self.kind not in kinds[name]]
        if given:
            raise ValueError(
                f"model.{given[0]}={getattr(self, given[0])} does nothing for model.kind={self.kind}; leave it out, "
                f"or set model.kind={' or '.join(kinds[given[0]])}"
            )
        if self.kind == "llava" and self.base and not self.lora:
            raise ValueError(
                f"model.base={self.base} is what adapters are trained on; set model.lora=true too "
                "(or leave model.base out: a whole model is trained from random weights)"
            )
        whose = (
            "model.base" if self.kind == "llava" and self.base else "model.preset" if self.preset != "small" else None
        )
        if whose and (self.width or self.layers or self.heads):
            raise ValueError(f"model.width, model.layers and model.heads are those of {whose}; leave them out")
        return self


class ComparisonTraining(Training):
    """Cross-entropy over both orders of each pair, and what keeps them alike."""

    consistency: float = Field(
        1.0, ge=0, description="weight of the divergence, in nats, between the answers to both orders of a pair"
    )
    shift: int | None = Field(
        None,
        ge=0,
        description="training images are moved by up to so many pixels; null: 3, and 0 where features are frozen",
    )


class EvaluationSettings(Section):
    """How scores are made from answers."""

    comparisons: int = Field(32, ge=2, description="most reference images that an image is compared with for its score")


class Config(BaseConfig):
    """The workload's whole config."""

    data: Data = Data()
    model: Model = Model()
    training: ComparisonTraining = ComparisonTraining(steps=1000)
    evaluation: EvaluationSettings = EvaluationSettings()

    @property
    def frozen(self) -> bool:
        """Whether images are encoded once in a run, by what does not train."""
        return self.model.kind == "cross" or self.model.lora

    @property
    def texture(self) -> bool:
        """Whether it is judged by fine detail; training images are then turned and mirrored too."""
        given = self.model.texture
        return self.model.kind == "siamese" and (self.data.source == "photos" if given is None else given)

    @property
    def shift(self) -> int:
        """Largest shift of training images in pixels."""
        return (0 if self.frozen else 3) if self.training.shift is None else self.training.shift

    @model_validator(mode="after")
    def _shift_needs_pixels(self) -> "Config":
        if self.frozen and self.shift:
            raise ValueError(
                f"training.shift={self.training.shift} moves images, but with model.kind={self.model.kind} their "
                "features are computed once and kept; leave training.shift out"
            )
        return self


_package = "pipelines.workloads.lmol"
WORKLOAD = Workload(
    config=Config,
    prepare=lazily(f"{_package}.data:prepare"),
    task=lazily(f"{_package}.task:ComparisonTask"),
    evaluate=lazily(f"{_package}.evaluation:evaluate"),
    report=lazily(f"{_package}.report:sections"),
    # Not the loss: with few groups of images a model gets surer of its mistakes while its answers still get better.
    metric=Metric("val/accuracy", maximise=True),
)
