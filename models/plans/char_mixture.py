"""A character LSTM mixed with chains of counted contexts, which continues a text and adapts to it.

The distributions are multiplied, each to a power (logarithmic opinion pool): log p(v) = sum_k w_k f_k(v) - log Z, where
f_0 is the LSTM's log-probability of token v and f_k what the k-th context changes in its chain (chains.py). The
weights are sums over tables, which are looked up by the longest contexts that were seen, the LSTM's entropy and how
much each context has seen; that they are fitted is a convex problem. There are two sets of them, for a model that
stays as it is and for one that counts what it reads.

Shapes: as in char_lstm.py and chains.py; F features, the LSTM's and one for each of K contexts.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.text import Spans
from models.inputs import LONGEST_DOCUMENT, LONGEST_PROMPT
from models.io import config_from
from models.plans import chains, model_cards
from models.plans.char_lstm import CharLSTM, CharLSTMConfig, State
from models.plans.characters import COPIED, END
from models.plans.mixture_reader import MixtureReader
from models.plans.stored_passages import Passages
from models.plans.suggester import Suggester, Suggestion

FEATURES = 1 + chains.CONTEXTS
FROZEN, ADAPTING = range(2)  # sets of weights
LEAST = -16.0  # log-probability; what is less likely counts as this likely
ENTROPIES = (0.15, 0.7, 1.5)  # nats, borders of the LSTM's entropy by which weights are looked up, ...
FINE_ENTROPIES = (0.05, 0.15, 0.4, 0.7, 1.1, 1.5, 2.0, 2.5)  # ... and of its own feature's state
LENGTHS = [len(levels) + 1 for levels in chains.CHAINS]  # 0: no context of the chain was seen
TABLES = (LENGTHS[0] * (len(ENTROPIES) + 1), LENGTHS[1] * LENGTHS[2] * LENGTHS[3])
_PLACES = np.concatenate([np.arange(1, len(levels) + 1) for levels in chains.CHAINS])  # of contexts in their chain
_STRIDES = np.array([LENGTHS[2] * LENGTHS[3], LENGTHS[3], 1])
_NUMBERS = np.arange(FEATURES)
_CHAIN_BEGINS = np.array([levels.start for levels in chains.CHAINS])
_BORDERS, _FINE_BORDERS = np.array(ENTROPIES), np.array(FINE_ENTROPIES)
PRIOR, PRIOR_PRECISION, PRECISION = 0.3, 1.0, 40.0  # of normal priors: on common weights; on the tables, around 0
ITERATIONS = 40  # of L-BFGS


@dataclass(frozen=True)
class CharMixtureConfig(CharLSTMConfig):
    """Sizes and tokenizer of a CharMixture."""

    rows: int = 0  # contexts that were counted
    entries: int = 0  # pairs of a context and a token
    documents: dict[str, int] = field(default_factory=dict)  # characters that are stored of each document

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind != "embedding":
            raise ValueError(f"kind={self.kind!r}: a mixture has an LSTM of kind 'embedding'")
        for name in ("rows", "entries"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must be 0 or more")
        if any(size < 1 for size in self.documents.values()):
            raise ValueError("documents: of each, 1 or more characters are stored")


class Examples:
    """Places in text that was not counted, to fit weights to.

    `network` (N, V) float32 are log-probabilities of an LSTM that has not learnt from the text.
    """

    def __init__(self, network: np.ndarray, found: chains.Layers, targets: np.ndarray):
        self.features = torch.from_numpy(_features(network, found))  # (N, F, V)
        self.selected = [torch.from_numpy(each) for each in _selected(network, found.states)]
        self.targets = torch.from_numpy(targets)  # (N,)


class CharMixture(CharLSTM):
    """An LSTM whose predictions are mixed with those of counted contexts.

    `model.complete("The information manager is ", document=text_before)` counts the text before it, too, and
    `model.suggest("clashDetection", "Hard clashes are ")` ranks continuations, with where they stand in documents.
    """

    family = "char_mixture"
    card = model_cards.MIXTURE
    config: CharMixtureConfig
    text: Tensor  # (characters,) int16, the stored documents one after the other
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
        self.register_buffer("text", torch.zeros(sum(config.documents.values()), dtype=torch.int16))
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
        text = self.text.cpu().numpy()
        if not (sound and (text >= 0).all() and (text < len(self.characters)).all()):
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
        return self.mixture(network, found, self.tables(FROZEN))

    @staticmethod
    def mixture(network: Tensor, found: chains.Layers, tables: Sequence[np.ndarray]) -> Tensor:
        """Return log-probabilities (N, V) by one set of `tables`; `network` (N, V) is the LSTM's, on the CPU."""
        own = network.detach().numpy()
        features, weights = _features(own, found), _weights(_selected(own, found.states), tables)
        logits = np.matmul(weights[:, None], features)[:, 0]
        logits -= logits.max(1, keepdims=True)
        return torch.from_numpy(logits - np.log(np.exp(logits).sum(1, keepdims=True)))

    def weights(self) -> list[Tensor]:
        """Return the tables of weights, each for a model that stays as it is and for one that adapts."""
        return [self.common, self.by_length, self.by_lengths, self.by_state]

    def tables(self, which: int) -> list[np.ndarray]:
        """Return one set of weights, as `mixture` takes it."""
        return [table[which].cpu().numpy() for table in self.weights()]

    def fit(self, which: int, examples: Sequence[Examples]) -> float:
        """Fit the weights of a model that stays as it is (FROZEN) or of one that adapts; return the nats per token."""
        tables, nats = _fitted(examples)
        for own, fitted in zip(self.weights(), tables, strict=True):
            own[which] = fitted
        return nats

    def reader(self, first: int = END, adapting: bool = True) -> MixtureReader:
        """Return a reader that has read only the token `first`, and counts what follows if it is `adapting`."""
        return MixtureReader(self, first, adapting)

    def suggest(self, field: str, partial: str = "", n: int = 3, document: str = "") -> list[Suggestion]:
        """Return up to `n` continuations of a form's field, the most useful first, with where they stand in documents.

        `field` is a heading or a name such as clashDetection, `partial` what was written below it so far, and
        `document` the text before. Raises ValueError for texts that are too long.
        """
        if n < 1 or len(document) > LONGEST_DOCUMENT or len(field) + len(partial) > LONGEST_PROMPT:
            raise ValueError(
                f"n must be 1 or more, and a document has at most {LONGEST_DOCUMENT:,} characters, a field "
                f"{LONGEST_PROMPT:,} (given {n}, {len(document):,} and {len(field) + len(partial):,})"
            )
        heading = self.passages.heading(field)
        text = "\n\n".join([document.strip("\n")] * bool(document) + [heading] * bool(heading) + [partial])
        reader = self.reader()
        reader.skim(np.array(self.characters.encode(text), np.int64))
        return Suggester(reader, self.passages, text, heading).suggest(n)

    def stored(self) -> dict[str, np.ndarray]:
        """Return the tokens (T,) int16 that are stored of each document."""
        stops = np.cumsum(list(self.config.documents.values()), dtype=np.int64)
        parts = np.split(self.text.cpu().numpy(), stops)[:-1]
        return dict(zip(self.config.documents, parts, strict=True))

    @functools.cached_property
    def passages(self) -> Passages:
        """The stored documents, in which passages are looked up."""
        return Passages({name: self.characters.signs(each.tolist()) for name, each in self.stored().items()})

    @functools.cached_property
    def copies(self) -> Spans:
        """All that counts as copied from the stored documents."""
        return Spans(self.characters.shown(self.passages.text), COPIED)

    def copied(self, written: str, piece: str) -> bool:
        """Return whether `piece` makes 50 characters that the stored documents have, with what was written before."""
        whole = written + piece
        if len(whole) < COPIED or not self.config.documents:
            return False
        return any(whole[:end][-COPIED:] in self.copies for end in range(len(written) + 1, len(whole) + 1))

    def example(self) -> dict[str, Any]:
        """Return arguments of a deterministic forward pass."""
        return {**super().example(), "mixed": True}


def _selected(network: np.ndarray, states: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows (N,) of both tables of lengths, and the states (N, F) of all features."""
    entropy = -(np.exp(network) * np.maximum(network, LEAST)).sum(1)
    found = np.zeros((len(states), chains.CONTEXTS), np.int64)  # 0 where the chain was not looked up
    np.multiply(states > 0, _PLACES[: states.shape[1]], out=found[:, : states.shape[1]])
    lengths = np.maximum.reduceat(found, _CHAIN_BEGINS, 1)
    first = lengths[:, 0] * (len(ENTROPIES) + 1) + np.searchsorted(_BORDERS, entropy)
    own = np.searchsorted(_FINE_BORDERS, entropy)[:, None]
    return first, lengths[:, 1:] @ _STRIDES, np.concatenate([own, states], 1)


def _features(network: np.ndarray, found: chains.Layers) -> np.ndarray:
    """Return the features (N, F, V), of the contexts that were looked up."""
    return np.concatenate([np.maximum(network, LEAST)[:, None], chains.sharpened(found, network)], 1)


def _weights(selected: Sequence[Any], tables: Sequence[Any]) -> Any:
    """Return the weights (N, F) of the features; of tensors or of arrays."""
    first, second, states = selected
    num = states.shape[1]
    common, by_length, by_lengths, by_state = tables
    return common[:num] + by_length[first, :num] + by_lengths[second, :num] + by_state[_NUMBERS[:num], states]


def _fitted(examples: Sequence[Examples]) -> tuple[list[Tensor], float]:
    """Return the tables of weights that predict the examples best, given their priors, and the nats per token."""
    shapes = ((FEATURES,), (TABLES[0], FEATURES), (TABLES[1], FEATURES), (FEATURES, chains.STATES))
    tables = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    tables[0].data.fill_(PRIOR)
    optimizer = torch.optim.LBFGS(tables, max_iter=ITERATIONS, history_size=20, line_search_fn="strong_wolfe")

    def nats_of(some: Examples) -> Tensor:
        logits = (_weights(some.selected, tables)[:, None] @ some.features)[:, 0]
        return F.cross_entropy(logits, some.targets, reduction="sum")

    def loss() -> Tensor:
        optimizer.zero_grad()
        far = PRECISION * sum(table.square().sum() for table in tables[1:])
        total = far + PRIOR_PRECISION * (tables[0] - PRIOR).square().sum()
        total.backward()
        for some in examples:
            nats = nats_of(some)
            nats.backward()
            total = total.detach() + nats.detach()
        return total

    with torch.enable_grad():
        optimizer.step(loss)
    with torch.no_grad():
        nats = sum(float(nats_of(some)) for some in examples) / sum(len(some.targets) for some in examples)
        return [table.detach() for table in tables], nats


def build(config: Mapping[str, Any]) -> CharMixture:
    """Build the model from its config as `models.io` reads it."""
    return CharMixture(config_from(CharMixtureConfig, config))
