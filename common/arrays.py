"""Look-ups and sums over sorted keys."""

import numpy as np

FEW = 64  # so many are looked up in any order


def sums_before(keys: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the sum of `steps` (N, ...) over the earlier rows with the same key."""
    order = np.argsort(keys, kind="stable")
    sums: np.ndarray = np.cumsum(steps[order], 0, dtype=np.int64) - steps[order]
    sorted_keys = keys[order]
    begins = np.flatnonzero(np.diff(sorted_keys, prepend=sorted_keys[:1] - 1))
    sums -= np.repeat(sums[begins], np.diff(begins, append=len(keys)), 0)
    found = np.empty_like(sums)
    found[order] = sums
    return found


def lookup(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the index of each of `wanted` in the sorted `keys`; -1 if it is not among them."""
    if not len(keys):
        return np.full(len(wanted), -1)
    # Neighbours are found in the same parts of the memory, four times as fast.
    order = np.argsort(wanted) if len(wanted) >= FEW else slice(None)
    ascending = wanted[order]
    places = np.searchsorted(keys, ascending)
    places[keys[np.minimum(places, len(keys) - 1)] != ascending] = -1
    found = np.empty_like(places)
    found[order] = places
    return found
