"""The config of the comparison workload: data, model, training and evaluation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from common.config import Section
from models.images import tower_size
from models.images.inputs import folded
from pipelines.engine.config import BaseConfig, LoadedData, Training


class Columns(Section):
    """Names of a table's columns; null: guessed from the usual names, and noted."""

    image: str | None = Field(None, description="column of image files, relative to the table's folder")
    score: str | None = Field(None, description="column of scores")
    group: str | None = Field(None, description="column of groups: images of a group stay together")
    first: str | None = Field(None, description="column of the first image of a pair")
    second: str | None = Field(None, description="column of the second image of a pair")
    score1: str | None = Field(None, description="column of the first image's score")
    score2: str | None = Field(None, description="column of the second image's score")
    label: str | None = Field(None, description="column of labels: First, Second or Similar")
    winner: str | None = Field(None, description="column of the image that was preferred")
    loser: str | None = Field(None, description="column of the image that was not preferred")
    tie: str | None = Field(None, description="column that is 1 where neither was preferred")
    rater: str | None = Field(None, description="column of raters; ratings of one image are averaged")
    std: str | None = Field(None, description="column of the standard deviation of an image's ratings")
    count: str | None = Field(None, description="column of the number of an image's ratings, or of equal answers")

    def given(self) -> dict[str, str]:
        """Return the columns that are named."""
        return {name: value for name, value in self if value is not None}


class Data(LoadedData):
    """Images, the scores that rank them, and the pairs drawn from them."""

    source: str = Field(
        "digits",
        description="digits or photos (both embedded), a folder of images with a CSV, a folder with a folder of images "
        "per rank, a CSV of scores, labelled pairs or choices, or parquet files with images in a column",
    )
    columns: Columns = Columns()
    attribute: str | None = Field(
        None, description="attribute to rank by: a column, or a name for scores; null: columns.score, else the source's"
    )
    attributes: tuple[Annotated[str, Field(pattern=r"^\w[\w -]*$")], ...] = Field(  # they name files
        (),
        exclude_if=lambda names: not names,  # so that data prepared before keep their folders
        description="several attributes for one siamese or scorer: columns of scores, or values of a column "
        "`attribute`; empty: one attribute",
    )
    theta: float | None = Field(None, ge=0, description="largest score difference called Similar; null: the source's")
    folds: int = Field(5, ge=3, description="parts that groups are split into: test, validation, and training parts")
    fold: int | Literal["all"] = Field(0, description="number of the test part, from 0; all: each in turn")
    size: int = Field(32, ge=8, le=4096, description="side of images in pixels; if not given, a tower's own, else 32")
    fit: Literal["crop", "pad", "stretch"] = Field("crop", description="how oblong images are made square")
    train_pairs: int = Field(15_000, ge=1, description="maximum number of training pairs of each answer")
    evaluation_pairs: int = Field(3_000, ge=1, description="maximum number of validation and of test pairs")
    degree: int = Field(200, ge=1, description="maximum number of training pairs that contain the same image")
    photos_crops: int = Field(8, ge=1, description="crops of each photo, if data.source is photos")
    maximum_pixels: int = Field(
        50_000_000,
        ge=1,
        le=178_956_970,  # beyond which Pillow opens no image
        description="maximum number of pixels of an image file; a larger one is set aside without being decoded",
    )
    seed: int = Field(0, ge=0, description="random seed of the split, the pairs and the degradation of embedded photos")

    layout: ClassVar[int] = 5

    def inputs(self) -> Sequence[Path]:
        """Return a user's source files; [] for embedded images."""
        from pipelines.workloads.lmol.sources.finding import files_of

        return files_of(self.source, self.columns.given(), self.attributes or self.attribute)

    @model_validator(mode="after")
    def _images_and_attributes_are_known(self) -> "Data":
        names, of_one = self.attributes, {"attribute": self.attribute, "source": self.source}
        of_one |= {"columns.score": self.columns.score, "columns.std": self.columns.std}
        for key, value in of_one.items() if names else ():
            if value and (key != "source" or value in ("digits", "photos")):
                other = "give a table of your own" if key == "source" else "leave it out"
                raise ValueError(f"data.{key}={value} gives one attribute; {other}, or leave data.attributes out")
        if len({folded(name) for name in names}) < len(names):  # they select the same rows and name the same files
            raise ValueError(f"data.attributes=[{','.join(names)}] names one twice; give each once")
        if self.fit != "crop" and self.source in ("digits", "photos"):
            raise ValueError(f"data.fit={self.fit} does nothing for {self.source}, which are squares; leave it out")
        if self.fold != "all" and not 0 <= self.fold < self.folds:
            raise ValueError(f"data.fold={self.fold} must be below data.folds={self.folds}; folds are counted from 0")
        return self


class Model(Section):
    """The comparator."""

    kind: Literal["siamese", "vlm", "scorer"] = Field(
        "siamese",
        description="siamese: a small convolutional network; vlm: a vision-language model; scorer: a network that sees "
        "one image",
    )
    width: int | None = Field(None, ge=4, description="channels; null: the default of the kind")
    layers: int | None = Field(None, ge=1, description="blocks; null: the default of the kind")
    heads: int | None = Field(None, ge=1, description="attention heads of vlm; null: the default of the kind")
    texture: bool | None = Field(None, description="siamese: judge by fine detail, not shapes; null: true for photos")
    base: str | None = Field(
        None,
        description="folder or hub id of a pretrained model; siamese: a vision model of transformers, or a model that "
        "contains one, or efficientnet-lite0 (of PyPI), which computes the features, null: convolutions that train; "
        "vlm: a model of transformers' AutoModelForImageTextToText, or the model folder of a run, that adapters are "
        "trained on, null: a LLaVA built from the config",
    )
    tune: Literal["none", "head", "last", "all"] | None = Field(
        None, description="tower blocks that train: none (none, head, null), the last ones, or all; lower ones slower"
    )
    preset: Literal["small", "llava-1.5-7b"] = Field(
        "small",
        description="vlm without a base: a small model, or random weights of LLaVA-1.5-7B's sizes in bfloat16 (needs "
        "lora), to measure speed and memory without a download",
    )
    lora: bool = Field(False, description="vlm: train adapters and the projector only instead of the whole model")
    lora_targets: tuple[str, ...] | None = Field(
        None,
        description="vlm: layers of the language model that get adapters, by name; null: those of q_proj, k_proj, "
        "v_proj and o_proj that it has",
    )
    lora_rank: int = Field(8, ge=1, le=1024, description="vlm: rank of the adapters")
    lora_alpha: float = Field(32.0, gt=0, description="vlm: adapters' outputs are multiplied by lora_alpha / lora_rank")
    lora_dropout: float = Field(0.05, ge=0, lt=1, description="vlm: share of the adapters' inputs that is dropped")
    prompt: str | None = Field(
        None,
        description="vlm: prompt with {question}, or a question of your own, and the base's image token twice; null: "
        "the base's chat template",
    )
    question: Literal["pairs", "levels", "both"] = Field(
        "pairs",
        description="vlm: pairs: which of two images ranks higher, so that a score takes many comparisons; levels: how "
        "one image is rated, from Bad to Excellent, so that a score takes one pass; both: trained on both",
    )
    attention: Literal["sdpa", "flash_attention_2", "eager"] = Field(
        "sdpa",
        description="vlm: implementation of attention in training, by transformers' names; flash_attention_2 needs "
        "CUDA and the package flash-attn; stored models use sdpa",
    )
    four_bit: bool = Field(False, description="vlm: keep the base's weights in 4 bits; needs bitsandbytes and CUDA")

    @model_validator(mode="after")
    def _only_what_the_kind_has(self) -> "Model":
        kinds = {"texture": ("siamese", "scorer"), "tune": ("siamese",), "base": ("siamese", "vlm")}
        of_vlm = "heads", "preset", "lora", "lora_targets", "prompt", "four_bit", "question", "attention"
        for name, having in (kinds | dict.fromkeys(of_vlm, ("vlm",))).items():
            if (value := getattr(self, name)) and value not in ("small", "pairs", "sdpa") and self.kind not in having:
                other = f"leave it out, or set model.kind={' or '.join(having)}"
                raise ValueError(f"model.{name}={value} does nothing for model.kind={self.kind}; {other}")
        if self.tune and not self.base:
            raise ValueError(f"model.tune={self.tune} needs a base with a tower; give a model.base, or leave it out")
        if self.kind == "siamese" and self.base and self.texture:
            raise ValueError(f"model.texture=true is another encoder than model.base={self.base}; leave one out")
        if self.kind == "vlm" and self.base and not self.lora:
            way = "set model.lora=true too (or leave model.base out to train a whole model from random weights)"
            raise ValueError(f"model.base={self.base} needs adapters to be trained on it; {way}")
        whose = "model.base" if self.kind == "vlm" and self.base else "model.preset" if self.preset != "small" else None
        if whose and (self.width or self.layers or self.heads):
            raise ValueError(f"model.width, model.layers and model.heads are fixed by {whose}; leave them out")
        return self


class ComparisonTraining(Training):
    """Cross-entropy over both orders of each pair, and a penalty on their disagreement."""

    consistency: float = Field(1.0, ge=0, description="weight of train/order_loss, how far a pair's two orders differ")
    shift: int | None = Field(None, ge=0, description="largest shift in pixels; null: 3; tower: 0, tuned size / 16")
    validation_pairs: int | None = Field(None, ge=1, description="pairs answered at each validation; null: all drawn")
    projector_rate: float = Field(
        1.0, gt=0, description="vlm with lora: learning rate of the projector, as a share of training.learning_rate"
    )


class EvaluationSettings(Section):
    """Scores made from answers."""

    comparisons: int = Field(32, ge=2, description="maximum number of references that an image is compared with")
    network_steps: int | None = Field(None, ge=0, description="single-image network's steps; null: training's; 0: none")


class Config(BaseConfig):
    """The workload's whole config."""

    data: Data = Data()
    model: Model = Model()
    training: ComparisonTraining = ComparisonTraining(steps=1000)
    evaluation: EvaluationSettings = EvaluationSettings()

    @property
    def frozen(self) -> bool:
        """True if images are encoded once in a run, because the encoder does not train."""
        return self.model.lora or (bool(self.tower) and not self.tuned)

    @property
    def tuned(self) -> bool:
        """True if blocks of a tower train; training images are then mirrored."""
        return self.model.tune in ("last", "all")

    @property
    def fine(self) -> bool:
        """True if a convolutional encoder judges images by fine detail."""
        return self.data.source == "photos" if self.model.texture is None else self.model.texture

    @property
    def texture(self) -> bool:
        """True if the model judges images by fine detail; training images are then also turned and mirrored."""
        return self.fine and (self.model.kind == "scorer" or (self.model.kind == "siamese" and not self.model.base))

    @property
    def shift(self) -> int:
        """The largest shift of training images in pixels."""
        usual = 0 if self.frozen else self.data.size // 16 if self.tuned else 3
        return usual if self.training.shift is None else self.training.shift

    @model_validator(mode="after")
    def _as_the_tower_sees(self) -> "Config":
        if self.tower and "size" not in self.data.model_fields_set and (side := tower_size.side(self.tower)):
            object.__setattr__(self, "data", self.data.model_copy(update={"size": side}))
        return self

    @property
    def tower(self) -> str:
        """The base whose vision tower computes features, if one does."""
        return (self.model.base or "") if self.model.kind == "siamese" else ""

    @model_validator(mode="after")
    def _training_fits_the_model(self) -> "Config":
        kind, names = self.model.kind, self.data.attributes
        if len(names) > 1 and kind == "vlm":
            raise ValueError(f"model.kind={kind} takes one attribute: give data.attributes=[{names[0]}], one per run")
        if self.training.projector_rate != 1 and not self.model.lora:
            way = "is for a projector that trains beside adapters; set model.lora=true, or leave it out"
            raise ValueError(f"training.projector_rate={self.training.projector_rate} {way}")
        if self.frozen and self.shift:
            once = f"with model.kind={self.model.kind} their features are computed only once"
            raise ValueError(f"training.shift={self.training.shift} moves images, but {once}; leave training.shift out")
        return self
