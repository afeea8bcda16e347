"""The reader of a mixture: the LSTM's state, and counts of what was read; and readers of documents that grow."""

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from models.plans import chains
from models.plans.char_network import CharNetwork
from models.plans.characters import END, Characters
from models.plans.lstm_reader import Reader
from models.plans.mixture_weights import mixture

AT_ONCE = 4000  # tokens that are predicted in one piece, which takes some 40 kB each
COUNTED_AT_ONCE = 65_536  # tokens that are counted in one piece, which takes some 1 kB each
MOST_KEPT = 3_000_000  # characters of documents whose readers are kept, whose counts take some 0.2 kB each
# The ends of B texts, as far as contexts of their next tokens reach back, are one array (B, SIZE) uint64, which grow by
# a token in a few operations.
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


class Apart:
    """The counts of several texts with equal numbers of rows of keys."""

    def __init__(self, counts: Sequence[Sequence[chains.Counts]]):
        self.counts = counts

    def add_to(self, dense: np.ndarray, keys: np.ndarray) -> None:
        """Add the counts of all tokens after each context (N,) to `dense` (N, V), each text's to its own rows."""
        num = len(keys) // len(self.counts)
        for number, counts in enumerate(self.counts):
            rows = slice(number * num, (number + 1) * num)
            for each in counts:
                each.add_to(dense[rows], keys[rows])


class MixtureReader(Reader):
    """Documents read: their counts beside the model's, and the LSTM's state."""

    def __init__(
        self,
        model: CharNetwork,
        classes: np.ndarray,
        known: chains.Counts,
        tables: Sequence[np.ndarray],
        first: int = END,
        adapting: bool = True,
    ):
        self.adapting, self.document = adapting, -1
        self.depth = chains.CONTEXTS if adapting else chains.STORED  # contexts that a place can have
        self.classes, self.known, self.tables = classes, known, tables
        self.recent: list[chains.Counts] = []
        super().__init__(model, first)

    def fork(self) -> "MixtureReader":
        """Return an independent copy."""
        own = copy.copy(self)
        own.recent = list(self.recent)
        return own

    def begin(self, first: int = END) -> None:
        """Begin a document; earlier ones stay counted, as other text."""
        self.document, self.tail, self.line, self.section = self.document + 1, np.array([first]), np.array([first]), 0
        self.end: np.ndarray | None = None  # made when it is asked for
        super().begin(first)

    def read(self, tokens: np.ndarray) -> Tensor:
        """Read `tokens` (N,); return the log-probabilities (N, V) of each before it was read."""
        pieces = [self._read(tokens[at : at + AT_ONCE]) for at in range(0, len(tokens), AT_ONCE)]
        return torch.cat(pieces) if pieces else torch.zeros(0, len(self.model.characters))

    def skim(self, tokens: np.ndarray) -> None:
        """Read without predicting, which is faster."""
        super().skim(tokens)
        for at in range(0, len(tokens), COUNTED_AT_ONCE):
            piece = tokens[at : at + COUNTED_AT_ONCE]
            if self.adapting:
                keys = self._keys(piece)
                self._count(keys, piece, chains.counted(keys, piece, [self.known, *self.recent]))
            self._pass(piece)

    @classmethod
    def expected(cls, readers: "Sequence[MixtureReader]") -> Tensor:
        """Return the log-probabilities (B, V) of the next token of each of several texts, which adapt alike."""
        first = readers[0]
        where = np.concatenate([reader.place() for reader in readers])
        keys = end_keys(where, np.array([reader.document for reader in readers]))[:, : first.depth]
        network = torch.stack([reader.next for reader in readers])
        return first.mixed(network, keys, [first.known, Apart([reader.summed() for reader in readers])])

    @classmethod
    def go_on(cls, readers: "Sequence[MixtureReader]", tokens: Sequence[int]) -> None:
        """Read a token of each text without counting it, such as a generated one."""
        super().go_on(readers, tokens)
        new, classes = np.array(tokens), readers[0].classes
        grown = ends_after(np.concatenate([reader.place() for reader in readers]), new, classes)
        for row, reader in enumerate(readers):
            reader._pass(new[row : row + 1])
            if not classes[new[row]] & chains.LINE_END:
                reader.end = grown[row : row + 1]

    def place(self) -> np.ndarray:
        """Return the end (1, E) of what has been read."""
        if self.end is None:
            self.end = end_of(self.tail, self.classes, self.section)
        return self.end

    def after(self, network: Tensor, ways: Sequence[Sequence[int]]) -> Tensor:
        """Return the mixture's log-probabilities (N, V) of all tokens of continuations, none of which is counted."""
        keys = np.concatenate([self._keys(np.array(way)) for way in ways])
        return self.mixed(network, keys, [self.known, *self.recent])

    def summed(self) -> list[chains.Counts]:
        """Return the counts of the text read, merged into one."""
        self.recent = [chains.added(self.recent)] if len(self.recent) > 1 else self.recent
        return self.recent

    def mixed(self, network: Tensor, keys: np.ndarray, counts: Sequence[chains.Known]) -> Tensor:
        """Mix the LSTM's log-probabilities (B, V) with the counts of contexts, by their keys.

        A text depends on itself alone: it has its own products, and sums over rows of the same length in any batch.
        """
        found = chains.layers(keys, np.zeros(len(keys), np.int64), network.shape[1], counts, None)
        return mixture(network, found, self.tables)

    def _read(self, tokens: np.ndarray) -> Tensor:
        keys, counts = self._keys(tokens), [self.known, *self.recent]
        chosen = chains.counted(keys, tokens, counts) if self.adapting else None
        found = chains.layers(keys, tokens, len(self.model.characters), counts, chosen)
        mixed = mixture(super().read(tokens), found, self.tables)
        if chosen is not None:
            self._count(keys, tokens, chosen)
        self._pass(tokens)
        return mixed

    def _count(self, keys: np.ndarray, tokens: np.ndarray, chosen: np.ndarray) -> None:
        self.recent.append(chains.count(keys, tokens, chosen))
        while len(self.recent) > 1 and len(self.recent[-2].keys) < 2 * len(self.recent[-1].keys):
            self.recent[-2:] = [chains.added(self.recent[-2:])]  # so that a long text is not added to with every word

    def _keys(self, tokens: np.ndarray) -> np.ndarray:
        """Return the keys (N, K) of the contexts of the next `tokens`; K covers those that can have been seen."""
        whole, skipped = np.concatenate([self.tail, tokens]), len(self.tail)
        sections = np.full(len(whole), self.section, np.uint64)
        sections[skipped:] = self._sections(tokens)[:-1]
        return chains.contexts(whole, self.classes, self.document, sections)[skipped:, : self.depth]

    def _sections(self, tokens: np.ndarray) -> np.ndarray:
        """Return the heading (N + 1,) above each of the next `tokens`, and above the token after them."""
        if len(tokens) == 1 and not self.classes[tokens[0]] & chains.LINE_END:
            return np.full(2, self.section, np.uint64)
        line = np.concatenate([self.line, tokens, [END]])
        return chains.headings(line, self.classes, self.section)[len(self.line) :]

    def _pass(self, tokens: np.ndarray) -> None:
        """Keep the end of the text, as far as contexts reach back, and its last line."""
        self.section = int(self._sections(tokens)[-1])
        line = np.concatenate([self.line, tokens])
        ends = np.flatnonzero(self.classes[line] & chains.LINE_END)
        line = line[ends[-1] + 1 :] if len(ends) else line
        self.line = line[-2 * chains.LONGEST_HEADING :]  # so much of a longer one is too long for a heading, too
        self.tail = np.concatenate([self.tail, tokens])[-chains.REACH :]
        self.end = None


def end_of(tokens: np.ndarray, classes: np.ndarray, section: int) -> np.ndarray:
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


def ends_after(ends: np.ndarray, tokens: np.ndarray, classes: np.ndarray) -> np.ndarray:
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


def end_keys(ends: np.ndarray, document: int | np.ndarray) -> np.ndarray:
    """Return the keys (B, K) int64 of the contexts of the next tokens, in one document or one for each text (B,)."""
    missing = np.maximum(_ORDERS - ends[:, LENGTH, None].astype(np.int64), 0)  # tokens that a text is shorter by
    pieces = np.zeros((len(ends), len(chains.ORDERS)), np.uint64)
    pieces[:, 1:] = ends[:, PIECES] * _INVERSES[missing]
    return chains.keys_of(pieces, ends[:, WORD], ends[:, BEFORE], ends[:, SECTION], document)


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Compute on one thread: for products as small as these, others would only wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Readings:
    """Readers of the documents asked for last."""

    def __init__(self, begun: Callable[[], MixtureReader], characters: Characters):
        self.begun, self.characters = begun, characters
        self.readers: dict[str, MixtureReader] = {}  # the last used last

    def read(self, document: str, most: int | None = None) -> bool:
        """Read a document from where it has grown since, at most so many characters; return whether it is read."""
        known = max((each for each in self.readers if document.startswith(each)), key=len, default="")
        reader = self.readers.pop(known) if known else self.begun()
        until = len(document) if most is None else min(len(document), len(known) + most)
        reader.skim(np.array(self.characters.encode(document[len(known) : until]), np.int64))
        self.readers[document[:until]] = reader
        while sum(map(len, self.readers)) > MOST_KEPT and len(self.readers) > 1:
            self.readers.pop(next(iter(self.readers)))
        return until == len(document)

    def reader(self, document: str) -> MixtureReader:
        """Return a reader of a document, for one use."""
        self.read(document)
        return self.readers[document].fork()
