"""The network of character models: an LSTM over characters (Graves 2013).

The tokenizer is part of the model, so that training and use cannot differ in case or in unknown characters.

Shapes: B sequences, S positions, V tokens, E channels of the embedding, H units of a layer, L layers.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import io
from models.plans.characters import SPECIAL_TOKENS, Characters
from models.plans.lstm_steps import Steps

State = tuple[Tensor, Tensor]


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


class CharNetwork(io.Model):
    """An LSTM that reads characters and gives the logits of the next one."""

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
        if not scalar:  # training starts with open forget gates (Jozefowicz et al. 2015)
            for layer in range(config.layers):
                getattr(self.lstm, f"bias_ih_l{layer}").data.view(4, -1)[1].fill_(1.0)

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
        channels: Tensor = self.embedding(tokens)
        return channels

    def steps(self) -> Steps:
        """Return single steps of the LSTM with the weights as they are now."""
        tokens = torch.arange(len(self.characters), device=self.output.weight.device)
        return Steps(self.lstm, self.output, self.channels(tokens))

    def example(self) -> dict[str, Tensor | bool]:
        """Return arguments of a deterministic forward pass."""
        return {"tokens": torch.arange(120).view(2, 60) * 7919 % len(self.characters)}
