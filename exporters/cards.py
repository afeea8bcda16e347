"""The model card: what the model is, what was measured, where it comes from, and the metadata of Hugging Face's hub."""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from common.config import leaves
from common.errors import as_user_error
from common.foreign_text import printable
from models import hub, io

Object: TypeAlias = Mapping[str, Any]  # of JSON
Figures: TypeAlias = Mapping[str, Mapping[str, object]]  # of evaluations, by split

CARD, TEMPLATE = "README.md", Path(__file__).with_name("card.md")
LONGEST_LIST = 10
LICENSE = "apache-2.0"  # of this project, and of weights that learnt only from data that come with it
# Figures by which an evaluation's table is judged, and whether more is better; a table is judged by the first it has.
FIGURES = {"bits/character": False, "cost": False, "log_loss": False, "accuracy": True}


def title(run: Path) -> str:
    """The workload/name of a run's folder, or workload/name/member; the name of a folder that is a model itself."""
    parts = run.resolve().parts
    if (run / io.CONFIG).is_file():
        return parts[-1]
    return "/".join((*parts[-4:-2], parts[-1]) if parts[-2:-1] == ("members",) else parts[-2:])


def source_of(run: Path, model_folder: Path) -> str:
    """The place of the model in the run's folder, such as model/best; the name of a folder that is a model itself."""
    return title(run) if model_folder == run else model_folder.relative_to(run).as_posix()


def identity(format: str, run: Path, model_folder: Path, model: io.Model) -> dict[str, object]:
    """The model's facts in the manifest of every format."""
    count = sum(parameter.numel() for parameter in model.parameters())
    return {"format": format, "run": title(run), "source": source_of(run, model_folder), "num_parameters": count}


def measured_of(run: Path) -> dict[str, dict[str, object]]:
    """{split: figures} of the run's evaluations; those of the card for a folder that is a model itself."""
    if (own := shipped(run)) is not None:
        found: dict[str, dict[str, object]] = {}
        for each in own[0].eval_results or ():
            found.setdefault(str(each.dataset_split), {})[str(each.metric_name)] = each.metric_value
        return found
    read = ((path.stem, read_object(path)) for path in sorted((run / "evaluations").glob("*.json")))
    return {name: {key: each[key] for key in each if key != "files"} for name, each in read if each is not None}


def card(
    model: io.Model, run: Path, source: str, provenance: Object, measured: Figures, license: str | None = None
) -> str:
    """The model card, in Markdown with the hub's metadata; the card in a model's own folder is kept.

    `license` is the identifier of the weights' license. Raises ValueError for metadata that the hub's library refuses.
    """
    if (own := shipped(run)) is not None:
        kept, body = own
        if license:
            kept.license, kept.license_name = license, None
        kept.library_name, kept.pipeline_tag = "pytorch", model.pipeline_tag
        kept.tags = [model.family, "safetensors"]
        return f"---\n{kept.to_yaml()}\n---\n\n{body.lstrip()}"
    sections = [f"### {name}\n\n{_figures(content)}" for name, content in measured.items()]
    config_file = run / "config.yaml"
    config = config_file.read_text() if config_file.is_file() else "# not recorded\n"
    fence = "`" * max(3, *(1 + len(run) for run in re.findall("`+", config)), 3)  # longer than any in the config
    made = {key: value for key, value in _leaves(provenance) if key.split(".")[0] not in ("command", "earlier")}
    data = metadata(model, run, provenance, measured, license)
    text = TEMPLATE.read_text().format(
        metadata=data.to_yaml(),
        title=title(run),
        summary=inspect.cleandoc(type(model).__doc__ or ""),
        source=source,
        of_run="" if source == title(run) else " of the run",
        count=sum(p.numel() for p in model.parameters()),
        about="".join(f"## {heading}\n\n{section}\n\n" for heading, section in model.card.items()),
        measured="\n".join(sections) or "Nothing: this run has no evaluations yet.",
        made=_table(("fact", "value"), made.items()) if made else "Not recorded.",
        config=f"{fence}yaml\n{config.rstrip()}\n{fence}",
    )
    if ModelCard(text).data.to_dict() != data.to_dict():
        raise ValueError(f"the metadata of {run} do not survive in a card; rename whatever has unusual characters")
    return text


def shipped(folder: Path) -> tuple[ModelCardData, str] | None:
    """Return metadata and text of the card of a folder that is a model; None without one that states a license."""
    file = folder / CARD
    if not (folder / io.CONFIG).is_file() or not file.is_file() or not file.read_bytes().startswith(b"---"):
        return None
    try:
        card = ModelCard(file.read_text(encoding="utf-8"))
    except Exception as error:  # of the hub's library, of YAML's, or as the text is not UTF-8
        said = printable(" ".join(str(error).split()), 200)
        raise ValueError(f"{file}: the metadata between its --- cannot be read ({said}); correct them") from error
    return (card.data, card.text) if isinstance(card.data, ModelCardData) and card.data.license else None


def metadata(model: io.Model, run: Path, provenance: Object, measured: Figures, license: str | None) -> ModelCardData:
    """Return the hub's metadata; by default the license is this project's if all data are its own."""
    data = provenance.get("data") or {}
    section, private = data.get("data") or {}, bool(data.get("inputs"))
    given, base_given = str(section.get("source")), str(section.get("base"))
    foreign = private or data.get("source") == "ccxt" or any(map(hub.NAME.fullmatch, (given, base_given)))
    name = "files of the user's own" if private else str(data.get("source") or f"made for {title(run)}")
    made_up = re.sub(r"[^a-z0-9]+", "-", f"{title(run).split('/')[0]} {name}".lower()).strip("-")
    dataset = given if hub.NAME.fullmatch(given) and not private else made_up
    results = [
        EvalResult(
            task_type=model.pipeline_tag,
            dataset_type=dataset,
            dataset_name=name,
            dataset_split=split,
            metric_type=figure.replace("/", "_per_"),
            metric_name=f"{figure}: {predictor}",
            metric_value=value,
        )
        for split, content in measured.items()
        for figure, predictor, value in headline(content)
    ]
    base = getattr(model.config, "base", "")
    stated = license or ("other" if foreign or not section else LICENSE)
    return ModelCardData(
        license=stated,
        license_name="not-stated" if stated == "other" else None,
        library_name="pytorch",
        pipeline_tag=model.pipeline_tag,
        datasets=[dataset],
        base_model=base if hub.NAME.fullmatch(base) else None,
        tags=[model.family, "safetensors"],
        model_name=title(run) if results else None,
        eval_results=results or None,
    )


def headline(content: Object) -> list[tuple[str, str, float]]:
    """Return (figure, predictor, value) of the model at its best, and of the strongest baseline, for each table.

    The model's rows are those named, up to a comma, as in `decode` if the evaluation has that, else as the first row.
    """
    found = []
    nested = [each for each in content.values() if isinstance(each, dict)]  # an evaluation of several coins
    for part in (content, *nested):
        rows = part.get("table") or part.get("predictors") or []
        if (figure := next((name for name in FIGURES if rows and name in rows[0]), None)) is None:
            continue
        column = next(iter(rows[0]))
        rows = [row for row in rows if row.get(figure) is not None]
        own = str(part.get("decode") or rows[0][column]).partition(", ")[0]
        mine = [row for row in rows if row[column].partition(", ")[0] == own]
        for kind, among in (("", mine), ("strongest baseline, ", [row for row in rows if row not in mine])):
            if mine and among:
                best = (max if FIGURES[figure] else min)(among, key=lambda row: row[figure])
                found.append((figure, f"{kind}{best[column]}", float(best[figure])))
    return found


def _figures(content: Mapping[str, object]) -> str:
    """All scalars of an evaluation as a table, and all tables (lists of objects) in it."""
    parts = [_table(("figure", "value"), _leaves(content))]
    for key, rows in content.items():
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            columns = list(dict.fromkeys(column for row in rows for column in row))
            parts.append(f"{key}:\n\n" + _table(columns, [[row.get(column) for column in columns] for row in rows]))
    return "\n".join(parts)


def _leaves(content: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield (dotted key, value) for scalars and short lists of scalars; long lists are curves."""
    for key, value in leaves(content):
        listed = value if isinstance(value, list) else [0]
        if 0 < len(listed) <= LONGEST_LIST and not any(isinstance(item, dict | list) for item in listed):
            yield key, value


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(_cell(value) for value in line) + " |\n" for line in lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    return str(value).replace("|", "\\|").replace("\n", " ")


def read_object(path: Path) -> Object | None:
    """The JSON object in a file; None for any other value (tours to draw, say) and for a missing file."""
    if not path.is_file():
        return None
    with as_user_error(f"{path} is not JSON (", "); evaluate the run again, or remove the file"):
        content = json.loads(path.read_bytes())
    return content if isinstance(content, dict) else None
