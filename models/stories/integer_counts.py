"""The counts of `ngram_counts.py` in integers, as exporters/rp2040/FORMAT.md mixes them into logits.

Everything is in units of a 64th of a nat. Shapes as in ngram_counts.py.
"""

from dataclasses import dataclass

import numpy as np
import torch

from models.stories.integer_arithmetic import EXP, Array
from models.stories.ngram_counts import NgramCounts, entries_of, hashes

LARGEST_SHARPENED = 2**30 - 1
LARGEST_ADDED = 2**17
LARGEST_POST_COUNTED = 20  # of logits


@dataclass(frozen=True)
class Entries:
    """The entries and where each bucket's begin."""

    starts: Array  # (buckets + 1,) int64, as all
    tokens: Array  # (E,)
    tags: Array  # (E,)
    levels: Array  # (E,)

    @classmethod
    def of(cls, counts: NgramCounts) -> "Entries":
        """Take over the counts of a model."""
        stored = (counts.starts, counts.tokens, counts.tags, counts.levels)
        return cls(*(each.cpu().numpy().astype(np.int64) for each in stored))

    def sharpened(self, logits: Array, tokens: Array, post: int) -> Array:
        """Logits (B, S, V) of the mixture, from the network's after the last S of `tokens` (B, N).

        `post` is that of the logits, of which 64 << post are a nat.
        """
        logits, last = logits.copy(), slice(tokens.shape[1] - logits.shape[1], None)
        best = logits.max(-1, keepdims=True)
        whole = log(_exp((best - logits) >> post).sum(-1, keepdims=True)) - ONE
        starts, tags = torch.from_numpy(self.starts), torch.from_numpy(self.tags)
        for code, inside in hashes(torch.from_numpy(tokens)):
            place, found = (each.numpy() for each in entries_of(starts, tags, code[:, last], inside[:, last]))
            most = int(found.sum(-1).max())
            first = np.argsort(~found, -1, kind="stable")[..., :most]  # those of the context, in their order
            place, found = (np.take_along_axis(each, first, -1) for each in (place, found))
            token, level = self.tokens[place], self.levels[place]
            for entry in range(most):  # one after the other, as a device has them
                here = slice(entry, entry + 1)
                logit = np.take_along_axis(logits, token[..., here], -1)
                more = whole - level[..., here] + ((best - logit) >> post)
                change = np.maximum(more, 0) + log(32768 + _exp(abs(more))) - ONE
                raised = np.minimum(logit + (change << post), LARGEST_SHARPENED)
                np.put_along_axis(logits, token[..., here], np.where(found[..., here], raised, logit), -1)
            added = np.where(found, _exp(level), 0).sum(-1, keepdims=True)
            whole = whole + log(32768 + np.minimum(added, LARGEST_ADDED)) - ONE
        return logits


def log(value: Array) -> Array:
    """64 times the natural logarithm of integers from 1 to 2^28 - 1, within one."""
    bits = np.frexp(value.astype(np.float64))[1] - 1
    part: Array = np.where(bits >= 15, value >> np.maximum(bits - 15, 0), value << np.maximum(15 - bits, 0)) - 32768
    power = (bits << 15) + part + ((part * (32768 - part) >> 15) * 11272 >> 15)
    return (power >> 4) * 2839 >> 17


def _exp(below: Array) -> Array:
    return np.where(below < len(EXP), EXP[np.minimum(below, len(EXP) - 1)], 0)


ONE = int(log(np.array(32768)))
