"""Single steps of a trained character LSTM on the CPU for a few texts at a time, which nn.LSTM is slow at."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from models.char_lstm import CharLSTM


class Steps:
    """The weights of a CharLSTM as they are now, ready for single tokens."""

    @torch.no_grad()
    def __init__(self, model: "CharLSTM"):
        weights, layers = dict(model.lstm.named_parameters()), range(model.lstm.num_layers)
        tokens = torch.arange(len(model.characters), device=model.output.weight.device)
        biases = [_cpu(weights[f"bias_ih_l{n}"] + weights[f"bias_hh_l{n}"]) for n in layers]
        self.of_tokens = _cpu(model.channels(tokens) @ weights["weight_ih_l0"].T) + biases[0]  # (V, 4 H)
        self.further = [(biases[n], _cpu(weights[f"weight_ih_l{n}"].T)) for n in layers[1:]]  # of the other layers
        self.recurrent = [_cpu(weights[f"weight_hh_l{n}"].T) for n in layers]
        self.output, self.bias = _cpu(model.output.weight.T), _cpu(model.output.bias)
        self.padding = len(model.characters) - len(self.bias)  # special tokens that have the constant logit 0

    @torch.no_grad()
    def __call__(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (B, V) after a token (B,) more, and the state (2, L, B, H) after it."""
        x = inputs = self.of_tokens[tokens]
        after = torch.empty_like(state)
        for layer, recurrent in enumerate(self.recurrent):
            if layer:
                bias, weight = self.further[layer - 1]
                inputs = torch.addmm(bias, x, weight)
            enter, forget, candidate, leave = torch.addmm(inputs, state[0, layer], recurrent).chunk(4, 1)
            cell = forget.sigmoid() * state[1, layer] + enter.sigmoid() * candidate.tanh()
            x = leave.sigmoid() * cell.tanh()
            after[1, layer], after[0, layer] = cell, x
        logits = torch.addmm(self.bias, x, self.output)
        return F.log_softmax(F.pad(logits, (self.padding, 0)) if self.padding else logits, -1), after


def _cpu(values: Tensor) -> Tensor:
    return values.float().cpu().contiguous()
