"""Counts of what followed the last 1 to 4 tokens in the training text, mixed into what a network predicts.

An entry says that a token followed a context, and how strongly. The network's probabilities are sharpened context by
context, the shortest first, as interpolated n-grams sharpen their lower orders (Chen and Goodman 1999):

    p(w | h) = (1 - m) p(w | h') + m q(w | h),    q(w | h) = (c(h w) - D) / sum over w of the same

where h' is h without its first token, c and D are the counts and discounts of Kneser and Ney, and m depends on how much
was seen after h. The m are fitted to text that was not counted. An entry stores only the level -64 ln(m q / (1 - m)),
so that a microcontroller needs no division: p is p(w | h') plus exp(-level / 64), up to a factor common to all w.

Entries lie in buckets, by a hash of their context; a tag of 10 bits tells contexts in one bucket apart.

Shapes: B windows, S positions, V vocabulary, N tokens of a text, E entries, L entries of the longest bucket.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.kneser_ney import KneserNey, sums_before
from models.stories.config import bucket_bits

ORDERS = 4  # contexts of 1 to 4 tokens
FACTOR = 0x1B873593  # of the hash, odd, from MurmurHash3; below 2^29, so that products fit 63 bits
TAG_BITS, TAG_PLACE = 10, 6  # of a hash: bits above the place
LEVELS = 1024
NAT = 64  # levels
LONGEST = 64  # entries of a bucket
MOST_FOLLOWING = 32  # entries of a context
MOST_COUNTED = 5_000_000  # tokens, the last of a text, that a caller should count
TOTALS, SHARES = (1.5, 2.5, 4.5, 8.5, 20.5, 60.5), (0.26, 0.51, 0.76)  # borders between states of a context
STATES = 1 + (len(TOTALS) + 1) * (len(SHARES) + 1)  # 0: never seen
PRIOR, PRECISION = -1.0, 3.0  # of the states' log odds
ITERATIONS = 50  # of L-BFGS
Codes = TypeVar("Codes", Tensor, np.ndarray)


@dataclass(frozen=True)
class Order:
    """What followed the contexts of one length. A pair is a context and a token that followed it."""

    hashes: np.ndarray  # (contexts,)
    states: np.ndarray  # (contexts,) by how much was seen, 1 to STATES - 1
    pairs: np.ndarray  # (pairs,) sorted: context times V plus token
    shares: np.ndarray  # (pairs,) q of the token, 0 if it is not among the entries
    worth: np.ndarray  # (pairs,) nats that the pair saves in the text itself


class NgramCounts(nn.Module):
    """The entries that are worth most. Those of bucket b are at starts[b] to starts[b + 1] - 1."""

    def __init__(self, entries: int, vocabulary: int):
        super().__init__()
        self.vocabulary, self.bits = vocabulary, bucket_bits(entries)
        self.starts = nn.Buffer(torch.zeros((1 << self.bits) + 1, dtype=torch.int32))
        self.tokens, self.tags, self.levels = (nn.Buffer(torch.zeros(entries, dtype=torch.int16)) for _ in range(3))
        self.orders: list[Order] = []  # of the training text, while it is at hand
        self._known = KneserNey(ORDERS + 1, vocabulary)
        self._entries = np.zeros((0, 3))  # of each entry in use, order, state and share

    def forward(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Return logits (B, S, V) of the mixture, from the network's after the last S of `tokens` (B, N) int64."""
        whole = logits.logsumexp(-1, keepdim=True)
        for code, inside in hashes(tokens):
            last = slice(tokens.shape[1] - logits.shape[1], None)
            place, found = entries_of(self.starts, self.tags, code[:, last], inside[:, last])
            token = self.tokens[place].long()
            added = torch.where(found, self.levels[place] / -NAT, -torch.inf)
            known = logits.gather(-1, token)
            change = torch.where(found, torch.logaddexp(known, whole + added) - known, 0.0)
            logits = logits.scatter_add(-1, token, change)
            whole = whole + torch.log1p(added.exp().sum(-1, keepdim=True))
        return logits

    def check(self) -> None:
        """Raise ValueError for damaged entries."""
        sizes, (words, tags) = self.starts.diff(), (self.vocabulary, 1 << TAG_BITS)
        limited = ((self.tokens, words), (self.tags, tags), (self.levels, LEVELS), (sizes, LONGEST + 1))
        sound = all(bool(((values >= 0) & (values < most)).all()) for values, most in limited)
        if not sound or self.starts[0] != 0 or self.starts[-1] > len(self.levels):
            raise ValueError("the model's counts are damaged")

    def count(self, tokens: np.ndarray, stories: np.ndarray) -> None:
        """Count a text (N,) with its stories (N,) and choose the entries; `fit` sets their levels."""
        self._known, self.orders = counted(tokens, stories, self.vocabulary)
        of_pairs = [
            (each.pairs, each.hashes[row := each.pairs // self.vocabulary], each.states[row], each.shares, each.worth)
            for each in self.orders
        ]
        pairs, codes, states, shares, worth = map(np.concatenate, zip(*of_pairs, strict=True))
        sizes = [len(each.pairs) for each in self.orders]
        orders = np.repeat(np.arange(ORDERS), sizes)
        kept = _kept(codes, orders, worth, self.bits, len(self.levels))
        buckets = codes[kept] >> 32 - self.bits
        self.starts.copy_(torch.from_numpy(np.searchsorted(buckets, np.arange(len(self.starts)))))
        tokens = pairs[kept] % self.vocabulary
        for stored, values in ((self.tokens, tokens), (self.tags, tag_of(codes[kept]))):
            stored.copy_(torch.from_numpy(np.pad(values, (0, len(stored) - len(values)))))
        self._entries = np.stack([orders[kept], states[kept], shares[kept]], 1)
        used = np.zeros(len(codes), bool)
        used[kept] = True
        parts = zip(self.orders, np.split(used, np.cumsum(sizes)[:-1]), strict=True)
        self.orders = [replace(each, shares=each.shares * mine) for each, mine in parts]

    def seen(self, tokens: np.ndarray, stories: np.ndarray) -> Tensor:
        """Look up all tokens but the first of other text (N,); returns (N - 1, ORDERS, 3) float64.

        For each order: q of the token, 0 where no entry has it; the sum of q over the entries of its context; and the
        context's state, 0 where it was never seen.
        """
        found = np.zeros((len(tokens) - 1, ORDERS, 3))
        numbered = self._known.found(*self._known.flat(sequences(tokens, stories)))[1:]
        for order, (*places, _), columns in zip(self.orders, numbered, found.swapaxes(0, 1), strict=True):
            context, pair = (each[1:] for each in places)
            mass = np.bincount(order.pairs // self.vocabulary, order.shares, len(order.states))
            known = (context >= 0) & (context < len(order.states))
            columns[known, 1], columns[known, 2] = mass[context[known]], order.states[context[known]]
            known &= pair < len(order.pairs)
            columns[known, 0] = order.shares[pair[known]]
        return torch.from_numpy(found)

    def fit(self, seen: Tensor, nats: Tensor) -> float:
        """Fit the levels to a text by its `seen` and the network's `nats` (N,); return the mixture's nats per token."""
        odds, mixed = _fitted(seen, nats)
        order, state = self._entries[:, :2].astype(np.int64).T
        level = np.round(-NAT * (odds.numpy()[order, state] + np.log(self._entries[:, 2])))
        level = np.pad(level.clip(0, LEVELS - 1), (0, len(self.levels) - len(level)))
        self.levels.copy_(torch.from_numpy(level))
        return mixed


def tag_of(code: Codes) -> Codes:
    """Return the tags of hashes, tensors or arrays."""
    return code >> TAG_PLACE & (1 << TAG_BITS) - 1


def hashes(tokens: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the hash of the contexts that end at `tokens` (B, N) int64, and whether they are inside their story.

    Each is (B, N), the shortest context first. Token 0 begins a story, and pads the window.
    """
    code, inside = torch.zeros_like(tokens), torch.ones_like(tokens, dtype=torch.bool)
    for distance in range(ORDERS):
        before = F.pad(tokens, (distance, 0))[:, : tokens.shape[1]]
        code = (code + before + 1) * FACTOR & 0xFFFFFFFF
        yield code, inside
        inside = inside & (before != 0)


def entries_of(starts: Tensor, tags: Tensor, code: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """Return indices (B, S, L) of the entries in the buckets of hashes (B, S), and which belong to their contexts."""
    bucket = code >> 33 - len(starts).bit_length()
    place = starts[bucket].long()[..., None] + torch.arange(LONGEST, device=code.device)
    found = (place < starts[bucket + 1][..., None]) & inside[..., None]
    place = torch.where(found, place, 0)
    return place, found & (tags[place] == tag_of(code)[..., None])


def counted(tokens: np.ndarray, stories: np.ndarray, vocabulary: int) -> tuple[KneserNey, list[Order]]:
    """Count what followed the contexts of every length in a text (N,) with its stories (N,)."""
    texts = sequences(tokens, stories)
    model = KneserNey(ORDERS + 1, vocabulary).fit(texts)
    codes = [code[0].numpy() for code, _ in hashes(torch.from_numpy(tokens.astype(np.int64))[None])]
    numbered, lowest = model.found(*model.flat(texts)), model.levels[0].counts[:-1] + 1.0
    probability, orders = lowest / (lowest.sum() + vocabulary - len(lowest)), []
    steps = zip(model.levels[1:], codes, pairwise(numbered), strict=True)
    for level, code, ((_, shorter, _), (contexts, pairs, _)) in steps:
        there, place = np.flatnonzero(contexts >= 0), np.zeros(len(level.pairs), np.int64)
        place[pairs[there]] = there  # where each pair occurs
        row, counts, total = level.pairs // vocabulary, level.counts[:-1], level.totals[:-1]
        lowered, taken = counts - level.discounts[np.minimum(counts, 3)], level.kinds[:-1] @ level.discounts[1:]
        backed_off = (taken / np.maximum(total, 1))[row] * probability[shorter[place]]
        probability = lowered / total[row] + backed_off
        kinds = level.kinds[:-1].sum(1) / np.maximum(total, 1)
        states = 1 + np.searchsorted(TOTALS, total) * (len(SHARES) + 1) + np.searchsorted(SHARES, kinds)
        hashed = np.zeros(len(total), np.int64)
        hashed[row] = code[place - 1]
        worth = lowered * np.log(probability / backed_off)
        orders.append(Order(hashed, states, level.pairs, lowered / (total - taken)[row], worth))
    return model, orders


def sequences(tokens: np.ndarray, stories: np.ndarray) -> list[np.ndarray]:
    """Cut a text (N,) into its stories, each from its start marker to its end marker."""
    return np.split(tokens, np.flatnonzero(np.diff(stories)) + 1)


def _kept(codes: np.ndarray, orders: np.ndarray, worth: np.ndarray, bits: int, most: int) -> np.ndarray:
    """Return the pairs (n,), at most `most`, that become entries, in the order of their buckets.

    `codes`, `orders` and `worth` are of all pairs (P,). A context keeps those that are worth most, a bucket likewise.
    Of contexts that a reader cannot tell apart, the one whose pairs are worth more stays.
    """
    ranked = np.argsort(-worth, kind="stable")
    context = codes * ORDERS + orders
    ranked = ranked[_before(context[ranked]) < MOST_FOLLOWING][:most]
    told_apart = (codes >> 32 - bits << TAG_BITS) + tag_of(codes)
    names, first, number = np.unique(context[ranked], return_index=True, return_inverse=True)
    kinds = told_apart[ranked][first]
    best = np.lexsort((-np.bincount(number, worth[ranked]), kinds))
    stays = np.zeros(len(names), bool)
    stays[best[np.diff(kinds[best], prepend=-1) != 0]] = True
    ranked = ranked[stays[number]]
    ranked = ranked[_before(codes[ranked] >> 32 - bits) < LONGEST]
    return ranked[np.argsort(codes[ranked] >> 32 - bits, kind="stable")]


def _before(groups: np.ndarray) -> np.ndarray:
    """Return how many of the same group (n,) come before each element."""
    return sums_before(groups, np.ones(len(groups), np.int64))


def _fitted(seen: Tensor, nats: Tensor) -> tuple[Tensor, float]:
    """Return the log odds (ORDERS, STATES) of the weights m, none above 0, and the mixture's nats per token."""
    odds = torch.full((ORDERS, STATES), PRIOR, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([odds], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def mixed() -> Tensor:
        probability = torch.exp(-nats)
        for order in range(ORDERS):
            share, mass, state = seen[:, order].unbind(-1)
            ratio = odds[order, state.long()].clamp(max=0).exp()
            probability = (probability + ratio * share) / (1 + ratio * mass)
        return -probability.log()

    def loss() -> Tensor:
        optimizer.zero_grad()
        total = mixed().sum() + PRECISION * (odds - PRIOR).square().sum()
        total.backward()
        return total

    with torch.enable_grad():
        optimizer.step(loss)
    with torch.no_grad():
        return odds.detach().clamp(max=0), float(mixed().mean())
