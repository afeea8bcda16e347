"""Sizes of tiny transformers. torch is not imported here: commands read their words before it."""

import json
from dataclasses import dataclass, field
from pathlib import Path

MOST_TABLES, MOST_ROWS = 4, 2**16  # of a memory
FEWEST_ENTRIES, MOST_ENTRIES = 16, 2**18  # of counts
MOST_COUNTED_TOKENS = 4096  # of a vocabulary beside counts


def bucket_bits(entries: int) -> int:
    """Bits of the number of a bucket of counts, with four to eight entries for each bucket."""
    return max(1, entries.bit_length() - 3)


@dataclass(frozen=True)
class TinyTransformerConfig:
    """Sizes, and the tokenizer to which the token ids belong."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    hidden: int
    context: int  # positions that a position sees, itself included
    memory: tuple[int, ...] = ()  # rows of the tables for bigrams, trigrams, ...: powers of two
    counts: int = 0  # entries of the n-gram counts; 0: none
    flash_megabytes: int = 2  # of the board that tells the stories
    dropout: float = 0.0
    tokenizer: dict[str, object] = field(default_factory=dict)  # as the library `tokenizers` writes it

    def __post_init__(self) -> None:
        object.__setattr__(self, "memory", tuple(self.memory))  # a list, as JSON has it
        for name in ("vocabulary", "width", "layers", "heads", "hidden", "context"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be 1 or more")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be 0 or more and below 1")
        if len(self.memory) > MOST_TABLES or any(not 2 <= n <= MOST_ROWS or n & (n - 1) for n in self.memory):
            rows = f"powers of two from 2 to {MOST_ROWS}, the rows of the tables for bigrams, trigrams and so on"
            raise ValueError(f"memory={list(self.memory)} must be at most {MOST_TABLES} {rows}")
        if self.counts and not FEWEST_ENTRIES <= self.counts <= MOST_ENTRIES:
            raise ValueError(f"counts={self.counts} must be 0 or {FEWEST_ENTRIES} to {MOST_ENTRIES:,} entries")
        if self.counts and self.vocabulary > MOST_COUNTED_TOKENS:
            raise ValueError(f"counts={self.counts} need a vocabulary of at most {MOST_COUNTED_TOKENS} tokens")
        if self.width % self.heads:
            raise ValueError(f"width={self.width} is not a multiple of heads={self.heads}; choose a divisor")


SIZES = json.loads(Path(__file__).with_name("presets.json").read_text())  # of each preset
PRESETS = {name: TinyTransformerConfig(**sizes) for name, sizes in SIZES.items()}
