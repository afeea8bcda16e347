"""The runtime in C, compiled for this computer and called from Python: it refuses files and tells their stories."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from ctypes import (
    CDLL,
    byref,
    c_char_p,
    c_int32,
    c_size_t,
    c_uint16,
    c_uint32,
    c_void_p,
    create_string_buffer,
    string_at,
)
from functools import cache
from pathlib import Path

import pytest

from exporters.rp2040.layout import FIRMWARE
from models.stories.tokens import END

SOURCE = """
#include "kernels.c"
#include "runtime.c"
size_t tt_bytes(void) { return sizeof(struct tt); }
const int32_t *tt_sums(const struct tt *t) { return t->sums; }
void tt_put(struct tt *t, const int32_t *logits) {
    t->best = 0;
    for (uint32_t i = 0; i < t->vocabulary; i++) {
        t->sums[i] = logits[i];
        t->best = logits[i] > logits[t->best] ? i : t->best;
    }
}
"""
BEHIND = b"\xa5" * 64  # the arena
RETURNED = {
    "tt_bytes": c_size_t,
    "tt_sums": c_void_p,
    "tt_put": None,
    "tt_arena_size": c_size_t,
    "tt_arena_least": c_size_t,
    "tt_open": c_char_p,
    "tt_token_bytes": c_void_p,
    "tt_greedy": c_uint32,
    "tt_sample": c_uint32,
    "tt_seed": c_uint32,
}


@cache
def library() -> CDLL:
    if not shutil.which("cc"):
        pytest.skip("no C compiler, which the gate has: apt-get install gcc")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runtime.so"
        words = ["cc", "-std=c99", "-O1", "-fno-strict-aliasing", "-shared", "-fPIC", "-I", FIRMWARE, "-x", "c", "-"]
        subprocess.run([*words, "-o", path], input=SOURCE, text=True, check=True)
        found = CDLL(str(path))
    for name, kind in RETURNED.items():
        getattr(found, name).restype = kind
    return found


class CReader:
    """A model with its vocabulary, which tells one story at a time; `streamed` leaves the matrices in the file."""

    def __init__(self, model: bytes, vocabulary: bytes, streamed: bool = False):
        """Read both files; a ValueError says in one line why one is refused."""
        c = library()
        # Copies, which stay where they are for as long as the story needs them; what is behind them is not to be read.
        self._files = [create_string_buffer(data + bytes([255]) * 64) for data in (model, vocabulary)]
        sizes = [c_size_t(len(data)) for data in (model, vocabulary)]
        needed = (c.tt_arena_least if streamed else c.tt_arena_size)(self._files[0], sizes[0])
        self._arena, self._t = create_string_buffer(bytes(needed) + BEHIND), create_string_buffer(c.tt_bytes())
        files = (part for file in zip(self._files, sizes, strict=True) for part in file)
        if reason := c.tt_open(self._t, *files, self._arena, c_size_t(needed)):
            raise ValueError(reason.decode())
        self._needed = needed
        self.size = int.from_bytes(model[16:18], "little")

    def encode(self, text: bytes) -> list[int]:
        tokens = (c_uint16 * max(len(text), 1))()
        return tokens[: library().tt_encode(self._t, text, c_size_t(len(text)), tokens, c_size_t(len(text)))]

    def decode(self, ids: Sequence[int]) -> bytes:
        length = c_size_t()
        return b"".join(
            string_at(library().tt_token_bytes(self._t, token, byref(length)), length.value) for token in ids
        )

    def tokens(
        self, ids: Sequence[int], max_tokens: int, temperature: int = 0, top_k: int = 0, seed: int = 1
    ) -> Iterator[int]:
        """Tokens that follow a story's beginning; the temperature is in 256ths, and greedy at 0."""
        c = library()
        self.logits(ids)
        state = c_uint32(c.tt_seed(c_uint32(seed)))
        for _ in range(max_tokens):
            chosen = c.tt_sample(self._t, temperature, top_k, byref(state)) if temperature else c.tt_greedy(self._t)
            if chosen == END:
                return
            yield chosen
            c.tt_step(self._t, chosen, 1)

    def logits(self, ids: Sequence[int]) -> list[int]:
        """Logits of what follows a story's beginning."""
        c = library()
        c.tt_start(self._t)
        c.tt_step(self._t, END, not ids)
        for number, token in enumerate(ids, start=1):
            c.tt_step(self._t, token, number == len(ids))
        assert self._arena.raw[self._needed : -1] == BEHIND  # which is not the runtime's
        return list((c_int32 * self.size).from_address(c.tt_sums(self._t)))

    def choose(self, logits: Sequence[int], temperature: int, top_k: int, state: int) -> tuple[int, int]:
        """(the token drawn from these logits, the generator's next state)."""
        c = library()
        found = c_uint32(state)
        c.tt_put(self._t, (c_int32 * self.size)(*logits))
        return c.tt_sample(self._t, temperature, top_k, byref(found)), found.value
