"""The tokens of stories: a byte-level BPE trained on the training part, and texts encoded with it."""

import functools
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from common.errors import UserError
from models.stories.tiny_transformer import make_tokenizer
from models.stories.tokens import END, PIECES, SPECIAL_TOKENS, UNKNOWN
from pipelines.workloads.tinystories.story_blocks import Blocks

SCHEMA = pa.schema({"text": pa.string()})
TOKENS = ".uint16"  # the ending of a file of tokens
BOUNDARY = np.uint16(END).tobytes()  # before and after each story
PIECE = re.compile(PIECES)
KEPT_PIECES, KEPT_CHARACTERS = 1 << 18, 64  # of an encoder's cache: pieces, and the length of each, at most
TEXTS_AT_ONCE = 1000  # rows of a record batch


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> tokenizers.Tokenizer:
    """Train a byte-level BPE of `vocabulary` tokens: two special ones, the bytes of `texts`, and merges.

    It has fewer, an even number, if all merges of the text give no more. It treats the names of the special tokens
    within a text as text. Raises UserError if the vocabulary is too small for the bytes.
    """
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token=SPECIAL_TOKENS[UNKNOWN], fuse_unk=False, byte_fallback=False))
    pieces = pre_tokenizers.Split(tokenizers.Regex(PIECES), behavior="isolated")
    their_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False, trim_offsets=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pieces, their_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    # The most frequent pair is merged first, so pairs that occur once are merged only if the others do not suffice.
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, min_frequency=1, special_tokens=list(SPECIAL_TOKENS), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    num_bytes = sum(len(token) == 1 for token in tokenizer.get_vocab())
    if vocabulary < num_bytes + 2:
        needed = f"the {num_bytes} different bytes of the training text and two special tokens need {num_bytes + 2}"
        way = f"give model.vocabulary={num_bytes + 2 + num_bytes % 2} or more"
        raise UserError(f"model.vocabulary={vocabulary} is too small: {needed}; {way}")
    if tokenizer.get_vocab_size() < vocabulary and tokenizer.get_vocab_size() % 2:
        described = json.loads(tokenizer.to_str())
        last = described["model"]["merges"].pop()
        del described["model"]["vocab"]["".join(last)]
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(described))
    tokenizer.encode_special_tokens = True
    return tokenizer


class Encoder(dict[str, bytes]):
    """A tokenizer with a cache: the tokens of each piece of text that it has met, as uint16.

    Merges stay within pieces, and a text has far fewer different ones than pieces: looking them up is ten times as fast
    as encoding whole texts.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer):
        super().__init__()
        self.tokenizer = tokenizer

    def __missing__(self, piece: str) -> bytes:
        tokens = np.array(self.tokenizer.encode(piece).ids, np.uint16).tobytes()
        if len(piece) <= KEPT_CHARACTERS:
            if len(self) >= KEPT_PIECES:
                self.clear()
            self[piece] = tokens
        return tokens

    def encode(self, text: str) -> bytes:
        """Return the text's tokens as uint16 in the machine's order of bytes."""
        return b"".join(map(self.__getitem__, PIECE.findall(text)))


def write_encoded(tokenizer: str, schema: pa.Schema, lower: bool, task: tuple[Blocks, Path]) -> Counter[str]:
    """Write blocks to an Arrow file of SCHEMA, and their tokens beside it; return counts of their contents.

    `tokenizer` is as the library `tokenizers` writes it, `schema` has the file's metadata, `lower` asks for lower case,
    `task` has the blocks and the file.
    """
    blocks, path = task
    encoder, sizes, stories = _encoder(tokenizer), Counter[str](), blocks.stories()
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, schema) as arrow,
        path.with_suffix(TOKENS).open("wb") as stream,
    ):
        while texts := [text.lower() if lower else text for text in itertools.islice(stories, TEXTS_AT_ONCE)]:
            encoded = b"".join(BOUNDARY + encoder.encode(text) + BOUNDARY for text in texts)
            stream.write(encoded)
            arrow.write_batch(pa.record_batch([pa.array(texts, pa.string())], schema=schema))
            tokens = np.frombuffer(encoded, np.uint16)
            sizes["stories"] += len(texts)
            sizes["characters"] += sum(map(len, texts))
            sizes["bytes"] += sum(len(text.encode()) for text in texts)
            sizes["tokens"] += int((tokens != END).sum())
            sizes["unknown_bytes"] += int((tokens == UNKNOWN).sum())
    return sizes


@functools.lru_cache(maxsize=1)
def _encoder(tokenizer: str) -> Encoder:
    """Return the encoder of this process, whose cache serves all files that the process writes."""
    return Encoder(make_tokenizer(json.loads(tokenizer)))
