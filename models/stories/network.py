"""The network of a tiny transformer: byte-pair tokens in, logits of the next token out.

Pre-norm blocks (Xiong et al. 2020) of causal attention and a GELU feed-forward part; the output is tied to the
embedding. Positions enter as a learned bias per head and distance (Shaw et al. 2018; Press et al. 2022 fix it). A
position sees only the last `context` positions, so a story of any length needs a ring of `context` cached keys and
values. Layer norms have no gain or bias of their own: the matrix behind each would absorb them.

A model may have a memory of what followed each bigram, trigram and so on in training (`ngram_embedding.py`), which is
added to the embedding of the token that ends it. A token reads one row of each table, which costs hardly any time.
It may also have counts of what followed the last tokens (`ngram_counts.py`), which are mixed into its predictions.

Shapes: B sequences, S positions, N positions with those kept from the past, D width, H heads, V vocabulary, C context.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.io import Model
from models.stories.config import TinyTransformerConfig
from models.stories.ngram_counts import ORDERS, NgramCounts
from models.stories.ngram_embedding import NgramMemory


class Network(Model):
    """The layers, with the memory and the counts; `TinyTransformer` adds the tokenizer and tells stories."""

    _no_split_modules = ("Block",)
    evaluated_whole = "the chip's integers are made of all weights"
    config: TinyTransformerConfig

    def __init__(self, config: TinyTransformerConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.memory = NgramMemory(config.memory, config.vocabulary, config.width) if config.memory else None
        self.counts = NgramCounts(config.counts, config.vocabulary) if config.counts else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.output_bias = nn.Parameter(torch.zeros(config.vocabulary))
        self.dropout = nn.Dropout(config.dropout)
        nn.init.normal_(self.embedding.weight, std=0.5 * config.width**-0.5)
        if self.counts is not None:
            # Equal on all processes, and int16, which not every backend can send.
            self._ddp_params_and_buffers_to_ignore = [f"counts.{name}" for name, _ in self.counts.named_buffers()]

    def forward(
        self,
        tokens: Tensor,
        stories: Tensor | None = None,
        followed: Tensor | None = None,
        past: "Past | None" = None,
        sharpen: bool = True,
    ) -> Tensor:
        """Logits (B, S, V) of what follows each of `tokens` (B, S) int64.

        `stories` (B, S) numbers the story of each position, which sees only its own story; None is one story per row.
        `followed` is for the memory's training (`NgramMemory.forward`). With `past`, which needs `stories` and no
        training, the tokens continue those of earlier calls. Counts take part outside training, if `sharpen`.
        """
        length, kept = tokens.shape[1], 0
        if past is not None:
            assert stories is not None, "past needs stories, which tell its positions apart"
            tokens, stories = past.text.extended(tokens, stories)
            kept = tokens.shape[1] - length
        places = torch.arange(kept + length, device=tokens.device)
        distance = places[kept:, None] - places  # (S, N)
        seen = (distance >= 0) & (distance < self.config.context)
        if stories is not None:
            seen = seen & (stories[:, kept:, None] == stories[:, None, :])  # (B, S, N)
        mask = torch.zeros(seen.shape, device=tokens.device).masked_fill_(~seen, -torch.inf)
        mask = mask.view(-1, 1, length, kept + length)
        distance = distance.clamp(0, self.config.context - 1)
        x = self.embedding(tokens[:, kept:])
        if self.memory is not None:
            x = x + self.memory(tokens, stories, followed)[:, kept:]
        x = self.dropout(x)
        for number, block in enumerate(self.blocks):
            x = block(x, distance, mask, None if past is None else past.layers[number])
        logits = F.linear(_norm(x), self.embedding.weight, self.output_bias)
        if self.counts is None or self.training or not sharpen:
            return logits
        sharpened: Tensor = self.counts(logits.float(), tokens)
        return sharpened

    def check(self) -> None:
        """Raise ValueError for damaged counts."""
        if self.counts is not None:
            self.counts.check()

    def example(self) -> dict[str, Tensor]:
        """Arguments for a deterministic forward pass over more positions than the context."""
        return {"tokens": torch.arange(self.config.context + 8)[None] * 7919 % self.config.vocabulary}


def reach(config: TinyTransformerConfig) -> int:
    """Return how many tokens before a token the memory and the counts look at; 1 without any."""
    return max(1, len(config.memory), ORDERS - 1 if config.counts else 0)


class Kept:
    """Cache of tensors' last `size` positions along an axis; None: of all positions."""

    def __init__(self, size: int | None, axis: int, *tensors: Tensor):
        self.size, self.axis = size, axis
        self.tensors = list(tensors)

    def extended(self, *tensors: Tensor) -> list[Tensor]:
        """Return the cached positions followed by those given, and cache the last of them."""
        kept = self.tensors or [each.narrow(self.axis, 0, 0) for each in tensors]
        whole = [torch.cat(pair, self.axis) for pair in zip(kept, tensors, strict=True)]
        first = 0 if self.size is None else max(0, whole[0].shape[self.axis] - self.size)
        self.tensors = [each.narrow(self.axis, first, each.shape[self.axis] - first) for each in whole]
        return whole


class Past:
    """The cache that later positions see: tokens and stories (B, P), and the keys and values of each layer."""

    def __init__(self, config: TinyTransformerConfig):
        self.size = max(config.context - 1, reach(config))
        self.text = Kept(self.size, 1)
        self.layers = [Kept(self.size, 2) for _ in range(config.layers)]  # each (B, H, P, D / H)


class Block(nn.Module):
    """Attention and feed-forward part, each on the norm of the residual stream."""

    def __init__(self, config: TinyTransformerConfig):
        super().__init__()
        width, hidden = config.width, config.hidden
        self.heads = config.heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(config.dropout)
        # Heads start with ranges from the nearest positions to all, as Press et al.'s slopes do.
        slopes = torch.logspace(0.5, -2, config.heads)
        self.distance_bias = nn.Parameter(-slopes[:, None] * torch.arange(config.context))  # (H, C)
        for linear in (self.qkv, self.out, self.up, self.down):
            gain = (2 * config.layers) ** -0.5 if linear in (self.out, self.down) else 1.0
            nn.init.normal_(linear.weight, std=gain * linear.in_features**-0.5)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor, distance: Tensor, mask: Tensor, past: Kept | None = None) -> Tensor:
        """x (B, S, D) -> (B, S, D); `distance` (S, N) int64 of positions, `mask` (B or 1, 1, S, N) of 0 or -inf.

        N is S, or more by the positions in `past`.
        """
        shape = (*x.shape[:2], 3, self.heads, -1)
        scale = (x.shape[-1] // self.heads) ** -0.5
        q, k, v = self.qkv(_norm(x)).view(shape).permute(2, 0, 3, 1, 4)  # each (B, H, S, D / H)
        if past is not None:
            k, v = past.extended(k, v)
        bias = (self.distance_bias[:, distance] + mask).expand(x.shape[0], -1, -1, -1)
        scores = torch.baddbmm(bias.flatten(0, 1), q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2), alpha=scale)
        weights = scores.softmax(-1).view(bias.shape)
        x = x + self.dropout(self.out((weights @ v).transpose(1, 2).flatten(2)))
        fed_forward: Tensor = self.dropout(self.down(F.gelu(self.up(_norm(x)))))
        return x + fed_forward


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])
