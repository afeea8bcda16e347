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
        of_tokens = model.channels(tokens) @ weights["weight_ih_l0"].T  # (V, 4 H)
        self.inputs = [_cpu(each) for each in (of_tokens, *(weights[f"weight_ih_l{n}"].T for n in layers[1:]))]
        self.biases = [_cpu(weights[f"bias_ih_l{n}"] + weights[f"bias_hh_l{n}"]) for n in layers]
        self.recurrent = [_cpu(weights[f"weight_hh_l{n}"].T) for n in layers]
        self.output, self.bias = _cpu(model.output.weight.T), _cpu(model.output.bias)
        self.padding = len(model.characters) - len(self.bias)  # special tokens that have the constant logit 0

    @torch.no_grad()
    def __call__(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (B, V) after a token (B,) more, and the state (2, L, B, H) after it."""
        x, after = self.inputs[0][tokens], torch.empty_like(state)
        for layer, (recurrent, bias) in enumerate(zip(self.recurrent, self.biases, strict=True)):
            inputs = x if layer == 0 else x @ self.inputs[layer]
            enter, forget, candidate, leave = torch.addmm(inputs + bias, state[0, layer], recurrent).chunk(4, 1)
            after[1, layer] = forget.sigmoid() * state[1, layer] + enter.sigmoid() * candidate.tanh()
            after[0, layer] = x = leave.sigmoid() * after[1, layer].tanh()
        logits = F.pad(torch.addmm(self.bias, x, self.output), (self.padding, 0))
        return F.log_softmax(logits, -1), after


def _cpu(values: Tensor) -> Tensor:
    return values.float().cpu().contiguous()
