"""An LSTM over characters (Graves 2013) that goes on writing where a text ends.

The tokenizer is part of the model, so that training and use cannot differ in case or in unknown characters.

Shapes: B sequences, S positions, V tokens, E channels of the embedding, H of a layer, L layers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import sampling
from models.io import config_from

SPECIAL_TOKENS = ("<pad>", "<unk>", "<end>", "<email>", "<telephone>", "<url>")
PAD, UNKNOWN, END = range(3)  # filling, a character that is not in the vocabulary, the end of a document
# In prepared text these private-use characters stand for what was masked, so that no text can spell a special token.
MASKS = {"\ue000": 3, "\ue001": 4, "\ue002": 5}
PRESETS = {
    "legacy": {"kind": "scalar", "width": 512, "layers": 2, "dropout": 0.3},
    "default": {"kind": "embedding", "width": 256, "layers": 1, "embedding": 32, "dropout": 0.3},
}
LONGEST_PROMPT = 10_000  # characters

State = tuple[Tensor, Tensor]


class Characters:
    """Text to token ids and back: the special tokens first, then the characters of `vocabulary` in their order.

    A special token's name in a text is its characters: nothing that a user types can become <end>. With `lower_case`
    all text is lower-cased on its way in. Raises ValueError for a vocabulary that no text could have.
    """

    def __init__(self, vocabulary: Sequence[str], lower_case: bool = False):
        wrong = [each for each in vocabulary if not isinstance(each, str) or len(each) != 1 or each in MASKS]
        if wrong or len(set(vocabulary)) != len(vocabulary):
            raise ValueError(
                "a vocabulary is different single characters without U+E000 to U+E002, which stand for masked text "
                f"(given {wrong[0]!r})"
                if wrong
                else "a vocabulary is different single characters; one of those given comes twice"
            )
        self.vocabulary, self.lower_case = tuple(vocabulary), lower_case
        self.ids = {character: number for number, character in enumerate(vocabulary, len(SPECIAL_TOKENS))} | MASKS
        # A character that the model does not know is shown as the replacement character.
        self.texts = ("", "\ufffd", "", *SPECIAL_TOKENS[3:], *vocabulary)

    def __len__(self) -> int:
        """Number of tokens, V."""
        return len(self.texts)

    def encode(self, text: str) -> list[int]:
        """The id of each character; U+E000 to U+E002 are <email>, <telephone> and <url>, unknown ones <unk>."""
        text = text.lower() if self.lower_case else text
        return [self.ids.get(character, UNKNOWN) for character in text]

    def decode(self, ids: Iterable[int]) -> str:
        """Text to be read: masks by their names, <unk> as U+FFFD, <pad> and <end> as nothing."""
        return "".join(self.texts[number] for number in ids)


@dataclass(frozen=True)
class CharLSTMConfig:
    """Sizes, and the tokenizer."""

    vocabulary: str  # all characters, each once, in the order of their ids
    kind: str  # how characters go in: "embedding", or "scalar", the id over V as the original did
    width: int
    layers: int
    dropout: float
    embedding: int = 0  # channels; of no use to a scalar
    lower_case: bool = False

    def __post_init__(self):
        if self.kind not in ("embedding", "scalar"):
            raise ValueError(f"kind={self.kind!r} is not known; it is 'embedding' or 'scalar'")
        sizes = {"width": self.width, "layers": self.layers}
        sizes |= {"embedding": self.embedding} if self.kind == "embedding" else {}
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(f"{name}={value} must be 1 or more")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be 0 or more and below 1")


class CharLSTM(nn.Module):
    """A character LSTM that completes text: characters in, logits of the next character out.

    Use `model.complete("The information manager is ", max_characters=200, temperature=0.5)`.
    """

    family = "char_lstm"

    def __init__(self, config: CharLSTMConfig):
        super().__init__()
        self.config = config
        self.characters = Characters(config.vocabulary, config.lower_case)
        scalar = config.kind == "scalar"
        self.embedding = None if scalar else nn.Embedding(len(self.characters), config.embedding)
        between = config.dropout if config.layers > 1 else 0.0
        channels = 1 if scalar else config.embedding
        self.lstm = nn.LSTM(channels, config.width, config.layers, batch_first=True, dropout=between)
        # The original knew characters only. Special tokens get the constant logit 0 there, and no parameters.
        self.output = nn.Linear(config.width, len(config.vocabulary) if scalar else len(self.characters))
        # The original drops out between its layers only.
        self.dropout = nn.Dropout(0.0 if scalar else config.dropout)
        if not scalar:
            self._remember_at_first()

    @torch.no_grad()
    def _remember_at_first(self) -> None:
        """Forget gates start open (Jozefowicz et al. 2015)."""
        for layer in range(self.config.layers):
            getattr(self.lstm, f"bias_ih_l{layer}").view(4, -1)[1].fill_(1.0)

    def forward(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Logits (B, S, V) of what follows each of `tokens` (B, S) int64, and the state after the last of them.

        The state is two tensors (L, B, H), None for zeros. Pieces with their state handed on give what the whole gives.
        """
        if self.embedding is None:
            x = (tokens / len(self.characters))[..., None].to(self.output.weight.dtype)
        else:
            x = self.dropout(self.embedding(tokens))
        x, state = self.lstm(x, state)
        logits = self.output(self.dropout(x))
        if self.embedding is None:
            logits = F.pad(logits, (len(SPECIAL_TOKENS), 0))
        return logits, state

    def complete(
        self,
        prompt: str,
        max_characters: int = 200,
        temperature: float = 0.5,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: str | None = None,
    ) -> str:
        """How `prompt` goes on: up to `max_characters`, to the document's end or to `stop`, which is left out.

        Temperature 0 is greedy. The text is a function of the arguments. Raises ValueError for an empty prompt, one of
        more than 10,000 characters, and settings out of range.
        """
        return "".join(self.stream(prompt, max_characters, temperature, top_k, top_p, seed, stop))

    def stream(
        self,
        prompt: str,
        max_characters: int = 200,
        temperature: float = 0.5,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: str | None = None,
    ) -> Iterator[str]:
        """The characters of `complete`, each as soon as it is certain; refuses what `complete` refuses, at once."""
        if not 0 < len(prompt) <= LONGEST_PROMPT:
            raise ValueError(f"a prompt has 1 to {LONGEST_PROMPT:,} characters (given {len(prompt):,})")
        if max_characters < 1:
            raise ValueError(f"max_characters must be 1 or more (given {max_characters})")
        if stop == "":
            raise ValueError("stop is empty; give the text to stop at, or None")
        sampling.choose(torch.zeros(1, 2), temperature, top_k, top_p)  # refuses settings before the first character
        pieces = self._pieces(prompt, max_characters, temperature, top_k, top_p, seed)
        if stop is not None:
            pieces = _until(pieces, stop.lower() if self.config.lower_case else stop)
        return (character for piece in pieces for character in piece)

    @torch.no_grad()
    def _pieces(
        self, prompt: str, count: int, temperature: float, top_k: int, top_p: float, seed: int
    ) -> Iterator[str]:
        """The text of each new token: a character, or the name of a mask."""
        device = self.output.weight.device
        tokens, state = torch.tensor([self.characters.encode(prompt)], device=device), None
        number = 0
        while count > 0:
            logits, state = self(tokens, state)
            logits = logits[:, -1].float()
            logits[:, [PAD, UNKNOWN]] = -torch.inf
            tokens = sampling.choose(logits, temperature, top_k, top_p, seed, number)[:, None]
            piece = self.characters.decode([int(tokens)])
            if int(tokens) == END or len(piece) > count:
                return
            yield piece
            number, count = number + 1, count - len(piece)

    def example(self) -> dict[str, Tensor]:
        """Arguments of a deterministic forward pass."""
        return {"tokens": torch.arange(120).view(2, 60) * 7919 % len(self.characters)}


def _until(pieces: Iterable[str], stop: str) -> Iterator[str]:
    """`pieces` up to `stop`; what may be its beginning is held back until that is known."""
    held = ""
    for piece in pieces:
        held += piece
        if stop in held:
            yield held[: held.index(stop)]
            return
        lengths = range(min(len(stop) - 1, len(held)), 0, -1)
        kept = next((length for length in lengths if stop.startswith(held[-length:])), 0)
        yield held[: len(held) - kept]
        held = held[len(held) - kept :]
    yield held


def build(config: Mapping[str, Any]) -> CharLSTM:
    """The model of a config as `models.io` reads it."""
    return CharLSTM(config_from(CharLSTMConfig, config))
