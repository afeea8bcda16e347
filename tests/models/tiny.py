"""Small models and tokenizers for tests."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from models.stories.config import TinyTransformerConfig
from models.stories.tiny_transformer import TinyTransformer
from models.stories.tokens import PIECES, SPECIAL_TOKENS

SIZES = {"vocabulary": 32, "width": 8, "layers": 2, "heads": 4, "hidden": 16, "context": 6}
SENTENCES = ["The cat sat on the mat.", "The dog sat on the cat!", "A cat and a dog met 12 frogs."]


def make(seed: int = 0, tokenizer: dict[str, Any] | None = None, **sizes: Any) -> TinyTransformer:
    """A model whose random weights give logits far apart, as a trained one's are; its memory and counts are full."""
    torch.manual_seed(seed)
    model = TinyTransformer(TinyTransformerConfig(**{**SIZES, **sizes}, tokenizer=tokenizer or {})).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(3)
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    if model.memory is not None:
        model.memory.count(np.arange(4000) * 7919 % model.config.vocabulary, np.arange(4000) // 50)
        model.memory.refit()
    if model.counts is not None:
        text = np.random.default_rng(seed).integers(0, model.config.vocabulary, 30)[np.arange(4000) ** 2 % 30]
        stories = np.cumsum(text == 0)
        model.counts.count(text, stories)
        model.counts.fit(model.counts.seen(text, stories), torch.full((len(text) - 1,), 3.0, dtype=torch.float64))
    return model


def trained_tokenizer(vocabulary: int, lower: bool = False, sentences: Sequence[str] = SENTENCES) -> dict[str, Any]:
    """A byte-level tokenizer trained on a few sentences, maybe in lower case, as a dictionary."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    split = pre_tokenizers.Split(Regex(PIECES), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False, trim_offsets=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=list(SPECIAL_TOKENS), show_progress=False)
    tokenizer.train_from_iterator([each.lower() if lower else each for each in sentences], trainer)
    assert tokenizer.get_vocab_size() == vocabulary
    return json.loads(tokenizer.to_str())


def disturb(model: torch.nn.Module) -> torch.nn.Module:
    """The model as if it had been trained: all that trains has moved."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))
    return model
