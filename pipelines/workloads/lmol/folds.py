"""Runs of all folds (data.fold=all): a member for each part as the test, and one table with intervals over them.

Training parts of two folds share images, so their figures are not independent: the variance of a mean over k folds is
taken to be (1/k + n_test/n_train) times that of a fold, not 1/k (Nadeau and Bengio 2003).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from common.plain import Plain
from common.statistics import interval_around
from models.images.comparator.interface import Comparator
from pipelines.engine.workload import Evaluation, MapItems
from pipelines.report.verdict import Row
from pipelines.workloads.lmol import evaluation
from pipelines.workloads.lmol.config import Config
from pipelines.workloads.lmol.data import expand

WITH_INTERVALS = ("accuracy", "Pearson", f"{evaluation.LEAD} accuracy", f"{evaluation.LEAD} Pearson")  # columns
MEANS = ("Spearman", "RMSE", "MAE")
# Ranges of figures, which the t interval over few folds may exceed.
BOUNDS = {"accuracy": (0, 1), "coverage": (0, 1)} | dict.fromkeys(("pearson", "spearman", "kendall"), (-1, 1))


def evaluate(
    config: Config, models: Mapping[str, Comparator], folder: Path, device: torch.device, map_items: MapItems
) -> list[Evaluation]:
    """Evaluate a run of one fold, or each trained member on its test part, and all in one table, by attribute."""
    configs, found = expand(config, folder), dict[str, dict[str, Evaluation]]()
    for member, whole in models.items():
        for name, model in whole.views.items():
            own = evaluation.evaluate(configs.get(member, config), name, model, folder, device, map_items)
            found.setdefault(name, {})[member] = replace(own, member=member) if configs else own
    each = [own for by_member in found.values() for own in by_member.values()]
    return each + [joined(by_member, config.data.folds) for by_member in found.values() if configs]


def joined(found: Mapping[str, Evaluation], folds: int) -> Evaluation:
    """Join the members' evaluations, of `folds` folds, into one: means, and intervals over folds."""
    each = list(found.values())
    first = each[0].summary
    numbers = [name for name, value in first.items() if isinstance(value, float) and name != "seconds"]
    over = {name: _over_folds(name, [one.summary.get(name) for one in each], folds) for name in numbers}
    summary = {
        **{name: mean for name, (mean, _) in over.items()},
        **{name: sum(one.summary[name] for one in each) for name in ("n", "images", "seconds")},
        **{name: first[name] for name in ("theta", "attribute")},
        "few": first.get("few", "") if all(one.summary.get("few") for one in each) else "",
        "intervals": {name: interval for name, (_, interval) in over.items()},
        "folds": {member: {name: one.summary.get(name) for name in numbers} for member, one in found.items()},
    }
    by_name = [{row["predictor"]: row for row in one.table} for one in each]
    table = [_means([rows.get(name, {}) for rows in by_name], folds) for name in by_name[0]]
    examples = {name: [cell for one in each for cell in one.examples[name]] for name in each[0].examples}
    member = [name for name, one in found.items() for _ in next(iter(one.examples.values()))]
    return Evaluation(each[0].split, summary, table, {"fold": member, **examples})


def _means(rows: Sequence[Row], folds: int) -> dict[str, Plain]:
    """Return the means over a predictor's rows of the folds; the model's own row has no leads."""
    found: dict[str, Plain] = {"predictor": rows[0]["predictor"]}
    for name in WITH_INTERVALS:
        found[name], found[f"{name} 95 %"] = _over_folds(name, [row.get(name) for row in rows], folds)
    return found | {name: _over_folds(name, [row.get(name) for row in rows], folds)[0] for name in MEANS}


def _over_folds(name: str, values: Sequence[float | None], folds: int) -> tuple[float | None, list[float] | None]:
    """Return the mean of a figure (k,) over k of the `folds`, and its interval; None if a fold lacks it or is alone."""
    from scipy.stats import t  # a second to import

    if len(known := np.array([value for value in values if value is not None])) < len(values):
        return None, None
    mean, few = float(known.mean()), len(known) < 2
    spread = 0.0 if few else math.sqrt(known.var(ddof=1) * (1 / len(known) + 1 / (folds - 2)))
    ends = interval_around(mean, None if few else float(t.ppf(0.975, len(known) - 1)) * spread)
    return mean, ends and np.clip(ends, *BOUNDS.get(name.lower(), (None, None))).tolist()
