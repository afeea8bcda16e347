"""The workload's sections of report.html: the verdict, told stories, and the runs by size, speed and quality."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup

from models.stories.tiny_transformer import TinyTransformer
from pipelines.engine.workload import Evaluation
from pipelines.report.markup import fragment, shown
from pipelines.report.plots import comparison
from pipelines.report.tables import table
from pipelines.report.verdict import Comparison, Row, answer, compare, divide, interval_of
from pipelines.run.folder import Run
from pipelines.workloads.tinystories.config import Config

BITS, SPREAD = "bits/character", "± 95 %"
COLUMNS = ("trained_on", "preset", "parameters", "sram_bytes", "estimated_tokens_per_s", "int8_bits_per_character")


def sections(
    config: Config, models: Mapping[str, TinyTransformer], evaluations: Sequence[Evaluation], run: Run
) -> list[tuple[str, str]]:
    """Return the sections as (heading, HTML), this run beside those in the folders next to it."""
    (found,) = (evaluation for evaluation in evaluations if evaluation.split == "held_out")
    judged = _compared(found)
    picture = comparison(found.table, divide(found.table)[0], BITS, SPREAD, "lower is better")
    heard = found.summary.get("listened")
    samples = fragment("<pre>{{ samples }}</pre>", samples=found.files["held_out.samples.txt"])
    paths = run.folder.parent.glob("*/evaluations/held_out.json")
    runs = {path.parts[-3]: json.loads(path.read_text()) for path in paths} | {run.name: found.summary}
    rows = [{"run": name, **{column: runs[name].get(column) for column in COLUMNS}} for name in sorted(runs)]
    return [
        (f"{judged.heading}: {judged.rival['predictor']}", _verdict(found.summary, judged) + picture),
        ("Stories it tells", table(heard, "told stories beside real ones") + samples if heard else samples),
        ("Size, speed and quality of the runs", table(rows, "runs")),
    ]


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
