"""Readers: the state of a character network after some text, and its predictions of the next token.

Shapes: as in char_network.py.
"""

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from models.plans.char_network import CharNetwork
from models.plans.characters import END
from models.plans.lstm_steps import Steps

FORGOTTEN = 4000  # tokens after which a state has nothing of what was read before; trained models forget in 600


@dataclass(frozen=True)
class Standing:
    """The states of B texts, so that each can be continued."""

    state: Tensor  # (2, L, B, H) of the LSTM
    ends: np.ndarray  # (B, E) a mixture's summary of their last tokens (text_ends.py); (B, 0) for an LSTM

    @classmethod
    def joined(cls, places: Sequence[tuple["Standing", int]]) -> "Standing":
        """Stack several texts, each given as a row of a standing."""
        states = torch.stack([each.state[:, :, row] for each, row in places], 2)
        return cls(states, np.stack([each.ends[row] for each, row in places]))


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

    def standing(self) -> Standing:
        """Return the state of the text so far."""
        return Standing(self.state, np.zeros((1, 0), np.uint64))

    def extend(self, standing: Standing, tokens: np.ndarray) -> tuple[Tensor, Standing]:
        """Return log-probabilities (B, V) after one more token (B,) of each of B texts, and their new standing.

        The reader itself stays as it is.
        """
        found, state = self.steps(torch.from_numpy(tokens.astype(np.int64)), standing.state)
        return found, Standing(state, standing.ends)

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
