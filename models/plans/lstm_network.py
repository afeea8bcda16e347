"""The network of character models: an LSTM over characters (Graves 2013).

The tokenizer is part of the model, so that training and use cannot differ in case or in unknown characters.

Shapes: B sequences, S positions, V tokens, E channels of the embedding, H units of a layer, L layers.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import io
from models.plans.characters import Characters

State = tuple[Tensor, Tensor]
CARD = Path(__file__).with_name("model_cards.md").read_text()
USE, DATA, MASKED, EXPOSURE, STORED = (" ".join(part.split()[1:]) for part in CARD.split("## ")[1:])
LSTM = {"Intended use": USE, "Data": DATA, "Privacy": f"{MASKED}\n\n{EXPOSURE}"}  # sections of the model card
MIXTURE = {**LSTM, "Privacy": f"{STORED}\n\n{MASKED}\n\n{EXPOSURE}"}


@dataclass(frozen=True)
class CharLSTMConfig:
    """Sizes and tokenizer of a CharLSTM."""

    vocabulary: str  # all characters, each once, in the order of their ids
    kind: str  # of the LSTM's input: "embedding"
    width: int  # units of a layer
    layers: int
    dropout: float
    embedding: int  # channels
    lower_case: bool = False

    def __post_init__(self) -> None:
        if self.kind != "embedding":
            raise ValueError(f"kind={self.kind!r} is unknown; it must be 'embedding'")
        for name in ("width", "layers", "embedding"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be 1 or more")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be 0 or more and below 1")


class CharNetwork(io.Model):
    """An LSTM that reads characters and returns the logits of the next one."""

    def __init__(self, config: CharLSTMConfig):
        super().__init__()
        self.config = config
        self.characters = Characters(config.vocabulary, config.lower_case)
        self.embedding = nn.Embedding(len(self.characters), config.embedding)
        between = config.dropout if config.layers > 1 else 0.0
        self.lstm = nn.LSTM(config.embedding, config.width, config.layers, batch_first=True, dropout=between)
        self.output = nn.Linear(config.width, len(self.characters))
        self.dropout = nn.Dropout(config.dropout)
        for layer in range(config.layers):  # training starts with open forget gates (Jozefowicz et al. 2015)
            getattr(self.lstm, f"bias_ih_l{layer}").data.view(4, -1)[1].fill_(1.0)

    def forward(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Return logits (B, S, V) of the token after each of `tokens` (B, S) int64, and the state after the last one.

        The state is two tensors (L, B, H); None means zeros. Passing the state on from piece to piece gives the same
        logits as one pass over all tokens.
        """
        x, state = self.lstm(self.dropout(self.embedding(tokens)), state)
        return self.output(self.dropout(x)), state

    def steps(self) -> "Steps":
        """Return single steps of the LSTM with the weights as they are now."""
        return Steps(self)

    def example(self) -> dict[str, Tensor | bool]:
        """Return arguments of a deterministic forward pass."""
        return {"tokens": torch.arange(120).view(2, 60) * 7919 % len(self.characters)}


class Steps:
    """Single steps of a network on the CPU, with the weights as they are now."""

    @torch.no_grad()
    def __init__(self, network: CharNetwork):
        lstm, output = network.lstm, network.output
        self.channels, *self.output = map(_cpu, (network.embedding.weight, output.weight, output.bias))
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        self.layers = [[_cpu(getattr(lstm, f"{name}_l{n}")) for name in names] for n in range(lstm.num_layers)]

    @torch.no_grad()
    def __call__(self, token: int, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (V,) after one more token, and the state (2, L, 1, H) after it."""
        x, after = self.channels[token : token + 1], []
        for layer, weights in enumerate(self.layers):
            after.append(torch.lstm_cell(x, (state[0, layer], state[1, layer]), *weights))
            x = after[-1][0]
        found = torch.stack([torch.stack(parts) for parts in zip(*after, strict=True)])
        return F.log_softmax(F.linear(x, *self.output), -1)[0], found


def _cpu(values: Tensor) -> Tensor:
    return values.detach().float().cpu().contiguous()
