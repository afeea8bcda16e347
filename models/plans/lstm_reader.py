"""Readers: the state of a character network after some text, and its predictions of the next token.

Shapes: as in char_network.py.
"""

import copy
import functools
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.plans.char_network import CharNetwork, Steps
from models.plans.characters import END

FORGOTTEN = 4000  # tokens after which a state has nothing of what was read before; trained models forget in 600


class Reader:
    """A text read token by token, and log-probabilities of the next token, on the CPU."""

    def __init__(self, model: CharNetwork, first: int = END):
        self.model = model
        self.begin(first)

    def begin(self, first: int = END) -> None:
        """Begin a document with a token that is not predicted."""
        self.state = torch.zeros(2, self.model.lstm.num_layers, 1, self.model.lstm.hidden_size)
        self._run(np.array([first]))

    def read(self, tokens: np.ndarray) -> Tensor:
        """Read `tokens` (N,); return the log-probabilities (N, V) of each before it was read."""
        if not len(tokens):
            return self.next[:0].view(0, len(self.next))
        expected = self.next[None]
        return torch.cat([expected, self._run(tokens)[:-1]])

    def skim(self, tokens: np.ndarray) -> None:
        """Read without predictions; of many tokens only the last, since the state forgets the others."""
        if len(tokens) > FORGOTTEN:
            self.state = torch.zeros_like(self.state)
        if len(tokens):
            self._run(tokens[-FORGOTTEN:])

    def ahead(self) -> Tensor:
        """Return the log-probabilities (V,) of the next token."""
        return self.expected([self])[0]

    @classmethod
    def expected(cls, readers: "Sequence[Self]") -> Tensor:
        """Return the log-probabilities (B, V) of the next token of each of several texts."""
        return torch.stack([reader.next for reader in readers])

    @classmethod
    def go_on(cls, readers: "Sequence[Self]", tokens: Sequence[int]) -> None:
        """Read a token of each of several texts, independently of one another."""
        states = torch.cat([reader.state for reader in readers], 2)
        found, state = readers[0].steps(torch.tensor(tokens), states)
        for row, reader in enumerate(readers):
            reader.next, reader.state = found[row], state[:, :, row : row + 1]

    def fork(self) -> "Reader":
        """Return an independent copy."""
        return copy.copy(self)

    @torch.no_grad()
    def judge(self, ways: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return the log-probabilities (n,) of the tokens of each of several continuations, which are not read."""
        weights = self.model.output.weight
        inputs = nn.utils.rnn.pad_sequence([torch.tensor(way) for way in ways], batch_first=True).to(weights.device)
        state = tuple(each.expand(-1, len(ways), -1).contiguous() for each in self.state.to(weights))
        found = F.log_softmax(self.model(inputs, state)[0].float(), -1).cpu()
        expected = [torch.cat([self.next[None], own[: len(way) - 1]]) for own, way in zip(found, ways, strict=True)]
        tokens = torch.tensor([token for way in ways for token in way])
        log_probs = self.after(torch.cat(expected), ways)
        return list(log_probs.gather(1, tokens[:, None])[:, 0].split([len(way) for way in ways]))

    def after(self, network: Tensor, ways: Sequence[Sequence[int]]) -> Tensor:
        """Return the log-probabilities (N, V) of all tokens of continuations, given the LSTM's."""
        return network

    @functools.cached_property
    def steps(self) -> Steps:
        """Single steps with the weights at the time of first use."""
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
