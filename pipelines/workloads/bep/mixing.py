"""Counts of the training text, and weights of a mixture that are fitted to text that was neither counted nor learnt.

Each document is predicted from the counts of others, and by an LSTM that has learnt only from others: the mixture's own
knows its training text, and would be trusted too much with other text (stacking: Wolpert 1992, Breiman 1996).
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.errors import UserError, as_user_error
from common.random import derive_key
from common.workers import progress
from models import io
from models.plans import chains
from models.plans.char_lstm import CharLSTM
from models.plans.char_mixture import CharMixture, CharMixtureConfig
from models.plans.characters import END, Characters
from models.plans.library import BASE
from models.plans.lstm_network import CharLSTMConfig
from models.plans.mixing import FEATURES
from models.plans.mixture_weights import ADAPTING, FROZEN, Examples
from pipelines.distributed import ranks
from pipelines.workloads.bep.config import Config
from pipelines.workloads.bep.data import Corpus, Text

PIECE = 12_000  # tokens; longer documents are cut, so that a single one has others to be predicted from
MOST_PIECES = 40  # that weights are fitted to, ...
MOST_BYTES = 2**31  # ... and memory that they take at most
FIFTHS = 5  # of a single document, each left out in turn
NO_OUTLINE = np.zeros((0, 4), np.int32)
FOLDS = 6  # groups of pieces, each predicted from the counts of the others, ...
AT_ONCE = 2  # kinds of contexts whose keys are in memory
NETWORKS = 3  # ... and groups, each predicted by a network that has learnt from the others

Learn = Callable[[CharLSTM, Sequence[np.ndarray], str], None]  # (network, texts, message): train it on them


def load_base(config: Config) -> CharMixture | None:
    """Return the model of `model.base`, if any. Raises UserError if it is no mixture."""
    if config.model.base is None:
        return None
    run = Path(config.model.base)
    way = "give a trained run, as in runs/bep/default, which this command trains"
    with as_user_error(f"model.base={run}: ", f"; {way}: accelerate launch pipelines/train.py --workload bep"):
        base = io.load(run)
    if not isinstance(base, CharMixture) or base.config.lower_case != config.data.lower_case:
        found = f"lower_case={base.config.lower_case}" if isinstance(base, CharMixture) else base.family
        raise UserError(f"model.base={run}: it must be a mixture with data.lower_case as here (found {found})")
    return base


def sizes_of(corpus: Corpus, config: Config, base: CharMixture | None) -> CharLSTMConfig:
    """Return the sizes and tokenizer of the model."""
    sizes = config.model.sizes()
    if base:
        dropout = sizes["dropout"] if config.model.dropout is not None else base.config.dropout
        sizes = {name: getattr(base.config, name) for name in sizes} | {"dropout": dropout}
    known = base.config.vocabulary if base else ""  # its ids stay
    vocabulary = known + "".join(each for each in corpus.vocabulary if each not in known)
    own = {"vocabulary": vocabulary, "lower_case": config.data.lower_case}
    return io.config_from(CharLSTMConfig, own | sizes)


def fewest_counted(documents: Sequence[Text], held_out: bool) -> int:
    """Return the smallest number of families that are counted when weights are fitted or a document is judged.

    The predicted families are left out of the counts, a share at a time; without held-out documents, each family is
    judged by a model of the others.
    """
    families = len(set(_families(documents))) - (0 if held_out else 1)
    return families - math.ceil(families / FOLDS)


def _families(documents: Sequence[Text]) -> np.ndarray:
    """Return the number (D,) of each document's family; versions of a document count as one."""
    return np.unique([document.family or document.name for document in documents], return_inverse=True)[1]


def _predictable(documents: Sequence[Text]) -> list[Text]:
    """Return the documents to predict: all, or of a single family the longest, as its versions hold the same text."""
    several = _families(documents).any()
    return list(documents) if several else [max(documents, key=lambda document: len(document.tokens))]


class Mixer:
    """A mixture with the counts of its training text, and the fit of its weights.

    A `base` adds its counts, its stored text and its LSTM, whose vocabulary may grow. `learn` trains a network like the
    mixture's; without it, the mixture's has not learnt from the documents.
    """

    def __init__(
        self,
        documents: Sequence[Text],
        sizes: CharLSTMConfig,
        config: Config,
        base: CharMixture | None = None,
        learn: Learn | None = None,
    ):
        self.seed, self.num_places = config.seed, config.model.mixing_places
        self.min_documents = config.model.min_documents
        self.rows = None if base else config.model.context_rows  # a base's counts are added before any are cut
        whole = [between_ends(document.tokens) for document in documents]
        predicted = _predictable(documents)
        texts, owners = [document.tokens for document in predicted], _families(predicted)
        size = max(1, min(PIECE, sum(map(len, texts)) // FOLDS))
        pieces = [(index, text[at : at + size]) for index, text in enumerate(texts) for at in range(0, len(text), size)]
        self.pieces = [between_ends(piece) for _, piece in pieces]
        # Pieces from all over the text, to fit weights to.
        self.chosen = np.unique(np.linspace(0, len(pieces) - 1, MOST_PIECES).astype(int))
        self.owners = owners[[document for document, _ in pieces]]
        # Left out together: a family of documents, or a piece of the only document.
        self.groups = self.owners if owners.any() else np.arange(len(pieces))
        self.classes = chains.classes_of(Characters(sizes.vocabulary).texts)
        self.known = [base.counted()] if base else []
        counts = chains.added([*self.known, self._count(whole, _families(documents))], config.model.context_rows)
        stored = _stored(documents, config.model.stored_characters, base)
        self.model = CharMixture(
            CharMixtureConfig(
                **vars(sizes),
                rows=len(counts.keys),
                entries=len(counts.tokens),
                documents={each.name: len(each.tokens) for each in stored},
                nodes={each.name: len(each.outline) for each in stored},
                projects={each.name: each.family for each in stored if each.family},
            )
        )
        self.model.count(counts)
        self.model.text.copy_(torch.from_numpy(np.concatenate([np.zeros(0), *(each.tokens for each in stored)])))
        self.model.outline.copy_(torch.from_numpy(np.concatenate([NO_OUTLINE, *(each.outline for each in stored)])))
        if base:  # rows of new characters keep their random weights
            stored_weights = dict(base.named_parameters())
            for name, parameter in self.model.named_parameters():
                parameter.data[: len(stored_weights[name])] = stored_weights[name].data
        self.learn, self.untrained = learn, _untrained(self.model)
        self.fitted: dict[str, float] = {}  # nats per token by the weights, once these are fitted

    def fit(self) -> dict[str, float]:
        """Fit the weights, once; return the nats per token by them.

        Each process trains some of the networks, then the main one fits the weights for all.
        """
        if not self.fitted:
            network = self.predictions()
            self.fitted, weights = ranks.on_main(lambda: self._fit(network))
            for own, fitted in zip(self.model.weights(), weights, strict=True):
                own.copy_(fitted)
        return {f"mixture/{name}": value for name, value in self.fitted.items()}

    def _fit(self, network: Mapping[int, np.ndarray]) -> tuple[dict[str, float], list[Tensor]]:
        frozen, adapting = zip(*(self._examples(network, *each) for each in self._left_out()), strict=True)
        said = {"frozen": self.model.fit(FROZEN, frozen), "adapting": self.model.fit(ADAPTING, adapting)}
        return said, [table.cpu() for table in self.model.weights()]

    def _left_out(self) -> Iterator[tuple[int, chains.Counts, np.ndarray]]:
        """Yield chosen pieces with the counts of others and the places (n,) to fit weights to."""
        total = sum(len(self.pieces[number]) - 1 for number in self.chosen)
        num_places = min(self.num_places, MOST_BYTES // (8 * FEATURES * len(self.model.characters)))
        generator = np.random.default_rng(derive_key(self.seed, "mixture") % 2**63)
        groups = np.unique(self.groups[self.chosen])
        for fold in (groups[first::FOLDS] for first in range(min(FOLDS, len(groups)))):
            others = np.flatnonzero(~np.isin(self.groups, fold))
            known = self._count([self.pieces[number] for number in others], self.owners[others])
            for number in self.chosen[np.isin(self.groups[self.chosen], fold)]:
                size = len(self.pieces[number]) - 1
                yield number, known, np.sort(generator.permutation(size)[: max(1, num_places * size // total)])

    def _examples(
        self, network: Mapping[int, np.ndarray], number: int, known: chains.Counts, places: np.ndarray
    ) -> tuple[Examples, Examples]:
        """Look up places of a piece in the counts of others, without and with counting the piece itself."""
        others = [*self.known, known]
        tokens, num_tokens = self.pieces[number][1:], len(self.model.characters)
        keys = chains.contexts(self.pieces[number], self.classes)[1:]
        chosen = chains.counted(keys, tokens, others)
        frozen = chains.layers(keys[:, : chains.STORED], tokens, num_tokens, others, None, places)
        adapting = chains.layers(keys, tokens, num_tokens, others, chosen, places)
        predicted, targets = network[number][places], tokens[places]
        return Examples(predicted, frozen, targets), Examples(predicted, adapting, targets)

    def _count(self, sequences: Sequence[np.ndarray], owners: np.ndarray) -> chains.Counts:
        """Count what follows contexts in sequences, a few kinds of contexts at a time; `owners` are their families."""
        if not len(sequences):
            return chains.EMPTY
        tokens = np.concatenate([each[1:].astype(np.int16) for each in sequences])
        places = np.repeat(owners.astype(np.int32), [len(each) - 1 for each in sequences])
        parts: list[chains.Counts] = []
        for levels in chains.CHAINS[:-1]:
            new = np.ones(len(tokens), bool)
            for end in range(levels.stop, levels.start, -AT_ONCE):
                own = range(max(levels.start, end - AT_ONCE), end)
                for keys in self._keys(sequences, own)[::-1]:
                    chosen, new = new, chains.counted_below(keys, tokens, new, self.known)
                    if self.min_documents > 1:
                        chosen = chosen & chains.shared(keys[:, None], tokens, places, self.min_documents)[:, 0]
                    for rows in chains.portions(keys):
                        parts.append(chains.count(keys[rows, None], tokens[rows], chosen[rows, None]))
                        if self.rows and sum(len(each.keys) for each in parts) > 2 * self.rows:
                            parts = [chains.added(parts, self.rows)]
        return chains.added(parts, self.rows)

    def _keys(self, sequences: Sequence[np.ndarray], levels: range) -> np.ndarray:
        """Return keys (levels, N) of some contexts of all tokens but each sequence's first."""
        keys = np.empty((len(levels), sum(len(each) - 1 for each in sequences)), np.int64)
        at = 0
        for each in sequences:
            keys[:, at : at + len(each) - 1] = chains.contexts(each, self.classes)[1:, levels.start : levels.stop].T
            at += len(each) - 1
        return keys

    def predictions(self) -> dict[int, np.ndarray]:
        """Return log-probabilities (places, V) of each chosen piece by an LSTM that has not learnt from it.

        The main process gets those of all pieces, others those by the networks that they have trained.
        """
        parts = ranks.gather_on_main(ranks.agree(self._own_predictions))
        return {number: values for part in parts for number, values in part.items()}

    def _own_predictions(self) -> dict[int, np.ndarray]:
        groups = np.unique(self.groups)
        found: dict[int, np.ndarray] = {}
        if self.learn is None:
            return {number: predicted(self.model, self.pieces[number]) for number in self.chosen if ranks.is_main()}
        count = min(NETWORKS, len(groups))
        for first in range(ranks.rank(), count, ranks.world()):
            hidden = np.isin(self.groups, groups[first::count])
            network = _untrained(self.untrained).to(self.model.output.weight.device)
            said = f"learning without a part of the text, to fit the mixture ({first + 1} of {count})"
            self.learn(network, [self.pieces[number][1:-1] for number in np.flatnonzero(~hidden)], said)
            found |= {number: predicted(network, self.pieces[number]) for number in self.chosen[hidden[self.chosen]]}
        return found


def _untrained(model: CharMixture) -> CharMixture:
    """Return a copy with weights of its own and the same counts, whose LSTM can learn."""
    return copy.deepcopy(model, {id(each): each for each in model.buffers()})


@torch.no_grad()
def predicted(network: CharLSTM, piece: np.ndarray) -> np.ndarray:
    """Return log-probabilities (N - 1, V) of the tokens after each of `piece` (N,) but the last."""
    network.eval()
    tokens = torch.from_numpy(piece[None, :-1]).to(network.output.weight.device)
    return F.log_softmax(network(tokens)[0][0].float(), -1).cpu().numpy()


def left_out(
    config: Config, corpus: Corpus, base: CharMixture | None
) -> Iterator[tuple[CharMixture, list[Text], list[Text]]]:
    """Yield, for each document, a model of the other families, the document, and their documents.

    With a single family, the fifths of its longest document take the place of documents. The LSTM of these models is
    the base's, or predicts nothing: a trained one has learnt from all documents.
    """
    documents = _predictable(corpus.parts["train"])
    names = [document.name for document in documents]
    if len(documents) == 1:
        pieces = enumerate(np.array_split(documents[0].tokens, FIFTHS), 1)
        documents, names = [Text(f"{names[0]}, part {number}", piece) for number, piece in pieces], names * FIFTHS
    owners = _families(documents)
    for family in progress(families := np.unique(owners), len(families), "judging by leaving out, families"):
        others = [document for document, owner in zip(documents, owners, strict=True) if owner != family]
        mixer = Mixer(others, sizes_of(corpus, config, base), config, base)
        if base is None:
            for parameter in mixer.model.output.parameters():
                nn.init.zeros_(parameter)
        mixer.fit()
        for number in np.flatnonzero(owners == family):
            yield mixer.model.eval(), [replace(documents[number], name=names[number])], others


def _stored(documents: Sequence[Text], most: int, base: CharMixture | None) -> list[Text]:
    """Return the beginning of each document, `most` tokens in all; a base's documents come last."""
    total = sum(len(each.tokens) for each in documents)
    found = {each.name: _begun(each, len(each.tokens) * min(most, total) // total) for each in documents}
    left = most - sum(len(each.tokens) for each in found.values())
    outlines = base.outlines() if base else {}
    for name, tokens in base.stored().items() if base else ():
        project = base.config.projects.get(name, name) if base else name
        kept = _begun(Text(name, tokens, f"{BASE}{project}", outlines.get(name, NO_OUTLINE)), max(0, left))
        key = f"{BASE}{name}" if name in found else name
        found[key] = replace(kept, name=key)
        left -= len(kept.tokens)
    return [each for each in found.values() if len(each.tokens)]


def _begun(text: Text, size: int) -> Text:
    """Return the first tokens of a text, with the nodes of its outline that lie within them."""
    cut = np.flatnonzero(text.outline[:, 1] > size)
    return replace(text, tokens=text.tokens[:size], outline=text.outline[: cut[0] if len(cut) else None])


def between_ends(tokens: np.ndarray) -> np.ndarray:
    """Return the tokens (N + 2,) int64 of a document with <end> before and behind them."""
    return np.concatenate([[END], tokens, [END]]).astype(np.int64)
