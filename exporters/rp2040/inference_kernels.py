"""The loops over numbers, each in 32-bit integers.

Under MicroPython on a chip they are compiled to machine code when the module is imported (`micropython.viper`), for
which every argument is a number or an array whose elements have the stated width; everywhere else they are ordinary
functions. Signed bytes and halves are stored with 128 and 32768 added, as pointers in viper read unsigned numbers.
Part of `inference.py`: it has to lie beside it.
"""

# mypy: ignore-errors

import sys

if sys.implementation.name == "micropython":
    import micropython
else:

    class micropython:
        """Stands for the module of that name on a computer."""

        def viper(function):
            """Leave a function as it is."""
            return function


ptr8 = ptr16 = ptr32 = uint = int  # viper reads these words by itself


@micropython.viper
def times(weights: ptr8, bias: ptr32, x: ptr32, y: ptr32, rows: int, columns: int):
    """y[i] = bias[i] + the sum over j of weights[i][j] x[j], for every row i; rows of weights interleave in pairs."""
    excess = 0
    for j in range(columns):
        excess += x[j]
    excess <<= 7
    place = 0
    for row in range(0, rows, 2):
        even = bias[row] - excess
        odd = bias[row + 1] - excess
        for j in range(columns):
            value = x[j]
            even += weights[place] * value
            odd += weights[place + 1] * value
            place += 2
        y[row] = even
        y[row + 1] = odd


@micropython.viper
def recall(weights: ptr8, first: int, step: int, multiplier: int, post: int, kept: int, x: ptr32, width: int):
    """Add scaled weights, `step` bytes apart from `first` on, to `kept` (0 or 1) times x."""
    half = 1 << post - 1
    for j in range(width):
        x[j] = kept * x[j] + (((weights[first] - 128) * multiplier + half) >> post)
        first += step


@micropython.viper
def deviations(x: ptr32, n: ptr32, width: int) -> int:
    """Set n to width times x less its mean; return a number as long as the longest of them."""
    total = 0
    for j in range(width):
        total += x[j]
    bits = 0
    for j in range(width):
        deviation = width * x[j] - total
        n[j] = deviation
        bits |= deviation if deviation >= 0 else -1 - deviation
    return bits


@micropython.viper
def shortened(n: ptr32, length: int, width: int) -> uint:
    """Bring numbers of at most `length` bits to 12 in place; return the sum of their squares, below 2**32."""
    down = length - 12 if length > 12 else 0
    up = 12 - length if length < 12 else 0
    squares = uint(0)
    for j in range(width):
        scaled = (n[j] >> down) << up
        n[j] = scaled
        squares += uint(scaled * scaled)
    return squares


@micropython.viper
def normed(n: ptr32, ratio: int, width: int):
    """Multiply n by a ratio in 4096ths, rounded."""
    for j in range(width):
        n[j] = (n[j] * ratio + 2048) >> 12


@micropython.viper
def add(x: ptr32, y: ptr32, multiplier: ptr16, width: int, pre: int, post: int, most: int):
    """Add the sums y, limited to 16 bits and scaled, to x, which is limited to -most..most."""
    half = 1 << post - 1
    for i in range(width):
        value = y[i] >> pre
        if value > 32767:
            value = 32767
        elif value < -32767:
            value = -32767
        value = x[i] + ((value * multiplier[i] + half) >> post)
        if value > most:
            value = most
        elif value < 0 - most:
            value = 0 - most
        x[i] = value


@micropython.viper
def scale(y: ptr32, multiplier: ptr16, first: int, last: int, pre: int, post: int, most: int):
    """Scale the sums in y from `first` to before `last`, and limit them to -most..most."""
    half = (1 << post) >> 1
    for i in range(first, last):
        value = ((y[i] >> pre) * multiplier[i] + half) >> post
        if value > most:
            value = most
        elif value < 0 - most:
            value = 0 - most
        y[i] = value


@micropython.viper
def gelu(y: ptr32, multiplier: ptr16, table: ptr16, h: ptr32, hidden: int, pre: int, post: int):
    """Set h to the activation of the scaled sums y."""
    half = 1 << post - 1
    for i in range(hidden):
        gate = ((y[i] >> pre) * multiplier[i] + half) >> post
        if gate < -512:
            h[i] = 0
        elif gate < 512:
            h[i] = table[gate + 512] - 32768
        else:
            h[i] = gate * 8 if gate < 2047 else 16376


@micropython.viper
def weigh(
    y: ptr32, first: int, last: int, keys: ptr8, start: int, oldest: int, count: int, context: int, width: int,
    bias: ptr16, place: int, scores: ptr32, exp: ptr16, reach: int,
) -> int:  # fmt: skip
    """Set scores to the attention weights of `count` positions from the oldest one on; return their sum.

    The query is in y, from `first` to before `last`. The keys' rows follow `start` in a ring of `context`; the
    distances' biases begin at `place`.
    """
    excess = 0
    for i in range(first, last):
        excess += y[i]
    excess <<= 7
    top = -16777216  # below every score, which has 22 bits
    for u in range(count):
        row = oldest + u
        if row >= context:
            row -= context
        row = start + row * width
        score = 0 - excess
        for i in range(first, last):
            score += y[i] * keys[row + i]
        score = (score >> 10) + bias[place + u] - 32768
        scores[u] = score
        if score > top:
            top = score
    total = 0
    for u in range(count):
        below = top - scores[u]
        weight = 0
        if below < reach:
            weight = exp[below]
        scores[u] = weight
        total += weight
    return total


@micropython.viper
def mix(
    scores: ptr32, total: int, values: ptr8, start: int, oldest: int, count: int, context: int, width: int,
    a: ptr32, first: int, last: int, reciprocal: int,
):  # fmt: skip
    """Set a, from `first` to before `last`, to the values of the positions, weighted by scores that sum to `total`."""
    for i in range(first, last):
        value = 0 - (total << 7)
        for u in range(count):
            weight = scores[u]
            if weight:
                row = oldest + u
                if row >= context:
                    row -= context
                value += weight * values[start + row * width + i]
        a[i] = ((value >> 7) * reciprocal) >> 16


@micropython.viper
def sharpen(
    entries: ptr32, count: int, tag: int, y: ptr32, whole: int, top: int, post: int, exp: ptr16, softness: ptr8,
    reach: int, most: int,
) -> int:  # fmt: skip
    """Raise the logits y by the entries that have a tag; return the sum of what they add."""
    added = 0
    for i in range(count):
        entry = entries[i]
        if entry >> 12 & 1023 != tag:
            continue
        token = entry & 4095
        level = entry >> 22 & 1023
        if level < reach:
            added += exp[level]
        more = whole - level + ((top - y[token]) >> post)
        change = more
        far = more
        if more < 0:
            change = 0
            far = 0 - more
        if far < reach:
            change += softness[far]
        raised = y[token] + (change << post)
        if raised > most:
            raised = most
        y[token] = raised
    return added


@micropython.viper
def largest(y: ptr32, size: int) -> int:
    """The place of the largest number in y, the first of equal ones."""
    best = 0
    for i in range(1, size):
        if y[i] > y[best]:
            best = i
    return best


@micropython.viper
def better(y: ptr32, size: int, place: int) -> int:
    """The number of logits y that are larger than the one at a place, or equal and before it."""
    found = 0
    for i in range(size):
        if y[i] > y[place] or (i < place and y[i] == y[place]):
            found += 1
    return found


@micropython.viper
def drawn(
    y: ptr32, size: int, top: int, least: int, place: int, post: int, sharpness: int, exp: ptr16, reach: int, most: int
) -> int:
    """The first place at which the sum of the weights of the logits y exceeds `most`, else that sum.

    Only logits above `least` have a weight, and those before `place` that equal it.
    """
    total = 0
    for i in range(size):
        logit = y[i]
        if logit > least or (i < place and logit == least):
            below = (top - logit) >> post
            if below > 65535:
                below = 65535
            below = below * sharpness >> 8
            if below < reach:
                total += exp[below]
                if total > most:
                    return i
    return total
