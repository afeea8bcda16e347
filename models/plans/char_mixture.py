"""A character LSTM mixed with counts of contexts, which continues a text and adapts to it."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from common.plain import Plain
from models.inputs import LONGEST_PROMPT
from models.plans import chains
from models.plans.char_lstm import CharLSTM
from models.plans.characters import COPIED, END, normalise, typed_end
from models.plans.inputs import LONGEST_DOCUMENT, TextInput, TextSettings
from models.plans.library import Document, Library
from models.plans.lstm_network import MIXTURE, CharLSTMConfig, State
from models.plans.mixing import FEATURES, TABLES
from models.plans.mixture_weights import FROZEN, Examples, fitted, mixture
from models.plans.outline import divide, last_heading
from models.plans.readers import MixtureReader, Readings, single_thread
from models.plans.suggester import SUGGESTED, Suggester, Suggestion

JUDGED = 20  # first characters of a clause, which give its likelihood


@dataclass(frozen=True)
class CharMixtureConfig(CharLSTMConfig):
    """Sizes and tokenizer of a CharMixture."""

    rows: int = 0  # contexts that were counted
    entries: int = 0  # pairs of a context and a token
    documents: dict[str, int] = field(default_factory=dict)  # characters that are stored of each document
    nodes: dict[str, int] = field(default_factory=dict)  # rows of each document's outline; older models have none
    projects: dict[str, str] = field(default_factory=dict)  # of documents; one that is missing is a project of its own

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.rows, self.entries) < 0:
            raise ValueError(f"rows={self.rows} and entries={self.entries} must be 0 or more")
        if any(size < 1 for size in self.documents.values()) or min(self.nodes.values(), default=0) < 0:
            raise ValueError("documents: of each, 1 or more characters are stored, and 0 or more nodes")
        if self.nodes and list(self.nodes) != list(self.documents):
            raise ValueError("nodes: there must be a number for each of the documents, in their order")


class CharMixture(CharLSTM):
    """An LSTM mixed with counts of contexts.

    `model.complete("The information manager is ", document=text_before)` also counts the text before it;
    `model.suggest("clashDetection", "Hard clashes are ")` finds clauses of the stored documents.
    """

    family = "char_mixture"
    card = MIXTURE
    config: CharMixtureConfig
    text: Tensor  # (characters,) int16, the stored documents one after the other
    outline: Tensor  # (nodes, 4) int32, those of the documents (outline.py)
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
        self.register_buffer("outline", torch.zeros(sum(config.nodes.values()), 4, dtype=torch.int32))
        self.register_buffer("common", torch.zeros(2, FEATURES))
        self.register_buffer("by_length", torch.zeros(2, TABLES[0], FEATURES))
        self.register_buffer("by_lengths", torch.zeros(2, TABLES[1], FEATURES))
        self.register_buffer("by_state", torch.zeros(2, FEATURES, chains.STATES))
        self.common[:, 0] = 1  # the LSTM alone, until the weights are fitted
        self.classes = chains.classes_of(self.characters.texts)
        # Equal on all processes, so nothing has to be sent with every step.
        self._ddp_params_and_buffers_to_ignore = [name for name, _ in self.named_buffers()]

    def renewed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return stored tensors in the dtypes of computation: whole numbers had fewer bytes, weights half precision."""
        half = {name: tensor.float() for name, tensor in tensors.items() if tensor.dtype == torch.float16}
        whole = {name: each.dtype for name, each in self.named_buffers() if not each.is_floating_point()}
        narrow = {
            name: tensor.to(whole[name])
            for name, tensor in tensors.items()
            if name in whole and not (tensor.is_floating_point() or tensor.is_complex())
        }
        return {"outline": torch.zeros(0, 4, dtype=torch.int32), **tensors, **half, **narrow}

    def check(self) -> None:
        """Raise ValueError for impossible counts."""
        counts = self.counted()
        sound = (
            counts.offsets[0] == 0
            and counts.offsets[-1] == len(counts.tokens)
            and (np.diff(counts.offsets) > 0).all()
            and (np.diff(counts.keys) > 0).all()
            and ((counts.tokens >= 0) & (counts.tokens < len(self.characters))).all()
            and (counts.counts > 0).all()
        )
        text = self.text.cpu().numpy()
        if not (sound and (text >= 0).all() and (text < len(self.characters)).all()):
            raise ValueError("the model's counts are damaged")
        for name, rows in self.outlines().items():
            begins, ends, above, kinds = rows.T
            fits = (begins >= 0) & (begins <= ends) & (ends <= self.config.documents[name]) & (kinds >= 0) & (kinds < 5)
            if not (fits & (above >= -1) & (above < np.arange(len(rows)))).all():
                raise ValueError(f"the outline of {name} is damaged")

    def counted(self) -> chains.Counts:
        """Return the counts of the training text; on the CPU, they share the buffers' memory."""
        return chains.Counts(*(getattr(self, name).cpu().numpy() for name in ("keys", "offsets", "tokens", "counts")))

    @torch.no_grad()
    def count(self, counts: chains.Counts) -> None:
        """Store counts of the sizes in the config."""
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
        return mixture(network, found, self.tables(FROZEN))

    def weights(self) -> list[Tensor]:
        """Return the tables of weights, each with a set for a frozen model and one for a model that adapts."""
        return [self.common, self.by_length, self.by_lengths, self.by_state]

    def tables(self, which: int) -> list[np.ndarray]:
        """Return one set of weights, the `tables` of `mixture`."""
        return [table[which].cpu().numpy() for table in self.weights()]

    def fit(self, which: int, examples: Sequence[Examples]) -> float:
        """Fit the FROZEN or the ADAPTING weights; return the nats per token."""
        tables, nats = fitted(examples)
        for own, table in zip(self.weights(), tables, strict=True):
            own[which] = table
        return nats

    def reader(self, first: int = END, adapting: bool = True) -> MixtureReader:
        """Return a reader that has read only the token `first`, and counts what follows if it is `adapting`."""
        return MixtureReader(self, self.classes, self.counted(), self.tables(int(adapting)), first, adapting)

    def suggest(self, field: str, partial: str = "", n: int = SUGGESTED, document: str = "") -> list[Suggestion]:
        """Return up to `n` clauses of the stored documents for a form's field, the best first; [] if none fits.

        `field` is a heading or a name such as clashDetection, by default the last heading of `document`, which is the
        text before; `partial` is the text below it so far. Raises ValueError for texts that are too long.
        """
        if n < 1 or len(document) > LONGEST_DOCUMENT or max(len(field), len(partial)) > LONGEST_PROMPT:
            most = f"a document has at most {LONGEST_DOCUMENT:,} characters, a field {LONGEST_PROMPT:,}"
            given = f"(given {n}, {len(document):,} and {max(len(field), len(partial)):,})"
            raise ValueError(f"n must be 1 or more, and {most} {given}")
        typed, partial, document = partial, normalise(partial)[0], normalise(document)[0]
        heading = field or last_heading(document)
        shown, document = self.suggester.spelled(heading), document.strip("\n")
        with single_thread():
            reader = self.readings.reader(document)
            before = "\n\n".join([""] * bool(document) + [shown] * bool(shown) + [partial])
            reader.skim(np.array(self.characters.spelled(before), np.int64))

            def likely(texts: Sequence[str]) -> list[float]:
                ways = [self.characters.spelled(text[:JUDGED]) for text in texts]
                return [float(each.mean()) for each in reader.judge(ways)]

            found = self.suggester.suggest(heading, partial, n, likely)
        return [replace(each, replaces=typed_end(typed, each.replaces)) for each in found]

    def answers(self, prepared: Sequence[TextInput], settings: TextSettings) -> list[dict[str, Plain]]:
        """Return clauses for each field or heading; with none, or with settings, a written text too."""
        found = [self._clauses(each) for each in prepared]
        tells = [bool(settings.model_fields_set) or not each.get("suggestions") for each in found]
        texts = iter(super().answers([each for each, tell in zip(prepared, tells, strict=True) if tell], settings))
        return [{**each, **next(texts)} if tell else each for each, tell in zip(found, tells, strict=True)]

    def _clauses(self, given: TextInput) -> dict[str, Plain]:
        """Return the `suggestions` of clauses; {} for a text with neither a field nor a heading."""
        before, partial = given.document, given.prompt
        if not given.field:
            before, _, partial = (before + partial)[-LONGEST_DOCUMENT:].rpartition("\n")
        if not (given.field or last_heading(before)):
            return {}
        found = self.suggest(given.field or "", partial[-LONGEST_PROMPT:], document=before)
        return {"suggestions": [vars(each) for each in found]}

    def read_ahead(self, document: str, most: int) -> bool:
        """Read at most `most` further characters of a document in advance; return whether all of it is read."""
        with single_thread():
            self.suggester.topic("")  # the library is made once, before anybody waits for a suggestion
            return self.readings.read(normalise(document)[0].strip("\n"), most)

    def stored(self) -> dict[str, np.ndarray]:
        """Return the stored tokens (T,) int16 of each document."""
        parts = np.split(self.text.cpu().numpy(), np.cumsum(list(self.config.documents.values()), dtype=np.int64))[:-1]
        return dict(zip(self.config.documents, parts, strict=True))

    def outlines(self) -> dict[str, np.ndarray]:
        """Return the outline (N, 4) of each document; {} for an older model, which has none."""
        parts = np.split(self.outline.cpu().numpy(), np.cumsum(list(self.config.nodes.values()), dtype=np.int64))[:-1]
        return dict(zip(self.config.nodes, parts, strict=True))

    def library(self) -> list[Document]:
        """Return the stored documents."""
        found, outlines = [], self.outlines()
        for name, tokens in self.stored().items():
            text, rows = self.characters.signs(tokens.tolist()), outlines.get(name, np.zeros(0))
            outline = rows if len(rows) else divide(text)
            found.append(Document(name, self.config.projects.get(name, name), text, outline))
        return found

    @functools.cached_property
    def suggester(self) -> Suggester:
        """Suggestions of clauses of the stored documents."""
        return Suggester(Library(self.library()))

    @functools.cached_property
    def readings(self) -> Readings:
        """The documents that were read last."""
        return Readings(self.reader, self.characters)

    @functools.cached_property
    def copies(self) -> str:
        """The text of the stored documents, which written text must not copy."""
        return self.characters.shown("\n".join(self.characters.signs(each.tolist()) for each in self.stored().values()))

    def copied(self, written: str, piece: str) -> bool:
        """Return whether `piece`, after the text written before, completes 50 characters of a stored document."""
        whole = written + piece
        ends = range(max(COPIED, len(written) + 1), len(whole) + 1)
        return any(whole[end - COPIED : end] in self.copies for end in ends)

    def example(self) -> dict[str, Tensor | bool]:
        """Return arguments of a deterministic forward pass."""
        return {**super().example(), "mixed": True}
