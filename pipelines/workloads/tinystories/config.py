"""The config of the workload: data, sizes of the network, training and evaluation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from common.config import Choice, Section
from common.errors import UserError
from models.stories import rp2040
from models.stories.config import PRESETS, TinyTransformerConfig
from pipelines.engine.config import BaseConfig, DataSection, Training

PARQUET, LINES = ".parquet", ".jsonl"
LISTS = (".csv", ".tsv", ".json", ".ndjson", LINES)  # files of rows; of a folder, only LINES are read
TEST_SPLITS = ("test", "validation")  # of a source; the first one that it has is held out in place of a tenth


class Data(DataSection):
    """The stories, and how they are split and tokenized."""

    layout: ClassVar[int] = 4  # 4: tokens in the stream alone

    source: str | None = Field(
        None,
        description="a file or folder of .txt, .jsonl or .parquet, a .csv or .json, a saved dataset, or a Hugging Face "
        "dataset id; null: the embedded generator",
    )
    percent: int = Field(100, ge=1, le=100, description="percent of the stories to use; 20 contains the stories of 10")
    vocabulary: int = Field(512, ge=4, description="number of tokens of the tokenizer; taken from the model")
    base: str | None = Field(None, description="trained model whose tokens are used; taken from the model")
    seed: int = Field(0, ge=0, description="seed of the embedded stories and of the split")
    test_stories: int = Field(1000, ge=1, description="most stories to hold out; at most a tenth of all")
    validation_stories: int = Field(2000, ge=1, description="most stories to validate on; at most a twentieth of all")
    generated_characters: int = Field(4_400_000, ge=10_000, description="total characters of the embedded stories")
    passage_characters: int = Field(2000, ge=100, description="largest length of the passages that a book is cut into")

    def inputs(self) -> Sequence[Path]:
        """The files that the stories and their tokens come from."""
        bases = [Path(self.base, name, "config.json") for name in ("", "model/best")] if self.base else []
        return [*self.texts(), *(path for path in bases if path.is_file())]

    def texts(self) -> list[Path]:
        """The files of `source`; none for the generator, a dataset id or a missing source."""
        return [] if self.source is None else [file for files in source_files(self.source) for file in files]


def source_files(source: str) -> tuple[list[Path], list[Path]]:
    """Return the files behind `source`: itself, a saved dataset's Arrow files, or those of a folder; and of its test.

    Of a folder they are the .txt and .jsonl files directly in it and the Parquet files anywhere below, of which only
    those named train count if there are such; those named test or, without any, validation are its test split.
    """
    path = Path(source)
    if is_dataset(path):
        return sorted(path.rglob("*.arrow")), []
    if not path.is_dir():
        return [path] if path.is_file() else [], []
    tables = sorted(file for file in path.rglob(f"*{PARQUET}") if file.is_file())
    named = {split: [file for file in tables if file.name.startswith(split)] for split in ("train", *TEST_SPLITS)}
    there = sorted(file for file in path.iterdir() if file.is_file())
    own = ([file for file in there if file.suffix.lower() == suffix] for suffix in (".txt", LINES))
    test = next((named[split] for split in TEST_SPLITS if 0 < len(named[split]) < len(tables)), [])
    return [*(file for files in own for file in files), *(named["train"] or tables)], test


def is_dataset(path: Path) -> bool:
    """Whether a folder is a dataset that the library `datasets` saved."""
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


class Model(Section):
    """Sizes of the network: a preset, and keys that override it."""

    base: str | None = Field(
        None,
        description="model to start from, such as models/pretrained/tinystories-real or runs/tinystories/default, with "
        "its tokens, sizes and weights",
    )
    preset: Annotated[str, Choice(PRESETS)] = Field("rp2040-story", description="sizes; the keys below override them")
    flash_megabytes: Literal[2, 4, 8, 16] = Field(2, description="flash of the board: 2 on a Raspberry Pi Pico")
    vocabulary: int | None = Field(None, ge=4, description="most tokens; a short text yields fewer; null: the preset's")
    width: int | None = Field(None, ge=4, description="channels of the residual stream; null: the preset's")
    layers: int | None = Field(None, ge=1, description="number of transformer blocks; null: the preset's")
    heads: int | None = Field(None, ge=1, description="attention heads per block; null: the preset's")
    hidden: int | None = Field(None, ge=4, description="channels of the feed-forward layer; null: the preset's")
    context: int | None = Field(None, ge=2, description="attention window in tokens; null: the preset's")
    memory: tuple[int, ...] | None = Field(
        None, description="rows of the tables of bigrams, trigrams, ... in flash, powers of two; null: the preset's"
    )
    counts: int = Field(0, ge=0, description="counted n-grams in flash that are mixed into the predictions; 0: none")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of activations that are dropped in training")

    @model_validator(mode="after")
    def _fits_the_chip(self) -> "Model":
        if self.base is None:
            rp2040.check(self.resolved())
            return self
        for name, field in type(self).model_fields.items():
            if name not in ("base", "dropout") and (given := getattr(self, name)) != field.default:
                raise ValueError(f"model.base={self.base} has sizes of its own; leave out model.{name}={given}")
        return self

    def resolved(self, tokenizer: dict[str, object] | None = None) -> TinyTransformerConfig:
        """Return the network's config without a base: the preset with its overrides."""
        given = self.model_dump(exclude={"base", "preset"}, exclude_none=True)
        return TinyTransformerConfig(**{**vars(PRESETS[self.preset]), **given, "tokenizer": tokenizer or {}})


class StoriesTraining(Training):
    """Language modelling on packed sequences."""

    sequence: int | None = Field(None, ge=8, description="tokens per training example; null: twice the context")


class EvaluationSettings(Section):
    """Measurements on the held-out stories, and stories told by the model."""

    samples: int = Field(8, ge=1, description="number of stories to tell")
    sample_tokens: int = Field(200, ge=1, le=10_000, description="largest number of tokens of a told story")
    temperature: float = Field(0.6, ge=0, le=100, description="sampling temperature of the told stories; 0: greedy")
    top_k: int = Field(40, ge=0, description="number of likeliest tokens that are sampled from; 0: all tokens")
    heard: int = Field(200, ge=1, description="stories told from held-out beginnings and judged by their words")
    heard_tokens: int = Field(150, ge=1, le=10_000, description="most tokens of such a story after its beginning")
    prompts: tuple[str, ...] = Field(("",), min_length=1, description="beginnings of the told stories, used in turn")


class Config(BaseConfig):
    """Config of the workload."""

    data: Data = Data()
    model: Model = Model()
    training: StoriesTraining = StoriesTraining(steps=1000)
    evaluation: EvaluationSettings = EvaluationSettings()

    @model_validator(mode="after")
    def _one_vocabulary(self) -> "Config":
        """Copy the model's vocabulary, or base, into the data section, on which alone prepared data depend."""
        given, base = self.data.vocabulary, self.model.base
        if self.data.base not in (None, base):
            raise ValueError(f"data.base={self.data.base} is not model.base={base}; leave it out")
        if base is not None:
            if given != type(self.data).model_fields["vocabulary"].default:
                raise ValueError(f"model.base={base} has tokens of its own; leave out data.vocabulary={given}")
            object.__setattr__(self, "data", self.data.model_copy(update={"base": base}))
            return self
        vocabulary = self.model.resolved().vocabulary
        if "vocabulary" in self.data.model_fields_set and given != vocabulary:
            way = "set model.vocabulary (neither can change in an existing run: train under another --name)"
            raise ValueError(f"data.vocabulary={given} is not the model's {vocabulary}; leave it out and {way}")
        object.__setattr__(self, "data", self.data.model_copy(update={"vocabulary": vocabulary}))
        self.sequence(self.model.resolved().context)  # an error unless it holds the context twice
        return self

    def sequence(self, context: int) -> int:
        """Return the tokens per training example. Raises UserError if they do not hold the context twice."""
        sequence = self.training.sequence or 2 * context
        if sequence < 2 * context or sequence % 2:
            wanted = f"even and at least twice the context (model.context={context})"
            raise UserError(f"training.sequence={sequence} must be {wanted}; give {2 * context} or more")
        return sequence
