"""The network of character models: an LSTM over characters (Graves 2013).

The tokenizer is part of the model, so that training and use cannot differ in case or in unknown characters. Single
steps of several texts do not depend on one another, to the last bit: inputs and weights are whole multiples of powers
of two, so small that float64 holds every sum of their products exactly.

Shapes: B sequences, S positions, V tokens, E channels of the embedding, H units of a layer, L layers.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from models import io
from models.plans.characters import Characters

INPUT_BITS = 24  # of an input in -1 to 1; as fine as float32 just below 1
WEIGHT_BITS = 28  # of the sum of the sizes of an output's weights; with those of the inputs less than float64's 53

State = tuple[Tensor, Tensor]


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
    """An LSTM that reads characters and gives the logits of the next one."""

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
        return Steps(self.lstm, self.output, self.embedding.weight)

    def example(self) -> dict[str, Tensor | bool]:
        """Return arguments of a deterministic forward pass."""
        return {"tokens": torch.arange(120).view(2, 60) * 7919 % len(self.characters)}


class Steps:
    """The weights of a network as they are now, ready for single tokens; `channels` (V, E) are those of all tokens."""

    @torch.no_grad()
    def __init__(self, lstm: nn.LSTM, output: nn.Linear, channels: Tensor):
        size, layers = lstm.hidden_size, range(lstm.num_layers)
        # Halves for the gates with a sigmoid, which is (tanh(x / 2) + 1) / 2, so that one tanh serves all gates.
        halves = torch.tensor([0.5, 0.5, 1.0, 0.5]).repeat_interleave(size)
        weights = {name: _cpu(each) for name, each in lstm.named_parameters()}
        weights = {name: each * (halves[:, None] if each.dim() > 1 else halves) for name, each in weights.items()}
        biases = [(weights[f"bias_ih_l{n}"] + weights[f"bias_hh_l{n}"]).numpy() for n in layers]
        self.of_tokens = (_cpu(channels) @ weights["weight_ih_l0"].T).numpy() + biases[0]  # (V, 4 H)
        self.further = [(biases[n], Product(weights[f"weight_ih_l{n}"])) for n in layers[1:]]  # of the other layers
        self.recurrent = [Product(weights[f"weight_hh_l{n}"]) for n in layers]
        self.output, self.bias = Product(output.weight), _cpu(output.bias).numpy()

    def __call__(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (B, V) after a token (B,) more, and the state (2, L, B, H) after it."""
        before, after, size = state.numpy(), np.empty(state.shape, np.float32), state.shape[3]
        x, inputs = np.zeros(0), self.of_tokens[tokens.numpy()]
        for layer, recurrent in enumerate(self.recurrent):
            if layer:
                bias, product = self.further[layer - 1]
                inputs = product(x) + bias
            gates = recurrent(before[0, layer])
            gates += inputs
            np.tanh(gates, out=gates)
            candidate = gates[:, 2 * size : 3 * size].copy()
            gates += 1.0
            gates *= 0.5
            cell = gates[:, size : 2 * size] * before[1, layer]
            cell += gates[:, :size] * candidate
            x = gates[:, 3 * size :] * np.tanh(cell)
            after[1, layer], after[0, layer] = cell, x
        logits = self.output(x)
        logits += self.bias
        logits -= logits.max(1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(1, keepdims=True))
        return torch.from_numpy(logits.astype(np.float32)), torch.from_numpy(after)


class Product:
    """The product of inputs in -1 to 1 with a matrix, without rounding once both are multiples of powers of two."""

    def __init__(self, weights: Tensor):
        values = _cpu(weights).double().T.contiguous()
        places = WEIGHT_BITS - torch.frexp(values.abs().sum(0)).exponent.double()
        self.weights = (values * 2.0**places).round()
        self.units = (2.0 ** -(places + INPUT_BITS)).numpy()  # of the outputs

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Return the product (B, outputs) float64 with `inputs` (B, inputs)."""
        whole = np.rint(inputs * 2.0**INPUT_BITS, dtype=np.float64)
        product = (torch.from_numpy(whole) @ self.weights).numpy()
        product *= self.units
        return product


def _cpu(values: Tensor) -> Tensor:
    return values.detach().float().cpu().contiguous()
