"""Tell stories with the files that `python -m exporters rp2040` wrote, in integers, as FORMAT.md defines them.

On a device with MicroPython, where this file and the two others are:

    import inference
    inference.tell("model_256p.bin", "vocab_256p.bin", "Once upon a time")

On a computer:

    python inference.py MODEL VOCABULARY PROMPT [MAX_TOKENS [TEMPERATURE [TOP_K [SEED]]]]
    python inference.py model_256p.bin vocab_256p.bin "Once upon a time" 100 205 40 7

TEMPERATURE is in 256ths (205 is 0.8), 0 is greedy; a TOP_K of 0 keeps all tokens.
"""

import gc
import struct
import sys
import time
from array import array

try:
    from binascii import crc32
except ImportError:  # left out of small builds of MicroPython

    def crc32(data, crc=0):
        """CRC-32 of zlib, bit by bit."""
        crc ^= 0xFFFFFFFF
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
        return crc ^ 0xFFFFFFFF


END, UNKNOWN = 0, 1
EXP_ENTRIES, GELU_ENTRIES = 704, 1024
LARGEST_RESIDUAL, LARGEST_BIAS, LARGEST_GELU = 1 << 22, (1 << 24) - 1, 16383
LARGEST_PRE, LARGEST_POST = 24, 30
LARGEST_MERGES, LARGEST_TEXT = 8192, 65535
LIMITS = (  # least, largest, multiple; in the order of the header
    ("vocabulary", 4, 4096, 2),
    ("width", 4, 128, 4),
    ("layers", 1, 16, 1),
    ("heads", 1, 128, 1),
    ("hidden", 4, 1024, 4),
    ("context", 2, 256, 2),
)
SHIFTS = ("pre_qkv", "post_q", "post_k", "post_v", "pre_out", "post_out", "pre_up", "post_up", "pre_down", "post_down")


class Matrix:
    """Rows with a bias and a multiplier each; the weights are 128 too large, two rows interleaved."""

    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns

    def read_bias(self, file):
        self.bias = _numbers(file, "i", self.rows)

    def read_multiplier(self, file):
        self.multiplier = _numbers(file, "H", self.rows)

    def read_weights(self, file):
        self.weights = bytearray(self.rows * self.columns)
        _fill(file, self.weights, len(self.weights))

    def check(self, where, width=0, pre=0):
        """Refuse numbers under which sums leave 32 bits; with a width, sums over a normed vector must fit 16."""
        largest = max(max(self.bias), -min(self.bias))
        if largest > LARGEST_BIAS:
            raise ValueError(f"the model file's {where} has a bias of {largest}; the most is {LARGEST_BIAS}")
        if max(self.multiplier) > 32767:
            raise ValueError(f"the model file's {where} has a multiplier above 32767")
        if b"\0" in self.weights:
            raise ValueError(f"the model file's {where} has a weight of -128; allowed are -127 to 127")
        if width and ((width << 17) + largest) >> pre > 32767:
            raise ValueError(f"the model file's {where} has a pre of {pre}, under which sums leave 16 bits")

    def times(self, x, y):
        """y[i] = bias[i] + the sum over j of weights[i][j] x[j], for every row i."""
        weights, bias = self.weights, self.bias
        excess = sum(x) << 7
        place = 0
        for row in range(0, self.rows, 2):
            even = bias[row] - excess
            odd = bias[row + 1] - excess
            for value in x:
                even += weights[place] * value
                odd += weights[place + 1] * value
                place += 2
            y[row] = even
            y[row + 1] = odd


class Layer:
    """One block: `shifts` by the order of SHIFTS, four matrices, `distance_bias` of a head after the other."""

    def __init__(self, file, width, heads, hidden, context):
        self.shifts = file.read(12)
        self.qkv, self.out = Matrix(3 * width, width), Matrix(width, width)
        self.up, self.down = Matrix(hidden, width), Matrix(width, hidden)
        matrices = (self.qkv, self.out, self.up, self.down)
        for matrix in matrices:
            matrix.read_bias(file)
        for matrix in matrices:
            matrix.read_multiplier(file)
        self.distance_bias = _numbers(file, "h", heads * context)
        for matrix in matrices:
            matrix.read_weights(file)

    def check(self, where, width):
        for i, name in enumerate(SHIFTS):
            _check_shift(where + " " + name, self.shifts[i])
        if self.shifts[10] or self.shifts[11]:
            raise ValueError(f"the model file's {where} has unused bytes that are not 0")
        self.qkv.check(where + " qkv", width, self.shifts[0])
        self.out.check(where + " out")
        self.up.check(where + " up", width, self.shifts[6])
        self.down.check(where + " down")


class Model:
    """The transformer in a model file. It holds the keys and values of one story at a time."""

    def __init__(self, file):
        """Read an open binary file; ValueError says in a line why it is refused."""
        size, self.crc = _begin(file, b"TTM1", 40, "model")
        sizes = struct.unpack("<6H", file.read(12))
        for i, (name, least, largest, multiple) in enumerate(LIMITS):
            if not least <= sizes[i] <= largest or sizes[i] % multiple:
                raise ValueError(
                    f"the model file's {name} is {sizes[i]}; allowed are {least} to {largest}, multiples of {multiple}"
                )
        self.vocabulary, self.width, self.layers, self.heads, self.hidden, self.context = sizes
        if self.width % self.heads:
            raise ValueError(f"the model file's width {self.width} is not a multiple of its heads {self.heads}")
        needed = model_bytes(*sizes)
        if size != needed:
            raise ValueError(f"the model file has {size} bytes, but its sizes need {needed}")
        self.pre_logits, self.post_logits, self.post_embedding, unused = file.read(4)
        if unused:
            raise ValueError("the model file's header has unused bytes that are not 0")
        _check_shift("pre_logits", self.pre_logits)
        _check_shift("post_logits", self.post_logits)
        _check_shift("post_embedding", self.post_embedding)
        self.vocabulary_bytes, self.vocabulary_crc = struct.unpack("<II", file.read(8))

        self.exp = _numbers(file, "H", EXP_ENTRIES)
        if self.exp[0] != 32768 or max(self.exp) > 32768:
            raise ValueError("the model file's exp table does not start with its largest entry, 32768")
        self.gelu = _numbers(file, "h", GELU_ENTRIES)
        if max(self.gelu) > LARGEST_GELU or min(self.gelu) < -LARGEST_GELU:
            raise ValueError(f"the model file's gelu table has entries beyond {LARGEST_GELU}")
        self.blocks = []
        for number in range(self.layers):
            layer = Layer(file, self.width, self.heads, self.hidden, self.context)
            layer.check(f"layer {number + 1}", self.width)
            self.blocks.append(layer)
        self.embedding = Matrix(self.vocabulary, self.width)
        self.embedding.read_multiplier(file)
        self.embedding.read_bias(file)
        self.embedding.read_weights(file)
        self.embedding.check("embedding", self.width, self.pre_logits)

        # All memory that a story takes is taken here, so that a device cannot run out of it in the middle of one.
        cached = bytes(self.layers * self.context * self.width)
        self._keys, self._values = array("b", cached), array("b", cached)
        self._x, self._n, self._a = (array("i", bytes(4 * self.width)) for _ in range(3))
        self._h = array("i", bytes(4 * self.hidden))
        self._scores = array("i", bytes(4 * self.context))
        self._y = array("i", bytes(4 * max(self.vocabulary, 3 * self.width, self.hidden)))

    def tokens(self, ids, max_tokens, temperature=0, top_k=0, seed=1):
        """Generate up to `max_tokens` tokens that follow the start of a story and `ids`; without the story's end.

        `temperature` in 256ths, 13 to 2560, or 0: greedy; `top_k` 0: all; `seed` of 32 bits. One story at a time: a
        second generator spoils the first.
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
        state = (seed * 0x9E3779B1 & 0xFFFFFFFF) or 1
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
            if temperature:
                state ^= state << 13 & 0xFFFFFFFF
                state ^= state >> 17
                state ^= state << 5 & 0xFFFFFFFF
                token = self._sample(temperature, top_k, state)
            else:
                token = self._greedy()
            if token == END:
                return
            yield token

    def _advance(self, token, position):
        """Run one more token through all layers."""
        x, n, a, h, y = self._x, self._n, self._a, self._h, self._y
        width, gelu = self.width, self.gelu
        weights, multiplier, post = self.embedding.weights, self.embedding.multiplier[token], self.post_embedding
        first = (token >> 1) * 2 * width + (token & 1)
        for j in range(width):
            x[j] = ((weights[first + 2 * j] - 128) * multiplier + (1 << post - 1)) >> post
        for number in range(self.layers):
            layer = self.blocks[number]
            shifts = layer.shifts
            _norm(x, n)
            layer.qkv.times(n, y)
            self._attend(number, position)
            layer.out.times(a, y)
            _add(x, y, layer.out.multiplier, shifts[4], shifts[5])
            _norm(x, n)
            layer.up.times(n, y)
            multiplier, pre, post = layer.up.multiplier, shifts[6], shifts[7]
            half = 1 << post - 1
            for i in range(self.hidden):
                gate = ((y[i] >> pre) * multiplier[i] + half) >> post
                if gate < -512:
                    h[i] = 0
                elif gate < 512:
                    h[i] = gelu[gate + 512]
                else:
                    h[i] = gate * 8 if gate < 2047 else 16376
            layer.down.times(h, y)
            _add(x, y, layer.down.multiplier, shifts[8], shifts[9])

    def _attend(self, number, position):
        """From sums of queries, keys and values in `_y` to what the layer's heads look up, in `_a`."""
        layer = self.blocks[number]
        shifts, multiplier, bias = layer.shifts, layer.qkv.multiplier, layer.distance_bias
        width, context, exp = self.width, self.context, self.exp
        y, a, scores, keys, values = self._y, self._a, self._scores, self._keys, self._values
        pre = shifts[0]
        start = number * context * width
        newest = start + position % context * width
        for part in range(3):
            post = shifts[1 + part]
            half = 1 << post - 1
            most = 127 if part else 32767
            for j in range(width):
                i = part * width + j
                value = ((y[i] >> pre) * multiplier[i] + half) >> post
                if value > most:
                    value = most
                elif value < -most:
                    value = -most
                if part == 0:
                    y[j] = value
                elif part == 1:
                    keys[newest + j] = value
                else:
                    values[newest + j] = value

        count = min(position + 1, context)
        oldest = position + 1 - count
        size = width // self.heads
        for head in range(self.heads):
            first = head * size
            channels = range(first, first + size)
            place = (head + 1) * context - count
            top = -(1 << 30)
            for u in range(count):
                row = start + (oldest + u) % context * width
                score = 0
                for i in channels:
                    score += y[i] * keys[row + i]
                score = (score >> 10) + bias[place + u]
                scores[u] = score
                if score > top:
                    top = score
            total = 0
            for u in range(count):
                below = top - scores[u]
                weight = exp[below] if below < EXP_ENTRIES else 0
                scores[u] = weight
                total += weight
            reciprocal = 0x80000000 // total
            for i in channels:
                value = 0
                for u in range(count):
                    weight = scores[u]
                    if weight:
                        value += weight * values[start + (oldest + u) % context * width + i]
                a[i] = ((value >> 7) * reciprocal) >> 16

    def _logits(self):
        """Put what follows the newest position into `_y`."""
        y, pre, multiplier = self._y, self.pre_logits, self.embedding.multiplier
        _norm(self._x, self._n)
        self.embedding.times(self._n, y)
        for i in range(self.vocabulary):
            y[i] = (y[i] >> pre) * multiplier[i]

    def _greedy(self):
        y = self._y
        best = 0
        for i in range(1, self.vocabulary):
            if y[i] > y[best]:
                best = i
        return best

    def _sample(self, temperature, top_k, state):
        """Draw from the logits in `_y`, which are lost."""
        y, exp, post, size = self._y, self.exp, self.post_logits, self.vocabulary
        top = y[self._greedy()]
        least, ties = self._threshold(top_k) if 0 < top_k < size else (None, 0)
        sharpness = 65536 // temperature
        total = 0
        for i in range(size):
            logit = y[i]
            y[i] = 0
            if least is not None:
                if logit < least:
                    continue
                if logit == least:
                    if not ties:
                        continue
                    ties -= 1
            place = min((top - logit) >> post, 65535) * sharpness >> 8
            if place < EXP_ENTRIES:
                y[i] = exp[place]
                total += exp[place]
        drawn = (state >> 8) * total >> 24
        for i in range(size):
            drawn -= y[i]
            if drawn < 0:
                break
        return i

    def _threshold(self, top_k):
        """(least logit of the candidates, how many candidates have it)."""
        y = self._y
        kept = array("i", bytes(4 * top_k))  # descending
        count = 0
        for i in range(self.vocabulary):
            logit = y[i]
            if count < top_k:
                count += 1
            elif logit <= kept[top_k - 1]:
                continue
            at = count - 1
            while at and kept[at - 1] < logit:
                kept[at] = kept[at - 1]
                at -= 1
            kept[at] = logit
        least = kept[top_k - 1]
        ties = 0
        for i in range(top_k):
            ties += kept[i] == least
        return least, ties


class Vocabulary:
    """Bytes to tokens and back."""

    def __init__(self, file):
        """Read an open binary file; ValueError says in a line why it is refused."""
        self.bytes, self.crc = _begin(file, b"TTV1", 24, "vocabulary")
        self.size, num_merges, num_bytes = struct.unpack("<HHI", file.read(8))
        _, least, largest, multiple = LIMITS[0]
        if not least <= self.size <= largest or self.size % multiple:
            raise ValueError(
                f"the vocabulary file has {self.size} tokens; allowed are {least} to {largest}, multiples of {multiple}"
            )
        if num_merges > LARGEST_MERGES:
            raise ValueError(f"the vocabulary file has {num_merges} merges; the most is {LARGEST_MERGES}")
        if num_bytes > LARGEST_TEXT:
            raise ValueError(f"the vocabulary file has {num_bytes} bytes of tokens; the most is {LARGEST_TEXT}")
        needed = vocabulary_bytes(self.size, num_merges, num_bytes)
        if self.bytes != needed:
            raise ValueError(f"the vocabulary file has {self.bytes} bytes, but its sizes need {needed}")
        self.of_byte = _numbers(file, "H", 256)
        self.merges = file.read(6 * num_merges)
        self.starts = _numbers(file, "H", self.size + 1)
        self.text = file.read(num_bytes)
        for byte in file.read():
            if byte:
                raise ValueError("the vocabulary file has unused bytes that are not 0")
        self._check()

    def _check(self):
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
        """The bytes of a token; ValueError for a number that none has."""
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
        """Apply merges to a list of tokens in place, the earliest first."""
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
        """Where the merge of two tokens is in `merges`, or its length; without a dictionary, to save memory."""
        pair = struct.pack("<HH", left, right)
        place = self.merges.find(pair)
        while place % 6 and place > 0:
            place = self.merges.find(pair, place + 1)
        return place if place >= 0 else len(self.merges)


class Story:
    """A model and its vocabulary."""

    def __init__(self, model_path, vocabulary_path):
        """Read both files; ValueError says in a line why one is refused, or that they do not belong together."""
        gc.collect()
        with open(model_path, "rb") as file:
            self.model = Model(file)
        gc.collect()
        with open(vocabulary_path, "rb") as file:
            self.vocabulary = Vocabulary(file)
        if (self.vocabulary.size, self.vocabulary.bytes, self.vocabulary.crc) != (
            self.model.vocabulary,
            self.model.vocabulary_bytes,
            self.model.vocabulary_crc,
        ):
            raise ValueError("the vocabulary file belongs to another model; copy both files of one export")
        gc.collect()

    def encode(self, text):
        """The tokens of bytes."""
        return self.vocabulary.encode(text)

    def tokens(self, ids, max_tokens, temperature=0, top_k=0, seed=1):
        """Generate tokens: `Model.tokens`."""
        return self.model.tokens(ids, max_tokens, temperature, top_k, seed)


def tell(model_path, vocabulary_path, prompt="", max_tokens=100, temperature=0, top_k=0, seed=1):
    """Print a story that starts with `prompt` as it comes, then how long it took; settings as of `Model.tokens`."""
    story = Story(model_path, vocabulary_path)
    beginning = prompt if isinstance(prompt, bytes) else prompt.encode()
    count, start = 0, _milliseconds()
    pending = _print(beginning)
    for token in story.tokens(story.encode(beginning), max_tokens, temperature, top_k, seed):
        pending = _print(pending + story.vocabulary.token(token))
        count += 1
    print("?" * len(pending))
    print(f"({count} tokens, {_milliseconds() - start} ms)")


def model_bytes(vocabulary, width, layers, heads, hidden, context):
    """Bytes of a model file of these sizes."""
    rows = 5 * width + hidden
    weights = 4 * width * width + 2 * width * hidden
    layer = 12 + 6 * rows + 2 * heads * context + weights
    return 40 + 2 * EXP_ENTRIES + 2 * GELU_ENTRIES + layers * layer + vocabulary * (6 + width)


def vocabulary_bytes(size, num_merges, num_bytes):
    """Bytes of a vocabulary file of these sizes."""
    return (24 + 512 + 6 * num_merges + 2 * (size + 1) + num_bytes + 3) // 4 * 4


def _begin(file, magic, header, what):
    """(bytes, CRC) of a file whose first 16 bytes and sum are right, which is left at its 17th byte."""
    start = file.read(16)
    if len(start) < 16 or start[:4] != magic:
        raise ValueError(f"this is no {what} file: it does not start with {magic.decode()}")
    version, header_bytes, size, crc = struct.unpack("<HHII", start[4:])
    if version != 1:
        raise ValueError(f"the {what} file is of version {version}; this reader knows version 1")
    if header_bytes != header:
        raise ValueError(f"the {what} file says its header has {header_bytes} bytes; version 1 has {header}")
    buffer = bytearray(512)
    view = memoryview(buffer)
    length, found = 16, 0
    while True:
        count = file.readinto(buffer)
        if not count:
            break
        found = crc32(view[:count], found)
        length += count
    if length < header:
        raise ValueError(f"the {what} file ends within its header, after {length} bytes; copy it again")
    if length != size:
        raise ValueError(f"the {what} file has {length} bytes, but says {size}; copy it again")
    if found != crc:
        raise ValueError(f"the {what} file is damaged (its CRC-32 is another); copy it again")
    file.seek(16)
    return size, crc


def _numbers(file, code, count):
    """An array of the next numbers of a file."""
    size = count * struct.calcsize(code)
    numbers = array(code, bytes(size))
    _fill(file, numbers, size)
    return numbers


def _fill(file, buffer, size):
    if file.readinto(buffer) != size:
        raise ValueError("the file became shorter while it was read")


def _check_shift(name, shift):
    if name.rsplit(" ", 1)[-1].startswith("pre_"):
        if shift > LARGEST_PRE:
            raise ValueError(f"the model file's {name} is {shift}; allowed are 0 to {LARGEST_PRE}")
    elif not 1 <= shift <= LARGEST_POST:
        raise ValueError(f"the model file's {name} is {shift}; allowed are 1 to {LARGEST_POST}")


def _norm(x, n):
    """n = x without its mean, scaled to a root mean square of 1024."""
    width = len(x)
    total = sum(x)
    bits = 0
    for j in range(width):
        deviation = width * x[j] - total
        n[j] = deviation
        bits |= deviation if deviation >= 0 else ~deviation
    if not bits:
        return  # all deviations are 0
    length = 0
    while bits >> length:
        length += 1
    squares = 0
    for j in range(width):
        scaled = n[j] >> length - 12 if length >= 12 else n[j] << 12 - length
        n[j] = scaled
        squares += scaled * scaled
    ratio = (_square_root(width << 20) << 12) // _square_root(squares)
    for j in range(width):
        n[j] = (n[j] * ratio + 2048) >> 12


def _square_root(number):
    """Rounded down, of a positive number below 2**32 (Newton's method, from above)."""
    root = 65536
    while True:
        better = (root + number // root) >> 1
        if better >= root:
            return root
        root = better


def _add(x, y, multiplier, pre, post):
    """Add sums y, limited to 16 bits and scaled, to the residual stream x."""
    half = 1 << post - 1
    for i in range(len(x)):
        value = y[i] >> pre
        if value > 32767:
            value = 32767
        elif value < -32767:
            value = -32767
        value = x[i] + ((value * multiplier[i] + half) >> post)
        if value > LARGEST_RESIDUAL:
            value = LARGEST_RESIDUAL
        elif value < -LARGEST_RESIDUAL:
            value = -LARGEST_RESIDUAL
        x[i] = value


def _piece_end(text, start):
    """Where the piece that starts at `start` ends: one space, or a run of one kind of bytes with a space before it."""
    following = start + 1 if text[start] == 32 else start
    kind = _kind(text[following]) if following < len(text) else 0
    if not kind:
        return start + 1
    end = following + 1
    while end < len(text) and _kind(text[end]) == kind:
        end += 1
    return end


def _kind(byte):
    """0: space, 1: letter, 2: digit, 3: other."""
    if byte in (32, 9, 10, 13):
        return 0
    if byte >= 128 or 65 <= byte <= 90 or 97 <= byte <= 122:
        return 1
    return 2 if 48 <= byte <= 57 else 3


def _print(data):
    """Print bytes as UTF-8; returns the last few, where they may be the start of a character."""
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
    """The command of the module's docstring; the process's exit status."""
    try:
        numbers = [int(word) for word in words[3:]]
    except ValueError:
        numbers = None
    if numbers is None or not 3 <= len(words) <= 7:
        print("usage: python inference.py MODEL VOCABULARY PROMPT [MAX_TOKENS [TEMPERATURE [TOP_K [SEED]]]]")
        return 2
    try:
        tell(*words[:3], *numbers)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
