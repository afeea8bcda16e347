"""The workload's sections of report.html: the verdict, and told stories."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from markupsafe import Markup

from models.stories.tiny_transformer import TinyTransformer
from pipelines.engine.workload import Evaluation
from pipelines.report.markup import beside, fragment
from pipelines.report.plots import comparison
from pipelines.report.tables import table
from pipelines.report.verdict import Comparison, Row, compare, divide, interval_of
from pipelines.run.folder import Run
from pipelines.workloads.tinystories.config import Config

BITS, SPREAD = "bits/character", "± 95 %"


def sections(
    config: Config, models: Mapping[str, TinyTransformer], evaluations: Sequence[Evaluation], run: Run
) -> list[tuple[str, str]]:
    """Return the sections as (heading, HTML)."""
    (found,) = (evaluation for evaluation in evaluations if evaluation.split == "held_out")
    judged = _compared(found)
    picture = comparison(found.table, divide(found.table)[0], BITS, SPREAD, "lower is better")
    heard = found.summary.get("listened")
    samples = fragment("<pre>{{ samples }}</pre>", samples=found.files["held_out.samples.txt"])
    return [
        (f"{judged.heading}: {judged.rival['predictor']}", _verdict(found.summary, judged) + picture),
        ("Stories it tells", table(heard, "told stories beside real ones") + samples if heard else samples),
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
    interval = interval_of(found.own, BITS, SPREAD)
    return beside(__file__, "verdict.html", summary=summary, found=found, bits=BITS, interval=interval)
