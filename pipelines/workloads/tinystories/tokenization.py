"""The tokens of stories: a byte-level BPE trained on the training part, and texts encoded with it."""

from collections.abc import Sequence

import pyarrow as pa
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from common.errors import UserError
from models.tiny_transformer import PIECES, SPECIAL_TOKENS

MARKER, UNKNOWN = SPECIAL_TOKENS
SCHEMA = pa.schema({"text": pa.string(), "tokens": pa.list_(pa.uint16())})
TEXTS_AT_ONCE = 1000


def alphabet(texts: Sequence[str]) -> set[int]:
    """Return the bytes that occur in the texts."""
    return set().union(*(text.encode() for text in texts))


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> tokenizers.Tokenizer:
    """Train a byte-level BPE of exactly `vocabulary` tokens: two special ones, the bytes of `texts`, and merges.

    It treats the names of the special tokens within a text as text. Raises UserError if the vocabulary is too small for
    the bytes, or larger than all merges of the text give.
    """
    num_bytes = len(alphabet(texts))
    if vocabulary < num_bytes + 2:
        raise UserError(
            f"model.vocabulary={vocabulary} is too small: the {num_bytes} different bytes of the training text and two "
            f"special tokens need {num_bytes + 2}; give model.vocabulary={num_bytes + 2 + num_bytes % 2} or more"
        )
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN, fuse_unk=False, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False, trim_offsets=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    # The most frequent pair is merged first, so pairs that occur once are merged only if the others do not suffice.
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, min_frequency=1, special_tokens=[MARKER, UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    largest = tokenizer.get_vocab_size()
    if largest < vocabulary:
        raise UserError(
            f"model.vocabulary={vocabulary} is more than the training text yields: with all pairs merged it gives "
            f"{largest} tokens; give model.vocabulary={largest - largest % 2} or less, or more text"
        )
    tokenizer.encode_special_tokens = True
    return tokenizer


def encode(tokenizer: tokenizers.Tokenizer, texts: Sequence[str]) -> pa.Table:
    """Return a table with the columns `text` and `tokens`, without markers."""
    batches = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        some = list(texts[start : start + TEXTS_AT_ONCE])
        tokens = [encoding.ids for encoding in tokenizer.encode_batch_fast(some)]
        batches.append(pa.record_batch([pa.array(some, pa.string()), pa.array(tokens, SCHEMA[1].type)], schema=SCHEMA))
    return pa.Table.from_batches(batches, SCHEMA)
