"""Validation, test and labelled instances, written to disk once. Training instances are generated when needed."""

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import datasets
import numpy as np
import torch
from torch import Tensor

from common.disk.files import write_whole
from common.plain import Plain
from common.workers import in_order
from models.routing import native
from models.routing.environment import MARGIN, actions_of
from pipelines.workloads.cvrp.config import Config, Data
from pipelines.workloads.cvrp.instances.generated import generate, problems_of, stream_key
from pipelines.workloads.cvrp.solvers.reference import lacking, to_imitate

INSTANCES_AT_ONCE = 500  # labelled by a worker process at a time, and kept in a file


def prepare(config: "Config", folder: Path) -> Mapping[str, Plain]:
    """Write the instances as Arrow tables and return facts for the manifest."""
    datasets.disable_progress_bars()
    sizes = {"validation": config.data.validation_instances, "test": config.data.test_instances}
    for split, size in sizes.items():
        _save(folder / split, generate(config.data, stream_key(0, split), torch.arange(size)))
    if config.data.labels:
        _save(folder / "labels", labelled(config.data, folder.with_suffix(".parts")))
        sizes["labels"] = config.data.labels
    return {"instances": sizes}


def _save(folder: Path, fields: Mapping[str, Tensor]) -> None:
    columns = {name: tensor.flatten(min(1, tensor.ndim - 1)).numpy() for name, tensor in fields.items()}
    datasets.Dataset.from_dict(columns).save_to_disk(folder)


def labelled(data: "Data", parts: Path) -> dict[str, Tensor]:
    """Return the fields of `data.labels` instances with `tour` (B, 2 n), padded with the depot and kept in `parts`."""
    other = "PyVRP, which takes longer" if native.unavailable() else "ruin and recreate"
    if reason := lacking():
        print(f"{reason}: instances to imitate are solved by {other}", file=sys.stderr)
    items = torch.arange(data.labels)
    parts /= other.partition(",")[0] if reason else "HGS"  # tours of different solvers are not mixed
    parts.mkdir(parents=True, exist_ok=True)
    begun = "going on to solve" if any(parts.glob("*.tours")) else "solving"
    what = f"{begun} the {data.labels:,} instances to imitate of data.labels, {INSTANCES_AT_ONCE} at a time"
    found = in_order(partial(_tours, data, parts), items.split(INSTANCES_AT_ONCE), what)
    fields = generate(data, stream_key(0, "labels"), items)
    return {**fields, "tour": torch.from_numpy(np.concatenate(list(found))).float()}


def _tours(data: "Data", parts: Path, items: Tensor) -> np.ndarray:
    """Return tours (b, 2 n), each a pure function of the instance, from their file in `parts` or into it."""
    kept = parts / f"{items[0]}.tours"
    if kept.exists():
        return np.frombuffer(kept.read_bytes(), np.int64).reshape(len(items), -1)
    fields = generate(data, stream_key(0, "labels"), items)
    if "rules" in fields:
        fields["rules"][..., [1, 3, 4]] -= 2 * MARGIN  # tighter, as policies keep a margin from limits
    tours = torch.stack([actions_of(to_imitate(each), 2 * data.sizes[-1]) for each in problems_of(fields)]).numpy()
    write_whole(kept, tours.tobytes())
    return tours


def load(folder: Path, split: str) -> dict[str, Tensor]:
    """Return the fields of Instances for a prepared split, as tensors converted from Arrow once."""
    table = datasets.load_from_disk(folder / split).with_format("numpy")
    fields = {name: torch.from_numpy(np.stack(table[name][:]).astype(np.float32)) for name in table.column_names}
    for name in {"locs", "rules", "matrix"} & fields.keys():
        fields[name] = fields[name].unflatten(1, (fields["demand"].shape[1], -1))
    return fields
