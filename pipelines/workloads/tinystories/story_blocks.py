"""Stories in text files of any size: found without reading a file whole, and read back one at a time.

A block is what lies between two markers or, in a file without a marker, between lines that hold "%" alone, if there are
two or more, as in collections of fortunes, else between two blank lines. Its story is its text, stripped, with "\\n" as
line end and without NUL characters; a block whose story is empty is ignored.
"""

import codecs
import hashlib
import io
import itertools
import mmap
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import FileIO
from operator import itemgetter
from pathlib import Path

import numpy as np

from common.errors import UserError, as_user_error
from common.workers import in_order
from models.stories.tokens import SPECIAL_TOKENS

MARKER = SPECIAL_TOKENS[0].encode()
BLANK = rb"(?>\r\n?|\n)[ \t]*(?=[\r\n])"  # a line end is taken whole, so that "\r\n" is never half a blank line
FORTUNES = rb"(?:\A|(?<=\A\xef\xbb\xbf)|(?<=[\r\n]))%[ \t]*(?=[\r\n]|\Z)"
# With their least number: the first that a file has so often separates its stories. A single line of % may be text.
SEPARATORS = [(re.compile(re.escape(MARKER)), 1), (re.compile(FORTUNES), 2), (re.compile(BLANK), 0)]
STRETCH = 1 << 24  # bytes of a file that are searched for blocks at a time, by one process
CHUNK = 1 << 20  # bytes that are read at a time
ROW = np.dtype([("offset", np.int64), ("length", np.int64), ("digest", "S16")])  # of a block in a file
SHARD = 1 << 25  # bytes of blocks that are tokenized into one file


@dataclass(frozen=True)
class Blocks:
    """Some blocks: where they lie, and the hashes by which their stories are told apart and ordered."""

    files: Sequence[Path]
    file: np.ndarray  # (n,) int32, number in `files`
    offset: np.ndarray  # (n,) int64, bytes
    length: np.ndarray  # (n,) int64, bytes
    digest: np.ndarray  # (n,) of 16 bytes, the first ones of the SHA-256 of the seed and the story

    def __len__(self) -> int:
        return len(self.digest)

    def take(self, rows: np.ndarray | slice) -> "Blocks":
        """Return the blocks of these rows."""
        return Blocks(self.files, self.file[rows], self.offset[rows], self.length[rows], self.digest[rows])

    def first(self, size: int) -> "Blocks":
        """Return the first block, and those after it that together fit into `size` bytes."""
        return self.take(slice(0, max(1, np.searchsorted(np.cumsum(self.length), size, "right"))))

    def shards(self) -> list["Blocks"]:
        """Return the blocks in successive parts of about SHARD bytes."""
        numbers = (np.cumsum(self.length) - self.length) // SHARD
        ends = [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(self)]
        return [self.take(slice(start, end)) for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    def pieces(self) -> Iterator[Iterator[str]]:
        """Yield each story as an iterator over pieces of it, to be read before the next story is asked for."""
        rows = zip(self.file.tolist(), self.offset.tolist(), self.length.tolist(), strict=True)
        for number, of_file in itertools.groupby(rows, key=itemgetter(0)):
            with FileIO(self.files[number]) as file:  # pages of a mapped one would count as this process's memory
                for _, offset, length in of_file:
                    yield _clean(_decoded(file, offset, length))

    def stories(self) -> Iterator[str]:
        """Yield each story."""
        return map("".join, self.pieces())


def find(files: Sequence[Path], seed: int, whole: bool = False, lower: bool = False) -> tuple[Blocks, int]:
    """Return the blocks of all files in their order, and the number of NUL characters.

    Of `whole` files, each without a marker is a story. Stories that differ by capitals are the same one if read in
    `lower` case. Raises UserError for a file that is unreadable or not UTF-8.
    """
    stretches = [(number, stretch) for number, path in enumerate(files) for stretch in _stretches(path, whole)]
    found = in_order(partial(_indexed, seed, lower), [stretch for _, stretch in stretches], "reading the text, parts")
    tables, nuls = zip((np.empty(0, ROW), 0), *found, strict=True)
    numbers = np.repeat(np.array([0, *(number for number, _ in stretches)], np.int32), [len(each) for each in tables])
    columns = (np.concatenate([each[name] for each in tables]) for name in ROW.names or ())
    return Blocks(files, numbers, *columns), sum(nuls)


def write(path: Path, stories: Iterable[str | None]) -> Path:
    """Write stories that are not None to a file of marked blocks, lone surrogates of JSON as ?; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.writelines(MARKER + story.encode(errors="replace") for story in stories if story is not None)
    return path


def _mapped(file: FileIO) -> mmap.mmap | bytes:
    """Return a file's bytes, which are read as they are looked at; an empty file cannot be mapped."""
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.seek(0, io.SEEK_END) else b""


def _stretches(path: Path, whole: bool) -> list[tuple[Path, int, int, re.Pattern[bytes]]]:
    """Return (file, start, end, separator) of stretches of STRETCH bytes or more, but the last, cut between blocks."""
    unreadable = as_user_error(f"cannot read data.source={path}: ", "; give a file that can be read", OSError)
    with unreadable, FileIO(path) as file:
        text = _mapped(file)
    between, end = SEPARATORS[0][0] if whole else separator(text), len(text)
    cuts = [len(codecs.BOM_UTF8) if text[: len(codecs.BOM_UTF8)] == codecs.BOM_UTF8 else 0]
    while end - cuts[-1] > STRETCH:
        offset, length = next(_spans(text, cuts[-1] + STRETCH, end, between))
        cuts.append(offset + length)
    if cuts[-1] < end:
        cuts.append(end)
    return [(path, start, stop, between) for start, stop in itertools.pairwise(cuts)]


def separator(text: mmap.mmap | bytes) -> re.Pattern[bytes]:
    """Return the separator of a text's stories: the first of SEPARATORS that is in it often enough."""
    return next(each for each, fewest in SEPARATORS if len([*itertools.islice(each.finditer(text), fewest)]) == fewest)


def _spans(text: mmap.mmap | bytes, start: int, end: int, between: re.Pattern[bytes]) -> Iterator[tuple[int, int]]:
    """Yield offset and length of each block between `start` and `end`."""
    for match in between.finditer(text, start, end):
        yield start, match.start() - start
        start = match.end()
    yield start, end - start


def _indexed(seed: int, lower: bool, stretch: tuple[Path, int, int, re.Pattern[bytes]]) -> tuple[np.ndarray, int]:
    """Return rows (n,) of ROW for the blocks in a stretch that have a story, and the number of NULs."""
    rows = []
    prefix = hashlib.sha256(f"{seed} ".encode())
    path, start, end, between = stretch
    with FileIO(path) as file:
        nuls = sum(chunk.count(b"\0") for chunk in _read(file, start, end))
        for offset, length in _spans(_mapped(file), start, end, between):
            digest, empty = prefix.copy(), True
            for piece in _clean(_decoded(file, offset, length)):
                digest.update((piece.lower() if lower else piece).encode())
                empty = False
            if not empty:
                rows.append((offset, length, digest.digest()[:16]))
    return np.array(rows, ROW), nuls


def _read(file: FileIO, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes from `start` to `end`, CHUNK at a time; others may move the file's position in between."""
    for position in range(start, end, CHUNK):
        file.seek(position)
        yield file.read(min(CHUNK, end - position))


def _decoded(file: FileIO, offset: int, length: int) -> Iterator[str]:
    """Yield a block's text, decoded and with "\\n" as line end. Raises UserError if it is not UTF-8."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")(), translate=True)
    read = 0
    for chunk in _read(file, offset, offset + length):
        read += len(chunk)
        try:
            yield decoder.decode(chunk, final=read >= length)
        except UnicodeDecodeError as error:
            place = offset + read - len(error.object) + error.start
            wrong = f"{file.name} is not UTF-8: byte {place} is 0x{error.object[error.start]:02x}"
            way = f"as in: iconv -f cp1252 -t utf-8 {file.name} > utf8.txt"
            raise UserError(f"{wrong}; convert it first from the encoding that it has, {way}") from error


def _clean(pieces: Iterable[str]) -> Iterator[str]:
    """Remove NUL characters, and white space from both ends of the text that the pieces make; none yielded is empty."""
    begun, space = False, ""
    for piece in pieces:
        text = space + piece.replace("\0", "")
        if not begun:
            text = text.lstrip()
        kept = text.rstrip()
        space = text[len(kept) :]
        if kept:
            begun = True
            yield kept
