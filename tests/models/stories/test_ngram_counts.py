"""Counts that are mixed into a network's predictions: counted rightly, fitted, and the same in integers."""

from collections import Counter

import numpy as np
import pytest
import torch

from common.kneser_ney import discounts_of
from models import io
from models.stories.config import TinyTransformerConfig
from models.stories.integer_transformer import Entries, log
from models.stories.ngram_counts import FACTOR, LEVELS, MOST_FOLLOWING, NAT, ORDERS, NgramCounts, counted
from models.stories.quantization import quantize
from tests.models.tiny import make

VOCABULARY = 11


def text(seed: int = 0, length: int = 1200) -> tuple[np.ndarray, np.ndarray]:
    """Stories of phrases that come back, each from its start marker on."""
    generator = np.random.default_rng(seed)
    phrases = np.random.default_rng(9).integers(1, VOCABULARY, (12, 4))
    tokens = phrases[generator.integers(0, 12, length // 4)].ravel()
    tokens[::40] = 0
    return tokens, np.arange(length) // 40


def filled(entries: int = 4000) -> tuple[NgramCounts, float]:
    """Counts that are fitted beside a network that knows nothing, and the nats per token that they promise."""
    counts = NgramCounts(entries, VOCABULARY)
    counts.count(*text())
    other = text(1)
    inside = np.flatnonzero(np.diff(other[1]) == 0)
    seen = counts.seen(*other)[inside]
    return counts, counts.fit(seen, torch.full((len(inside),), np.log(VOCABULARY), dtype=torch.float64))


def contexts(tokens: list[int]) -> list[tuple[int, ...]]:
    """The contexts of a story's last token, the shortest first; the newest token of each is its first."""
    return [tuple(reversed(tokens))[: order + 1] for order in range(min(ORDERS, len(tokens)))]


def pairs_of(tokens: np.ndarray, stories: np.ndarray) -> dict[tuple[int, ...], Counter[int]]:
    """How often each token counts after each context, by the rule of Kneser and Ney."""
    found: dict[tuple[int, ...], Counter[int]] = {}
    met = set()
    for i in range(len(tokens) - 1):
        if stories[i] != stories[i + 1]:
            continue
        story = tokens[: i + 1][stories[: i + 1] == stories[i]].tolist()
        following = int(tokens[i + 1])
        counts = True
        for context in reversed(contexts(story)):
            if counts:
                found.setdefault(context, Counter())[following] += 1
            counts = (context, following) not in met
            met.add((context, following))
    return found


def hash_of(context: tuple[int, ...]) -> int:
    code = 0
    for token in context:
        code = (code + token + 1) * FACTOR % 2**32
    return code


def test_pairs_count_as_kneser_and_ney_have_it():
    tokens, stories = text()
    expected = pairs_of(tokens, stories)
    for length, order in enumerate(counted(tokens, stories, VOCABULARY)[1], 1):
        shares = {
            (int(order.hashes[pair // VOCABULARY]), int(pair % VOCABULARY)): share
            for pair, share in zip(order.pairs, order.shares, strict=True)
        }
        mine = {context: counts for context, counts in expected.items() if len(context) == length}
        assert len(shares) == sum(map(len, mine.values()))
        discounts = discounts_of(np.array([count for counts in mine.values() for count in counts.values()]))
        for context, counts in mine.items():
            lowered = {token: count - discounts[min(count, 3)] for token, count in counts.items()}
            for token, value in lowered.items():
                assert shares[hash_of(context), token] == pytest.approx(value / sum(lowered.values()))


def sharpened(counts: NgramCounts, probability: np.ndarray, story: list[int]) -> np.ndarray:
    """The mixture after a story, entry by entry."""
    for context in contexts(story):
        code = hash_of(context)
        bucket = code >> 32 - counts.bits
        for entry in range(int(counts.starts[bucket]), int(counts.starts[bucket + 1])):
            if int(counts.tags[entry]) == code >> 6 & 1023:
                added = np.exp(-int(counts.levels[entry]) / NAT)
                probability = probability + added * np.eye(VOCABULARY)[int(counts.tokens[entry])]
        probability = probability / probability.sum()
    return probability


def test_the_network_is_sharpened_context_by_context():
    counts, _ = filled()
    tokens, stories = text(2, 120)
    logits = torch.randn(1, 120, VOCABULARY, generator=torch.Generator().manual_seed(0))
    found = counts(logits, torch.from_numpy(tokens)[None]).softmax(-1)[0].numpy()
    alone = counts(logits[:, 100:], torch.from_numpy(tokens)[None])[0].softmax(-1).numpy()
    np.testing.assert_allclose(alone, found[100:], rtol=1e-5)
    for place in (0, 1, 2, 3, 41, 79, 119):
        story = tokens[: place + 1][stories[: place + 1] == stories[place]].tolist()
        expected = sharpened(counts, logits[0, place].softmax(-1).numpy(), story)
        np.testing.assert_allclose(found[place], expected, rtol=1e-4)


def test_what_is_fitted_is_what_is_predicted():
    counts, promised = filled()
    tokens, stories = text(1)
    logits = counts(torch.zeros(1, len(tokens), VOCABULARY), torch.from_numpy(tokens)[None])
    nats = -logits.log_softmax(-1)[0, np.arange(len(tokens) - 1), tokens[1:]].numpy()[np.diff(stories) == 0]
    assert nats.mean() == pytest.approx(promised, abs=0.01)
    assert promised < 0.8 * np.log(VOCABULARY)


def test_few_entries_are_those_that_are_worth_most():
    few, promised = filled(64)
    _, whole = filled()
    assert few.starts[-1] <= 64
    assert whole < promised < np.log(VOCABULARY)
    few.check()
    assert MOST_FOLLOWING > VOCABULARY  # no context lost entries to this limit


def test_integers_come_near_and_logarithms_are_within_one():
    counts, _ = filled()
    tokens = text(2, 120)[0][None]
    logits = 40 * torch.randn(1, 120, VOCABULARY, generator=torch.Generator().manual_seed(0)).numpy() / 10
    integers = Entries.of(counts).sharpened(np.round(logits * NAT * 2**9).astype(np.int64), tokens, 9)
    exact = counts(torch.from_numpy(logits), torch.from_numpy(tokens)).numpy()
    assert abs(integers / NAT / 2**9 - exact).max() < 0.15
    values = np.concatenate([np.arange(1, 5000), 2 ** np.arange(28), np.arange(2**15, 2**16)])
    assert abs(log(values) - 64 * np.log(values)).max() <= 1.5


def test_counts_survive_saving_and_other_ones_are_refused(tmp_path):
    model = make(counts=100, context=4)
    tokens = torch.randint(0, 32, (2, 20), generator=torch.Generator().manual_seed(0))
    io.save(model, tmp_path)
    torch.testing.assert_close(io.load(tmp_path)(tokens), model(tokens))
    assert not torch.allclose(model(tokens), model(tokens, sharpen=False))
    assert torch.equal(model.train()(tokens), model(tokens, sharpen=False))
    for name, place, value in (("starts", 3, -1), ("starts", 2, 90), ("tokens", 0, 32), ("levels", 1, LEVELS)):
        changed = make(counts=100, context=4)
        getattr(changed.counts, name)[place] = value
        with pytest.raises(ValueError, match="the model's counts are damaged"):
            changed.check()


def test_sizes_that_no_chip_reads_are_refused():
    for sizes in ({"counts": 5}, {"counts": -1}, {"counts": 10**9}, {"counts": 100, "vocabulary": 5000}):
        with pytest.raises(ValueError, match="counts="):
            TinyTransformerConfig(
                **{**dict.fromkeys(("vocabulary", "width", "layers", "heads"), 4), **sizes}, hidden=4, context=4
            )


def test_logits_in_too_small_units_are_refused():
    model = make(counts=100)
    with torch.no_grad():
        model.embedding.weight.mul_(2**-12)
    with pytest.raises(ValueError, match="the weights of the embedding are too small"):
        quantize(model)
