"""Models on disk: a folder with `config.json` and `model.safetensors`, which `load` turns back into a model.

A family of models is a module that FAMILIES names; it is imported when one of its models is loaded. Its
`build(config: dict) -> Model` raises ValueError for a config with unknown keys or wrong values. Code outside this
package adds families of its own to FAMILIES. Beyond what `Model` asks for, a model may have

    save_beside(folder)   writes further files that users need and returns their names
    unmergeable           the reason why `save_merged` cannot run, or None
    save_merged(folder)   writes the base model with the adapters merged in, and returns the names of the files and the
                          largest difference this makes to outputs; the model cannot be used afterwards

Nothing here is pickled, so loading a folder from a stranger does not run the stranger's code.
"""

import difflib
import hashlib
import importlib
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from common.files import write_whole

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

BUILT_IN = ("routing", "tiny_transformer", "comparator", "llava_comparator", "cnn_lstm", "char_lstm")
FAMILIES = {name: f"models.{name}" for name in BUILT_IN}  # family -> its module, or the path of a file NAME.py
CONFIG, WEIGHTS = "config.json", "model.safetensors"
PLAIN = (bool, int, float, str)

Config = TypeVar("Config", bound="DataclassInstance")


class Model(nn.Module):
    """A model of one of the families, as far as saving and exporting it needs to know it."""

    family: str  # a key of FAMILIES
    config: Any  # a dataclass with all that the family's `build` needs
    # Class names of layers, in a list named as transformers names it. Sharded training gathers the weights of one such
    # layer at a time, when it is called, and all other weights together.
    _no_split_modules: Sequence[str] = ()

    def example(self) -> dict[str, Any]:
        """Keyword arguments for a deterministic forward pass, by which an export is compared with its original."""
        raise NotImplementedError


def save(
    model: Model,
    folder: str | Path,
    metadata: Mapping[str, str] | None = None,
    state: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the model's config and weights, replacing each file as a whole; equal models give equal bytes.

    `metadata` goes into the header of the weights. The config goes there too, so that a save that is killed between
    the two files leaves a valid pair if the old model had the same config, and a pair that `load` refuses otherwise.
    `state` holds the weights by name if the model itself has only a part of them, as on one of several processes.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"family": model.family, "config": asdict(model.config)}
    # A tensor with several names (tied embeddings) is stored once; `load` ties the names again.
    tensors: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        tensors.setdefault(id(tensor), (name, tensor if state is None else state[name]))
    # Copied, as safetensors refuses tensors that share a storage, such as the weights of a cuDNN LSTM.
    stored = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.values()}
    header = {"format": "pt", **(metadata or {}), "model": json.dumps(config, sort_keys=True)}
    write_whole(folder / WEIGHTS, _with_header(safetensors.torch.save(stored), header))
    write_whole(folder / CONFIG, (json.dumps(config, indent=2) + "\n").encode())


def load(folder: str | Path, device: str | torch.device = "cpu") -> Model:
    """The model that `save` wrote, bit for bit, in eval mode.

    Raises ValueError, in one line, for a missing or damaged file, an unknown family or config key, and weights that do
    not belong to the config. The state of torch's random number generators stays as it was.
    """
    folder = Path(folder)
    described = _described(folder)
    family = _module(described["family"])
    tensors, metadata = _weights(folder / WEIGHTS)
    saved_with = metadata.get("model")
    if saved_with not in (None, json.dumps(described, sort_keys=True)):
        raise ValueError(
            f"{folder / WEIGHTS} was saved with another config than the {CONFIG} in its folder ({saved_with}); "
            f"copy both files again, or save the model again"
        )
    with torch.random.fork_rng(devices=[]):  # building draws random weights, which are replaced afterwards
        try:
            model = family.build(described["config"])
        except ValueError as error:
            raise ValueError(f"{folder / CONFIG}: {error}") from error
    _fill(model, tensors, folder)
    return model.to(device).eval()


def config_from(cls: type[Config], values: Mapping[str, Any]) -> Config:
    """The config dataclass `cls` from parsed JSON; ValueError names an unknown key or a value of the wrong type."""
    types = {field.name: field.type for field in fields(cls)}
    for key, value in values.items():
        if key not in types:
            near = difflib.get_close_matches(key, types, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(types)}"
            raise ValueError(f"unknown config key {key!r}; {hint}")
        wanted = types[key]
        fits = type(value) is wanted or (wanted is float and type(value) is int)
        if wanted in PLAIN and not fits:
            raise ValueError(f"config key {key!r} is {value!r}; it must be of type {wanted.__name__}")
    return cls(**values)


def _described(folder: Path) -> dict[str, Any]:
    """The parsed config.json: {"family": str, "config": dict}."""
    path = folder / CONFIG
    if not path.is_file():
        raise ValueError(f"no model in {folder}: there is no {CONFIG}; a trained run keeps its model in RUN/model/best")
    try:
        described = json.loads(path.read_bytes())
    except ValueError as error:  # not JSON, or not even text
        raise ValueError(f"{path} is not JSON ({error}); copy it again from where it was saved") from error
    if not (
        isinstance(described, dict) and described.keys() == {"family", "config"} and type(described["config"]) is dict
    ):
        raise ValueError(
            f'{path} must be {{"family": "...", "config": {{...}}}}; copy it again from where it was saved'
        )
    if described["family"] not in list(FAMILIES):  # a list, since what a file says may not be hashable
        name = described["family"]
        raise ValueError(
            f"{path}: unknown family {name!r}; known families: {', '.join(FAMILIES)}. If the family is your own, give "
            f"its module: --family {name}=PATH/TO/model.py to an exporter, io.FAMILIES[{name!r}] = 'PATH/TO/model.py' "
            "in Python"
        )
    return described


def _module(family: str) -> ModuleType:
    """The module that builds the family's models. Raises ValueError for a file that is missing or builds none."""
    where = FAMILIES[family]
    if not where.endswith(".py"):
        return importlib.import_module(where)
    name = f"family_{family}"
    spec = importlib.util.spec_from_file_location(name, where)
    assert spec is not None, "a name that ends in .py has a loader"
    assert spec.loader is not None, "a name that ends in .py has a loader"
    if name not in sys.modules or sys.modules[name].__file__ != spec.origin:
        module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look for their module there
        try:
            spec.loader.exec_module(module)
            if not hasattr(module, "build"):
                raise ImportError("it has no function build(config: dict)")
        except (ImportError, OSError) as error:
            del sys.modules[name]
            raise ValueError(f"{where} gives no family {family!r} of models: {error}") from error
    return sys.modules[name]


def _weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors in a safetensors file, and its metadata."""
    if not path.is_file():
        raise ValueError(f"no weights in {path.parent}: there is no {WEIGHTS}; copy it there, next to {CONFIG}")
    data = path.read_bytes()
    try:
        tensors = safetensors.torch.load(data)
        header, body = _split(data)
    except (SafetensorError, ValueError, KeyError) as error:  # KeyError: a number type that torch does not have
        raise ValueError(f"{path} is damaged ({error}); copy it again from where it was saved") from error
    metadata = header.get("__metadata__", {})
    if metadata.get("sha256", _sum(body)) != _sum(body):
        raise ValueError(f"{path} is damaged (its sha256 sum does not match); copy it again from where it was saved")
    return tensors, metadata


def _fill(model: nn.Module, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Set the model's parameters and buffers to the stored values and types."""
    own = model.state_dict(keep_vars=True)
    given = {id(own[name]) for name in tensors if name in own}
    problems = {
        "lacks": [name for name, tensor in own.items() if id(tensor) not in given],
        "has unknown": [name for name in tensors if name not in own],
        "has of another shape": [
            f"{name} {list(tensor.shape)} instead of {list(own[name].shape)}"
            for name, tensor in tensors.items()
            if name in own and tensor.shape != own[name].shape
        ],
        "has of another type": [
            f"{name} {tensor.dtype} instead of {own[name].dtype}"
            for name, tensor in tensors.items()
            if name in own and tensor.is_floating_point() != own[name].is_floating_point()
        ],
    }
    told = [f"{what} {', '.join(names[:3])}{', ...' * (len(names) > 3)}" for what, names in problems.items() if names]
    if told:
        raise ValueError(f"{folder / WEIGHTS} does not fit {CONFIG}: it {'; it '.join(told)}")
    for name, tensor in tensors.items():
        # Through .data, as the type may change and every name of a tied parameter must see the value. Cloned, as torch
        # aligns its own memory, and the last bits of a matrix product can depend on alignment.
        own[name].data = tensor.clone()


def _split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """(header, tensor bytes) of a safetensors file: 8 bytes with the header's length, the header, the tensors."""
    start = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:start]), data[start:]


def _with_header(data: bytes, metadata: Mapping[str, str]) -> bytes:
    """Safetensors bytes with `metadata` and a sum of the tensors in their header.

    The library's own way of writing metadata changes their order from run to run.
    """
    header, body = _split(data)
    header = {"__metadata__": {**metadata, "sha256": _sum(body)}, **header}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of 8
    return len(text).to_bytes(8, "little") + text + body


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
