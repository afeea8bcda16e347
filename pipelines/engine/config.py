"""YAML and `key.path=value` words -> one frozen, strictly checked object.

Defaults < YAML < words. The resolved object is written into the run folder and is what later stages read.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import core_schema

from common.errors import UserError

Config = TypeVar("Config", bound="Section")


class Section(BaseModel):
    """A part of a config: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Choice:
    """The keys of a table as the values that a `str` field may have: `Annotated[str, Choice(TABLE)]`."""

    table: Collection[str]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.literal_schema(list(self.table))


class Training(Section):
    """How the one loop trains."""

    steps: int | None = Field(None, ge=1, description="optimizer updates; give this or epochs")
    epochs: float | None = Field(None, gt=0, description="passes over the training data; give this or steps")
    batch_size: int = Field(64, ge=1, description="examples per update, over all processes")
    micro_batch_size: int | Literal["auto"] = Field(
        "auto", description="examples per forward pass and process; auto: as many as memory holds"
    )
    learning_rate: float = Field(1e-3, gt=0, description="peak, after the warm-up")
    schedule: Literal["cosine", "constant"] = Field("cosine", description="course of the learning rate after warm-up")
    final_learning_rate: float = Field(0.0, ge=0, le=1, description="where cosine ends, as a share of the peak")
    warmup_steps: int = Field(0, ge=0, description="updates of linear rise to the peak")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's, on matrices only; 0 makes it Adam")
    betas: tuple[float, float] = Field((0.9, 0.999), description="AdamW's decay rates of the moments")
    clip_norm: float | None = Field(1.0, gt=0, description="largest gradient norm; null: no clipping")
    log_steps: int = Field(10, ge=1, description="updates between records in metrics.jsonl")
    validation_steps: int = Field(500, ge=1, description="updates between validations")
    checkpoint_steps: int = Field(500, ge=1, description="updates between checkpoints")
    keep_checkpoints: int = Field(3, ge=1, description="how many checkpoints stay on disk")
    patience: int | None = Field(None, ge=1, description="validations without improvement before stopping; null: never")

    @model_validator(mode="after")
    def _one_length(self) -> "Training":
        if (self.steps is None) == (self.epochs is None):
            raise ValueError(
                f"give one of training.steps and training.epochs and make the other null "
                f"(given steps: {self.steps}, epochs: {self.epochs})"
            )
        if isinstance(self.micro_batch_size, int) and self.micro_batch_size < 1:
            raise ValueError(f"training.micro_batch_size must be 1 or more, or auto (given {self.micro_batch_size})")
        return self


class Hardware(Section):
    """How the machine is used. Device, precision and process count are Accelerate's: `accelerate config`."""

    threads: int | None = Field(
        None, ge=1, description="CPU threads of each process; null: OMP_NUM_THREADS, or the cores shared by processes"
    )
    memory_fraction: float = Field(1.0, gt=0, le=1, description="share of GPU memory this process may take")
    cudnn_benchmark: bool = Field(True, description="let cuDNN time its kernels; for inputs of constant shape")
    tf32: bool = Field(True, description="TensorFloat-32 matrix products on GPUs that have it")
    compile: bool = Field(False, description="torch.compile the model: slower start, faster steps")
    deterministic: bool = Field(False, description="refuse GPU kernels whose result varies from run to run")
    gpu_log_interval: int = Field(10, ge=0, description="updates between readings of GPU figures; 0: never")
    gradient_checkpointing: bool = Field(False, description="recompute activations to save memory, if the model can")


class LoadedData(Section):
    """The data section of a workload whose examples may be more than the device holds."""

    loader: Literal["resident", "stream"] = Field(
        "resident",
        description="resident: the examples on the device; stream: batches from worker processes, loaded ahead",
    )

    @property
    def workers(self) -> int:
        """Processes that load ahead."""
        return 2 if self.loader == "stream" else 0


class Tracking(Section):
    """Experiment trackers beside metrics.jsonl."""

    log_with: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = Field((), description="trackers to feed")


class BaseConfig(Section):
    """What every workload's config has; a workload adds `data`, `model` and `evaluation`."""

    seed: int = Field(0, ge=0, description="of everything random")
    training: Training = Training(steps=1000)
    hardware: Hardware = Hardware()
    tracking: Tracking = Tracking()


def load(path: Path, cls: type[Config], words: Sequence[str] = ()) -> Config:
    """Read `path`, patch it with `key.path=value` words in order, and check the result against `cls`."""
    try:
        tree = yaml.safe_load(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read the config {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict | None):
        raise UserError(f"{path} must hold a mapping of sections, it holds {tree!r}")
    return build(cls, tree or {}, words, str(path))


def build(cls: type[Config], tree: dict[str, Any], words: Sequence[str], source: str) -> Config:
    """Patch the plain `tree` with `words` and check it; `source` names the tree in errors."""
    for word in words:
        _patch(tree, word)
    try:
        return cls.model_validate(tree)
    except ValidationError as error:
        problems: dict[str, tuple[list[str], str]] = {}
        for item in error.errors():
            key, message, given = _explain(cls, item)
            problems.setdefault(key, ([], given))[0].append(message)  # of a union, each member has its say
        lines = [f"  {key}{', or '.join(messages)}{given}" for key, (messages, given) in problems.items()]
        raise UserError("\n".join([f"config {source}:", *lines])) from error


def dump(config: Section) -> str:
    """The resolved config as YAML, defaults included."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)


def differences(old: Section, new: Section) -> list[str]:
    """`key: old -> new` for every dotted key whose value differs."""
    before, after = dict(leaves(old.model_dump(mode="json"))), dict(leaves(new.model_dump(mode="json")))
    keys = dict.fromkeys([*before, *after])
    return [f"{key}: {before.get(key)} -> {after.get(key)}" for key in keys if before.get(key) != after.get(key)]


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of a nested mapping."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _patch(tree: dict[str, Any], word: str) -> None:
    key, equals, text = word.partition("=")
    if not equals or not key:
        raise UserError(f"{word!r} is not of the form key.path=value, as in training.steps=100")
    *parents, leaf = key.split(".")
    node = tree
    for name in parents:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            raise UserError(f"{key}: {name!r} is a value, not a section (given {word!r})")
    try:
        node[leaf] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"{key}: {text!r} is not a YAML value; put it in quotes") from error


def _explain(cls: type[Section], item: Mapping[str, Any]) -> tuple[str, str, str]:
    """For one pydantic error: the dotted key, what is wrong and what to type, what was given."""
    known = list(_dotted(cls))
    # Pydantic appends the names of union members to the location; they are no keys.
    parts = [str(part) for part in item["loc"]]
    key = ".".join(parts)
    given = item["input"]
    if item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, known, 1, 0.5)
        siblings = [name for name in known if name.rpartition(".")[0] == ".".join(parts[:-1])]
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(siblings)}"
        return f"{key}: ", f"unknown key; {hint}", f" (given {given!r})"
    while parts and key not in known:
        parts.pop()
        key = ".".join(parts)
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "value_error":  # a rule across fields: its message names the keys and values itself
        return "", message, ""
    if isinstance(given, bool):
        message += "; YAML reads a bare yes, no, on or off as true or false: quote it"
    return f"{key}: ", message, f" (given {given!r})"


def _dotted(cls: type[Section], prefix: str = "") -> Iterator[str]:
    for name, field in cls.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from _dotted(field.annotation, f"{prefix}{name}.")
