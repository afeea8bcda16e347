"""Predictors of the same text side by side: rows of a table, and a model's gain on the best baseline."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from common.plain import Plain
from common.statistics import ratio_percentiles, resampled_counts
from pipelines.engine.workload import Evaluation

RESAMPLES = 2000
BITS = "bits_"  # prefix of a predictor's column
LSTM = "LSTM alone"


def rows_of(
    values: Mapping[str, np.ndarray],
    characters: np.ndarray,
    drawn: np.ndarray | None,
    names: tuple[str, str] = ("predictor", "bits/character"),
) -> list[dict[str, Plain]]:
    """Return a table row for each predictor, the model first; `names` are those of the first columns."""
    total, label, figure = characters.sum(), *names
    return [
        {label: name, figure: float(own.sum() / total), "95 %": ratio_percentiles(own, characters, drawn)}
        for name, own in values.items()
    ]


def gain(
    bits: Mapping[str, np.ndarray], num_own: int, characters: np.ndarray, drawn: np.ndarray | None
) -> dict[str, Plain]:
    """Return the summary's comparison of the best of the model's rows, the first `num_own`, with the best baseline."""
    totals = {name: float(each.sum()) for name, each in bits.items()}
    own, strongest = (min(names, key=totals.__getitem__) for names in (list(bits)[:num_own], list(bits)[num_own:]))
    unit = totals[strongest] / characters.sum() / 100
    percent = (totals[strongest] - totals[own]) / characters.sum() / unit
    interval = ratio_percentiles(bits[strongest] - bits[own], characters, drawn)
    gain_interval = interval and [end / unit for end in interval]
    said: dict[str, Plain] = {"verdict": verdict(percent, gain_interval, strongest), "strongest_baseline": strongest}
    return {**said, "gain_percent": percent, "gain_percent_interval": gain_interval}


def verdict(gain: float, interval: Sequence[float] | None, baseline: str) -> str:
    """Return in words whether the model is better, by the interval of its gain on the baseline in percent."""
    if interval is None or interval[0] <= 0:
        return f"not better than {baseline}: add documents"
    return f"better than {baseline} by {gain:.1f} % [{interval[0]:.1f}, {interval[1]:.1f}]"


def together(evaluations: Sequence[Evaluation], seed: int) -> Evaluation:
    """Combine evaluations of one split, each of other text by another model."""
    columns: dict[str, list[object]] = {}
    for each in evaluations:
        for name, values in each.examples.items():
            columns.setdefault(re.sub(r", order \d+", "", name), []).extend(values)
    columns.pop(f"{BITS}{LSTM}", None)  # it has read documents that the others must not have
    bits = {name.removeprefix(BITS): np.array(each) for name, each in columns.items() if name.startswith(BITS)}
    characters = np.array(columns["characters"])
    drawn = resampled_counts(len(characters), RESAMPLES, seed)
    rows = rows_of(bits, characters, drawn)
    parts = [each.summary for each in evaluations]
    weights = np.array([part["n"] for part in parts])
    new = weights * [part["new_text"]["share"] for part in parts]
    of_new = [part["new_text"]["bits_per_character"] or 0.0 for part in parts]
    summary = {
        **parts[0],
        "bits_per_character": rows[0]["bits/character"],
        "interval": rows[0]["95 %"],
        "bits_per_character_adaptive": rows[1]["bits/character"],
        "new_text": {
            "share": float(new.sum() / weights.sum()),
            "bits_per_character": float(new @ of_new / new.sum()) if new.any() else None,
        },
        **gain(bits, 2, characters, drawn),
        "n": int(weights.sum()),
        "documents": len(set(columns["document"])),
        "seconds": sum(part["seconds"] for part in parts),
    }
    summary.pop("bits_per_character_prompt", None)
    return Evaluation(evaluations[0].split, summary, rows, columns)
