"""Modified Kneser-Ney n-grams (Chen and Goodman 1999), fixed, or adapting by counting what they have predicted."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

HIGHEST_ORDER = 12  # that `chosen` tries
MOST_FOR_ORDER = 300_000  # last ids, on which the order is chosen
LEAST_DISCOUNT = 0.05  # so that nothing has probability 0
FEW = 64  # look-ups that are not worth sorting


def baselines(
    training: Sequence[np.ndarray], held_out: Sequence[np.ndarray], vocabulary: int
) -> dict[str, list[np.ndarray]]:
    """Return, by the name of a row in a table, the nats of all ids but the first of each held-out sequence."""
    model = KneserNey.chosen(training, vocabulary)
    name = f"Kneser-Ney, order {model.order}"
    return {name: model.nats(held_out), f"{name}, adapting": model.nats(held_out, adapting=True)}


@dataclass(frozen=True)
class Level:
    """Counts of ids after contexts of one length. Arrays end in an extra 0, which is read at place -1, "never seen"."""

    pairs: np.ndarray  # (P,) sorted: context * vocabulary + id
    counts: np.ndarray  # (P + 1,)
    totals: np.ndarray  # (C + 1,)
    kinds: np.ndarray  # (C + 1, 3) ids counted once, twice, and more often
    discounts: np.ndarray  # (4,) of a count of 0, 1, 2, and more


class KneserNey:
    """Interpolated modified Kneser-Ney model over integer ids.

    p(w | h) = (c(h w) - D(c(h w)) + (D1 N1(h) + D2 N2(h) + D3 N3(h)) p(w | h')) / c(h), where h' is h without its first
    id, c(h w) for the longest contexts is how often w followed h, and for all others after how many different ids h w
    occurred; N1, N2 and N3 are how many ids have a count of 1, 2 and more after h. If nothing was seen after h, it is
    p(w | h'); below order 1, it is 1 / vocabulary. The discounts of each length follow from its counts of counts.

    Raises ValueError for an order or a vocabulary below 1; `fit` and `nats` raise it for ids outside the vocabulary.
    """

    def __init__(self, order: int, vocabulary: int):
        if order < 1 or vocabulary < 1:
            raise ValueError(f"order and vocabulary must be 1 or more (given {order} and {vocabulary})")
        self.order, self.vocabulary = order, vocabulary
        self.levels: list[Level] = []

    @classmethod
    def chosen(cls, sequences: Sequence[np.ndarray], vocabulary: int) -> "KneserNey":
        """Fit the order that best predicts the last tenth of the sequences from the rest, then all."""
        known, held_out = _last_tenth(sequences)
        order, least = 1, float("inf")
        while order < HIGHEST_ORDER and any(map(len, held_out)):
            nats = float(np.concatenate(cls(order + 1, vocabulary).fit(known).nats(held_out)).sum())
            if nats >= least:
                break
            order, least = order + 1, nats
        return cls(order, vocabulary).fit(sequences)

    def fit(self, sequences: Iterable[np.ndarray]) -> "KneserNey":
        """Count n-grams in 1-D sequences of ids; each begins with a start marker, which is context, never predicted."""
        ids, ages = self.flat(sequences)
        self.levels = [_level(np.zeros(0, np.int64), np.zeros(0, np.int64), 1, 1)] * self.order  # nothing is known yet
        found, empty = self.found(ids, ages), self.levels
        for length, (contexts, places, counted) in enumerate(found):
            keys = contexts * self.vocabulary + ids
            pairs = np.zeros(places.max(initial=-1) + 1, np.int64)
            pairs[places[places >= 0]] = keys[places >= 0]
            num_contexts = len(empty[0].totals) - 1 if length == 0 else found[length - 1][1].max(initial=-1) + 1
            counts = np.bincount(places[counted], minlength=len(pairs))
            self.levels[length] = _level(pairs, counts, int(num_contexts), self.vocabulary)
        return self

    def nats(self, sequences: Sequence[np.ndarray], adapting: bool = False) -> list[np.ndarray]:
        """Return -log p (len - 1,) of all ids but each first; `adapting`, each is counted once it is predicted."""
        ids, ages = self.flat(sequences)
        probability = np.full(len(ids), 1 / self.vocabulary)
        for level, (contexts, places, counted) in zip(self.levels, self.found(ids, ages), strict=True):
            seen = np.where(places < len(level.pairs), places, -1)
            known = np.where(contexts < len(level.totals) - 1, contexts, -1)
            count, total, kinds = level.counts[seen], level.totals[known], level.kinds[known]
            if adapting:
                count = count + sums_before(places, counted)
                total = total + sums_before(contexts, counted)
                kinds = kinds + sums_before(contexts, _steps(count) * counted[:, None])
            backed_off = kinds @ level.discounts[1:] * probability
            mixed = (count - level.discounts[count.clip(max=3)] + backed_off) / np.maximum(total, 1)
            probability = np.where((contexts >= 0) & (total > 0), mixed, probability)
        ends = np.cumsum([len(sequence) for sequence in sequences])[:-1]
        return [part[1:] for part in np.split(-np.log(probability), ends)] if len(sequences) else []

    def found(self, ids: np.ndarray, ages: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return, per length, the context and the pair (N,) of each id, numbered, and whether the pair counts there.

        A context is numbered by its place among the pairs (shorter context, id) of the level below, so that keys stay
        small at any order; those not seen in `fit` come after. -1 is a context that would begin before its sequence.
        """
        numbered: list[tuple[np.ndarray, np.ndarray]] = []
        fresh: list[np.ndarray] = []  # whether a pair occurs for the first time
        contexts = np.zeros(len(ids), np.int64)
        for level in self.levels:
            valid = contexts >= 0
            keys = contexts * self.vocabulary + ids
            places = np.where(valid, lookup(level.pairs, keys), -1)
            new = valid & (places < 0)
            _, first, inverse = np.unique(keys[new], return_index=True, return_inverse=True)
            places[new] = len(level.pairs) + inverse
            fresh.append(np.zeros(len(ids), bool))
            fresh[-1][np.flatnonzero(new)[first]] = True
            numbered.append((contexts, places))
            contexts = np.where(ages >= 1, np.roll(places, 1), -1)
        # A pair counts for its longest context; for a shorter one, when the next longer is new (see the class).
        longest = np.minimum(self.order - 1, ages)
        counted = [
            (ages >= 1) & ((longest == length) | ((longest > length) & longer))
            for length, longer in enumerate([*fresh[1:], np.zeros(len(ids), bool)])
        ]
        return [(contexts, places, each) for (contexts, places), each in zip(numbered, counted, strict=True)]

    def flat(self, sequences: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return all ids concatenated (N,), and the number of ids before each one in its sequence (N,)."""
        arrays = [np.zeros(0, np.int64), *(np.asarray(sequence, np.int64) for sequence in sequences)]
        ids = np.concatenate(arrays)
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.vocabulary:
            raise ValueError(f"ids must be 0 to {self.vocabulary - 1} (given {ids.min()} to {ids.max()})")
        return ids, np.concatenate([np.arange(len(array)) for array in arrays])


def _level(pairs: np.ndarray, counts: np.ndarray, num_contexts: int, vocabulary: int) -> Level:
    owners, kinds = pairs // vocabulary, [counts == 1, counts == 2, counts > 2]
    return Level(
        pairs,
        np.append(counts, 0),
        np.bincount(owners, counts, num_contexts + 1).astype(np.int64),
        np.stack([np.bincount(owners, kind, num_contexts + 1) for kind in kinds], 1).astype(np.int32),
        discounts_of(counts),
    )


def discounts_of(counts: np.ndarray) -> np.ndarray:
    """Return the discounts of a count of 0, 1, 2 and more by leave-one-out estimates (Chen and Goodman 1999)."""
    once, twice, thrice, four_times = (max(1, int((counts == n).sum())) for n in range(1, 5))
    share = once / (once + 2 * twice)
    discounts = (1 - 2 * share * twice / once, 2 - 3 * share * thrice / twice, 3 - 4 * share * four_times / thrice)
    return np.array([0, *(np.clip(value, LEAST_DISCOUNT, n) for n, value in enumerate(discounts, 1))])


def _steps(count: np.ndarray) -> np.ndarray:
    """Return how the numbers of ids (N, 3) counted once, twice, and more often change with one more of each count."""
    kinds = np.eye(4, dtype=np.int64)
    return np.asarray(kinds[(count + 1).clip(max=3), 1:] - kinds[count.clip(max=3), 1:])


def _last_tenth(sequences: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Cut the last ids of all sequences, at most MOST_FOR_ORDER, into the first nine tenths and the last."""
    *begins, total = itertools.accumulate(map(len, sequences), initial=0)
    first, cut = max(0, total - MOST_FOR_ORDER), total - min(total, MOST_FOR_ORDER) // 10
    places = [(max(0, first - begin), max(0, cut - begin)) for begin in begins]
    known = [part for each, (start, end) in zip(sequences, places, strict=True) if len(part := each[start:end])]
    return known, [part for each, (_, end) in zip(sequences, places, strict=True) if len(part := each[end:])]


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
