"""Noise inside a model, such as dropout, as a function of (seed, step, item, layer), not of micro-batches or devices.

Training says which items come next; each layer draws its key from torch's CPU generator, which has the same state
whenever this layer of this update is computed, again in the backward pass of activation checkpointing too.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from common.random import derive_key, random_bits

LEVELS = 2**16  # probabilities are rounded to multiples of 1 / LEVELS

COPIES = 4  # most rows of an item in a compiled model
OUTSIDE = torch._C._dispatch_tls_local_exclude_set()  # dispatch keys excluded outside of operations

_items: Tensor | None = None  # (b,) int64: the items to which the rows of a tensor belong
# A compiled graph has no generator: it reads the draws from a table, by a counter.
_num_keys = 0  # rows of the table; 0: nothing is compiled
_keys: Tensor | None = None  # (K, COPIES) int64
_num_drawn = torch.zeros(1, dtype=torch.long)


def begin(seed: int, step: int, items: Tensor, device: torch.device | None = None) -> None:
    """Start the noise of a forward pass over `items` (b,) int64 of update `step`; `device` computes it."""
    global _items, _keys, _num_drawn
    # Not by torch.manual_seed: it walks every kind of device there is, a millisecond each time.
    torch.default_generator.manual_seed(derive_key(seed, "noise", step))
    _items, _keys = items, None
    if _num_keys:
        drawn = torch.empty(_num_keys, dtype=torch.int64).random_().tolist()
        keys = [[derive_key(key, copy) for copy in range(COPIES)] for key in drawn]
        _items, _keys = (x.to(device, non_blocking=True) for x in (items, torch.tensor(keys)))
        _num_drawn = torch.zeros_like(_keys[0, :1])


def begun() -> tuple[int, Tensor | None]:
    """Return the seed and the items with which the noise of this forward pass began."""
    return torch.initial_seed(), _items


def end() -> None:
    """End the noise of an update: later dropout draws from torch's generator."""
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


def again() -> tuple[contextlib.AbstractContextManager[None], contextlib.AbstractContextManager[None]]:
    """Return contexts of a pass and of computing it again (torch's `context_fn`): rows belong to the same items."""
    return contextlib.nullcontext(), rows(_items)


def drawn(shape: Sequence[int], probability: float, device: torch.device) -> Tensor:
    """Return bool of `shape`, each true with `probability`; row r is of item r modulo their number, else ValueError."""
    global _items
    if _items is None:
        return torch.rand(*shape, device=device) < probability
    copies, rest = divmod(shape[0], len(_items))
    if rest:
        raise ValueError(f"{shape[0]} rows do not belong to {len(_items)} items; assign them with noise.rows")
    _items = _items.to(device, non_blocking=True)
    count = math.prod(shape[1:])
    # In whole numbers: inductor gets ceil(count / 4), and views of other types, wrong where sizes are symbolic.
    words = torch.cat([random_bits(key, _items, (count + 3) // 4) for key in _next_keys(copies)])
    # Four numbers of 16 bits from each of 64; these are signed.
    if _keys is None:
        levels = words.view(torch.int16)
    else:
        shifted = words[:, :, None] >> torch.arange(0, 64, 16, device=words.device)
        levels = ((shifted & LEVELS - 1) ^ LEVELS // 2).flatten(1) - LEVELS // 2
    return (levels[:, :count] < round(probability * LEVELS) - LEVELS // 2).view(shape)


def _next_keys(copies: int) -> Sequence[int | Tensor]:
    """Return the keys of the next layer's noise, one for each of an item's rows."""
    global _num_drawn
    if _keys is None:
        key = int(torch.empty((), dtype=torch.int64).random_())
        return [derive_key(key, copy) for copy in range(copies)]
    if copies > COPIES:
        raise ValueError(f"{copies} rows per item: hardware.compile allows {COPIES}; set it to false")
    keys = _keys.index_select(0, _num_drawn % len(_keys))[0]
    _num_drawn = _num_drawn + 1  # not in place: the backward pass may compute masks again
    return keys[:copies].unbind()


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
        """Compute what nn.LSTM does, batch first, but layer by layer if there is dropout or a graph."""
        compiling, drops = torch.compiler.is_dynamo_compiling(), self.training and self.dropout
        if not compiling and (not drops or self.num_layers == 1):
            return super().forward(input, hx)
        directions = 1 + self.bidirectional
        if hx is None:
            zeros = input.new_zeros(self.num_layers * directions, len(input), self.hidden_size)
            hx = zeros, zeros
        states = []
        for layer, (hidden, cell) in enumerate(zip(*(torch.split(part, directions) for part in hx), strict=True)):
            if layer and drops:
                input = dropout(input, self.dropout)
            pieces = self.all_weights[layer * directions : (layer + 1) * directions]
            weights: list[Tensor] = [weight for piece in pieces for weight in piece]
            settings = [self.bias, self.bidirectional, self.batch_first]
            input, *after = (_lstm if compiling else _layer)(input, hidden, cell, weights, settings)
            states.append(after)
        hidden, cell = map(torch.cat, zip(*states, strict=True))
        return input, (hidden, cell)


def _layer(
    input: Tensor, hidden: Tensor, cell: Tensor, weights: list[Tensor], settings: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    bias, bidirectional, batch_first = settings
    return torch.lstm(input, (hidden, cell), weights, bias, 1, 0.0, True, bidirectional, batch_first)


@torch.library.custom_op("noise::lstm", mutates_args=())
def _lstm(
    input: Tensor, hidden: Tensor, cell: Tensor, weights: list[Tensor], settings: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute a layer as one operation of a graph, not one per step, with contiguous results."""
    output, *states = _layer(input, hidden, cell, weights, settings)
    return output.clone(memory_format=torch.contiguous_format), states[0].clone(), states[1].clone()


@torch.library.custom_op("noise::lstm_backward", mutates_args=())
def _lstm_backward(gradients: list[Tensor], tensors: list[Tensor], settings: list[bool]) -> list[Tensor]:
    """Recompute the layer; return the gradients of `tensors` from those of its results."""
    # With autograd, which torch excludes inside of operations.
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), OUTSIDE), torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        found = torch.autograd.grad(_layer(leaves[0], leaves[1], leaves[2], leaves[3:], settings), leaves, gradients)
    return [each.clone(memory_format=torch.contiguous_format) for each in found]


@_lstm.register_fake
def _(input: Tensor, hidden: Tensor, cell: Tensor, weights: list[Tensor], settings: list[bool]) -> tuple[Tensor, ...]:
    output = input.new_empty(*input.shape[:-1], hidden.shape[-1] * (1 + settings[1]))
    return output, hidden.new_empty(hidden.shape), cell.new_empty(cell.shape)


@_lstm_backward.register_fake
def _(gradients: list[Tensor], tensors: list[Tensor], settings: list[bool]) -> list[Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor in tensors]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: object) -> None:
    *given, weights, ctx.settings = inputs
    ctx.save_for_backward(*given, *weights)


def _backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
    input, hidden, cell, *weights = _lstm_backward(list(gradients), list(ctx.saved_tensors), ctx.settings)
    return input, hidden, cell, weights, None


_lstm.register_autograd(_backward, setup_context=_keep)

BY_ITEM: dict[type[nn.Module], type[nn.Module]] = {nn.Dropout: Dropout, nn.LSTM: LSTM}


def by_item(model: nn.Module, compiled: bool = False) -> None:
    """Make the dropout of torch's layers, but nn.MultiheadAttention, a function of the item, even if `compiled`."""
    global _num_keys
    layers: list[nn.Module] = [module for module in model.modules() if isinstance(module, nn.Dropout | nn.LSTM)]
    for module in layers:
        # The class is swapped in place, so that copies and state dicts stay valid.
        module.__class__ = BY_ITEM.get(type(module), type(module))
    if compiled:
        import torch._dynamo.config  # late, as it is slow

        torch._dynamo.config.allow_rnn = True
        _num_keys = 16 * len(layers)  # a layer called more often in a forward pass repeats others' noise
