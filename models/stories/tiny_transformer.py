"""A decoder-only transformer small enough for a microcontroller.

Pre-norm blocks (Xiong et al. 2020) of causal attention and a GELU feed-forward part; the output is tied to the
embedding. Positions enter as a learned bias per head and distance (Shaw et al. 2018; Press et al. 2022 fix it). A
position sees only the last `context` positions, so a story of any length needs a ring of `context` cached keys and
values. Layer norms have no gain or bias of their own: the matrix behind each would absorb them.

A model may have a memory of what followed each bigram, trigram and so on in training (`ngram_memory.py`), which is
added to the embedding of the token that ends it. A token reads one row of each table, which costs hardly any time.
It may also have counts of what followed the last tokens (`ngram_counts.py`), which are mixed into its predictions.

Shapes: B sequences, S positions, D width, H heads, V vocabulary, C context.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models import sampling
from models.inputs import StoryInput, StorySettings
from models.io import Model, config_from
from models.prediction import asked
from models.stories.config import TinyTransformerConfig
from models.stories.ngram_counts import ORDERS, NgramCounts
from models.stories.ngram_memory import NgramMemory

END, UNKNOWN = 0, 1  # tokens: the boundary of stories, and a byte that has no token of its own
SPECIAL_TOKENS = ("<|endoftext|>", "<unk>")  # their names
# Merges stay within a piece: a run of letters, digits or other signs with at most one space before it, or one space.
# Bytes above ASCII count as letters, so that a microcontroller needs no Unicode tables.
PIECES = " ?[A-Za-z\u0080-\U0010ffff]+| ?[0-9]+| ?[^A-Za-z0-9\u0080-\U0010ffff \t\n\r]+|[ \t\n\r]"


class TinyTransformer(Model):
    """A tiny transformer that tells stories: byte-pair tokens in, logits of the next token out."""

    family = "tiny_transformer"
    pipeline_tag = "text-generation"
    input_type, settings_type = StoryInput, StorySettings
    _no_split_modules = ("Block",)
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
        training, the tokens come after those it was given before. Counts take part outside training, if `sharpen`.
        """
        length, kept = tokens.shape[1], 0
        if past is not None:
            assert stories is not None, "what is kept of the past is told apart by stories"
            tokens, stories = past.extended(tokens, stories)
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
        return self.counts(logits.float(), tokens)

    def check(self) -> None:
        """Raise ValueError for counts that none can have."""
        if self.counts is not None:
            self.counts.check()

    @cached_property
    def tokenizer(self) -> Any:
        """The `tokenizers.Tokenizer` of the config; it reads the name of a special token as plain text."""
        return make_tokenizer(self.config.tokenizer)

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
        known = [self.tokenizer.encode(prompt).ids for prompt in prompts]
        choice = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        told = _gathered(known, self._steps(known, list(range(len(known))), max_tokens, choice))
        return [self.tokenizer.decode([*ids, *more]) for ids, more in zip(known, told, strict=True)]

    def answers(self, prepared: Sequence[StoryInput], settings: StorySettings) -> list[dict[str, Any]]:
        """Return what follows each prompt; see `sampling.answer`."""
        known = [self.tokenizer.encode(given.prompt).ids for given in prepared]
        told = _gathered(known, self._steps_by(known, [given.item for given in prepared], settings))
        found = []
        for given, more in zip(prepared, told, strict=True):
            whole = self.tokenizer.decode(more)
            text = whole.partition(settings.stop)[0] if settings.stop else whole
            found.append(sampling.answer(given.prompt, text, len(more) if text == whole else 0, settings.length))
        return found

    def stream(self, given: Mapping[str, Any] | StoryInput, **settings: Any) -> Iterator[str]:
        """Iterate over the pieces of the `text` that `predict` answers, each as soon as it is certain.

        Raises ValueError for an input or settings that cannot be used, when called.
        """
        story, chosen = asked(self, given, settings)
        steps = self._steps_by([self.tokenizer.encode(story.prompt).ids], [story.item], chosen)
        pieces = _pieces(self.tokenizer, (tokens[0] for tokens in steps))
        return sampling.until(pieces, chosen.stop) if chosen.stop else pieces

    def _steps_by(
        self, known: Sequence[list[int]], items: Sequence[int], settings: StorySettings
    ) -> Iterator[Sequence[int]]:
        """Yield the next token of every story, END from its end on."""
        if settings.arithmetic == "float":
            choice = settings.model_dump(include={"temperature", "top_k", "top_p", "seed"})
            return self._steps(known, items, settings.length, choice)
        from models.stories.integer_transformer import Sampler, quantize  # which imports this file

        model, temperature = quantize(self), round(256 * settings.temperature)
        told = []
        for ids, item in zip(known, items, strict=True):
            choose = Sampler(model, temperature, settings.top_k, settings.seed + item) if temperature else None
            told.append(model.decode(ids, settings.length, choose))
        return itertools.zip_longest(*told, fillvalue=END)

    @torch.no_grad()
    def _steps(
        self, known: Sequence[list[int]], items: Sequence[int], most: int, choice: Mapping[str, Any]
    ) -> Iterator[list[int]]:
        """Yield the next token of every story, END from its end on, until all have ended or `most` were yielded."""
        device, past = self.embedding.weight.device, Past(self.config)
        numbers = torch.tensor(items)
        reach = past.size * self.config.layers + len(self.config.memory) + 1  # no token further back has an influence
        rows = [[END, *ids][-reach:] for ids in known]
        longest = max(map(len, rows))
        # Before a shorter one stands padding, which counts as another story.
        tokens = torch.tensor([[END] * (longest - len(row)) + row for row in rows], device=device)
        stories = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=device)
        for part in zip(*(each.split(self.config.context, 1) for each in (tokens, stories)), strict=True):
            logits = self(*part, past=past)[:, -1]
        ended = torch.zeros(len(rows), dtype=torch.bool, device=device)
        for number in range(most):
            chosen = sampling.choose(logits, **choice, number=number, items=numbers).masked_fill(ended, END)
            yield chosen.tolist()
            ended |= chosen == END
            if ended.all() or number == most - 1:
                return
            logits = self(chosen[:, None], torch.ones_like(chosen)[:, None], past=past)[:, -1]

    def example(self) -> dict[str, Tensor]:
        """Arguments for a deterministic forward pass over more positions than the context."""
        length = self.config.context + 8
        return {"tokens": torch.arange(length)[None] * 7919 % self.config.vocabulary}


class Past:
    """What later positions can see of those that were read: their tokens, stories, and keys and values by layer."""

    def __init__(self, config: TinyTransformerConfig):
        self.size = max(config.context - 1, len(config.memory), ORDERS - 1 if config.counts else 0)
        self.tokens: Tensor | None = None  # (B, P), of the last P <= `size` positions, as is all below
        self.stories: Tensor | None = None
        self.layers = [LayerPast(self.size) for _ in range(config.layers)]

    def extended(self, tokens: Tensor, stories: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens and stories that are kept and then those given, and keep the last of them."""
        if self.tokens is not None and self.stories is not None:
            tokens, stories = torch.cat([self.tokens, tokens], 1), torch.cat([self.stories, stories], 1)
        self.tokens, self.stories = tokens[:, -self.size :], stories[:, -self.size :]
        return tokens, stories


class LayerPast:
    """Keys and values of a layer."""

    def __init__(self, size: int):
        self.size = size
        self.kept: tuple[Tensor, Tensor] | None = None  # each (B, H, P, D / H)

    def extended(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return those that are kept and then those given, and keep the last of them."""
        if self.kept is not None:
            keys, values = torch.cat([self.kept[0], keys], 2), torch.cat([self.kept[1], values], 2)
        self.kept = keys[:, :, -self.size :], values[:, :, -self.size :]
        return keys, values


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

    def forward(self, x: Tensor, distance: Tensor, mask: Tensor, past: LayerPast | None = None) -> Tensor:
        """x (B, S, D) -> (B, S, D); `distance` (S, N) int64 of positions, `mask` (B or 1, 1, S, N) of 0 or -inf.

        N is S, or more by the positions in `past`.
        """
        shape = (*x.shape[:2], 3, self.heads, -1)
        scale = (x.shape[-1] // self.heads) ** -0.5
        q, k, v = self.qkv(_norm(x)).view(shape).permute(2, 0, 3, 1, 4)  # each (B, H, S, D / H)
        if past is not None:
            k, v = past.extended(k, v)
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


def _gathered(known: Sequence[list[int]], steps: Iterable[Sequence[int]]) -> list[list[int]]:
    """Return the tokens that follow each prompt."""
    told: list[list[int]] = [[] for _ in known]
    for tokens in steps:
        for story, token in zip(told, tokens, strict=True):
            if token != END:
                story.append(token)
    return told


def _pieces(tokenizer: Any, tokens: Iterator[int]) -> Iterator[str]:
    """Yield the text of tokens up to END; bytes that are not yet a whole character are held back."""
    held: list[int] = []
    for token in itertools.takewhile(lambda token: token != END, tokens):
        held.append(token)
        text = tokenizer.decode(held)
        if text and not text.endswith("\ufffd"):
            yield text
            held = []
    if held:
        yield tokenizer.decode(held)


def build(config: Mapping[str, Any]) -> TinyTransformer:
    """Build the model for a config that `models.io` has read."""
    return TinyTransformer(config_from(TinyTransformerConfig, config))
