"""Noise inside a model, such as dropout, as a function of (seed, step, item, layer).

It is then the same however the items of an update are split over micro-batches and processes, and on every device.
Training says which items come next; each layer draws its key from torch's CPU generator, which has the same state
whenever this layer of this update is computed. Activation checkpointing restores that state, so a layer that is
computed again in the backward pass has the same noise again.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from common.random import derive_key, random_bits

LEVELS = 2**16  # probabilities are rounded to multiples of 1 / LEVELS

_items: Tensor | None = None  # (b,) int64: the items to which the rows of a tensor belong


def begin(seed: int, step: int, items: Tensor) -> None:
    """Start the noise of a forward pass over `items` (b,) int64 of update `step`."""
    global _items
    # Not by torch.manual_seed: it walks every kind of device there is, a millisecond each time.
    torch.default_generator.manual_seed(derive_key(seed, "noise", step))
    _items = items


def begun() -> tuple[int, Tensor | None]:
    """Return the seed and the items with which the noise of this forward pass began."""
    return torch.initial_seed(), _items


def end() -> None:
    """End the noise of an update: what follows has torch's own."""
    global _items
    _items = None


@contextlib.contextmanager
def rows(items: Tensor | None) -> Iterator[None]:
    """Within the block, the rows of a tensor belong to `items` (r,) int64, not to those of the batch; None: to none."""
    global _items
    before, _items = _items, items
    try:
        yield
    finally:
        _items = before


def drawn(shape: Sequence[int], probability: float, device: torch.device) -> Tensor:
    """Return bool of `shape`, each true with `probability`; row r is of item r modulo their number, else ValueError."""
    global _items
    if _items is None:
        return torch.rand(*shape, device=device) < probability
    copies, rest = divmod(shape[0], len(_items))
    if rest:
        raise ValueError(f"{shape[0]} rows do not belong to {len(_items)} items; say whose they are by noise.rows")
    _items = _items.to(device, non_blocking=True)
    count = math.prod(shape[1:])
    key = int(torch.empty((), dtype=torch.int64).random_())
    parts = [random_bits(derive_key(key, copy), _items, math.ceil(count / 4)) for copy in range(copies)]
    # Four numbers of 16 bits from each of 64; these are signed.
    levels = torch.cat(parts).view(torch.int16)[:, :count]
    return (levels < round(probability * LEVELS) - LEVELS // 2).view(shape)


def dropout(x: Tensor, probability: float) -> Tensor:
    """Return x (r, ...) with elements set to zero with `probability` and the others scaled up."""
    if probability == 0:
        return x
    kept = LEVELS - round(probability * LEVELS)
    return x * drawn(x.shape, probability, x.device).logical_not_() * (LEVELS / kept)


class Dropout(nn.Dropout):
    """Dropout whose mask is a function of the item."""

    def forward(self, input: Tensor) -> Tensor:
        """Return input (r, ...) with elements dropped while training."""
        return dropout(input, self.p) if self.training else input


class LSTM(nn.LSTM):
    """An LSTM whose dropout between layers is a function of the item."""

    def forward(  # type: ignore[override]  # torch's takes packed sequences, too
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Compute what nn.LSTM does, batch first, one layer after the other while there is dropout."""
        if not (self.training and self.dropout) or self.num_layers == 1:
            return super().forward(input, hx)
        directions = 1 + self.bidirectional
        if hx is None:
            zeros = input.new_zeros(self.num_layers * directions, len(input), self.hidden_size)
            hx = zeros, zeros
        states = []
        for layer, before in enumerate(zip(*(torch.split(part, directions) for part in hx), strict=True)):
            if layer:
                input = dropout(input, self.dropout)
            pieces = self.all_weights[layer * directions : (layer + 1) * directions]
            weights: list[Tensor] = [weight for piece in pieces for weight in piece]
            settings = self.bias, 1, 0.0, True, self.bidirectional, self.batch_first
            input, *after = torch.lstm(input, before, weights, *settings)
            states.append(after)
        hidden, cell = map(torch.cat, zip(*states, strict=True))
        return input, (hidden, cell)


BY_ITEM: dict[type[nn.Module], type[nn.Module]] = {nn.Dropout: Dropout, nn.LSTM: LSTM}


def by_item(model: nn.Module) -> None:
    """Make the dropout of torch's layers in `model`, except in nn.MultiheadAttention, a function of the item."""
    for module in model.modules():
        # The class is exchanged in place: copies and saved states stay what they were.
        module.__class__ = BY_ITEM.get(type(module), type(module))
