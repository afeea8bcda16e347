"""An LSTM over characters (Graves 2013) that continues a text.

The tokenizer is part of the model, so that training and use cannot differ in case or in unknown characters.

Shapes: B sequences, S positions, V tokens, E channels of the embedding, H units of a layer, L layers.
"""

import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import io, sampling
from models.inputs import LONGEST_DOCUMENT, LONGEST_PROMPT, TextInput, TextSettings
from models.io import config_from
from models.plans import model_cards
from models.plans.characters import END, SPECIAL_TOKENS, Characters
from models.plans.characters import MASKS as MASKS
from models.plans.characters import PAD as PAD
from models.plans.characters import UNKNOWN as UNKNOWN
from models.plans.lstm_steps import Steps
from models.plans.text_writer import Writer
from models.prediction import asked

PRESETS = {
    "legacy": {"kind": "scalar", "width": 512, "layers": 2, "dropout": 0.3},
    "default": {"kind": "embedding", "width": 256, "layers": 1, "embedding": 32, "dropout": 0.3},
    "wide": {"kind": "embedding", "width": 384, "layers": 1, "embedding": 32, "dropout": 0.5},
}
FORGOTTEN = 4000  # tokens after which a state has nothing of what was read before; trained models forget in 600

State = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Standing:
    """Where B texts stand, so that each can be continued."""

    state: Tensor  # (2, L, B, H) of the LSTM
    ends: np.ndarray  # (B, E) what a mixture knows of their last tokens (models/plans/text_ends.py); (B, 0) for an LSTM

    @classmethod
    def joined(cls, places: Sequence[tuple["Standing", int]]) -> "Standing":
        """Return where several texts stand, each given as a row of a standing."""
        states = torch.stack([each.state[:, :, row] for each, row in places], 2)
        return cls(states, np.stack([each.ends[row] for each, row in places]))


@dataclass(frozen=True)
class CharLSTMConfig:
    """Sizes and tokenizer of a CharLSTM."""

    vocabulary: str  # all characters, each once, in the order of their ids
    kind: str  # input of the LSTM: "embedding", or "scalar", the id divided by V as in the original
    width: int  # units of a layer
    layers: int
    dropout: float
    embedding: int = 0  # channels; unused by "scalar"
    lower_case: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("embedding", "scalar"):
            raise ValueError(f"kind={self.kind!r} is unknown; it must be 'embedding' or 'scalar'")
        sizes = {"width": self.width, "layers": self.layers}
        sizes |= {"embedding": self.embedding} if self.kind == "embedding" else {}
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(f"{name}={value} must be 1 or more")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be 0 or more and below 1")


class CharLSTM(io.Model):
    """A character LSTM that completes text, as in `model.complete("The information manager is ", temperature=0.5)`.

    It reads characters and gives the logits of the next one.
    """

    family = "char_lstm"
    pipeline_tag = "text-generation"
    card = model_cards.LSTM
    input_type, settings_type = TextInput, TextSettings

    def __init__(self, config: CharLSTMConfig):
        super().__init__()
        self.config = config
        self.characters = Characters(config.vocabulary, config.lower_case)
        scalar = config.kind == "scalar"
        self.embedding = None if scalar else nn.Embedding(len(self.characters), config.embedding)
        between = config.dropout if config.layers > 1 else 0.0
        channels = 1 if scalar else config.embedding
        self.lstm = nn.LSTM(channels, config.width, config.layers, batch_first=True, dropout=between)
        # The original knew only characters: there, special tokens get the constant logit 0 and have no parameters.
        self.output = nn.Linear(config.width, len(config.vocabulary) if scalar else len(self.characters))
        # The original has dropout only between its layers.
        self.dropout = nn.Dropout(0.0 if scalar else config.dropout)
        if not scalar:
            self._open_forget_gates()

    @torch.no_grad()
    def _open_forget_gates(self) -> None:
        """Start with open forget gates (Jozefowicz et al. 2015)."""
        for layer in range(self.config.layers):
            getattr(self.lstm, f"bias_ih_l{layer}").view(4, -1)[1].fill_(1.0)

    def forward(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Return logits (B, S, V) of the token after each of `tokens` (B, S) int64, and the state after the last one.

        The state is two tensors (L, B, H); None means zeros. Passing the state on from piece to piece gives the same
        logits as one pass over all tokens.
        """
        x = self.channels(tokens)
        x, state = self.lstm(x if self.embedding is None else self.dropout(x), state)
        logits = self.output(self.dropout(x))
        if self.embedding is None:
            logits = F.pad(logits, (len(SPECIAL_TOKENS), 0))
        return logits, state

    def channels(self, tokens: Tensor) -> Tensor:
        """Return what the LSTM reads of tokens (...), (..., E)."""
        if self.embedding is None:
            return (tokens / len(self.characters))[..., None].to(self.output.weight.dtype)
        return self.embedding(tokens)

    def complete(
        self,
        prompt: str,
        max_characters: int = 200,
        temperature: float = 0.5,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: str | None = None,
        document: str = "",
    ) -> str:
        """Continue `prompt` for up to `max_characters`, until the document ends or up to `stop`, which is left out.

        `document` is the text before the prompt. Temperature 0 is greedy. The text depends only on the weights and the
        arguments. Raises ValueError for an empty prompt, for one of more than 10,000 characters or a document of more
        than a million, and for settings out of range.
        """
        return "".join(self.characters_of(prompt, max_characters, temperature, top_k, top_p, seed, stop, document))

    def prepared(self, given: TextInput, settings: TextSettings) -> TextInput:
        """Return the input. Raises ValueError for one without a prompt."""
        if not given.prompt:
            raise ValueError("prompt is missing or empty; give the text to be completed, 1 character or more")
        return given

    def answers(self, prepared: Sequence[TextInput], settings: TextSettings) -> list[dict[str, Any]]:
        """Return what follows each prompt; see `sampling.answer`."""
        return self.writer().answers(prepared, settings)

    def writer(self) -> Writer:
        """Return what writes texts side by side, by the weights as they are now."""
        return Writer(self)

    def stream(self, given: Mapping[str, Any] | TextInput, **settings: Any) -> Iterator[str]:
        """Iterate over the characters of the `text` that `predict` answers, each as soon as it is certain.

        Raises ValueError for an input or settings that cannot be used, when called.
        """
        text, chosen = asked(self, given, settings)
        return self._told(self.prepared(text, chosen), chosen)

    def characters_of(
        self,
        prompt: str,
        max_characters: int = 200,
        temperature: float = 0.5,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: str | None = None,
        document: str = "",
    ) -> Iterator[str]:
        """Iterate over the characters of `complete`, each as soon as it is certain; raises its errors when called."""
        if not 0 < len(prompt) <= LONGEST_PROMPT:
            raise ValueError(f"a prompt has 1 to {LONGEST_PROMPT:,} characters (given {len(prompt):,})")
        if len(document) > LONGEST_DOCUMENT:
            raise ValueError(f"a document has at most {LONGEST_DOCUMENT:,} characters (given {len(document):,})")
        if max_characters < 1:
            raise ValueError(f"max_characters must be 1 or more (given {max_characters})")
        if stop == "":
            raise ValueError("stop is empty; give the text to stop at, or None")
        sampling.check(temperature, top_k, top_p)
        settings = TextSettings.model_construct(
            length=max_characters, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, stop=stop
        )
        return self._told(TextInput.model_construct(prompt=prompt, document=document), settings)

    def _told(self, given: TextInput, settings: TextSettings) -> Iterator[str]:
        """Yield the characters of a text."""
        writer = self.writer()
        text = writer.begun(given, settings)
        while not text.ended:
            writer.advance([text])
            yield from text.taken()

    def copied(self, written: str, piece: str) -> bool:
        """Return whether `piece` makes what was written before it a copy of stored training text; none is here."""
        return False

    def steps(self) -> Steps:
        """Return what goes on token by token, by the weights as they are now."""
        return Steps(self)

    def reader(self, first: int = END) -> "Reader":
        """Return a reader that has read only the token `first`."""
        return Reader(self, first)

    def example(self) -> dict[str, Tensor]:
        """Return arguments of a deterministic forward pass."""
        return {"tokens": torch.arange(120).view(2, 60) * 7919 % len(self.characters)}


class Reader:
    """What a model has read of a text, token after token, and what it expects next; log-probabilities on the CPU."""

    def __init__(self, model: CharLSTM, first: int = END):
        self.model = model
        self.begin(first)

    def begin(self, first: int = END) -> None:
        """Begin a document with a token that is not predicted."""
        self.state = torch.zeros(2, self.model.lstm.num_layers, 1, self.model.lstm.hidden_size)
        self._run(np.array([first]))

    def read(self, tokens: np.ndarray) -> Tensor:
        """Return the log-probabilities (N, V) of the token at each place, where `tokens` (N,) then turn out to be."""
        if not len(tokens):
            return self.next[:0].view(0, len(self.next))
        expected = self.next[None]
        return torch.cat([expected, self._run(tokens)[:-1]])

    def skim(self, tokens: np.ndarray) -> None:
        """Read without asking for predictions: of many tokens only the last, since the state forgets the others."""
        if len(tokens) > FORGOTTEN:
            self.state = torch.zeros_like(self.state)
        if len(tokens):
            self._run(tokens[-FORGOTTEN:])

    def ahead(self) -> Tensor:
        """Return the log-probabilities (V,) of the next token."""
        return self.expected([self])[0]

    def follow(self, token: int) -> None:
        """Go on with a token that is not counted, such as one that was generated."""
        self.go_on([self], [token])

    @classmethod
    def expected(cls, readers: "Sequence[Self]") -> Tensor:
        """Return the log-probabilities (B, V) of the next token of each of several texts."""
        return torch.stack([reader.next for reader in readers])

    @classmethod
    def go_on(cls, readers: "Sequence[Self]", tokens: Sequence[int]) -> None:
        """Go on with a token of each of several texts; what becomes of one does not depend on the others."""
        states = torch.cat([reader.state for reader in readers], 2)
        found, state = readers[0].steps(torch.tensor(tokens), states)
        for row, reader in enumerate(readers):
            reader.next, reader.state = found[row], state[:, :, row : row + 1]

    def fork(self) -> "Reader":
        """Return a reader of the same text that goes on by itself."""
        return copy.copy(self)

    def standing(self) -> Standing:
        """Return where the text stands that has been read."""
        return Standing(self.state, np.zeros((1, 0), np.uint64))

    def extend(self, standing: Standing, tokens: np.ndarray) -> tuple[Tensor, Standing]:
        """Return what each of B texts expects after a token (B,) more, log-probabilities (B, V), and where they stand.

        What was read stays as it is.
        """
        found, state = self.steps(torch.from_numpy(tokens.astype(np.int64)), standing.state)
        return found, Standing(state, standing.ends)

    @functools.cached_property
    def steps(self) -> Steps:
        """What goes on token by token, by the weights as they were when it was first asked for."""
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


def build(config: Mapping[str, Any]) -> CharLSTM:
    """Build the model from its config as `models.io` reads it."""
    return CharLSTM(config_from(CharLSTMConfig, config))
