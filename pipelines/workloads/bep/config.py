"""Config of the workload: the documents, the model, its training and its evaluation."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from common.config import Section
from common.errors import as_user_error
from pipelines.engine.config import BaseConfig, LoadedData, Training
from pipelines.workloads.bep.documents import sources


class Data(LoadedData):
    """The documents, and how they are cleaned and divided."""

    sources: str | None = Field(None, description="folder of documents, or one document; null: the embedded ones")
    skip_bad: bool = Field(False, description="leave out files that cannot be read instead of stopping")
    mask: bool = Field(True, description="mask e-mail addresses, telephone and account numbers, URLs, paths, secrets")
    mask_names: bool = Field(
        True,
        description="mask persons, clients, sites, projects and postal addresses in your documents; the embedded ones "
        "name nobody",
    )
    reviewed: str | None = Field(None, description="copy of `prepare`'s masked.csv with decisions to keep or to add")
    projects: str | None = Field(
        None,
        description="which project or client a document belongs to: 'folder', its first folder; a regular expression "
        "for its path, whose first group is the project; null: a project number in its name, if there is one",
    )
    labels: Literal["file", "project", "hidden"] = Field(
        "file", description="name of a source in suggestions: its file, its project with a number, or only a number"
    )
    lower_case: bool = Field(False, description="lower-case all text, for a smaller vocabulary")
    duplicates: float = Field(0.8, gt=0, le=1, description="lowest Jaccard similarity of versions, which form a family")
    validation: float = Field(0.1, gt=0, lt=0.5, description="share of the characters to choose the best model by")
    test: float = Field(0.1, ge=0, lt=0.5, description="share of the characters to only test on; 0: none")
    hold_out: bool | None = Field(
        None,
        description="hold text out of training; null: with fewer than 5 families of documents, train on all of the "
        "text, and evaluate by leaving out each document in turn, with its versions",
    )
    maximum_bytes: int = Field(50_000_000, ge=1, description="largest size of an expanded source file in bytes")
    seed: int = Field(0, ge=0, description="seed of the split")

    def inputs(self) -> Sequence[Path]:
        """Return the documents that can be read, skipped ones included, and the reviewed table."""
        return [*sources.readable(self.sources), *([Path(self.reviewed)] if self.reviewed else [])]

    @field_validator("projects")
    @classmethod
    def _is_a_pattern(cls, projects: str | None) -> str | None:
        with as_user_error(f"data.projects={projects} is no regular expression: ", of=re.error):
            re.compile(projects or "")
        return projects


class Model(Section):
    """Sizes of the network: a preset, and keys that override it."""

    kind: Literal["mixture", "lstm"] = Field("mixture", description="mixture: LSTM and counted contexts; lstm: alone")
    base: str | None = Field(None, description="a run to start from, as runs/bep/default: its counts, LSTM and sizes")
    preset: Literal["default", "wide"] = Field("default", description="wide: 384 units; default: 256")
    context_rows: int = Field(2_000_000, ge=1, description="largest number of contexts that a mixture stores")
    min_documents: int = Field(
        1,
        ge=1,
        description="training documents that must share a context and what follows it for a mixture to count it; "
        "2 keeps the text of single documents and their versions out of the counts, but not out of model.base's",
    )
    mixing_places: int = Field(90_000, ge=1, description="most places of training text to fit a mixture's weights to")
    stored_characters: int = Field(10_000_000, ge=0, description="most characters stored for suggestions; 0: none")
    width: int | None = Field(None, ge=1, description="units per LSTM layer; null: the preset's")
    layers: int | None = Field(None, ge=1, description="LSTM layers; null: the preset's")
    embedding: int | None = Field(None, ge=1, description="channels of a character's embedding; null: the preset's")
    dropout: float | None = Field(None, ge=0, lt=1, description="share of activations to drop; null: the preset's")

    @model_validator(mode="after")
    def _a_base_has_its_sizes(self) -> "Model":
        given = [name for name in ("width", "layers", "embedding") if getattr(self, name) is not None]
        if self.base is not None and (given or self.kind != "mixture"):
            wrong = f"model.{given[0]}={getattr(self, given[0])}" if given else f"model.kind={self.kind}"
            raise ValueError(f"model.base={self.base} is a mixture with sizes of its own; leave out {wrong}")
        return self

    def sizes(self) -> dict[str, str | int | float]:
        """Return the part of the network's config that does not depend on the data: the preset with its overrides."""
        from models.plans.char_lstm import PRESETS

        names = ("width", "layers", "embedding", "dropout")
        return {**PRESETS[self.preset], **{name: value for name in names if (value := getattr(self, name)) is not None}}


class CharTraining(
    Training,
    defaults={"batch_size": 512, "schedule": "constant", "weight_decay": 0.0, "clip_norm": 5.0, "patience": 20},
):
    """Truncated back-propagation through time over examples from anywhere; the defaults are the original's."""

    sequence: int = Field(100, ge=1, description="characters that gradients are propagated back through")
    carry: int = Field(2, ge=1, description="sequences per example; the state is carried from one to the next")
    step: int = Field(3, ge=1, description="characters between the beginnings of examples")
    unknown: float = Field(0.001, ge=0, lt=1, description="share of characters that training replaces by <unk>")


class EvaluationSettings(Section):
    """Measurements on the held-out documents."""

    typed: int = Field(1000, ge=0, description="held-out characters that a simulated typist types with suggestions")
    clauses: int = Field(120, ge=0, description="clauses of a document to look for in other projects' plans; 0: none")


class Config(BaseConfig):
    """Config of the workload."""

    data: Data = Data()
    model: Model = Model()
    training: CharTraining = CharTraining(epochs=50)
    evaluation: EvaluationSettings = EvaluationSettings()
