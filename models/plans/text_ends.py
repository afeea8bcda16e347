"""The ends of texts, as far as contexts of their next tokens reach back; they grow by a token in a few operations.

The ends of B texts are one array (B, SIZE) uint64, so that several texts are stacked and chosen at once.
"""

import numpy as np

from models.plans import chains

LONGEST = chains.ORDERS[-1]
_ORDERS = np.array(chains.ORDERS[1:])
# Columns of an end: its last tokens plus 1, the latest last, and 0 before the text; hashes of the last 1, 2, 3, ...
# of them; hashes of the words before the current one; the hash and the size of that; how many tokens there are, at most
# LONGEST; the hash of the heading.
PIECES = slice(LONGEST, LONGEST + len(_ORDERS))
BEFORE = slice(PIECES.stop, PIECES.stop + chains.WORDS - 1)
WORD, WORD_SIZE, LENGTH, SECTION = range(BEFORE.stop, BEFORE.stop + 4)
SIZE = SECTION + 1
_POWERS, _INVERSES = chains.powers_of_base(chains.AT_ONCE)
_FORTH = _POWERS[_ORDERS - 1]


def of(tokens: np.ndarray, classes: np.ndarray, section: int) -> np.ndarray:
    """Return the end (1, SIZE) of a text (N,) that is longer than contexts reach back, or the whole text."""
    piece = chains.Windows(np.append(tokens, 0))
    word, size, before = (each[-1] for each in chains.words(np.append(tokens, 0), classes, piece))
    last = tokens[-LONGEST:].astype(np.uint64) + np.uint64(1)
    end = np.zeros((1, SIZE), np.uint64)
    end[0, LONGEST - len(last) : LONGEST] = last
    for place, order in enumerate(_ORDERS, PIECES.start):
        end[0, place] = (end[0, LONGEST - order : LONGEST] * _POWERS[:order]).sum(dtype=np.uint64)
    end[0, BEFORE], end[0, WORD], end[0, WORD_SIZE] = before, word, size
    end[0, LENGTH], end[0, SECTION] = len(last), section
    return end


def after(ends: np.ndarray, tokens: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the ends (B, SIZE) of the texts with a token (B,) more each, below the same headings."""
    new = tokens.astype(np.uint64) + np.uint64(1)
    grown = np.empty_like(ends)
    grown[:, : LONGEST - 1], grown[:, LONGEST - 1] = ends[:, 1:LONGEST], new
    leaving = ends[:, LONGEST - _ORDERS]
    grown[:, PIECES] = (ends[:, PIECES] - leaving) * _INVERSES[1] + new[:, None] * _FORTH
    inside, size = (classes[tokens] & chains.WORD) > 0, ends[:, WORD_SIZE]
    within = inside & (size > 0)
    powers = _POWERS[np.minimum(size, chains.AT_ONCE - 1).astype(np.int64)]
    grown[:, WORD] = np.where(within, ends[:, WORD] + new * powers, new)
    grown[:, WORD_SIZE] = np.where(inside, size + np.uint64(1), np.uint64(0))
    ended = ~inside & (size > 0)
    words = np.concatenate([chains.mixed(ends[:, WORD])[:, None], ends[:, BEFORE][:, :-1]], 1)
    grown[:, BEFORE] = np.where(ended[:, None], words, ends[:, BEFORE])
    grown[:, LENGTH] = np.minimum(ends[:, LENGTH] + np.uint64(1), np.uint64(LONGEST))
    grown[:, SECTION] = ends[:, SECTION]
    return grown


def keys(ends: np.ndarray, document: int | np.ndarray) -> np.ndarray:
    """Return the keys (B, K) int64 of the contexts of the next tokens, in one document or one for each text (B,)."""
    missing = np.maximum(_ORDERS - ends[:, LENGTH, None].astype(np.int64), 0)  # tokens that a text is shorter by
    pieces = np.zeros((len(ends), len(chains.ORDERS)), np.uint64)
    pieces[:, 1:] = ends[:, PIECES] * _INVERSES[missing]
    return chains.keys_of(pieces, ends[:, WORD], ends[:, BEFORE], ends[:, SECTION], document)
