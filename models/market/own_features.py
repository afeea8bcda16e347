"""A user's own features and targets: functions of candles in a file that models identify by its SHA-256.

A file runs only where its user names it, in data.features or by `load`, never because a model's folder names it.
"""

import runpy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.disk.files import sha256
from common.errors import UserError
from models.market import candle_features, labels, other_candles
from models.market.candles import Candles

LOADED: "dict[tuple[str, str], Own]" = {}  # by the function's name and the SHA-256 of the file
TARGET = "target"
CUTS = 48  # rows at which features are computed again from cut candles


class Own(NamedTuple):
    """A function FILE.py:FUNCTION from candles without a gap to {name: (N,)}."""

    word: str
    sha256: str
    memory: int  # candles that a row depends on, its own included: MEMORY of the file
    function: Callable[[Candles], Mapping[str, np.ndarray]]

    def columns(self, candles: Candles) -> dict[str, np.ndarray]:
        """Return the features (N,) float64. Raises UserError for other shapes and the names of default ones."""
        if not isinstance(given := self.function(candles), Mapping) or not given:
            raise UserError(f"{self.word} returns {str(given)[:50]!r}; return {{NAME: a number for each candle}}")
        found = {name: np.asarray(each, np.float64) for name, each in given.items()}
        for name, each in found.items():
            if each.shape != (len(candles),) or name in candle_features.NAMES or ":" in name:
                what = f"{name} of shape {each.shape} for {len(candles)} candles; return a number for each"
                raise UserError(f"{self.word} returns {what}, under no default feature's name, without a colon")
        return found

    def check(self, candles: Candles, ahead: int = 0) -> None:
        """Raise UserError if a row changes when candles before its memory, or over `ahead` after it, are cut off."""
        whole = self.columns(candles)
        for row in np.linspace(min(self.memory, len(candles)) - 1, len(candles) - 1, CUTS).astype(int).tolist():
            for first in (0, max(row + 1 - self.memory, 0)):
                cut = self.columns(candles.rows(slice(first, row + 1 + ahead)))
                for name, each in whole.items():
                    if name not in cut or not np.isclose(cut[name][row - first], each[row], 1e-5, 1e-9, equal_nan=True):
                        why = f"depends on more than {self.memory} candles: say so in that file, as in MEMORY = 500"
                        further = f"more than data.horizon={ahead} candles " * (ahead > 0)
                        why = why if first else f"looks {further}ahead: it changes when later candles are cut off"
                        raise UserError(f"{self.word}: {name} of candle {row} of {len(candles)} {why}")


def load(word: str, key: str = "data.features") -> Own | None:
    """Run the file of FILE.py:FUNCTION[@SHA256]; None for another word. UserError if it is missing or has changed."""
    if ":" not in word:
        return None
    (file, _, rest), is_target = word.rpartition(":"), key == "data.label"
    name, _, known = rest.partition("@")
    if not Path(file).is_file():
        usual = "fixed" if is_target else "default"
        raise UserError(f"{key}={word}: there is no file {file!r}; give {usual}, or FILE.py:FUNCTION")
    if known not in ("", found := sha256(Path(file))):
        what = f"{file} has changed: its SHA-256 is {found[:12]}..., and {known[:12]}... was trained with"
        raise UserError(f"{what}; bring that version back, or train again under another --name")
    there = runpy.run_path(file)
    if not callable(function := there.get(name)):
        raise UserError(f"{key}={word}: {file} has no function {name}")
    memory = max(int(there.get("MEMORY", candle_features.MEMORY)), 1)  # a row's own candle
    used = (lambda candles: {TARGET: function(candles)}) if is_target else function
    LOADED[name, found] = Own(f"{file}:{name}", found, memory, used)
    return LOADED[name, found]


def of(own: Mapping[str, str]) -> Own | None:
    """Return the function that a model's description names; None for default features. ValueError if not loaded."""
    word, known = own.get("word", ""), own.get("sha256", "")
    if own and (word.rpartition(":")[2], known) not in LOADED:
        needed = f"this model needs {word}, SHA-256 {known}"
        raise ValueError(f"{needed}: give --name RUN, or call models.market.own_features.load('{word}')")
    return LOADED[word.rpartition(":")[2], known] if own else None


def labelled(candles: Candles, rule: str, horizon: int, threshold: float) -> np.ndarray:
    """Return labels (N,) int8 as `labels.label` does, by one of its rules or by a target FILE.py:FUNCTION@SHA256.

    A target is -1 SHORT, 0 NO_TRADE, 1 LONG or NaN for each candle. Raises UserError for another number.
    """
    if ":" not in rule:
        return labels.label(candles, rule, horizon, threshold)
    word, _, known = rule.rpartition("@")
    own, found = of({"word": word, "sha256": known}), np.full(len(candles), labels.UNKNOWN, np.int8)
    assert own
    for segment in candles.segments():
        sides = own.columns(candles.rows(segment))[TARGET][: -horizon or None]
        if not np.isin(sides[~np.isnan(sides)], (-1, 0, 1)).all():
            raise UserError(f"{word} returns {np.nanmin(sides):g} to {np.nanmax(sides):g}; return -1, 0, 1 or NaN")
        found[segment][: len(sides)] = np.where(np.isnan(sides), labels.UNKNOWN, sides + 1)
    return found


def compute(
    candles: Candles, own: Own | None, names: Sequence[str] = (), others: Sequence[str] = ()
) -> tuple[tuple[str, ...], np.ndarray]:
    """Return names and features (N, F) as `candle_features.compute` does, by default of all.

    The default features are followed by those of `own` and those of `others`, see `other_candles`.
    """
    if own is None and not others:
        return tuple(names) or candle_features.NAMES, candle_features.compute(candles, names)
    columns = dict(zip(candle_features.NAMES, candle_features.compute(candles).T, strict=True))
    parts = [candles.rows(segment) for segment in candles.segments()]
    blocks = [{**(own.columns(part) if own else {}), **other_candles.columns(part, others)} for part in parts]
    columns |= {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    chosen = tuple(names) or tuple(columns)
    return chosen, np.stack([columns[name] for name in chosen], 1)
