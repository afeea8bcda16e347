"""Evaluations on disk, and report.html: one self-contained page that shows a run."""

import base64
import hashlib
import shlex
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from common.config import leaves
from common.disk.files import read_json, write_json, write_text
from common.foreign_text import to_csv
from pipelines.engine.workload import Evaluation
from pipelines.report.markup import document
from pipelines.report.plots import curves
from pipelines.report.tables import table
from pipelines.run.folder import Run

FOLDER = Path(__file__).parent


def keep(run: Run, evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Write evaluations into their runs' folders; return the run's own and its earlier ones, the test set first."""
    for evaluation in evaluations:
        own = run if evaluation.member is None else run.member(evaluation.member)
        own.evaluations.mkdir(parents=True, exist_ok=True)
        listed = {"files": list(evaluation.files)} if evaluation.files else {}
        summary = {**evaluation.summary, "table": list(evaluation.table), **listed}
        write_json(own.evaluations / f"{evaluation.split}.json", summary)
        if evaluation.examples:
            rows = zip(*evaluation.examples.values(), strict=True)
            write_text(own.evaluations / f"{evaluation.split}.csv", to_csv(evaluation.examples, rows))
        for folder in (own.evaluations, *{own.best, own.evaluated}):
            for name, content in (evaluation.files if folder == own.evaluations else evaluation.beside).items():
                write_text(folder / name, content)
    whole = [evaluation for evaluation in evaluations if evaluation.member is None]
    known = {evaluation.split: evaluation for evaluation in (*kept(run.evaluations), *whole)}
    return [known[split] for split in sorted(known, key=lambda split: (split != "test", split))]


def kept(folder: Path) -> list[Evaluation]:
    """Return the evaluations in a folder, without their rows per example; skip other JSON."""
    found = []
    for path in sorted(folder.glob("*.json")):
        summary = read_json(path, dict)
        if not isinstance(summary.get("table"), list):
            continue
        rows = summary.pop("table")
        names = summary.pop("files", [])
        # Decoded here, as reading text would turn a carriage return in a cell into a new line.
        files = {name: (folder / name).read_bytes().decode() for name in names if (folder / name).is_file()}
        found.append(Evaluation(path.stem, summary, rows, files=files))
    theirs = {name for evaluation in found for name in evaluation.files}
    return [evaluation for evaluation in found if f"{evaluation.split}.json" not in theirs]


def write(run: Run, evaluations: Sequence[Evaluation], sections: Sequence[tuple[str, str]]) -> None:
    """Write report.html, with the workload's first (heading, HTML) section on top as its verdict."""
    parts = [(heading, Markup(html)) for heading, html in sections]
    verdict = parts[0] if parts else None
    metrics, provenance = run.metrics(), run.provenance()
    script = (FOLDER / "page.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = document(
        "page.html",
        title=f"{run.workload} / {run.name}",
        web=(run.folder / "exports/web/index.html").is_file(),  # an export that is made later shows the link
        verdict=verdict,
        evaluations=evaluations,
        sections=parts[1:],
        curves=curves(metrics) if metrics else None,
        provenance=provenance,
        command=shlex.join(provenance["command"]),
        leaves=leaves,
        table=table,
        config=run.config_file.read_text(),
        script=Markup(script),
        script_hash=f"sha256-{digest}",  # the only script that the page's policy allows
    )
    write_text(run.report, page)
    if verdict:
        write_json(run.judged_file, run.models())
        write_text(run.verdict_file, f"{verdict[0]}\n")
