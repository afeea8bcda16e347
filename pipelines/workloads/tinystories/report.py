"""The workload's sections of report.html: the verdict, told stories, and the runs by size, speed and quality."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure

from models.stories.tiny_transformer import TinyTransformer
from pipelines.engine.workload import Evaluation
from pipelines.report.markup import fragment, shown
from pipelines.report.plots import PANEL, comparison, panels, svg
from pipelines.report.tables import table
from pipelines.report.verdict import Comparison, Row, answer, compare, divide, interval_of
from pipelines.run.folder import Run
from pipelines.workloads.tinystories.config import Config

BITS, SPREAD = "bits/character", "± 95 %"


def sections(
    config: Config, models: Mapping[str, TinyTransformer], evaluations: Sequence[Evaluation], run: Run
) -> list[tuple[str, str]]:
    """Return the sections as (heading, HTML), this run beside those in the folders next to it as the last one."""
    (found,) = (evaluation for evaluation in evaluations if evaluation.split == "held_out")
    judged = _compared(found)
    picture = comparison(found.table, divide(found.table)[0], BITS, SPREAD, "lower is better")
    runs = [*evaluated_runs(run.folder.parent, but=run.name), {"run": run.name, **found.summary}]
    runs.sort(key=lambda each: each["run"])
    texts = dict.fromkeys(run["trained_on"] for run in runs)
    charts = [(_chart([run for run in runs if run["trained_on"] == text]), text) for text in texts]
    columns = ("run", "preset", "parameters", "sram_bytes", "estimated_tokens_per_s", "bits_per_character")
    rows = [{name: run.get(name) for name in columns} for run in runs]
    return [
        (f"{judged.heading}: {judged.rival['predictor']}", _verdict(found.summary, judged) + picture),
        ("Stories it tells", _told(found)),
        ("Size, speed and quality of the runs", panels(charts) + table(rows, "runs")),
    ]


def _told(found: Evaluation) -> Markup:
    """Return told stories, and a table of how they keep their heroes and words beside real ones."""
    samples = fragment("<pre>{{ samples }}</pre>", samples=found.files["held_out.samples.txt"])
    heard = found.summary.get("listened")
    return table(heard, "told stories beside real ones") + samples if heard else samples


def evaluated_runs(folder: Path, but: str) -> list[Row]:
    """Return the summaries of all evaluated runs in `folder`, each with its run's name, `but` that of one run."""
    paths = sorted(folder.glob("*/evaluations/held_out.json"))
    return [{"run": path.parts[-3], **json.loads(path.read_text())} for path in paths if path.parts[-3] != but]


def _compared(evaluation: Evaluation) -> Comparison:
    """Compare the model as on the chip with the strongest alternative, in bits per character."""
    own, others = divide(evaluation.table)
    found = compare(own[-1], others, BITS, SPREAD)
    if found.rival["predictor"].startswith(evaluation.summary["strongest_baseline"]):
        # Of both on the same stories: narrower.
        return replace(found, interval=evaluation.summary["gain_interval"])
    return found


def _verdict(summary: Row, found: Comparison) -> Markup:
    own, rival = found.own, found.rival
    first = (
        f"The model ({own['predictor']}) needs {shown(own[BITS])} bits per character of held-out stories "
        f"{shown(interval_of(own, BITS, SPREAD))}: {found.by('bits', 'less', 'more')} than the strongest alternative, "
        f"{rival['predictor']}, which needs {shown(rival[BITS])}."
    )
    second = (
        f"{summary['n']:,} stories, which neither trained the model nor picked the best one. Integers instead of "
        f"float32 cost {summary['int8_cost_percent']:.2g} %. An RP2040 tells about "
        f"{summary['estimated_tokens_per_s']:.0f} tokens/s (an estimate) from {summary['sram_bytes'] / 1024:.0f} KiB "
        "of its memory."
    )
    return answer(found.outcome, first, second)


def _chart(runs: Sequence[Row]) -> Markup:
    """Plot bits per character over speed on the chip; a point's area shows the SRAM."""
    figure = Figure(figsize=PANEL, layout="constrained")
    axis = figure.subplots()
    names = [f"{run['run']} ({run['sram_bytes'] / 1024:.0f} KiB)" for run in runs]
    for run, name in zip(runs, names, strict=True):
        x, y = run["estimated_tokens_per_s"], run["int8_bits_per_character"]
        axis.scatter(x, y, s=run["sram_bytes"] / 500, alpha=0.5)
        axis.annotate(name, (x, y), fontsize=8)
    axis.set_xscale("log")
    axis.set_xlabel("tokens/s at 125 MHz, estimated", fontsize=8)
    axis.set_ylabel("bits/character, int8", fontsize=8)
    axis.tick_params(which="both", labelsize=8)
    axis.grid(alpha=0.3)
    return svg(figure, f"bits per character over estimated tokens/s of the runs {', '.join(names)}")
