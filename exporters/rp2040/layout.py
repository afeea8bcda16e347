"""Writes the model and vocabulary files of FORMAT.md, and both with the runtime as a library in C."""

import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np

from exporters.rp2040.settings import Settings
from models.stories.config import bucket_bits
from models.stories.integer_transformer import EXP, GELU, IntegerTransformer, Table
from models.stories.rp2040 import FORMAT_LIMITS
from models.stories.tokens import END, PIECES, SPECIAL_TOKENS, UNKNOWN

LIBRARY = Path(__file__).parent / "library"
FIRMWARE = LIBRARY.with_name("firmware")
# The arena holds parts of several types.
BEFORE = '#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC optimize("O2", "no-strict-aliasing")\n#endif\n'
HEADERS = {b"TTM1": {1: 40, 2: 48, 3: 56}, b"TTV1": {1: 24}}  # bytes, by the version
SHIFTS = ("pre_qkv", "post_q", "post_k", "post_v", "pre_out", "post_out", "pre_up", "post_up", "pre_down", "post_down")
MOST_MERGES, MOST_TEXT = 8192, 65535  # of a vocabulary; the second in bytes
Described: TypeAlias = dict[str, Any]  # a tokenizer, as the library `tokenizers` writes it
# The rule by which FORMAT.md cuts text into pieces, as the library `tokenizers` writes it.
SPLIT = {"type": "Split", "pattern": {"Regex": PIECES}, "behavior": "Isolated", "invert": False}
IN_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
PRE_TOKENIZER = {"type": "Sequence", "pretokenizers": [SPLIT, IN_BYTES]}


def pack_model(model: IntegerTransformer, vocabulary: bytes) -> bytes:
    """The bytes of the model file, for the vocabulary file `vocabulary`.

    `models.stories.rp2040.check` checks the sizes that the format allows. Raises ValueError for numbers out of range.
    """
    config = model.config
    fields = struct.pack("<6H", *(getattr(config, name) for name in FORMAT_LIMITS))
    fields += _stored("u1", [model.pre_logits, model.post_logits, model.post_embedding, 0], "shifts")
    fields += struct.pack("<I", len(vocabulary)) + vocabulary[12:16]
    version = 3 if model.counts else 2 if model.memory else 1
    if version > 1:
        bits = [rows.bit_length() - 1 for rows in config.memory]
        fields += _stored("u1", [model.post_memory, *bits, *[0] * (7 - len(bits))], "memory")
    if model.counts:
        fields += struct.pack("<II", config.counts, bucket_bits(config.counts))
    parts = [fields, _stored("<u2", EXP, "exp"), _stored("<i2", GELU, "gelu")]
    for layer in model.layers:
        matrices = (layer.qkv, layer.out, layer.up, layer.down)
        parts += [_stored("u1", [*(layer.shifts[name] for name in SHIFTS), 0, 0], "shifts")]
        parts += [_stored("<i4", matrix.bias, "bias") for matrix in matrices]
        parts += [_stored("<u2", matrix.multiplier, "multiplier") for matrix in matrices]
        # From the largest distance to 0: the order in which a device visits its positions.
        parts += [_stored("<i2", layer.distance_bias[:, ::-1], "distance_bias")]
        parts += [_interleaved(matrix.weights) for matrix in matrices]
    embedding = model.embedding
    parts += [_stored("<u2", embedding.multiplier, "multiplier"), _stored("<i4", embedding.bias, "bias")]
    parts += [_interleaved(embedding.weights)]
    parts += [_records(table) for table in model.memory]
    if model.counts:
        parts += [_stored("<u4", model.counts.starts, "starts")]
        parts += [_stored("<u4", model.counts.tokens | model.counts.tags << 12 | model.counts.levels << 22, "counts")]
    return _with_start(b"TTM1", version, b"".join(parts))


def _records(table: Table) -> bytes:
    """The rows of a table: fingerprint, 0, multiplier, weights with 128 added."""
    padded = np.stack([table.fingerprint, np.zeros_like(table.fingerprint)], 1)
    columns = [("u1", padded, "fingerprint"), ("<u2", table.multiplier, "multiplier")]
    columns += [("u1", table.weights + 128, "memory")]
    stored = [np.frombuffer(_stored(*column), np.uint8).reshape(len(padded), -1) for column in columns]
    return np.concatenate(stored, 1).tobytes()


def pack_vocabulary(tokenizer: Described) -> bytes:
    """The bytes of the vocabulary file of a byte-level BPE tokenizer, given as the library `tokenizers` writes it.

    Raises ValueError for a tokenizer that is too large or that the format cannot express, as a device would read text
    differently.
    """
    _check_tokenizer(tokenizer)
    ids: dict[str, int] = tokenizer["model"]["vocab"]
    names = sorted(ids, key=ids.__getitem__)
    if [ids[name] for name in names] != list(range(len(names))):
        raise ValueError("the tokenizer's ids are not 0, 1, 2 and so on without gaps; train it again")
    if tuple(names[:2]) != SPECIAL_TOKENS:
        raise ValueError(f"the tokenizer's first tokens are {names[:2]}, not {list(SPECIAL_TOKENS)}; train it again")
    # GPT-2's byte-level alphabet, in which printable bytes stand for themselves.
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
    if foreign := set("".join(names[2:])) - byte_of.keys():
        raise ValueError(f"the tokenizer has a character that is no byte, {min(foreign)!r}; train it byte-level")
    texts = [b"", b"", *(bytes(byte_of[character] for character in name) for name in names[2:])]

    pairs = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in tokenizer["model"]["merges"]]
    if len(set(pairs)) != len(pairs):
        raise ValueError("the tokenizer has a merge twice; train it again")
    merges = [(ids[left], ids[right], ids[left + right]) for left, right in pairs]
    if any(min(merge) <= UNKNOWN for merge in merges):
        raise ValueError(f"the tokenizer merges to or from one of {SPECIAL_TOKENS}; take these words out of its texts")
    starts = np.cumsum([0, *map(len, texts)])
    for count, most, what in (
        (len(names), FORMAT_LIMITS["vocabulary"][1], "tokens"),
        (len(merges), MOST_MERGES, "merges"),
        (starts[-1], MOST_TEXT, "bytes of tokens"),
    ):
        if count > most:
            raise ValueError(f"the tokenizer has {count} {what}; the most is {most}; train a smaller one")
    of_bytes = {text[0]: token for token, text in enumerate(texts) if len(text) == 1}
    tokens_of_bytes = [of_bytes.get(byte, UNKNOWN) for byte in range(256)]
    parts = [struct.pack("<HHI", len(names), len(merges), starts[-1]), _stored("<u2", tokens_of_bytes, "bytes")]
    parts += [_stored("<u2", merges, "merges"), _stored("<u2", starts, "starts")]
    body = b"".join([*parts, *texts])
    return _with_start(b"TTV1", 1, body + bytes(-len(body) % 4))


def _check_tokenizer(tokenizer: Described) -> None:
    """Refuse settings that change the tokens of a text and that the file cannot express."""
    if not tokenizer:
        raise ValueError("this model was saved without its tokenizer; train it again")
    model = tokenizer["model"]
    if model["type"] != "BPE" or model.get("unk_token") != SPECIAL_TOKENS[UNKNOWN]:
        raise ValueError(f"the tokenizer must be BPE with the unknown token {SPECIAL_TOKENS[UNKNOWN]}; train it again")
    affixes = ("continuing_subword_prefix", "end_of_word_suffix")
    forbidden = ("dropout", "fuse_unk", "byte_fallback", "ignore_merges", *affixes)
    unexpected = [f"model.{key}" for key in forbidden if model.get(key)]
    unexpected += [key for key in ("normalizer", "post_processor", "truncation", "padding") if tokenizer.get(key)]
    unexpected += ["pre_tokenizer"] * (tokenizer.get("pre_tokenizer") != PRE_TOKENIZER)
    added = tokenizer.get("added_tokens", ())
    added = [token for token in added if token["id"] not in (END, UNKNOWN) or not token["special"]]
    unexpected += [f"added token {token['content']!r}" for token in added]
    if unexpected:
        unknown = f"the tokenizer has settings that a device does not follow: {', '.join(unexpected)}"
        raise ValueError(f"{unknown}; train it as the tinystories workload does")


def _stored(kind: str, values: np.ndarray | Sequence[int] | Sequence[tuple[int, int, int]], what: str) -> bytes:
    """The bytes of integers as the numpy type `kind`; ValueError if one does not fit."""
    values = np.asarray(values, np.int64)
    stored = values.astype(kind)
    if not np.array_equal(stored, values):
        raise ValueError(f"the model has a value of {what} beyond {stored.dtype.itemsize} bytes; train it again")
    return stored.tobytes()


def _interleaved(weights: np.ndarray) -> bytes:
    """The bytes of weights (rows, columns) with 128 added, pairs of rows interleaved."""
    rows, columns = weights.shape
    return _stored("u1", weights.reshape(rows // 2, 2, columns).swapaxes(1, 2) + 128, "weights")


def _with_start(magic: bytes, version: int, body: bytes) -> bytes:
    """A whole file: magic, version, bytes of the header and of the file, CRC-32, then `body`."""
    return magic + struct.pack("<HHII", version, HEADERS[magic][version], 16 + len(body), crc32(body)) + body


def library_files(model: bytes, vocabulary: bytes, arena: int, layers: int, chosen: Settings) -> dict[str, bytes]:
    """Return the files, by their names, of a library in C with the model and the runtime, for pico-sdk or Arduino."""
    made = {path.relative_to(LIBRARY).as_posix(): path.read_text() for path in LIBRARY.rglob("*.*") if path.is_file()}
    words = {"model_words": len(model) // 4, "vocabulary_words": len(vocabulary) // 4}
    sizes = {"arena": arena, "layers": layers, "temperature": round(256 * chosen.temperature), "chosen": chosen}
    made["src/model.h"] = made["src/model.h"].format(**words, **sizes)
    made["src/model.c"] = made["src/model.c"].format(model=_words(model), vocabulary=_words(vocabulary))
    made["src/runtime.h"] = (FIRMWARE / "runtime.h").read_text()
    made["src/runtime.c"] = BEFORE + _whole("kernels.c") + _whole("runtime.c")
    return {name: text.encode() for name, text in made.items()}


def _whole(name: str) -> str:
    """The text of a source file with its includes expanded, except for the header that the library has."""
    return re.sub(r'#include "(?!runtime\.h)([\w.]+)"\n', lambda found: _whole(found[1]), (FIRMWARE / name).read_text())


def _words(data: bytes) -> str:
    words = [f"{word:#x}" for (word,) in struct.iter_unpack("<I", data)]
    return ",\n".join(",".join(words[at : at + 12]) for at in range(0, len(words), 12))
