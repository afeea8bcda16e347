"""Features of a user's own, beside the default ones: a function of candles in a file that models know by its SHA-256.

A file runs only where its user names it, in data.features or by `load`: the folder of a model names none that is run.
"""

import runpy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.disk.files import sha256
from common.errors import UserError
from models.market import candle_features
from models.market.candles import Candles

LOADED: "dict[str, Own]" = {}  # by the SHA-256 of the file
CUTS = 48  # rows at which features are computed again from cut candles


class Own(NamedTuple):
    """A function FILE.py:FUNCTION from candles without a gap to {name: (N,)}."""

    word: str
    sha256: str
    memory: int  # candles that a row depends on, its own included: MEMORY of the file
    function: Callable[[Candles], Mapping[str, np.ndarray]]

    def columns(self, candles: Candles) -> dict[str, np.ndarray]:
        """Return the features (N,) float64. Raises UserError for other shapes and the names of default ones."""
        found = {name: np.asarray(each, np.float64) for name, each in self.function(candles).items()}
        for name, each in found.items():
            if each.shape != (len(candles),) or name in candle_features.NAMES:
                what = f"{name} of shape {each.shape} for {len(candles)} candles"
                raise UserError(f"{self.word} gives {what}; give a number for each, under no default feature's name")
        return found

    def check(self, candles: Candles) -> None:
        """Raise UserError if features of a row differ once the candles after it, or before its memory, are cut off."""
        whole = self.columns(candles)
        for row in np.linspace(min(self.memory, len(candles)) - 1, len(candles) - 1, CUTS).astype(int).tolist():
            for first in (0, max(row + 1 - self.memory, 0)):
                cut = self.columns(candles.rows(slice(first, row + 1)))
                for name, each in whole.items():
                    if name not in cut or not np.isclose(cut[name][-1], each[row], 1e-5, 1e-9, equal_nan=True):
                        why = f"depends on more than {self.memory} candles: say so in that file, as in MEMORY = 500"
                        why = why if first else "looks ahead: it is another once later candles are cut off"
                        raise UserError(f"{self.word}: {name} of candle {row} of {len(candles)} {why}")


def load(word: str) -> Own | None:
    """Run the file of FILE.py:FUNCTION[@SHA256], none of `default`. UserError if there is neither, or another file."""
    if word == "default":
        return None
    (file, _, name), known = word.partition("@")[0].rpartition(":"), word.partition("@")[2]
    if not Path(file).is_file():
        raise UserError(f"data.features={word}: there is no file {file!r}; give default, or FILE.py:FUNCTION")
    if known not in ("", found := sha256(Path(file))):
        what = f"{file} has changed: its SHA-256 is {found[:12]}..., and {known[:12]}... was trained with"
        raise UserError(f"{what}; bring that version back, or train again under another --name")
    there = runpy.run_path(file)
    if not callable(there.get(name)):
        raise UserError(f"data.features={word}: {file} has no function {name}")
    LOADED[found] = Own(f"{file}:{name}", found, int(there.get("MEMORY", candle_features.MEMORY)), there[name])
    return LOADED[found]


def of(own: Mapping[str, str]) -> Own | None:
    """Return what a model's description names, None for the default features. Raises ValueError if it is not loaded."""
    word, known = own.get("word"), own.get("sha256", "")
    if own and known not in LOADED:
        needed = f"this model needs {word}, SHA-256 {known}"
        raise ValueError(f"{needed}: give --name RUN, or call models.market.own_features.load('{word}')")
    return LOADED[known] if own else None


def compute(candles: Candles, own: Own | None, names: Sequence[str] = ()) -> tuple[tuple[str, ...], np.ndarray]:
    """Return names and features (N, F) as `candle_features.compute` does, by default of all, those of `own` last."""
    if own is None:
        return tuple(names) or candle_features.NAMES, candle_features.compute(candles, names)
    columns = dict(zip(candle_features.NAMES, candle_features.compute(candles).T, strict=True))
    blocks = [own.columns(candles.rows(segment)) for segment in candles.segments()]
    columns |= {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    chosen = tuple(names) or tuple(columns)
    return chosen, np.stack([columns[name] for name in chosen], 1)
