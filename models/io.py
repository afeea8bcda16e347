"""Models on disk: a folder with `config.json` and `model.safetensors`, which `load` turns back into a model.

A family of models is a class MODULE:CLASS that FAMILIES names, which takes the dataclass that its `config` is annotated
with, or a MODULE whose `build(config: dict) -> Model` raises ValueError for a config with unknown keys or wrong values.
It is imported when one of its models is loaded. Code outside this package adds families of its own to FAMILIES. Beyond
the interface of `Model`, a model may have

    save_beside(folder)   writes further files that users need and returns their names
    load_beside(folder)   reads such files
    evaluated_whole       the reason why each process of an evaluation needs all weights, though training splits layers
    unmergeable           the reason why `save_merged` cannot run, or None
    save_merged(folder)   writes the base model with the adapters merged in, and returns the names of the files and the
                          largest difference this makes to outputs; the model cannot be used afterwards

Nothing here is pickled, so loading a folder from a stranger does not run the stranger's code.
"""

import hashlib
import importlib
import json
import math
import reprlib
import typing
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pydantic
import safetensors.torch
import torch
from torch import Tensor, nn

from common import safetensors_bytes
from common.config.mistakes import nearest
from common.disk.files import write_whole
from common.errors import as_user_error
from common.foreign_text import printable
from common.packages import missing
from models import hub, loading_limits
from models.model import Model as Model

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# family -> its class, or the module that builds its models
FAMILIES = {
    "routing": "models.routing.policy:RoutingPolicy",
    "tiny_transformer": "models.stories.tiny_transformer:TinyTransformer",
    "comparator": "models.images.comparator",
    "vlm_comparator": "models.images.vlm_comparator",
    "cnn_lstm": "models.market.cnn_lstm:CNNLSTM",
    "pooled_experts": "models.market.pooled_experts:PooledExperts",
    "char_lstm": "models.plans.char_lstm:CharLSTM",
    "char_mixture": "models.plans.char_mixture:CharMixture",
}
CONFIG, WEIGHTS = "config.json", "model.safetensors"
PLAIN = (bool, int, float, str)
FLOATS = {torch.float64, torch.float32, torch.bfloat16, torch.float16}  # that a model can be saved in
MOST_CONFIG, DEEPEST = 2**23, 64  # bytes of a config, which may hold a tokenizer, and its levels
COPY_AGAIN = "; copy it again from where it was saved"
SHOWN = 400  # characters of a file's text that an error shows

Config = TypeVar("Config", bound="DataclassInstance")


def save(
    model: Model,
    folder: str | Path,
    metadata: Mapping[str, str] | None = None,
    state: Mapping[str, Tensor] | None = None,
    write: bool = True,
) -> None:
    """Write the model's config and weights, replacing each file as a whole; equal models give equal bytes.

    `metadata` goes into the header of the weights, and the config, so that a save killed between the two files leaves
    a valid pair, or one that `load` refuses. `state` holds the weights by name if the model itself has only a part of
    them or trains on meanwhile. Weights that are split over processes are gathered one by one: all processes call this,
    and one has `write`.
    """
    folder = Path(folder)
    config = {"family": model.family, "config": asdict(model.config)}
    # A tensor with several names (tied embeddings) is stored once; `load` ties the names again.
    tensors: dict[int, tuple[str, Tensor]] = {}
    # The weights of a model that trains on meanwhile are not to be touched: asking a sharded one for them splits them.
    for name, tensor in (model.state_dict(keep_vars=True) if state is None else state).items():
        tensors.setdefault(id(tensor), (name, tensor))
    header = {"format": "pt", **(metadata or {}), "model": json.dumps(config, sort_keys=True)}
    pieces = safetensors_bytes.pieces(dict(tensors.values()), header)
    try:
        if write:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / WEIGHTS, more=pieces)
    finally:
        for _ in pieces:
            pass  # the rest is gathered, as the other processes do
    if write:
        write_whole(folder / CONFIG, (json.dumps(config, indent=2) + "\n").encode())


def load(folder: str | Path, device: str | torch.device = "cpu", revision: str | None = None) -> Model:
    """The model that `save` wrote, bit for bit, in eval mode; "owner/name" is one on the hub (`hub.located`).

    Raises ValueError, in one line, for a missing or damaged file, an unknown family or config key, weights that do not
    belong to the config, and weights that are not finite; nothing in the folder makes it raise anything else, or take
    more time and memory than its weights are worth. The state of torch's random number generators stays as it was.
    """
    stated = described(folder := hub.located(folder, (CONFIG, WEIGHTS), revision))
    try:
        build = builder_of(stated["family"])
    except ModuleNotFoundError as error:
        raise ValueError(f"{folder}: {missing(error) or error}") from error
    tensors, metadata = stored_weights(folder / WEIGHTS)
    if (saved_with := metadata.get("model")) not in (None, json.dumps(stated, sort_keys=True)):
        other = f"was saved with another config than the {CONFIG} in its folder ({printable(saved_with, SHOWN)})"
        raise ValueError(f"{folder / WEIGHTS} {other}; copy both files again, or save the model again")
    with torch.random.fork_rng(devices=[]):  # building draws random weights, which are replaced afterwards
        try:
            with loading_limits.Limit(list(tensors.values())):
                model = build(stated["config"])
        except Exception as error:  # a wrong config may raise anything in the family and the libraries that it uses
            if isinstance(error, ModuleNotFoundError) and (lacking := missing(error)):
                raise ValueError(f"{folder}: {lacking}") from error
            kind = "" if isinstance(error, ValueError) else f"no model can be built from it, {type(error).__name__}: "
            raise ValueError(f"{folder / CONFIG}: {kind}{printable(str(error), 4 * SHOWN)}") from error
    fill(model, model.renewed(tensors) if isinstance(model, Model) else tensors, folder)
    with as_user_error(f"{folder / WEIGHTS}: ", COPY_AGAIN):
        model.check()
    getattr(model, "load_beside", lambda folder: None)(folder)
    return model.to(device).eval()


def config_from(cls: type[Config], values: Mapping[str, object]) -> Config:
    """The config dataclass `cls` from parsed JSON; ValueError names an unknown key or a value of the wrong type."""
    known = typing.get_type_hints(cls)
    for key, value in values.items():
        if key not in known:
            near = nearest(key[:SHOWN], known)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
            raise ValueError(f"unknown config key {key!r}; {hint}")
        try:  # strictly: values of JSON are not converted, except int to float
            pydantic.TypeAdapter[object](known[key]).validate_json(json.dumps(value), strict=True)
        except pydantic.ValidationError:
            wanted = known[key].__name__ if known[key] in PLAIN else known[key]
            raise ValueError(f"config key {key!r} is {reprlib.repr(value)}; it must be of type {wanted}") from None
    for field in fields(cls):
        if field.default is MISSING and field.default_factory is MISSING and field.name not in values:
            raise ValueError(f"the config lacks the key {field.name!r}")
    return cls(**values)


def described(folder: Path) -> dict[str, Any]:
    """Return the parsed config.json, which has a family and a config. Raises ValueError if it is missing or wrong."""
    path = folder / CONFIG
    absent = f"no model in {folder}: there is no {CONFIG}; a trained run keeps its model in RUN/model/best"
    data = _read(path, absent, MOST_CONFIG + 1)
    with as_user_error(f"{path} is not JSON (", f"){COPY_AGAIN}", (ValueError, RecursionError)):
        found = _json(data)
    if not (isinstance(found, dict) and found.keys() == {"family", "config"} and type(found["config"]) is dict):
        wanted = '{"family": "...", "config": {...}}'
        raise ValueError(f"{path} must be {wanted}{COPY_AGAIN}")
    name = found["family"]
    if name not in list(FAMILIES):  # a list, since a value from a file may not be hashable
        name = printable(str(name), SHOWN)
        own = "if it is your own, import its package first, or give an exporter its folder: --workload FOLDER"
        raise ValueError(f"{path}: unknown family {name!r}; known families: {', '.join(FAMILIES)}; {own}")
    return found


def _read(path: Path, absent: str, most: int = -1) -> bytes:
    """The first `most` bytes of a file, or all; ValueError with the text `absent` if there is no such file."""
    with as_user_error(f"{path} cannot be read (", ")", (OSError, MemoryError)):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(most)
    raise ValueError(absent)


def _json(data: bytes) -> object:
    """Parse JSON as a config has it: finite numbers, whole ones of 64 bits, and a size and depth within reason."""

    def number(text: str) -> float:
        if not math.isfinite(value := float(text)):
            raise ValueError(f"{printable(text, SHOWN)} is not a finite number")
        return value

    def whole(text: str) -> int:
        if len(text) > 20 or not -(2**63) <= (value := int(text)) < 2**64:
            raise ValueError(f"{printable(text, SHOWN)} has more than 64 bits")
        return value

    if len(data) > MOST_CONFIG:
        raise ValueError(f"it has more than {MOST_CONFIG} bytes")
    parsed: object = json.loads(data, parse_float=number, parse_int=whole, parse_constant=number)
    level = [parsed]
    for _ in range(DEEPEST):
        parts = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        level = [part for part in parts for part in part]
    if level:
        raise ValueError(f"it has more than {DEEPEST} levels")
    return parsed


def builder_of(family: str) -> Callable[[Mapping[str, object]], Model]:
    """Import the family; return its function from a saved config to an untrained model; it may raise ValueError."""
    module, _, name = FAMILIES[family].partition(":")
    build: Callable[..., Model] = getattr(importlib.import_module(module), name or "build")
    return (lambda config: build(config_from(typing.get_type_hints(build)["config"], config))) if name else build


def stored_weights(path: Path, mapped: bool = False) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors in a safetensors file, and its metadata; `mapped` tensors are memory-mapped."""
    absent = f"no weights in {path.parent}: there is no {WEIGHTS}; copy it there, next to {CONFIG}"
    data = _read(path, absent, 0 if mapped else -1)
    try:
        tensors = safetensors.torch.load_file(path) if mapped else safetensors.torch.load(data)
        header, body = safetensors_bytes.split(np.memmap(path, mode="r").data if mapped else data)
    except Exception as error:  # beside the library's own: KeyError for a number type that torch lacks, sizes too large
        raise ValueError(f"{path} is damaged ({printable(str(error), SHOWN)}){COPY_AGAIN}") from error
    metadata = found if isinstance(found := header.get("__metadata__"), dict) else {}  # null is allowed
    if metadata.get("sha256", digest := hashlib.sha256(body).hexdigest()) != digest:
        raise ValueError(f"{path} is damaged (its sha256 sum does not match){COPY_AGAIN}")
    for name, tensor in tensors.items():
        if not (tensor.float() if tensor.itemsize == 1 else tensor).isfinite().all():  # no isfinite for one byte
            wrong = f"{printable(name, SHOWN)} has values that are not finite"
            raise ValueError(f"{path}: {wrong}; train the model again, with a lower learning rate")
    return tensors, metadata


def fill(model: nn.Module, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Set the model's parameters and buffers to the stored values and types."""
    own = model.state_dict(keep_vars=True)
    tensors = dict(sorted(tensors.items()))  # safetensors lists them in an order that changes from process to process
    given = {id(own[name]) for name in tensors if name in own}
    # The model as a whole may be of another type, as after .bfloat16(): the type of most tensors.
    stored: defaultdict[torch.dtype, Counter[torch.dtype]] = defaultdict(Counter)
    for name, tensor in tensors.items():
        if name in own and {tensor.dtype, own[name].dtype} <= FLOATS:
            stored[own[name].dtype][tensor.dtype] += 1
    converted = {dtype: found.most_common(1)[0][0] for dtype, found in stored.items()}
    problems = {
        "lacks": [name for name, tensor in own.items() if id(tensor) not in given],
        "has unknown": [name for name in tensors if name not in own],
        "has of another shape": [
            f"{name} {list(tensor.shape)} instead of {list(own[name].shape)}"
            for name, tensor in tensors.items()
            if name in own and tensor.shape != own[name].shape
        ],
        "has of another type": [
            f"{name} {tensor.dtype} instead of {converted.get(own[name].dtype, own[name].dtype)}"
            for name, tensor in tensors.items()
            if name in own and tensor.dtype != converted.get(own[name].dtype, own[name].dtype)
        ],
    }
    lines = [f"{what} {', '.join(names[:3])}{', ...' * (len(names) > 3)}" for what, names in problems.items() if names]
    if lines:
        raise ValueError(f"{folder / WEIGHTS} does not fit {CONFIG}: it {printable('; it '.join(lines), SHOWN)}")
    for name, tensor in tensors.items():
        # Through .data, as the type may change and every name of a tied parameter must see the value. Cloned, as torch
        # aligns its own memory, and the last bits of a matrix product can depend on alignment.
        own[name].data = tensor.clone()
