"""What a mixture counts, a few kinds of contexts at a time, is what it would count at once."""

import subprocess
import sys

import numpy as np
import pytest

from models.plans import chains
from models.plans.characters import Characters
from pipelines.workloads.bep.mixing import Mixer, between_ends

LETTERS = "\n abcdefgh."
MEASURED = """
import resource, sys
import numpy as np
from tests.workloads.bep.test_counting import counter, sequences
number = int(sys.argv[1])
texts, counting = sequences(number, 100_000), counter(rows=200_000)
counting(texts[:1], np.zeros(1, int))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
counting(texts, np.arange(number))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def sequences(number, size):
    """Texts of drawn words, so that contexts recur."""
    generator = np.random.default_rng(0)
    words = ["".join(generator.choice(list(LETTERS[2:-1]), generator.integers(1, 7))) for _ in range(400)]
    drawn = [" ".join(generator.choice(words, size // 5))[: size - 1] + "\n" for _ in range(number)]
    characters = Characters(LETTERS)
    return [between_ends(np.array(characters.encode(text))) for text in drawn]


def counter(rows=None, min_documents=1, known=()):
    """The counting of a mixer, without the rest of it."""
    mixer = object.__new__(Mixer)
    mixer.classes, mixer.known = chains.classes_of(Characters(LETTERS).texts), list(known)
    mixer.rows, mixer.min_documents = rows, min_documents
    return mixer._count


@pytest.mark.parametrize(
    ("rows", "least", "base"), [(None, 1, False), (700, 1, False), (None, 2, False), (None, 1, True)]
)
def test_counts_are_those_of_all_contexts_at_once(rows, least, base, monkeypatch):
    monkeypatch.setattr("models.plans.chains.FEW", 100)
    *texts, other = sequences(4, 600)
    known = [counter()([other], np.zeros(1, int))] if base else []
    keys = np.concatenate([chains.contexts(each, chains.classes_of(Characters(LETTERS).texts))[1:] for each in texts])
    keys, tokens = keys[:, : chains.STORED], np.concatenate([each[1:] for each in texts])
    chosen = chains.counted(keys, tokens, known)
    owners = np.arange(3)
    if least > 1:
        chosen &= chains.shared(keys, tokens, np.repeat(owners, [len(each) - 1 for each in texts]), least)
    expected = chains.added([chains.count(keys, tokens, chosen)], rows)
    found = counter(rows, least, known)(texts, owners)
    assert len(found.keys) == (rows or len(expected.keys)) > 100
    for name in ("keys", "offsets", "tokens", "counts"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


@pytest.mark.exhaustive
def test_more_text_takes_little_more_memory():
    """At first, some 650 bytes a character, then 140; now some 40."""
    taken = [
        int(subprocess.run([sys.executable, "-c", MEASURED, str(number)], check=True, capture_output=True).stdout)
        for number in (8, 18)
    ]
    assert taken[1] - taken[0] < 100 * 1_000_000
