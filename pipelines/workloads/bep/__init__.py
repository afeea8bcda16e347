"""A character LSTM that completes BIM Execution Plans in a firm's own language."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from common.config import Section
from common.lazy import lazily
from models.char_lstm import PRESETS
from pipelines.engine.config import BaseConfig, LoadedData, Training
from pipelines.engine.workload import Metric, Workload


class Data(LoadedData):
    """Which documents, and how they become text."""

    sources: str | None = Field(
        None, description="a folder of txt, md, docx and pdf files, or one such file; null: the embedded documents"
    )
    skip_bad: bool = Field(False, description="go on without files that cannot be read")
    mask: bool = Field(True, description="mask e-mail addresses, telephone numbers and URLs")
    lower_case: bool = Field(False, description="lower-case all text: a smaller vocabulary")
    duplicates: float = Field(
        0.8, gt=0, le=1, description="Jaccard similarity from which documents are one family, never split"
    )
    validation: float = Field(0.1, gt=0, lt=0.5, description="share of the characters that picks the best model")
    test: float = Field(0.1, ge=0, lt=0.5, description="share of the characters that nothing is picked by; 0: none")
    maximum_overlap: float = Field(
        0.01, ge=0, le=1, description="largest share of held-out spans of 50 characters that training may contain"
    )
    force: bool = Field(False, description="prepare in spite of a larger overlap")
    guard: int = Field(100, ge=0, description="characters left out between the blocks of a single document")
    maximum_bytes: int = Field(50_000_000, ge=1, description="largest size of a source file once expanded")
    seed: int = Field(0, ge=0, description="seed of the split")

    def inputs(self) -> Sequence[Path]:
        """The documents that can be read, those that were skipped among them."""
        from pipelines.workloads.bep import data

        return data.inputs(self)


class Model(Section):
    """Sizes by name; the other keys override it."""

    preset: Literal["legacy", "default"] = Field(
        "default", description="legacy: scalar input and a loss on the last step only, for comparison"
    )
    width: int | None = Field(None, ge=1, description="units of a layer; null: the preset's")
    layers: int | None = Field(None, ge=1, description="LSTM layers; null: the preset's")
    embedding: int | None = Field(None, ge=1, description="channels of a character; null: the preset's")
    dropout: float | None = Field(None, ge=0, lt=1, description="share dropped in training; null: the preset's")

    @model_validator(mode="after")
    def _legacy_has_no_embedding(self) -> "Model":
        if self.preset == "legacy" and self.embedding is not None:
            raise ValueError(
                f"model.embedding={self.embedding}: model.preset=legacy reads a scalar and has none; leave it out"
            )
        return self

    def sizes(self) -> dict[str, str | int | float]:
        """The network's config but for what the data decide, preset and overrides together."""
        names = ("width", "layers", "embedding", "dropout")
        return {**PRESETS[self.preset], **{name: value for name in names if (value := getattr(self, name)) is not None}}


class CharTraining(
    Training,
    defaults={"batch_size": 512, "schedule": "constant", "weight_decay": 0.0, "clip_norm": 5.0, "patience": 20},
):
    """Truncated back-propagation over examples that begin anywhere; the defaults are the original's."""

    sequence: int = Field(100, ge=1, description="characters that a gradient goes back")
    carry: int = Field(
        2, ge=1, description="sequences of an example, the state carried from one to the next; legacy has one"
    )
    step: int = Field(3, ge=1, description="characters between the beginnings of examples")
    unknown: float = Field(
        0.001, ge=0, lt=1, description="share of characters learnt as <unk>, of which training text has none by itself"
    )


class EvaluationSettings(Section):
    """What is measured on the held-out documents, and what is written."""

    starts: int = Field(512, ge=1, description="places at random from which the loss is measured by position")
    characters: int = Field(200, ge=1, description="largest length of a field's completion")
    temperatures: tuple[float, ...] = Field((0.5, 0.8), min_length=1, description="of the completions; 0: greedy")


class Config(BaseConfig):
    """The workload's whole config."""

    data: Data = Data()
    model: Model = Model()
    training: CharTraining = CharTraining(epochs=50)
    evaluation: EvaluationSettings = EvaluationSettings()

    @property
    def legacy(self) -> bool:
        """Whether the loss is that of each window's last step alone."""
        return self.model.preset == "legacy"


_package = "pipelines.workloads.bep"
WORKLOAD = Workload(
    config=Config,
    prepare=lazily(f"{_package}.data:prepare"),
    task=lazily(f"{_package}.task:CharTask"),
    evaluate=lazily(f"{_package}.evaluation:evaluate"),
    report=lazily(f"{_package}.report:sections"),
    metric=Metric("val/bits_per_character"),
)
