"""A decoder-only transformer small enough for a microcontroller.

Pre-norm blocks (Xiong et al. 2020) of causal attention and a GELU feed-forward part; the output is tied to the
embedding. Positions enter as a learned bias per head and distance (Shaw et al. 2018; Press et al. 2022 fix it). A
position sees only the last `context` positions, so a story of any length needs a ring of `context` cached keys and
values. Layer norms have no gain or bias of their own: the matrix behind each would absorb them.

A model may have a memory of what followed each bigram, trigram and so on in training (`ngram_memory.py`), which is
added to the embedding of the token that ends it. A token reads one row of each table, which costs hardly any time.

Shapes: B sequences, S positions, D width, H heads, V vocabulary, C context.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import sampling
from models.io import Model, config_from
from models.ngram_memory import NgramMemory
from models.tiny_transformer_config import TinyTransformerConfig

END, UNKNOWN = 0, 1  # tokens: the boundary of stories, and a byte that has no token of its own
SPECIAL_TOKENS = ("<|endoftext|>", "<unk>")  # their names
# Merges stay within a piece: a run of letters, digits or other signs with at most one space before it, or one space.
# Bytes above ASCII count as letters, so that a microcontroller needs no Unicode tables.
PIECES = " ?[A-Za-z\u0080-\U0010ffff]+| ?[0-9]+| ?[^A-Za-z0-9\u0080-\U0010ffff \t\n\r]+|[ \t\n\r]"


class TinyTransformer(Model):
    """A tiny transformer that tells stories: byte-pair tokens in, logits of the next token out."""

    family = "tiny_transformer"
    pipeline_tag = "text-generation"
    _no_split_modules = ("Block",)
    config: TinyTransformerConfig

    def __init__(self, config: TinyTransformerConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.memory = NgramMemory(config.memory, config.vocabulary, config.width) if config.memory else None
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.output_bias = nn.Parameter(torch.zeros(config.vocabulary))
        self.dropout = nn.Dropout(config.dropout)
        nn.init.normal_(self.embedding.weight, std=0.5 * config.width**-0.5)

    def forward(self, tokens: Tensor, stories: Tensor | None = None, followed: Tensor | None = None) -> Tensor:
        """Logits (B, S, V) of what follows each of `tokens` (B, S) int64.

        `stories` (B, S) numbers the story of each position, which sees only its own story; None is one story per row.
        `followed` is for the memory's training (`NgramMemory.forward`).
        """
        length = tokens.shape[1]
        places = torch.arange(length, device=tokens.device)
        distance = places[:, None] - places  # (S, S)
        seen = (distance >= 0) & (distance < self.config.context)
        if stories is not None:
            seen = seen & (stories[:, :, None] == stories[:, None, :])  # (B, S, S)
        mask = torch.zeros(seen.shape, device=tokens.device).masked_fill_(~seen, -torch.inf)
        mask = mask.view(-1, 1, length, length)
        distance = distance.clamp(0, self.config.context - 1)
        x = self.embedding(tokens)
        if self.memory is not None:
            x = x + self.memory(tokens, stories, followed)
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x, distance, mask)
        return F.linear(_norm(x), self.embedding.weight, self.output_bias)

    @cached_property
    def tokenizer(self) -> Any:
        """The `tokenizers.Tokenizer` of the config; it reads the name of a special token as plain text."""
        return make_tokenizer(self.config.tokenizer)

    @torch.no_grad()
    def complete(
        self,
        prompts: Sequence[str],
        max_tokens: int = 256,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[str]:
        """Return each prompt with its continuation, up to the story's end or `max_tokens` new tokens.

        Temperature 0 is greedy. A text is a pure function of (prompt, its place in the list, settings).
        """
        rows = [[END, *self.tokenizer.encode(prompt).ids] for prompt in prompts]
        device = self.embedding.weight.device
        finished = [False] * len(rows)
        for number in range(max_tokens):
            longest = max(map(len, rows))
            padded = torch.tensor([row + [END] * (longest - len(row)) for row in rows], device=device)
            last = torch.tensor([len(row) - 1 for row in rows], device=device)
            logits = self(padded)[torch.arange(len(rows), device=device), last]
            chosen = sampling.choose(logits, temperature, top_k, top_p, seed, number).tolist()
            for i, token in enumerate(chosen):
                finished[i] = finished[i] or token == END
                if not finished[i]:
                    rows[i].append(token)
            if all(finished):
                break
        return [self.tokenizer.decode(row[1:]) for row in rows]

    def example(self) -> dict[str, Tensor]:
        """Arguments for a deterministic forward pass over more positions than the context."""
        length = self.config.context + 8
        return {"tokens": torch.arange(length)[None] * 7919 % self.config.vocabulary}


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

    def forward(self, x: Tensor, distance: Tensor, mask: Tensor) -> Tensor:
        """x (B, S, D) -> (B, S, D); `distance` (S, S) int64 of positions, `mask` (B or 1, 1, S, S) of 0 or -inf."""
        shape = (*x.shape[:2], 3, self.heads, -1)
        scale = (x.shape[-1] // self.heads) ** -0.5
        q, k, v = self.qkv(_norm(x)).view(shape).permute(2, 0, 3, 1, 4)  # each (B, H, S, D / H)
        bias = (self.distance_bias[:, distance] + mask).expand(len(x), -1, -1, -1)
        scores = torch.baddbmm(bias.flatten(0, 1), q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2), alpha=scale)
        weights = scores.softmax(-1).view(bias.shape)
        x = x + self.dropout(self.out((weights @ v).transpose(1, 2).flatten(2)))
        return x + self.dropout(self.down(F.gelu(self.up(_norm(x)))))


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def make_tokenizer(described: Mapping[str, Any]) -> Any:
    """The `tokenizers.Tokenizer` of a config's `tokenizer`; ValueError if the config has none, or a wrong one."""
    import json

    import tokenizers

    if not described:
        raise ValueError("this model was saved without its tokenizer; train it again")
    try:
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(described))
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"this model's tokenizer cannot be read ({error}); copy its config.json again") from error
    tokenizer.encode_special_tokens = True
    return tokenizer


def build(config: Mapping[str, Any]) -> TinyTransformer:
    """Build the model for a config that `models.io` has read."""
    return TinyTransformer(config_from(TinyTransformerConfig, config))
