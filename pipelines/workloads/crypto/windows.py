"""Windows of prepared coins, gathered out of tables that live on the device."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pipelines.workloads.crypto import data

IGNORED = -1  # label of a row at which no window of the part ends


class Windows:
    """Windows of one or several coins, in stretches of S rows at which windows end, by number.

    table (N, F) float32 scaled features of all coins, one below the other, S - 1 empty rows after each; labels (N,) of
    the rows at which windows of this part end, IGNORED elsewhere; starts (n,) the first row of each stretch; coins (n,)
    the number of its coin. With S = 1 a stretch is a window.
    """

    workers = 0

    def __init__(self, table: Tensor, labels: Tensor, starts: Tensor, coins: Tensor, lookback: int, stretch: int):
        self.size = len(starts)
        self.table, self.labels, self.starts, self.coins = table, labels, starts, coins
        self.past, self.ahead = torch.arange(1 - lookback, stretch), torch.arange(stretch)
        self.fixed: Tensor | None = None  # (N, ...) a model's precomputed outputs by row, part of each batch

    def to(self, device: torch.device) -> "Windows":
        """Move everything to the device."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.to(device))
        return self

    def batch(self, items: Tensor) -> dict[str, Tensor]:
        """Return windows (b, L - 1 + S, F), labels (b, S) and coins (b,) for `items` (b,)."""
        items = items.to(self.table.device, non_blocking=True)
        starts = self.starts.index_select(0, items)[:, None]
        rows, ends = starts + self.past, starts + self.ahead
        found = {
            "windows": self.table.index_select(0, rows.flatten()).view(*rows.shape, -1),
            "labels": self.labels[ends],
            "coins": self.coins.index_select(0, items),
        }
        return found if self.fixed is None else {**found, "fixed": self.fixed[ends]}


def pooled(coins: Sequence[data.Coin], fold: int, part: str, stretch: int = 1, first: int = 0) -> Windows:
    """Return the windows of one or several coins, each in order of time, one coin after the other.

    `first` is the number of the first coin in a pooled model.
    """
    starts, labels = list[np.ndarray](), list[np.ndarray]()
    for coin in coins:
        ends = coin.folds[fold][part]
        own = np.full(len(coin.labels) + stretch - 1, IGNORED)
        own[ends] = coin.labels[ends]
        starts.append(_stretches(ends, stretch) + sum(len(each) for each in labels))
        labels.append(own)
    return Windows(
        torch.from_numpy(below_each_other([coin.scaled(fold) for coin in coins], stretch)),
        torch.from_numpy(np.concatenate(labels)),
        torch.from_numpy(np.concatenate(starts)),
        torch.from_numpy(np.repeat(np.arange(first, first + len(coins)), list(map(len, starts)))),
        coins[0].lookback,
        stretch,
    )


def below_each_other(columns: Sequence[np.ndarray], stretch: int) -> np.ndarray:
    """Return the tables of coins (N, ...) float32 as one, in the order of `Windows`, with 0 for non-finite values.

    A row that no window holds may lack features; it must not be NaN times 0 in some later gather.
    """
    padded = [np.pad(each, [(0, stretch - 1)] + [(0, 0)] * (each.ndim - 1)) for each in columns]
    return np.asarray(np.nan_to_num(np.concatenate(padded), posinf=0.0, neginf=0.0), np.float32)


def _stretches(ends: np.ndarray, length: int) -> np.ndarray:
    """Return the first rows (n,) of stretches of `length` rows that together cover the rows `ends`, ascending."""
    if length == 1:
        return ends
    found, at = [], 0
    while at < len(ends):
        found.append(ends[at])
        at = int(np.searchsorted(ends, ends[at] + length))
    return np.array(found, np.int64)
