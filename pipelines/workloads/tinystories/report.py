"""The workload's sections of report.html: the verdict, and told stories."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import nn

from pipelines.engine.workload import Evaluation, Sections
from pipelines.report.markup import beside, fragment
from pipelines.report.plots import comparison
from pipelines.report.tables import table
from pipelines.report.verdict import compare, divide, interval_of
from pipelines.run.folder import Run
from pipelines.workloads.tinystories.config import Config

BITS, SPREAD = "bits/character", "± 95 %"


def sections(config: Config, models: Mapping[str, nn.Module], evaluations: Sequence[Evaluation], run: Run) -> Sections:
    """Return the sections as (heading, HTML)."""
    (found,) = (evaluation for evaluation in evaluations if evaluation.split == "held_out")
    own, others = divide(found.table)
    judged = compare(own[-1], others, BITS, SPREAD)  # the model as on the chip
    if judged.rival["predictor"].startswith(found.summary["strongest_baseline"]):
        judged = replace(judged, interval=found.summary["gain_interval"])  # paired by story, so narrower
    interval = interval_of(judged.own, BITS, SPREAD)
    said = beside(__file__, "verdict.html", summary=found.summary, found=judged, bits=BITS, interval=interval)
    picture = comparison(found.table, own, BITS, SPREAD, "lower is better")
    heard = found.summary.get("listened")
    samples = fragment("<pre>{{ samples }}</pre>", samples=found.files["held_out.samples.txt"])
    return [
        (f"{judged.heading}: {judged.rival['predictor']}", said + picture),
        ("Stories it tells", table(heard, "told stories beside real ones") + samples if heard else samples),
    ]
