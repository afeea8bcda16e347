"""A memory of what followed each bigram, trigram and so on of the training text, looked up by a hash.

A row of a table stands for one context: of those that share the row, the one that occurred most often; a fingerprint of
8 bits tells it from the others. It holds the mean, over what followed in the training text, of a vector learnt for
each token, shrunk towards 0 by a learnt pseudo-count, as in Dirichlet smoothing:

    row = sum of count(token) u(token) / (total + prior)

In training, the means that a window reads leave out the window's own continuations. Otherwise every context seen once
would predict its only continuation, and the network would learn to trust what does not hold on other text.
(Hashed n-gram embeddings: Roy et al. 2022, "N-Grammer", which learns rows freely; those learn a small text by heart.)

Shapes: B windows, S positions, N tokens of a text, R rows of a table, D width, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

# What each token of a context is multiplied by for its hash, the newest first: odd constants of MurmurHash3 and xxHash,
# chosen to spread bits.
HASHED = (0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F, 0x165667B1)
FINGERPRINTS = 256
AT_ONCE = 1 << 20  # tokens that are counted at a time


@dataclass(frozen=True)
class Following:
    """How often each token followed a table's contexts: of row r, entries starts[r] to starts[r + 1] - 1."""

    starts: Tensor  # (R + 1,) int64
    tokens: Tensor  # (n,) int64
    counts: Tensor  # (n,) float32
    totals: Tensor  # (R,) float32


class NgramMemory(nn.Module):
    """Tables of `rows` rows each; the first is of bigrams, the next of trigrams."""

    def __init__(self, rows: Sequence[int], vocabulary: int, width: int):
        super().__init__()
        self.rows = tuple(rows)
        self.followed_by = nn.ModuleList(nn.Embedding(vocabulary, width) for _ in rows)
        self.prior = nn.Parameter(torch.zeros(len(self.rows)))
        for number, (size, embedding) in enumerate(zip(rows, self.followed_by, strict=True)):
            nn.init.normal_(cast(nn.Embedding, embedding).weight, std=0.5 * width**-0.5)
            self.register_buffer(f"mean_{number}", torch.zeros(size, width))
            self.register_buffer(f"fingerprint_{number}", torch.zeros(size, dtype=torch.uint8))
        self.counted: list[Following] = []  # of the training text

    def forward(self, tokens: Tensor, stories: Tensor | None, followed: Tensor | None = None) -> Tensor:
        """Sum (B, S, D) of the tables' rows for the contexts that end at `tokens` (B, S) int64.

        `followed` (B, S) int64 is the token after each, -1 where that was not counted; in training it is left out of
        the means that the window reads. `stories` as for the transformer.
        """
        found = torch.zeros((), device=tokens.device)
        for number, (row, fingerprint) in enumerate(contexts(tokens, stories, self.rows)):
            matches = self.fingerprint(number)[row] == fingerprint
            if self.training and self.counted and followed is not None:
                unknown = _cut_off(tokens, stories, number + 1)
                mean = self._without(number, row, matches, followed.masked_fill(unknown, -1))
            else:
                mean = self.mean(number)[row]
            found = found + mean * matches[..., None]
        return found

    def mean(self, number: int) -> Tensor:
        """The rows (R, D) of a table."""
        return self.get_buffer(f"mean_{number}")

    def fingerprint(self, number: int) -> Tensor:
        """The fingerprints (R,) uint8 of a table's contexts."""
        return self.get_buffer(f"fingerprint_{number}")

    def count(self, tokens: np.ndarray, stories: np.ndarray) -> None:
        """Choose the contexts of the tables and count what follows them in a text (N,) with its stories (N,)."""
        device = self.fingerprint(0).device  # not of weights, which may come later
        self.counted = []
        for number, size in enumerate(self.rows):
            occurrences = np.zeros(size * FINGERPRINTS, np.int64)
            for key, _ in _keys(tokens, stories, self.rows[: number + 1]):
                occurrences += np.bincount(key, minlength=len(occurrences))
            owner = occurrences.reshape(size, FINGERPRINTS).argmax(1)
            vocabulary = cast(nn.Embedding, self.followed_by[number]).num_embeddings
            counts = np.zeros(size * vocabulary, np.int64)
            for key, following in _keys(tokens, stories, self.rows[: number + 1]):
                row = key // FINGERPRINTS
                mine = owner[row] == key % FINGERPRINTS
                counts += np.bincount(row[mine] * vocabulary + following[mine], minlength=len(counts))
            (seen,) = np.nonzero(counts)
            totals = counts.reshape(size, vocabulary).sum(1)
            self.fingerprint(number).copy_(torch.from_numpy(owner))
            starts = np.searchsorted(seen // vocabulary, np.arange(size + 1))
            stored = (starts, seen % vocabulary, counts[seen].astype(np.float32), totals.astype(np.float32))
            self.counted.append(Following(*(torch.from_numpy(each).to(device) for each in stored)))

    @torch.no_grad()
    def refit(self) -> None:
        """Set all rows to the means under the current vectors, if a text was counted."""
        for number in range(len(self.counted)):
            every = torch.arange(self.rows[number], device=self.prior.device)
            total = self.counted[number].totals + F.softplus(self.prior[number])
            self.mean(number).copy_(self._sums(number, every) / total[:, None])

    def _without(self, number: int, row: Tensor, matches: Tensor, followed: Tensor) -> Tensor:
        """Means (B, S, D) for rows (B, S), without the windows' own contributions."""
        used, place = row.unique(return_inverse=True)
        vectors = cast(nn.Embedding, self.followed_by[number]).weight
        own = (row[:, :, None] == row[:, None, :]) & (matches & (followed >= 0))[:, None, :]
        own = own.to(vectors.dtype)  # (B, S, S): 1 where a position's continuation counts in another's row
        sums = self._sums(number, used)[place] - own @ vectors[followed.clamp(min=0)]
        totals = self.counted[number].totals[row] - own.sum(-1)
        return sums / (totals + F.softplus(self.prior[number]))[..., None]

    def _sums(self, number: int, rows: Tensor) -> Tensor:
        """Sums (n, D) of count times vector for rows (n,)."""
        counted = self.counted[number]
        first, length = counted.starts[rows], counted.starts[rows + 1] - counted.starts[rows]
        offset = length.cumsum(0) - length
        entry = torch.arange(int(length.sum()), device=rows.device) + (first - offset).repeat_interleave(length)
        vectors = cast(nn.Embedding, self.followed_by[number]).weight
        weights = counted.counts[entry].to(vectors.dtype)
        return F.embedding_bag(counted.tokens[entry], vectors, offset, mode="sum", per_sample_weights=weights)


def contexts(tokens: Tensor, stories: Tensor | None, rows: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield row and fingerprint, each (B, S), of the contexts that end at `tokens` (B, S) int64 for each table.

    Table i is of contexts of i + 2 tokens; those before the story, or before the window, count as token 0. The hash is
    multiply-shift (Dietzfelbinger 1996): of a sum of products in 32 bits, the highest bits are the row.
    """
    hashed = tokens * HASHED[0]
    for distance, size in enumerate(rows, 1):
        before = F.pad(tokens, (distance, 0))[:, : tokens.shape[1]]
        if stories is not None:
            before = before * (stories == F.pad(stories, (distance, 0), value=-2)[:, : tokens.shape[1]])
        hashed = hashed + before * HASHED[distance]
        yield (hashed & 0xFFFFFFFF) * size >> 32, hashed & (FINGERPRINTS - 1)


def _cut_off(tokens: Tensor, stories: Tensor | None, distance: int) -> Tensor:
    """Whether the context (B, S) of a position, `distance` tokens further back, begins before the window."""
    near = torch.arange(tokens.shape[1], device=tokens.device) < distance
    first = tokens[:, :1] != 0  # a story that is under way
    return near & (first if stories is None else first & (stories == stories[:, :1]))


def _keys(tokens: np.ndarray, stories: np.ndarray, rows: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (row times FINGERPRINTS plus fingerprint, following token) of the last table's contexts, piece by piece."""
    for start in range(0, len(tokens) - 1, AT_ONCE):
        before = min(start, len(rows))
        piece = slice(start - before, start + AT_ONCE + 1)
        text, story = (torch.from_numpy(each[piece].astype(np.int64)) for each in (tokens, stories))
        for row, fingerprint in contexts(text[None], story[None], rows):
            key = row * FINGERPRINTS + fingerprint
        inside = story[:-1] == story[1:]
        inside[:before] = False
        yield key[0, :-1][inside].numpy(), text[1:][inside].numpy()
