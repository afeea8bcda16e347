"""Export weights, config and a model card as Hugging Face's hub and `models.io.load` read them."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.files import write_whole
from exporters import manifest
from models import io

LONGEST_LIST = 10
CARD, FIGURES = "README.md", "evaluation.json"


def export(run: Path, model_folder: Path, out: Path, merged: bool = False) -> str:
    """Write the artifact, load it again, and write the manifest if nothing differs from the original.

    With `merged`, for a model with adapters, also write a copy of the base model with the adapters merged in.
    """
    model = io.load(model_folder)
    obstacle = getattr(model, "unmergeable", "it has no adapters")
    if merged and obstacle:
        raise ValueError(f"leave --merged out for {model_folder}: {obstacle}")
    source = model_folder.relative_to(run).as_posix()
    provenance = _read_object(run / "provenance.json") or {}
    if out.resolve() == model_folder.resolve():
        raise ValueError(f"--out {out} is the model's own folder; give another")
    require_finite(model, model_folder)
    manifest.begin(out)
    io.save(model, out, {"run": title(run), "source": source, "commit": str(provenance.get("commit") or "unknown")})
    measured = _measured(run)
    write_whole(out / CARD, card(model, run, source, provenance, measured).encode())
    write_whole(out / FIGURES, (json.dumps(measured, indent=1, allow_nan=False) + "\n").encode())
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    exported = io.load(out)
    difference = prove_equal(model, exported)
    del model  # so that a base of billions of weights is in memory only once
    save_beside: Callable[[Path], list[str]] = getattr(exported, "save_beside", lambda folder: [])
    beside = save_beside(out)
    if merged:
        save_merged: Callable[[Path], tuple[list[str], float]] = getattr(exported, "save_merged")  # noqa: B009
        names, difference["merged_output"] = save_merged(out)
        beside += names
    size = manifest.finish(
        out,
        (io.WEIGHTS, io.CONFIG, CARD, FIGURES, *beside),
        {
            "format": "safetensors",
            "run": title(run),
            "source": source,
            "num_parameters": num_parameters,
            "maximum_absolute_difference": difference,
        },
    )
    return f"{out}: {num_parameters:,} parameters, {size:,} bytes, equal to {source} in every weight and output"


def require_finite(model: io.Model, model_folder: Path) -> None:
    """Raise ValueError, with a parameter's name, for weights that are not numbers."""
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            raise ValueError(f"{model_folder}: {name} has values that are not finite; train the model again")


def prove_equal(model: io.Model, exported: io.Model) -> dict[str, float]:
    """The largest differences of weights and of outputs on `model.example()`; RuntimeError unless all are equal."""
    compared: dict[str, tuple[dict[Any, Tensor], dict[Any, Tensor]]] = {
        "weights": (model.state_dict(), exported.state_dict()),
        "output": (_outputs(model), _outputs(exported)),
    }
    difference = {}
    for what, (ours, theirs) in compared.items():
        if ours.keys() != theirs.keys():
            raise RuntimeError(f"the exported {what} differ: {sorted(map(str, ours.keys() ^ theirs.keys()))}")
        for name, tensor in ours.items():
            if tensor.dtype != theirs[name].dtype or not torch.equal(tensor, theirs[name]):
                raise RuntimeError(f"the exported {what} differ from the original in {name}")
        pairs = [(tensor.detach(), theirs[name].detach()) for name, tensor in ours.items() if tensor.numel()]
        difference[what] = max((float((a.double() - b.double()).abs().max()) for a, b in pairs), default=0.0)
    return difference


def _outputs(model: io.Model) -> dict[Any, Tensor]:
    """Numbered tensors of the model's output on its example."""
    # Gradients stay on, so that a policy gives log-probabilities and not only its choices.
    return dict(enumerate(_tensors(model(**model.example()))))


def title(run: Path) -> str:
    """The workload/name of a run's folder; workload/name/member for a member of a run."""
    parts = run.resolve().parts
    return "/".join((*parts[-4:-2], parts[-1]) if parts[-2:-1] == ("members",) else parts[-2:])


def _measured(run: Path) -> dict[str, Any]:
    """{split: figures} of the run's evaluations."""
    evaluations = {path.stem: _read_object(path) for path in sorted((run / "evaluations").glob("*.json"))}
    return {
        name: {key: value for key, value in content.items() if key != "files"}
        for name, content in evaluations.items()
        if content is not None
    }


def card(
    model: io.Model, run: Path, source: str, provenance: Mapping[str, Any], measured: Mapping[str, Mapping[str, Any]]
) -> str:
    """The model card, in Markdown with YAML front matter: use, measured figures, provenance, configuration."""
    sections = [f"### {name}\n\n{_figures(content)}" for name, content in measured.items()]
    config_file = run / "config.yaml"
    config = config_file.read_text() if config_file.is_file() else "# not recorded\n"
    made = {key: value for key, value in _leaves(provenance) if key.split(".")[0] not in ("command", "earlier")}
    return f"""---
library_name: pytorch
tags:
- {model.family}
- safetensors
---

# {title(run)}

{inspect.cleandoc(type(model).__doc__ or "")}

`{source}` of the run: {sum(p.numel() for p in model.parameters()):,} parameters. To load it:

    from models.io import load

    model = load("FOLDER")  # the folder of this file

## Measured

{chr(10).join(sections) or "Nothing: this run has no evaluations yet."}

## Provenance

{_table(("fact", "value"), made.items()) if made else "Not recorded."}

## Configuration

{_fenced(config, "yaml")}
"""


def _figures(content: Mapping[str, Any]) -> str:
    """All scalars of an evaluation as a table, and all tables (lists of objects) in it."""
    parts = [_table(("figure", "value"), _leaves(content))]
    for key, rows in content.items():
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            columns = list(dict.fromkeys(column for row in rows for column in row))
            parts.append(f"{key}:\n\n" + _table(columns, [[row.get(column) for column in columns] for row in rows]))
    return "\n".join(parts)


def _leaves(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for scalars and short lists of scalars; long lists are curves."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        elif not isinstance(value, list) or (
            0 < len(value) <= LONGEST_LIST and not any(isinstance(item, dict | list) for item in value)
        ):
            yield f"{prefix}{key}", value


def _table(columns: Sequence[str], rows: Any) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(_cell(value) for value in line) + " |\n" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    return str(value).replace("|", "\\|").replace("\n", " ")


def _fenced(text: str, language: str) -> str:
    """A code block whose fence does not occur in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None for any other value (tours to draw, say) and for a missing file."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); evaluate the run again, or remove the file") from error
    return content if isinstance(content, dict) else None


def _tensors(output: Any) -> Iterator[Tensor]:
    """Yield all tensors in nested tuples, lists and dictionaries."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, tuple | list):
        for value in output:
            yield from _tensors(value)
