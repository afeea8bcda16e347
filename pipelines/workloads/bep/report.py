"""The workload's sections of report.html: savings, silence, suggestions, and likelihoods at the end."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from markupsafe import Markup

from common.foreign_text import from_csv
from models.plans.char_lstm import CharLSTM
from pipelines.engine.workload import Evaluation, Sections
from pipelines.report.markup import beside
from pipelines.report.plots import comparison
from pipelines.report.tables import table
from pipelines.report.verdict import BETTER, EVEN, Comparison, answer, compare, divide
from pipelines.run.folder import Run
from pipelines.workloads.bep.config import Config

BITS = "bits/character"
SHOWN = 8  # fields whose suggestions are not folded
CAPTIONS = {"typing": "keystrokes saved", "clauses": "suggested clauses"}


def sections(config: Config, models: Mapping[str, CharLSTM], evaluations: Sequence[Evaluation], run: Run) -> Sections:
    """Return the sections as (heading, HTML): what a manager asks first, and likelihoods last."""
    parts = []
    for evaluation in evaluations:
        if "typing" in evaluation.summary:
            parts.append((f"Keystrokes saved: {evaluation.split}", _measured(evaluation, "typing")))
        if evaluation.summary.get("clauses"):
            parts.append(("Clauses: how often suggestions match the plan", _measured(evaluation, "clauses")))
    fields: list[list[dict[str, str]]] = []
    for evaluation in evaluations:
        if (suggested := evaluation.files.get(f"{evaluation.split}.suggestions.csv")) is not None:
            fields = [list(rows) for _, rows in groupby(from_csv(suggested), key=lambda row: row["field"])]
            page = beside(__file__, "suggestions.html", fields=fields, shown=SHOWN)
            parts.append(("Suggestions for the fields", page))
    first = evaluations[0]
    own, others = divide(first.table)
    found = compare(min(own, key=lambda row: row[BITS]), others, BITS, "95 %")
    found = found.in_percent(found.rival[BITS])
    if found.rival["predictor"] == first.summary["strongest_baseline"]:
        found = replace(found, interval=first.summary["gain_percent_interval"])  # paired on one text, so narrower
    unseen = beside(__file__, "verdict.html", summary=first.summary, found=found, bits=BITS, split=first.split)
    unseen += comparison(first.table, own, BITS, "95 %", "lower is better")
    heading = f"Likelihood of unseen text: {found.heading.lower()}, {found.rival['predictor']}"
    title, said = answered(evaluations, fields, run)
    behind = f"; {found.by('%', 'fewer', 'more')} bits for unseen text than {found.rival['predictor']}"
    return [(title + behind * (found.outcome != BETTER), said), *parts, (heading, unseen)]


def answered(
    evaluations: Sequence[Evaluation], fields: Sequence[Sequence[Mapping[str, str]]], run: Run
) -> tuple[str, Markup]:
    """Return the heading and the answer: what the model saves, where it is silent, and what it read and masked."""
    facts = run.provenance().get("data", {})
    silent = [each[0]["field"] for each in fields if each[0]["rank"] == "0"]
    saved = next((each.summary for each in evaluations if "keystrokes_saved" in each.summary), None)
    outcome, headings, sentences = EVEN, [], []
    if saved:
        interval = saved["keystrokes_saved_interval"]
        outcome = BETTER if interval and interval[0] > 0 else EVEN
        width = f" [{100 * interval[0]:.0f}, {100 * interval[1]:.0f}]" if interval else ""
        headings.append(f"Saves {100 * saved['keystrokes_saved']:.0f} % of the keystrokes{width}")
    if fields:
        headings.append(f"clauses for {len(fields) - len(silent)} of {len(fields)} fields")
        sentences.append(f"Nothing fits, and nothing is suggested, for: {', '.join(silent) or 'no field'}.")
    if found := next((each.summary for each in evaluations if each.summary.get("clauses")), None):
        gain = Comparison({}, {}, found["clauses_gain_words"], found["clauses_gain_words_interval"])
        headings.append(f"{found['clauses_hit_words']:.0f} % of held-out clauses found from three words")
        headings[-1] += f", {gain.by('points', 'more', 'fewer')} than by TF-IDF alone"
        outcome = outcome if saved else gain.outcome
    if (new := evaluations[0].summary.get("new_text")) and round(100 * new["share"]) < 100:
        headings.append(f"{100 * (1 - new['share']):.0f} % of the held-out text is also in the training text")
    if files := facts.get("files"):
        masked = ", ".join(f"{count:,} x {kind}" for kind, count in facts["masked"].items()) or "nothing"
        kept = sum(each["kept"] for each in files.values())
        sentences.insert(0, f"It read {len(files)} documents with {kept:,} characters. Masked: {masked}.")
    heading = "; ".join(headings) or "No keystrokes were counted, and nothing is suggested"
    typing = saved["typing"] if saved else []
    picture = comparison(typing, typing[:1], "keystrokes saved, %", "95 %", "higher is better") if typing else Markup()
    return heading[0].upper() + heading[1:], answer(outcome, *sentences) + picture


def _measured(evaluation: Evaluation, what: str) -> Markup:
    """Return a measurement of suggestions, `typing` or `clauses`, in words and as a table."""
    said = beside(__file__, f"{what}.html", summary=evaluation.summary)
    return said + table(evaluation.summary[what], CAPTIONS[what])
