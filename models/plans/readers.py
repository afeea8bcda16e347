"""Readers: the state of a model after some text, and its predictions of the next token; and documents that grow.

A mixture's reader has the LSTM's state, and counts of what was read. Shapes: as in lstm_network.py.
"""

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.plans import chains
from models.plans.characters import END, Characters
from models.plans.lstm_network import CharNetwork, Steps
from models.plans.mixture_weights import mixture

FORGOTTEN = 4000  # tokens after which a state has nothing of what was read before; trained models forget in 600
AT_ONCE = 4000  # tokens predicted in one piece, at some 40 kB each
COUNTED_AT_ONCE = 65_536  # tokens counted in one piece, at some 1 kB each
MOST_KEPT = 3_000_000  # characters of documents whose readers are kept, with counts of some 0.2 kB each


class Reader:
    """A text read token by token, and log-probabilities of the next token, on the CPU."""

    def __init__(self, model: CharNetwork, first: int = END):
        self.model = model
        self.begin(first)

    def begin(self, first: int = END) -> None:
        """Begin a document with a token that is not predicted."""
        self.state = torch.zeros(2, self.model.lstm.num_layers, 1, self.model.lstm.hidden_size)
        self._run(np.array([first]))

    def read(self, tokens: np.ndarray) -> Tensor:
        """Read `tokens` (N,); return the log-probabilities (N, V) of each before it was read."""
        if not len(tokens):
            return self.next[:0].view(0, len(self.next))
        return torch.cat([self.next[None], self._run(tokens)[:-1]])

    def skim(self, tokens: np.ndarray) -> None:
        """Read without predictions; of many tokens only the last, since the state forgets the others."""
        if len(tokens) > FORGOTTEN:
            self.state = torch.zeros_like(self.state)
        if len(tokens):
            self._run(tokens[-FORGOTTEN:])

    def ahead(self) -> Tensor:
        """Return the log-probabilities (V,) of the next token."""
        return self.expected([self])[0]

    @classmethod
    def expected(cls, readers: "Sequence[Self]") -> Tensor:
        """Return the log-probabilities (B, V) of the next token of each of several texts."""
        return torch.stack([reader.next for reader in readers])

    @classmethod
    def go_on(cls, readers: "Sequence[Self]", tokens: Sequence[int]) -> None:
        """Read a token of each of several texts, independently of one another."""
        for reader, token in zip(readers, tokens, strict=True):  # one by one, as rounding depends on the batch
            reader.next, reader.state = reader.steps(token, reader.state)

    def fork(self) -> Self:
        """Return an independent copy."""
        return copy.copy(self)

    @torch.no_grad()
    def judge(self, ways: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return the log-probabilities (n,) of the tokens of each of several continuations, which are not read."""
        weights = self.model.output.weight
        inputs = nn.utils.rnn.pad_sequence([torch.tensor(way) for way in ways], batch_first=True).to(weights.device)
        state = tuple(each.expand(-1, len(ways), -1).contiguous() for each in self.state.to(weights))
        found = F.log_softmax(self.model(inputs, state)[0].float(), -1).cpu()
        expected = [torch.cat([self.next[None], own[: len(way) - 1]]) for own, way in zip(found, ways, strict=True)]
        tokens = torch.tensor([token for way in ways for token in way])
        log_probs = self.after(torch.cat(expected), ways)
        return list(log_probs.gather(1, tokens[:, None])[:, 0].split([len(way) for way in ways]))

    def after(self, network: Tensor, ways: Sequence[Sequence[int]]) -> Tensor:
        """Return the log-probabilities (N, V) of all tokens of continuations, given the LSTM's."""
        return network

    @functools.cached_property
    def steps(self) -> Steps:
        """Single steps with the weights at the time of first use."""
        return self.model.steps()

    @torch.no_grad()
    def _run(self, tokens: np.ndarray) -> Tensor:
        """Return the log-probabilities (N, V) of the token after each of `tokens` (N,)."""
        weights = self.model.output.weight
        inputs = torch.from_numpy(tokens.astype(np.int64))[None].to(weights.device)
        logits, state = self.model(inputs, tuple(self.state.to(weights)))
        self.state = torch.stack(state).float().cpu()
        found = F.log_softmax(logits[0].float(), -1).cpu()
        self.next = found[-1]
        return found


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

    def begin(self, first: int = END) -> None:
        """Begin a document; earlier ones stay counted, as other text."""
        self.document, self.tail, self.line, self.section = self.document + 1, np.array([first]), np.array([first]), 0
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
        parts = zip(*(reader._parts(np.array([END])) for reader in readers), strict=True)
        keys = chains.keys_of(*map(np.concatenate, parts))[:, : first.depth]
        network = torch.stack([reader.next for reader in readers])
        return first.mixed(network, keys, [first.known, chains.Apart([reader.summed() for reader in readers])])

    @classmethod
    def go_on(cls, readers: "Sequence[MixtureReader]", tokens: Sequence[int]) -> None:
        """Read a token of each text without counting it, such as a generated one."""
        super().go_on(readers, tokens)
        for row, reader in enumerate(readers):
            reader._pass(np.array(tokens[row : row + 1]))

    def after(self, network: Tensor, ways: Sequence[Sequence[int]]) -> Tensor:
        """Return the mixture's log-probabilities (N, V) of all tokens of continuations, none of which is counted."""
        keys = np.concatenate([self._keys(np.array(way)) for way in ways])
        return self.mixed(network, keys, [self.known, *self.recent])

    def summed(self) -> list[chains.Counts]:
        """Return the counts of the text read, merged into one."""
        self.recent = [chains.added(self.recent)] if len(self.recent) > 1 else self.recent
        return self.recent

    def mixed(self, network: Tensor, keys: np.ndarray, counts: Sequence[chains.Counts | chains.Apart]) -> Tensor:
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
        self.recent = [*self.recent, chains.count(keys, tokens, chosen)]  # a new list, as forks share the old one
        while len(self.recent) > 1 and len(self.recent[-2].keys) < 2 * len(self.recent[-1].keys):
            self.recent[-2:] = [chains.added(self.recent[-2:])]  # so that long texts are seldom added to

    def _keys(self, tokens: np.ndarray) -> np.ndarray:
        """Return the keys (N, K) of the contexts of the next `tokens`; K covers those that can have been seen."""
        return chains.keys_of(*self._parts(tokens))[:, : self.depth]

    def _parts(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the arguments of `keys_of` for the next `tokens`."""
        found = chains.parts(np.concatenate([self.tail, tokens]), self.classes, len(self.tail))
        return (*found, self._sections(tokens)[:-1], np.full(len(tokens), self.document))

    def _sections(self, tokens: np.ndarray) -> np.ndarray:
        """Return the heading (N + 1,) above each of the next `tokens`, and above the token after them."""
        if len(tokens) == 1 and not self.classes[tokens[0]] & chains.LINE_END:
            return np.full(2, self.section, np.uint64)
        return chains.headings(np.concatenate([self.line, tokens, [END]]), self.classes, self.section)[len(self.line) :]

    def _pass(self, tokens: np.ndarray) -> None:
        """Keep the end of the text, as far as contexts reach back, and its last line."""
        self.section = int(self._sections(tokens)[-1])
        line = np.concatenate([self.line, tokens])
        ends = np.flatnonzero(self.classes[line] & chains.LINE_END)
        line = line[ends[-1] + 1 :] if len(ends) else line
        self.line = line[-2 * chains.LONGEST_HEADING :]  # so much of a longer one is too long for a heading, too
        self.tail = np.concatenate([self.tail, tokens])[-chains.REACH :]


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
    """Readers of recent documents, kept to read on where these have grown."""

    def __init__(self, begun: Callable[[], MixtureReader], characters: Characters):
        self.begun, self.characters = begun, characters
        self.readers: dict[str, MixtureReader] = {}  # the last used last

    def read(self, document: str, most: int | None = None) -> bool:
        """Read what a document has grown by, at most `most` characters; return whether all of it is read."""
        known = max((each for each in self.readers if document.startswith(each)), key=len, default="")
        reader = self.readers.pop(known) if known else self.begun()
        until = len(document) if most is None else min(len(document), len(known) + most)
        reader.skim(np.array(self.characters.spelled(document[len(known) : until]), np.int64))
        self.readers[document[:until]] = reader
        while sum(map(len, self.readers)) > MOST_KEPT and len(self.readers) > 1:
            self.readers.pop(next(iter(self.readers)))
        return until == len(document)

    def reader(self, document: str) -> MixtureReader:
        """Return a reader of a document, for one use."""
        self.read(document)
        return self.readers[document].fork()
