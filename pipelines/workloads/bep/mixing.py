"""Counts of the training text, and weights of a mixture that are fitted to text that was not counted.

Each document is predicted from the counts of the others, and by the LSTM with the noise of its dropout: without the
noise it knows its training text too well, and would be trusted too much with other text.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from common.random import derive_key
from models import chains
from models.char_lstm import END, PAD, Characters
from models.char_mixture import ADAPTING, FROZEN, CharMixture, CharMixtureConfig, Examples
from pipelines.engine import ranks

if TYPE_CHECKING:
    from pipelines.workloads.bep import Config

PIECE = 12_000  # tokens; longer documents are cut, so that a single one has others to be predicted from
MOST_PIECES = 12  # that weights are fitted to
FOLDS = 6  # groups of pieces, each predicted from the counts of the others


class Mixer:
    """A mixture with the counts of its training text, and what its weights are fitted to."""

    def __init__(self, texts: Sequence[np.ndarray], sizes: Mapping[str, Any], config: "Config"):
        self.seed, self.num_places = config.seed, config.model.mixing_places
        self.texts = [_between_ends(text) for text in texts]
        size = max(1, min(PIECE, sum(map(len, texts)) // FOLDS))
        pieces = [
            (number, text[at : at + size]) for number, text in enumerate(texts) for at in range(0, len(text), size)
        ]
        self.pieces = [_between_ends(piece) for _, piece in pieces]
        # What is left out together: a document, or a piece of the only one.
        self.groups = np.array([document for document, _ in pieces] if len(texts) > 1 else range(len(pieces)))
        self.classes = chains.classes_of(Characters(sizes["vocabulary"]).texts)
        counts = chains.added([self._count(self.texts)], config.model.context_rows)
        self.model = CharMixture(CharMixtureConfig(**sizes, rows=len(counts.keys), entries=len(counts.tokens)))
        self.model.count(counts)
        self.prepared: list[tuple[chains.Layers, Tensor, Tensor]] = []

    def fit(self) -> dict[str, float]:
        """Fit the weights; return the nats per token that they leave. The main process does it for all."""
        said, weights = ranks.on_main(self._fit)
        for own, fitted in zip(self.model.weights(), weights, strict=True):
            own.copy_(fitted)
        return {f"mixture/{name}": value for name, value in said.items()}

    def _fit(self) -> tuple[dict[str, float], list[Tensor]]:
        self.prepared = self.prepared or self._prepare()
        network = self._network()
        frozen, adapting = (
            Examples(network[places[:, 0], places[:, 1]], found, targets) for found, places, targets in self.prepared
        )
        said = self.model.fit(frozen, adapting)
        return said, [table.cpu() for table in self.model.weights()]

    def _chosen(self) -> np.ndarray:
        """Return the numbers of the pieces that weights are fitted to, from all over the text."""
        return np.unique(np.linspace(0, len(self.pieces) - 1, MOST_PIECES).astype(int))

    def _prepare(self) -> list[tuple[chains.Layers, Tensor, Tensor]]:
        """Look up the places for each set of weights: what was found, (n, 2) piece and place, and targets (n,)."""
        chosen = self._chosen()
        parts: dict[int, list[tuple[chains.Layers, np.ndarray, np.ndarray]]] = {FROZEN: [], ADAPTING: []}
        total = sum(len(self.pieces[number]) - 1 for number in chosen)
        generator = np.random.default_rng(derive_key(self.seed, "mixture") % 2**63)
        groups = np.unique(self.groups[chosen])
        for fold in (groups[first::FOLDS] for first in range(min(FOLDS, len(groups)))):
            known = self._count([self.pieces[number] for number in np.flatnonzero(~np.isin(self.groups, fold))])
            for number in chosen[np.isin(self.groups[chosen], fold)]:
                row = int(np.flatnonzero(chosen == number)[0])
                size = len(self.pieces[number]) - 1
                places = np.sort(generator.permutation(size)[: max(1, self.num_places * size // total)])
                for which, found in self._found(number, known, places).items():
                    where = np.stack([np.full(len(places), row), places], 1)
                    parts[which].append((found, where, self.pieces[number][1:][places]))
        return [_joined(parts[which]) for which in (FROZEN, ADAPTING)]

    def _found(self, number: int, known: chains.Counts, places: np.ndarray) -> dict[int, chains.Layers]:
        """Look up places of a piece in the counts of others: when it is not counted, and when it is."""
        tokens, num_tokens = self.pieces[number][1:], len(self.model.characters)
        keys = chains.contexts(self.pieces[number], self.classes)[1:]
        chosen = chains.counted(keys, tokens, [known])
        stored = keys[:, : chains.STORED]
        return {
            FROZEN: chains.layers(stored, tokens, num_tokens, [known], None, places),
            ADAPTING: chains.layers(keys, tokens, num_tokens, [known], chosen, places),
        }

    def _count(self, sequences: Sequence[np.ndarray]) -> chains.Counts:
        if not len(sequences):
            return chains.EMPTY
        keys = np.concatenate([chains.contexts(each, self.classes)[1:, : chains.STORED] for each in sequences])
        tokens = np.concatenate([each[1:] for each in sequences])
        return chains.count(keys, tokens, chains.counted(keys, tokens))

    @torch.no_grad()
    def _network(self) -> Tensor:
        """Return the LSTM's log-probabilities (pieces, places, V) under dropout, the same at every call."""
        pieces = [torch.from_numpy(self.pieces[number][:-1]) for number in self._chosen()]
        tokens = torch.nn.utils.rnn.pad_sequence(pieces, batch_first=True, padding_value=PAD)
        device = self.model.output.weight.device
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive_key(self.seed, "mixture noise"))
            self.model.train()
            logits, _ = self.model(tokens.to(device))
            self.model.eval()
        return F.log_softmax(logits.float(), -1).cpu()


def _between_ends(tokens: np.ndarray) -> np.ndarray:
    return np.concatenate([[END], tokens, [END]]).astype(np.int64)


def _joined(parts: Sequence[tuple[chains.Layers, np.ndarray, np.ndarray]]) -> tuple[chains.Layers, Tensor, Tensor]:
    found = chains.Layers(
        *(np.concatenate([getattr(each, name) for each, _, _ in parts]) for name in ("own", "share", "states"))
    )
    places, targets = (torch.from_numpy(np.concatenate([part[at] for part in parts])) for at in (1, 2))
    return found, places, targets
