"""Tell stories with the files that `python -m exporters rp2040` wrote, in integers, as FORMAT.md defines them.

On a device with MicroPython, once the export's .py and .bin files are copied to it:

    import inference
    inference.tell("model_256p.bin", "vocab_256p.bin", "Once upon a time")

On a computer:

    python inference.py MODEL VOCABULARY PROMPT [MAX_TOKENS [TEMPERATURE [TOP_K [SEED]]]]
    python inference.py model_256p.bin vocab_256p.bin "Once upon a time" 100 205 40 7

TEMPERATURE is in 256ths (205 means 0.8, 0 is greedy); a TOP_K of 0 keeps all tokens.
"""

# mypy: ignore-errors
# For MicroPython, which has no annotations.

import gc
import struct
import sys
import time

if "." in __name__:  # in the repository; on a device the files lie side by side, in no package
    from .inference_files import LIMITS, begin, numbers
    from .inference_model import Model
else:
    from inference_files import LIMITS, begin, numbers
    from inference_model import Model

UNKNOWN = 1  # the token of a byte that has none of its own
LARGEST_MERGES, LARGEST_TEXT = 8192, 65535


class Vocabulary:
    """The vocabulary in a file: turns bytes into tokens and back."""

    def __init__(self, file):
        """Read an open binary file; a ValueError says in one line why the file is refused."""
        self.bytes, self.crc, _ = begin(file, b"TTV1", "vocabulary")
        self.size, num_merges, num_bytes = struct.unpack("<HHI", file.read(8))
        _, least, largest, multiple = LIMITS[0]
        if not least <= self.size <= largest or self.size % multiple:
            raise ValueError(
                f"the vocabulary file has {self.size} tokens; allowed: {least} to {largest}, multiples of {multiple}"
            )
        if num_merges > LARGEST_MERGES:
            raise ValueError(f"the vocabulary file has {num_merges} merges; the most is {LARGEST_MERGES}")
        if num_bytes > LARGEST_TEXT:
            raise ValueError(f"the vocabulary file has {num_bytes} bytes of tokens; the most is {LARGEST_TEXT}")
        needed = (24 + 512 + 6 * num_merges + 2 * (self.size + 1) + num_bytes + 3) // 4 * 4
        if self.bytes != needed:
            raise ValueError(f"the vocabulary file has {self.bytes} bytes, but its sizes need {needed}")
        self.of_byte = numbers(file, "H", 256)
        self.merges = file.read(6 * num_merges)
        self.starts = numbers(file, "H", self.size + 1)
        self.text = file.read(num_bytes)
        for byte in file.read():
            if byte:
                raise ValueError("the vocabulary file has unused bytes that are not 0")
        starts, size = self.starts, self.size
        for i in range(size):
            if starts[i] > starts[i + 1]:
                raise ValueError(f"the vocabulary file's token {i} ends before it starts")
        if starts[0] or starts[size] != len(self.text):
            raise ValueError(f"the vocabulary file's tokens do not cover its {len(self.text)} bytes")
        if starts[2]:
            raise ValueError("the vocabulary file's tokens 0 and 1 have bytes")
        for byte in range(256):
            token = self.of_byte[byte]
            if token >= size or (token != UNKNOWN and self.token(token) != bytes((byte,))):
                raise ValueError(f"the vocabulary file's byte {byte} has token {token}, which is not that byte")
        for place in range(0, len(self.merges), 6):
            left, right, result = struct.unpack_from("<HHH", self.merges, place)
            if min(left, right, result) < 2 or max(left, right, result) >= size:
                raise ValueError(f"the vocabulary file's merge {place // 6} is not of tokens 2 to {size - 1}")
            if self.token(left) + self.token(right) != self.token(result):
                raise ValueError(f"the vocabulary file's merge {place // 6} does not join the bytes of its parts")

    def token(self, number):
        """The bytes of a token; ValueError if no token has this number."""
        if not 0 <= number < self.size:
            raise ValueError(f"tokens must be 0 to {self.size - 1} (given {number})")
        return self.text[self.starts[number] : self.starts[number + 1]]

    def decode(self, ids):
        """The bytes of tokens."""
        return b"".join([self.token(number) for number in ids])

    def encode(self, text):
        """The tokens of bytes."""
        ids = []
        start = 0
        while start < len(text):
            end = _piece_end(text, start)
            piece = [self.of_byte[byte] for byte in text[start:end]]
            self._merge(piece)
            ids.extend(piece)
            start = end
        return ids

    def _merge(self, piece):
        """Apply merges to a list of tokens in place, the earliest merge first."""
        none = len(self.merges)
        places = [self._place(piece[i], piece[i + 1]) for i in range(len(piece) - 1)]
        while places:
            first = min(places)
            if first == none:
                return
            i = places.index(first)
            piece[i] = struct.unpack_from("<H", self.merges, first + 4)[0]
            piece.pop(i + 1)
            places.pop(i)
            if i:
                places[i - 1] = self._place(piece[i - 1], piece[i])
            if i < len(places):
                places[i] = self._place(piece[i], piece[i + 1])

    def _place(self, left, right):
        """The place of two tokens' merge in `merges`, or the length of `merges`; no dictionary, to save memory."""
        pair = struct.pack("<HH", left, right)
        place = self.merges.find(pair)
        while place % 6 and place > 0:
            place = self.merges.find(pair, place + 1)
        return place if place >= 0 else len(self.merges)


class Story:
    """A model with its vocabulary."""

    def __init__(self, model_path, vocabulary_path):
        """Read both files; a ValueError says why one is refused, or that they do not belong together."""
        gc.collect()
        self._file = open(model_path, "rb")  # noqa: SIM115 the memory is read from it, row by row
        try:
            self.model = Model(self._file)
            gc.collect()
            with open(vocabulary_path, "rb") as file:
                self.vocabulary = Vocabulary(file)
            if (self.vocabulary.size, self.vocabulary.bytes, self.vocabulary.crc) != (
                self.model.vocabulary,
                self.model.vocabulary_bytes,
                self.model.vocabulary_crc,
            ):
                raise ValueError("the vocabulary file belongs to another model; copy both files of one export")
        except (ValueError, OSError, MemoryError):
            self.close()
            raise
        if not (self.model.memory or self.model.counts):
            self.close()
        gc.collect()

    def close(self):
        """Close the model file; one with a memory or counts gives no more tokens after that."""
        self._file.close()


def tell(model_path, vocabulary_path, prompt="", max_tokens=100, temperature=0, top_k=0, seed=1):
    """Print a story that starts with `prompt` token by token, then its time; settings as for `Model.tokens`."""
    story = Story(model_path, vocabulary_path)
    beginning = prompt if isinstance(prompt, bytes) else prompt.encode()
    count, start = 0, _milliseconds()
    pending = _print(beginning)
    for token in story.model.tokens(story.vocabulary.encode(beginning), max_tokens, temperature, top_k, seed):
        pending = _print(pending + story.vocabulary.token(token))
        count += 1
    story.close()
    print("?" * len(pending))
    print(f"({count} tokens, {_milliseconds() - start} ms)")


def _piece_end(text, start):
    """The end of the piece at `start`: one space, or a run of one kind of bytes with a space before it."""
    following = start + 1 if text[start] == 32 else start
    kind = _kind(text[following]) if following < len(text) else 0
    if not kind:
        return start + 1
    end = following + 1
    while end < len(text) and _kind(text[end]) == kind:
        end += 1
    return end


def _kind(byte):
    """The kind of a byte: 0 space, 1 letter, 2 digit, 3 other."""
    if byte in (32, 9, 10, 13):
        return 0
    if byte >= 128 or 65 <= byte <= 90 or 97 <= byte <= 122:
        return 1
    return 2 if 48 <= byte <= 57 else 3


def _print(data):
    """Print bytes as UTF-8; return the last few unprinted if they may be the start of a character."""
    for cut in range(len(data), max(len(data) - 4, -1), -1):
        try:
            text = data[:cut].decode()
        except UnicodeError:
            continue
        break
    else:
        cut = len(data)
        text = "".join([chr(byte) if byte < 128 else "?" for byte in data])
    print(text, end="")
    if hasattr(sys.stdout, "flush"):
        sys.stdout.flush()
    return data[cut:]


def _milliseconds():
    return time.ticks_ms() if hasattr(time, "ticks_ms") else time.monotonic_ns() // 1000000


def main(words):
    """Run the command in the module's docstring; return the exit status."""
    try:
        settings = [int(word) for word in words[3:]]
    except ValueError:
        settings = None
    if settings is None or not 3 <= len(words) <= 7:
        print("usage: python inference.py MODEL VOCABULARY PROMPT [MAX_TOKENS [TEMPERATURE [TOP_K [SEED]]]]")
        return 2
    try:
        tell(*words[:3], *settings)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
