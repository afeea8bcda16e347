"""The transformer in integers: reads a model file and generates tokens.

FORMAT.md defines the arithmetic. Part of `inference.py`: it has to lie beside it.
"""

# mypy: ignore-errors
# For MicroPython, which has no annotations.

import gc
import struct
from array import array

if "." in __name__:  # in the repository; on a device the files lie side by side, in no package
    from .inference_files import HEADERS, LIMITS, LONGEST, Layer, Matrix, begin, check_counts, check_shift, check_table
    from .inference_files import count_sizes, fill, kernels, numbers, shifted, table_bits  # isort: skip
else:
    from inference_files import HEADERS, LIMITS, LONGEST, Layer, Matrix, begin, check_counts, check_shift, check_table
    from inference_files import count_sizes, fill, kernels, numbers, shifted, table_bits  # isort: skip

LARGEST = 0x7FFFFFFF  # number of 32 bits
OBJECTS = 4096  # bytes of heap for what is small, and for blocks that are not full
END = 0  # the token at the boundary of stories
EXP_ENTRIES, GELU_ENTRIES = 704, 1024
ORDERS, FACTOR = 4, 0x1B873593  # of counts: contexts of 1 to so many tokens, and their hash
LARGEST_POST_COUNTED, LARGEST_SHARPENED, LARGEST_ADDED = 20, (1 << 30) - 1, 1 << 17
LARGEST_RESIDUAL, LARGEST_GELU = 1 << 22, 16383
HASHED = (0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F, 0x165667B1)  # factors of a context's tokens, newest first


class Model:
    """The transformer in a model file. It holds the keys and values of one story at a time."""

    def __init__(self, file):
        """Read an open binary file; a ValueError says in one line why the file is refused."""
        size = self._read_header(file)
        self.exp = numbers(file, "H", EXP_ENTRIES)
        if self.exp[0] != 32768 or any(self.exp[i] < self.exp[i + 1] for i in range(EXP_ENTRIES - 1)):
            raise ValueError("the model file's exp table does not fall from 32768 on")
        self.gelu = shifted(numbers(file, "H", GELU_ENTRIES))
        if max(self.gelu) > 32768 + LARGEST_GELU or min(self.gelu) < 32768 - LARGEST_GELU:
            raise ValueError(f"the model file's gelu table has entries beyond {LARGEST_GELU}")
        self.blocks = []
        for number in range(self.layers):
            layer = Layer(file, self.width, self.heads, self.hidden, self.context)
            layer.check(f"layer {number + 1}", self.width)
            self.blocks.append(layer)
        self.embedding = Matrix(self.vocabulary, self.width)
        self.embedding.multiplier = numbers(file, "H", self.vocabulary)
        self.embedding.bias = numbers(file, "i", self.vocabulary)
        self.embedding.read_weights(file)
        self.embedding.check("embedding", self.width, self.pre_logits)
        for rows in self.memory:
            check_table(file, rows, self.width)
        if self.counts:
            check_counts(file, self.buckets, self.counts, self.vocabulary)

        # The memory stays in the file, of which each token reads a row for each table.
        self._file, self._starts = file, size - self.counts_bytes
        self._tables = self._starts - sum(self.memory) * (4 + self.width)
        self._record = bytearray(4 + self.width)
        self._recent = array("H", bytes(2 * max(len(self.memory) + 1, ORDERS)))
        if self.counts:
            self._bucket, self._entries = array("I", bytes(8)), array("I", bytes(4 * LONGEST))
            self._softness = bytes(logarithm(32768 + weight) - ONE for weight in self.exp)

        # All memory that a story needs is allocated here, so that a device cannot run out of it during one.
        cached = self.layers * self.context * self.width
        self._keys, self._values = bytearray(cached), bytearray(cached)
        self._x, self._n, self._a = (array("i", bytes(4 * self.width)) for _ in range(3))
        self._h = array("i", bytes(4 * self.hidden))
        self._scores = array("i", bytes(4 * self.context))
        self._y = array("i", bytes(4 * max(self.vocabulary, 3 * self.width, self.hidden)))

    def _read_header(self, file):
        """Read sizes and shifts; return the file's size in bytes, which these agree with."""
        size, self.crc, version = begin(file, b"TTM1", "model")
        sizes = struct.unpack("<6H", file.read(12))
        for i, (name, least, largest, multiple) in enumerate(LIMITS):
            if not least <= sizes[i] <= largest or sizes[i] % multiple:
                raise ValueError(
                    f"the model file's {name} is {sizes[i]}; allowed: {least} to {largest}, multiples of {multiple}"
                )
        self.vocabulary, self.width, self.layers, self.heads, self.hidden, self.context = sizes
        if self.width % self.heads:
            raise ValueError(f"the model file's width {self.width} is not a multiple of its heads {self.heads}")
        self.post_memory, self._bits, self.counts, self.buckets = 0, [], 0, 0
        if version > 1:
            file.seek(40)
            self.post_memory = file.read(1)[0]
            self._bits = table_bits(file.read(7), 3 - version)
            if self._bits:
                check_shift("post_memory", self.post_memory)
            elif self.post_memory:
                raise ValueError("the model file's header has unused bytes that are not 0")
            if version == 3:
                self.counts, self.buckets = count_sizes(file.read(8))
            file.seek(28)
        self.memory = [1 << bits for bits in self._bits]
        self.counts_bytes = 4 * (self.buckets + 1 + self.counts) if self.counts else 0
        needed = model_bytes(*sizes, self.memory, self.counts_bytes)
        if size != needed:
            raise ValueError(f"the model file has {size} bytes, but its sizes need {needed}")
        heap = heap_bytes(*sizes)
        if hasattr(gc, "mem_free") and gc.mem_free() < heap:
            raise MemoryError(
                f"this model needs {heap} bytes of free heap, and {gc.mem_free()} are free; export a smaller preset"
            )
        self.pre_logits, self.post_logits, self.post_embedding, unused = file.read(4)
        if unused:
            raise ValueError("the model file's header has unused bytes that are not 0")
        check_shift("pre_logits", self.pre_logits)
        check_shift("post_logits", self.post_logits)
        check_shift("post_embedding", self.post_embedding)
        if self.counts and self.post_logits > LARGEST_POST_COUNTED:
            raise ValueError(f"the model file's post_logits is {self.post_logits}; the most is {LARGEST_POST_COUNTED}")
        self.vocabulary_bytes, self.vocabulary_crc = struct.unpack("<II", file.read(8))
        file.seek(HEADERS[b"TTM1"][version])
        return size

    def tokens(self, ids, max_tokens, temperature=0, top_k=0, seed=1):
        """Generate up to `max_tokens` tokens of a story that starts with `ids`; the token of its end is left out.

        `temperature` is in 256ths, 13 to 2560, or 0 for greedy; a `top_k` of 0 keeps all tokens; `seed` has 32 bits.
        One story at a time: a second generator overwrites what the first one needs.
        """
        if temperature and not 13 <= temperature <= 2560:
            raise ValueError(f"temperature must be 13 to 2560 in 256ths, or 0 for greedy (given {temperature})")
        if top_k < 0:
            raise ValueError(f"top_k must be 1 or more, or 0 for all tokens (given {top_k})")
        if not 0 <= seed <= 0xFFFFFFFF:
            raise ValueError(f"seed must be 0 to 4294967295 (given {seed})")
        for token in ids:
            if not 0 <= token < self.vocabulary:
                raise ValueError(f"tokens must be 0 to {self.vocabulary - 1} (given {token})")
        self._state = (seed * 0x9E3779B1 & 0xFFFFFFFF) or 1
        if max_tokens > 0:
            position = 0
            token = END
            for following in ids:
                self._advance(token, position)
                position += 1
                token = following
        for _ in range(max_tokens):
            self._advance(token, position)
            position += 1
            self._logits()
            token = self._sample(temperature, top_k) if temperature else kernels.largest(self._y, self.vocabulary)
            if token == END:
                return
            yield token

    def _advance(self, token, position):
        """Run one more token through all layers."""
        x, n, a, h, y, width = self._x, self._n, self._a, self._h, self._y, self.width
        table = self.embedding
        first = (token >> 1) * 2 * width + (token & 1)
        kernels.recall(table.weights, first, 2, table.multiplier[token], self.post_embedding, 0, x, width)
        recent = self._recent
        for i in range(len(recent) - 1, 0, -1):
            recent[i] = recent[i - 1] if position else END
        recent[0] = token
        if self.memory:
            self._remember()
        for number in range(self.layers):
            layer = self.blocks[number]
            shifts = layer.shifts
            _norm(x, n)
            layer.qkv.times(n, y)
            self._attend(number, position)
            layer.out.times(a, y)
            kernels.add(x, y, layer.out.multiplier, width, shifts[4], shifts[5], LARGEST_RESIDUAL)
            _norm(x, n)
            layer.up.times(n, y)
            kernels.gelu(y, layer.up.multiplier, self.gelu, h, self.hidden, shifts[6], shifts[7])
            layer.down.times(h, y)
            kernels.add(x, y, layer.down.multiplier, width, shifts[8], shifts[9], LARGEST_RESIDUAL)

    def _remember(self):
        """Add the rows of the contexts that end at the newest token to `_x`."""
        recent, record, width = self._recent, self._record, self.width
        place = self._tables
        code = recent[0] * HASHED[0]
        for number, bits in enumerate(self._bits):
            code = (code + recent[number + 1] * HASHED[number + 1]) & 0xFFFFFFFF
            self._file.seek(place + (code >> 32 - bits) * (4 + width))
            fill(self._file, record, 4 + width)
            if record[0] == code & 255:
                kernels.recall(record, 4, 1, record[2] | record[3] << 8, self.post_memory, 1, self._x, width)
            place += (4 + width) << bits
        for j in range(width):
            self._x[j] = max(min(self._x[j], LARGEST_RESIDUAL), -LARGEST_RESIDUAL)

    def _attend(self, number, position):
        """Turn the sums of queries, keys and values in `_y` into the attention's output in `_a`."""
        layer = self.blocks[number]
        shifts, multiplier, bias = layer.shifts, layer.qkv.multiplier, layer.distance_bias
        width, context, exp, reach = self.width, self.context, self.exp, len(self.exp)
        y, scores, keys, values = self._y, self._scores, self._keys, self._values
        for part in range(3):
            first = part * width
            most = 127 if part else 32767
            kernels.scale(y, multiplier, first, first + width, shifts[0], shifts[1 + part], most)
        start = number * context * width
        newest = start + position % context * width
        for j in range(width):
            keys[newest + j] = y[width + j] + 128
            values[newest + j] = y[2 * width + j] + 128

        count = min(position + 1, context)
        oldest = (position + 1 - count) % context
        size = width // self.heads
        for head in range(self.heads):
            first = head * size
            last = first + size
            place = (head + 1) * context - count
            total = kernels.weigh(
                y, first, last, keys, start, oldest, count, context, width, bias, place, scores, exp, reach
            )
            reciprocal = 0x80000000 // total
            kernels.mix(scores, total, values, start, oldest, count, context, width, self._a, first, last, reciprocal)

    def _logits(self):
        """Put the logits of what follows the newest position into `_y`."""
        _norm(self._x, self._n)
        self.embedding.times(self._n, self._y)
        kernels.scale(self._y, self.embedding.multiplier, 0, self.vocabulary, self.pre_logits, 0, LARGEST)
        if self.counts:
            self._sharpen()

    def _sharpen(self):
        """Mix what the counts say of the newest tokens into the logits in `_y`."""
        file, bucket, entries, y = self._file, self._bucket, self._entries, self._y
        post, exp, softness, reach = self.post_logits, self.exp, self._softness, len(self.exp)
        largest = y[kernels.largest(y, self.vocabulary)]
        total = kernels.drawn(y, self.vocabulary, largest, -LARGEST, 0, post, 256, exp, reach, LARGEST)
        whole = logarithm(total) - ONE
        code = 0
        for order in range(ORDERS):
            code = (code + self._recent[order] + 1) * FACTOR & 0xFFFFFFFF
            file.seek(self._starts + 4 * (code * self.buckets >> 32))
            fill(file, bucket, 8)
            count = bucket[1] - bucket[0]
            if count:
                file.seek(self._starts + 4 * (self.buckets + 1 + bucket[0]))
                if file.readinto(entries) < 4 * count:  # more than the bucket's, where there are more
                    raise ValueError("the file became shorter while it was being read")
                tag = code >> 6 & 1023
                added = kernels.sharpen(
                    entries, count, tag, y, whole, largest, post, exp, softness, reach, LARGEST_SHARPENED
                )
                whole += logarithm(32768 + min(added, LARGEST_ADDED)) - ONE
            if self._recent[order] == END:
                return

    def _sample(self, temperature, top_k):
        """Draw a token by the logits in `_y`; where it is none of the top_k, again among those that are better."""
        y, size, exp = self._y, self.vocabulary, self.exp
        top, least, place = y[kernels.largest(y, size)], -LARGEST, 0
        while True:
            chances = y, size, top, least, place, self.post_logits, 65536 // temperature, exp, len(exp)
            state = self._state
            state ^= state << 13 & 0xFFFFFFFF
            state ^= state >> 17
            state ^= state << 5 & 0xFFFFFFFF
            self._state = state
            place = kernels.drawn(*chances, (state >> 8) * kernels.drawn(*chances, LARGEST) >> 24)
            if not top_k or kernels.better(y, size, place) < top_k:
                return place
            least = y[place]


def model_bytes(vocabulary, width, layers, heads, hidden, context, memory=(), counts_bytes=0):
    """Bytes of a model file of these sizes; `memory` has the rows of its tables."""
    rows = 5 * width + hidden
    weights = 4 * width * width + 2 * width * hidden
    layer = 12 + 6 * rows + 2 * heads * context + weights
    tables = sum(memory) * (4 + width) + counts_bytes
    header = 56 if counts_bytes else 48 if memory else 40
    return header + 2 * EXP_ENTRIES + 2 * GELU_ENTRIES + layers * layer + vocabulary * (6 + width) + tables


def heap_bytes(vocabulary, width, layers, heads, hidden, context):
    """Bytes of heap that MicroPython needs for a story with a model of these sizes, whose memory stays in the file."""
    weights = model_bytes(vocabulary, width, layers, heads, hidden, context)
    activations = 4 * (3 * width + hidden + context + max(vocabulary, 3 * width, hidden))
    return weights + 2 * layers * context * width + activations + OBJECTS


def logarithm(number):
    """64 times the natural logarithm of a number from 1 to 2**28 - 1, within one."""
    bits = -1
    while number >> bits + 1:
        bits += 1
    part = (number >> bits - 15 if bits >= 15 else number << 15 - bits) - 32768
    power = (bits << 15) + part + ((part * (32768 - part) >> 15) * 11272 >> 15)
    return (power >> 4) * 2839 >> 17


ONE = logarithm(32768)


def _norm(x, n):
    """Set n to x without its mean, scaled to a root mean square of 1024."""
    width = len(x)
    bits = kernels.deviations(x, n, width)
    if not bits:
        return  # all deviations are 0
    length = 0
    while bits >> length:
        length += 1
    squares = kernels.shortened(n, length, width)
    kernels.normed(n, (_square_root(width << 20) << 12) // _square_root(squares), width)


def _square_root(number):
    """The square root, rounded down, of a positive number below 2**32, by Newton's method from above."""
    root = 65536
    while True:
        better = (root + number // root) >> 1
        if better >= root:
            return root
        root = better
