"""Readers of what model and vocabulary files consist of: their first bytes, numbers, matrices and layers.

FORMAT.md defines the files. Part of `inference.py`: it has to lie beside it.
"""

# mypy: ignore-errors
# For MicroPython, which has no annotations.

import struct
import sys
from array import array
from binascii import crc32

if "." in __name__:  # in the repository; on a device the files lie side by side, in no package
    import exporters.rp2040.inference_kernels as kernels
else:
    try:
        if sys.implementation.name == "micropython" and sys.maxsize >> 32:
            raise SyntaxError("viper's pointers to 32 bits read negative numbers wrongly where words have 64")
        import inference_kernels as kernels
    except SyntaxError:  # also that of a build without machine code, to which viper is no word: the same loops, slower

        class kernels:
            """The functions of inference_kernels.py."""

        with open("inference_kernels.py") as _file:
            _found = {"__name__": "inference_kernels"}
            exec(_file.read().replace("@micropython.viper", ""), _found)
        for _name in _found:
            setattr(kernels, _name, _found[_name])

LARGEST_BIAS = (1 << 24) - 1
LARGEST_PRE, LARGEST_POST = 24, 30
LIMITS = (  # name, least, largest, multiple; in the order of the header
    ("vocabulary", 4, 4096, 2),
    ("width", 4, 128, 4),
    ("layers", 1, 16, 1),
    ("heads", 1, 128, 1),
    ("hidden", 4, 1024, 4),
    ("context", 2, 256, 2),
)
HEADERS = {b"TTM1": {1: 40, 2: 48, 3: 56}, b"TTV1": {1: 24}}  # bytes, by the version
MOST_TABLES, MOST_BITS = 4, 16
FEWEST_ENTRIES, MOST_ENTRIES, LONGEST = 16, 1 << 18, 64  # of counts; the longest bucket
SHIFTS = ("pre_qkv", "post_q", "post_k", "post_v", "pre_out", "post_out", "pre_up", "post_up", "pre_down", "post_down")


class Matrix:
    """Rows of weights, each with a bias and a multiplier; 128 is added to weights, and pairs of rows interleave."""

    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns

    def read_weights(self, file):
        """Read all weights."""
        self.weights = bytearray(self.rows * self.columns)
        fill(file, self.weights, len(self.weights))

    def check(self, where, width=0, pre=0):
        """Refuse numbers that let sums leave 32 bits; with a width, sums over a normed vector must fit 16 bits."""
        largest = max(max(self.bias), -min(self.bias))
        if largest > LARGEST_BIAS:
            raise ValueError(f"the model file's {where} has a bias of {largest}; the most is {LARGEST_BIAS}")
        if max(self.multiplier) > 32767:
            raise ValueError(f"the model file's {where} has a multiplier above 32767")
        if b"\0" in self.weights:
            raise ValueError(f"the model file's {where} has a weight of -128; allowed: -127 to 127")
        if width and ((width << 17) + largest) >> pre > 32767:
            raise ValueError(f"the model file's {where} has a pre of {pre}, which lets sums leave 16 bits")

    def times(self, x, y):
        """y[i] = bias[i] + the sum over j of weights[i][j] x[j], for every row i."""
        kernels.times(self.weights, self.bias, x, y, self.rows, self.columns)


class Layer:
    """One block: `shifts` in the order of SHIFTS, four matrices, and `distance_bias`, head after head."""

    def __init__(self, file, width, heads, hidden, context):
        self.shifts = file.read(12)
        self.qkv, self.out = Matrix(3 * width, width), Matrix(width, width)
        self.up, self.down = Matrix(hidden, width), Matrix(width, hidden)
        matrices = (self.qkv, self.out, self.up, self.down)
        for matrix in matrices:
            matrix.bias = numbers(file, "i", matrix.rows)
        for matrix in matrices:
            matrix.multiplier = numbers(file, "H", matrix.rows)
        self.distance_bias = shifted(numbers(file, "H", heads * context))
        for matrix in matrices:
            matrix.read_weights(file)

    def check(self, where, width):
        """Refuse shifts and numbers that let sums leave their limits."""
        for i, name in enumerate(SHIFTS):
            check_shift(where + " " + name, self.shifts[i])
        if self.shifts[10] or self.shifts[11]:
            raise ValueError(f"the model file's {where} has unused bytes that are not 0")
        self.qkv.check(where + " qkv", width, self.shifts[0])
        self.out.check(where + " out")
        self.up.check(where + " up", width, self.shifts[6])
        self.down.check(where + " down")


def begin(file, magic, what):
    """Check the first 16 bytes of a file and its CRC; return (bytes, CRC, version) with the file at its 17th byte."""
    start = file.read(16)
    if len(start) < 16 or start[:4] != magic:
        raise ValueError(f"this is not a {what} file: it does not start with {magic.decode()}")
    version, header_bytes, size, crc = struct.unpack("<HHII", start[4:])
    header = HEADERS[magic].get(version)
    if not header:
        raise ValueError(f"the {what} file has version {version}; this reader knows {sorted(HEADERS[magic])}")
    if header_bytes != header:
        raise ValueError(f"the {what} file says its header has {header_bytes} bytes; version {version} has {header}")
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
        raise ValueError(f"the {what} file has {length} bytes, but says it has {size}; copy it again")
    if found != crc:
        raise ValueError(f"the {what} file is damaged (its CRC-32 does not match); copy it again")
    file.seek(16)
    return size, crc, version


def table_bits(fields, least):
    """The bits of each table's row numbers, from the 7 bytes of a header of version 2, for `least` tables or more."""
    tables = [bits for bits in fields[:MOST_TABLES] if bits]
    known = least <= len(tables) and all(bits <= MOST_BITS for bits in tables)
    if not known or list(fields) != tables + [0] * (len(fields) - len(tables)):
        raise ValueError(f"the model file's tables have {list(fields)} bits; allowed: up to {MOST_TABLES} of 1 to 16")
    return tables


def check_table(file, rows, width):
    """Read a table's rows and refuse what does not belong there."""
    record = bytearray(4 + width)
    for _ in range(rows):
        fill(file, record, 4 + width)
        if record[1] or record[3] > 127:
            raise ValueError("the model file's memory has a row with an unused byte or a multiplier above 32767")
        if not all(record[4:]):
            raise ValueError("the model file's memory has a weight of -128; allowed: -127 to 127")


def count_sizes(fields):
    """The numbers of entries and of buckets, from the last 8 bytes of a header of version 3."""
    entries, bits = struct.unpack("<II", fields)
    if not FEWEST_ENTRIES <= entries <= MOST_ENTRIES or not 1 <= bits <= MOST_BITS:
        raise ValueError(
            f"the model file has {entries} counts in buckets of {bits} bits; allowed: {FEWEST_ENTRIES} to "
            f"{MOST_ENTRIES} and 1 to {MOST_BITS}"
        )
    return entries, 1 << bits


def check_counts(file, buckets, entries, vocabulary):
    """Read where each bucket begins, and the entries, and refuse what does not belong there."""
    before = numbers(file, "I", 1)[0]
    if before:
        raise ValueError("the model file's counts do not begin with the first entry")
    for _ in range(buckets):
        start = numbers(file, "I", 1)[0]
        if not before <= start <= min(before + LONGEST, entries):
            raise ValueError(f"the model file's counts have a bucket from {before} to {start}; the most is {LONGEST}")
        before = start
    for _ in range(entries):
        if numbers(file, "I", 1)[0] & 4095 >= vocabulary:
            raise ValueError("the model file's counts have a token that is not in the vocabulary")


def numbers(file, code, count):
    """An array of the next `count` numbers in a file; `code` is their type."""
    size = count * struct.calcsize(code)
    values = array(code, bytes(size))
    fill(file, values, size)
    return values


def shifted(values):
    """Add 32768 to signed halves that were read as unsigned ones, in place."""
    for i in range(len(values)):
        values[i] ^= 32768
    return values


def fill(file, buffer, size):
    """Read `size` bytes of a file into `buffer`."""
    if file.readinto(buffer) != size:
        raise ValueError("the file became shorter while it was being read")


def check_shift(name, shift):
    """Refuse a shift outside the range of its kind, `pre` or `post`."""
    if name.rsplit(" ", 1)[-1].startswith("pre_"):
        if shift > LARGEST_PRE:
            raise ValueError(f"the model file's {name} is {shift}; allowed: 0 to {LARGEST_PRE}")
    elif not 1 <= shift <= LARGEST_POST:
        raise ValueError(f"the model file's {name} is {shift}; allowed: 1 to {LARGEST_POST}")
