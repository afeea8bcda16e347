"""A character LSTM mixed with chains of counted contexts, which continues a text and adapts to it.

The distributions are multiplied, each to a power (logarithmic opinion pool): log p(v) = sum_k w_k f_k(v) - log Z, where
f_0 is the LSTM's log-probability of token v and f_k what the k-th context changes in its chain (models/chains.py). The
weights are sums over tables, which are looked up by the longest contexts that were seen, the LSTM's entropy and how
much each context has seen; that they are fitted is a convex problem. There are two sets of them, for a model that
stays as it is and for one that counts what it reads.

Shapes: as in models/char_lstm.py and models/chains.py; F features, the LSTM's and one for each of K contexts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import chains
from models.char_lstm import END, CharLSTM, CharLSTMConfig, Reader, State
from models.io import config_from

FEATURES = 1 + chains.CONTEXTS
FROZEN, ADAPTING = range(2)  # sets of weights
LEAST = -16.0  # log-probability; what is less likely counts as this likely
ENTROPIES = (0.15, 0.7, 1.5)  # nats, borders of the LSTM's entropy by which weights are looked up, ...
FINE_ENTROPIES = (0.05, 0.15, 0.4, 0.7, 1.1, 1.5, 2.0, 2.5)  # ... and of its own feature's state
LENGTHS = [len(levels) + 1 for levels in chains.CHAINS]  # 0: no context of the chain was seen
TABLES = (LENGTHS[0] * (len(ENTROPIES) + 1), LENGTHS[1] * LENGTHS[2] * LENGTHS[3])
PRIOR, PRIOR_PRECISION, PRECISION = 0.3, 1.0, 40.0  # of normal priors: on common weights; on the tables, around 0
ITERATIONS = 40  # of L-BFGS
AT_ONCE = 4000  # tokens that are read in one piece, which takes some 40 kB each
MOST_RECENT = 8  # counts of pieces that were read, before they are added up


@dataclass(frozen=True)
class CharMixtureConfig(CharLSTMConfig):
    """Sizes and tokenizer of a CharMixture."""

    rows: int = 0  # contexts that were counted
    entries: int = 0  # pairs of a context and a token

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind != "embedding":
            raise ValueError(f"kind={self.kind!r}: a mixture has an LSTM of kind 'embedding'")
        for name in ("rows", "entries"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must be 0 or more")


@dataclass(frozen=True)
class Examples:
    """Places in text that was not counted, to fit weights to."""

    network: Tensor  # (N, V) log-probabilities
    found: chains.Layers
    targets: Tensor  # (N,)


class CharMixture(CharLSTM):
    """An LSTM whose predictions are mixed with those of counted contexts.

    `model.complete("The information manager is ", document=text_before)` counts the text before it, too.
    """

    family = "char_mixture"
    config: CharMixtureConfig
    common: Tensor  # (2, F)
    by_length: Tensor  # (2, contexts of the first chain x entropies, F)
    by_lengths: Tensor  # (2, contexts of the other chains, F)
    by_state: Tensor  # (2, F, states)

    def __init__(self, config: CharMixtureConfig):
        super().__init__(config)
        self.register_buffer("keys", torch.zeros(config.rows, dtype=torch.int64))
        self.register_buffer("offsets", torch.zeros(config.rows + 1, dtype=torch.int64))
        self.register_buffer("tokens", torch.zeros(config.entries, dtype=torch.int16))
        self.register_buffer("counts", torch.zeros(config.entries, dtype=torch.int32))
        self.register_buffer("common", torch.zeros(2, FEATURES))
        self.register_buffer("by_length", torch.zeros(2, TABLES[0], FEATURES))
        self.register_buffer("by_lengths", torch.zeros(2, TABLES[1], FEATURES))
        self.register_buffer("by_state", torch.zeros(2, FEATURES, chains.STATES))
        self.common[:, 0] = 1  # the LSTM alone, until the weights are fitted
        self.classes = chains.classes_of(self.characters.texts)
        # Equal on all processes, so that there is nothing to send with every step.
        self._ddp_params_and_buffers_to_ignore = [name for name, _ in self.named_buffers()]

    def check(self) -> None:
        """Raise ValueError for counts that none can have."""
        counts = self.counted()
        sizes = np.diff(counts.offsets)
        sound = (
            counts.offsets[0] == 0
            and counts.offsets[-1] == len(counts.tokens)
            and (sizes > 0).all()
            and (np.diff(counts.keys) > 0).all()
            and ((counts.tokens >= 0) & (counts.tokens < len(self.characters))).all()
            and (counts.counts > 0).all()
        )
        if not sound:
            raise ValueError("the model's counts are damaged")

    def counted(self) -> chains.Counts:
        """Return the counts of the training text; on the CPU, they share the buffers' memory."""
        return chains.Counts(*(getattr(self, name).cpu().numpy() for name in ("keys", "offsets", "tokens", "counts")))

    @torch.no_grad()
    def count(self, counts: chains.Counts) -> None:
        """Take over counts of the sizes in the config."""
        for name in ("keys", "offsets", "tokens", "counts"):
            getattr(self, name).copy_(torch.from_numpy(getattr(counts, name)))

    def forward(self, tokens: Tensor, state: State | None = None, mixed: bool = False) -> tuple[Tensor, State]:
        """Return logits (B, S, V) of the token after each of `tokens` (B, S) int64, and the state after the last one.

        They are the LSTM's, or with `mixed`, which knows only the tokens given, log-probabilities of the mixture.
        """
        logits, state = super().forward(tokens, state)
        if not mixed:
            return logits, state
        rows = [self._window(*each) for each in zip(tokens.cpu(), F.log_softmax(logits.float(), -1).cpu(), strict=True)]
        return torch.stack(rows).to(logits.device), state

    def _window(self, tokens: Tensor, network: Tensor) -> Tensor:
        keys = chains.contexts(np.append(tokens.numpy(), END), self.classes)[1:, : chains.STORED]
        found = chains.layers(keys, tokens.numpy(), len(self.characters), [self.counted()], None)
        return self.mixture(network, found, FROZEN)

    def mixture(self, network: Tensor, found: chains.Layers, which: int) -> Tensor:
        """Return log-probabilities (N, V) by a set of weights; `network` (N, V) is the LSTM's, on the CPU."""
        weights = [table[which].cpu() for table in self.weights()]
        return _mixed(_features(network, found), _selected(network, found.states), weights)

    def weights(self) -> list[Tensor]:
        """Return the tables of weights, each for a model that stays as it is and for one that adapts."""
        return [self.common, self.by_length, self.by_lengths, self.by_state]

    def fit(self, frozen: Examples, adapting: Examples) -> dict[str, float]:
        """Fit both sets of weights; return the nats per token of each."""
        said = {}
        for which, examples in ((FROZEN, frozen), (ADAPTING, adapting)):
            tables, nats = _fitted(examples)
            for own, fitted in zip(self.weights(), tables, strict=True):
                own[which] = fitted
            said[("frozen", "adapting")[which]] = nats
        return said

    def reader(self, first: int = END, adapting: bool = True) -> "MixtureReader":
        """Return a reader that has read only the token `first`, and counts what follows if it is `adapting`."""
        return MixtureReader(self, first, adapting)

    def example(self) -> dict[str, Any]:
        """Return arguments of a deterministic forward pass."""
        return {**super().example(), "mixed": True}


class MixtureReader(Reader):
    """What has been read of one or several documents: their counts beside the model's, and the LSTM's state."""

    model: CharMixture

    def __init__(self, model: CharMixture, first: int = END, adapting: bool = True):
        self.adapting, self.document = adapting, -1
        self.known = model.counted()
        self.recent: list[chains.Counts] = []
        super().__init__(model, first)

    def begin(self, first: int = END) -> None:
        """Begin a document; what was read before stays counted, as other text."""
        self.document, self.tail, self.line, self.section = self.document + 1, np.array([first]), np.array([first]), 0
        super().begin(first)

    def read(self, tokens: np.ndarray) -> Tensor:
        """Return the log-probabilities (N, V) of the token at each place, where `tokens` (N,) then turn out to be."""
        pieces = [self._read(tokens[at : at + AT_ONCE], predict=True) for at in range(0, len(tokens), AT_ONCE)]
        return torch.cat(pieces) if pieces else torch.zeros(0, len(self.model.characters))

    def skim(self, tokens: np.ndarray) -> None:
        """Read without predicting, which is faster."""
        for at in range(0, len(tokens), AT_ONCE):
            self._read(tokens[at : at + AT_ONCE], predict=False)

    def ahead(self) -> Tensor:
        """Return the log-probabilities (V,) of the next token."""
        keys = self._keys(np.zeros(1, np.int64))
        found = chains.layers(keys, np.zeros(1, np.int64), len(self.model.characters), self._counts(), None)
        return self.model.mixture(self.next[None], found, int(self.adapting))[0]

    def follow(self, token: int) -> None:
        """Go on with a token that is not counted, such as one that was generated."""
        super().follow(token)
        self._pass(np.array([token]))

    def _read(self, tokens: np.ndarray, predict: bool) -> Tensor:
        keys, counts = self._keys(tokens), self._counts()
        network = super().read(tokens)
        chosen = chains.counted(keys, tokens, counts) if self.adapting else None
        mixed = network
        if predict:
            found = chains.layers(keys, tokens, len(self.model.characters), counts, chosen)
            mixed = self.model.mixture(network, found, int(self.adapting))
        if chosen is not None:
            self.recent.append(chains.count(keys, tokens, chosen))
            if len(self.recent) > MOST_RECENT:
                self.recent = [chains.added(self.recent)]
        self._pass(tokens)
        return mixed

    def _counts(self) -> list[chains.Counts]:
        return [self.known, *self.recent]

    def _keys(self, tokens: np.ndarray) -> np.ndarray:
        """Return the keys (N, K) of the contexts of `tokens` that come next; K has those that can have been seen."""
        whole, skipped = np.concatenate([self.tail, tokens]), len(self.tail)
        sections = np.full(len(whole), self.section, np.uint64)
        sections[skipped:] = self._sections(tokens)[:-1]
        depth = chains.CONTEXTS if self.adapting else chains.STORED
        return chains.contexts(whole, self.model.classes, self.document, sections)[skipped:, :depth]

    def _sections(self, tokens: np.ndarray) -> np.ndarray:
        """Return the heading (N + 1,) of each of `tokens` that come next, and of what follows them."""
        if len(tokens) == 1 and not self.model.classes[tokens[0]] & chains.LINE_END:
            return np.full(2, self.section, np.uint64)
        line = np.concatenate([self.line, tokens, [END]])
        return chains.headings(line, self.model.classes, self.section)[len(self.line) :]

    def _pass(self, tokens: np.ndarray) -> None:
        """Keep the end of what was read, as far as contexts reach back, and its last line."""
        self.section = int(self._sections(tokens)[-1])
        line = np.concatenate([self.line, tokens])
        ends = np.flatnonzero(self.model.classes[line] & chains.LINE_END)
        line = line[ends[-1] + 1 :] if len(ends) else line
        self.line = line[-2 * chains.LONGEST_HEADING :]  # so much of a longer one is too long for a heading, too
        self.tail = np.concatenate([self.tail, tokens])[-chains.REACH :]


def _selected(network: Tensor, states: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """Return the rows (N,) of both tables of lengths, and the states (N, F) of all features."""
    entropy = -(network.exp() * network.clamp(min=LEAST)).sum(1).detach().numpy()
    lengths = [  # 0 where the chain was not looked up
        (np.arange(1, part.shape[1] + 1) * (part > 0)).max(1, initial=0) if part.size else np.zeros(len(part), np.int64)
        for part in (states[:, levels.start : levels.stop] for levels in chains.CHAINS)
    ]
    first = lengths[0] * (len(ENTROPIES) + 1) + np.searchsorted(ENTROPIES, entropy)
    second = np.ravel_multi_index(lengths[1:], LENGTHS[1:])
    own = np.searchsorted(FINE_ENTROPIES, entropy)[:, None]
    return torch.from_numpy(first), torch.from_numpy(second), torch.from_numpy(np.concatenate([own, states], 1))


def _features(network: Tensor, found: chains.Layers) -> Tensor:
    """Return the features (N, F, V), of the contexts that were looked up."""
    ratios = torch.from_numpy(chains.sharpened(found, network.detach().numpy()))
    return torch.cat([network.clamp(min=LEAST)[:, None], ratios], 1)


def _mixed(features: Tensor, selected: tuple[Tensor, Tensor, Tensor], tables: Sequence[Tensor]) -> Tensor:
    """Return log-probabilities (N, V)."""
    num = features.shape[1]
    first, second, states = selected
    common, by_length, by_lengths, by_state = tables
    weights = common[:num] + by_length[first, :num] + by_lengths[second, :num] + by_state[torch.arange(num), states]
    return F.log_softmax((weights[:, None] @ features)[:, 0], -1)


def _fitted(examples: Examples) -> tuple[list[Tensor], float]:
    """Return the tables of weights that predict the examples best, given their priors, and the nats per token."""
    features, selected = _features(examples.network, examples.found), _selected(examples.network, examples.found.states)
    shapes = ((FEATURES,), (TABLES[0], FEATURES), (TABLES[1], FEATURES), (FEATURES, chains.STATES))
    tables = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    tables[0].data.fill_(PRIOR)
    optimizer = torch.optim.LBFGS(tables, max_iter=ITERATIONS, history_size=20, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        nats = F.nll_loss(_mixed(features, selected, tables), examples.targets, reduction="sum")
        far = PRECISION * sum(table.square().sum() for table in tables[1:])
        total = nats + far + PRIOR_PRECISION * (tables[0] - PRIOR).square().sum()
        total.backward()
        return total

    with torch.enable_grad():
        optimizer.step(loss)
    with torch.no_grad():
        nats = F.nll_loss(_mixed(features, selected, tables), examples.targets)
    return [table.detach() for table in tables], float(nats)


def build(config: Mapping[str, Any]) -> CharMixture:
    """Build the model from its config as `models.io` reads it."""
    return CharMixture(config_from(CharMixtureConfig, config))
