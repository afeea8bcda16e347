"""The memory of what followed contexts: counted rightly, and honest about its own text in training."""

from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from models import io
from models.stories import ngram_embedding
from models.stories.config import TinyTransformerConfig
from models.stories.ngram_embedding import HASHED, NgramMemory, contexts
from tests.models.tiny import make

VOCABULARY, WIDTH, ROWS = 12, 4, (64, 256)


def text(length: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of a few stories, and the story of each."""
    generator = np.random.default_rng(0)
    tokens, stories = generator.integers(1, VOCABULARY, length), np.arange(length) // 40
    tokens[::40] = 0
    return tokens, stories


def filled(tokens: np.ndarray, stories: np.ndarray) -> NgramMemory:
    torch.manual_seed(0)
    memory = NgramMemory(ROWS, VOCABULARY, WIDTH)
    memory.count(tokens, stories)
    memory.refit()
    return memory


def histories(tokens: np.ndarray, stories: np.ndarray, order: int) -> list[tuple[int, ...]]:
    """The context of each token, the newest first, with 0 for what lies before its story."""
    return [
        tuple(int(tokens[i - d]) if i >= d and stories[i - d] == stories[i] else 0 for d in range(order))
        for i in range(len(tokens))
    ]


def hash_of(context: tuple[int, ...]) -> int:
    return sum(token * factor for token, factor in zip(context, HASHED, strict=False)) % 2**32


@pytest.mark.parametrize("number", [0, 1])
def test_a_row_is_the_shrunk_mean_of_what_followed_its_most_frequent_context(number):
    tokens, stories = text()
    memory, size = filled(tokens, stories), ROWS[number]
    followed: dict[tuple[int, int], Counter[int]] = {}
    seen = histories(tokens, stories, number + 2)
    for i, context in enumerate(seen[:-1]):
        if stories[i] == stories[i + 1]:
            key = hash_of(context) * size >> 32, hash_of(context) & 255
            followed.setdefault(key, Counter())[int(tokens[i + 1])] += 1
    vectors, prior = memory.followed_by[number].weight, F.softplus(memory.prior[number])
    for row in range(size):
        rivals = {key: counts for key, counts in followed.items() if key[0] == row}
        if not rivals:
            assert not memory.mean(number)[row].any()
            continue
        fingerprint = int(memory.fingerprint(number)[row])
        counts = rivals[row, fingerprint]
        assert counts.total() == max(rival.total() for rival in rivals.values())
        mean = sum(vectors[token] * count for token, count in counts.items()) / (counts.total() + prior)
        torch.testing.assert_close(memory.mean(number)[row], mean)


def test_other_contexts_and_other_stories_find_nothing_of_a_row():
    tokens, stories = text()
    memory = filled(tokens, stories).eval()
    shown = torch.from_numpy(tokens)[None]
    found = memory(shown, torch.from_numpy(stories)[None])
    for number, (row, fingerprint) in enumerate(contexts(shown, torch.from_numpy(stories)[None], ROWS)):
        matches = memory.fingerprint(number)[row] == fingerprint
        found = found - memory.mean(number)[row] * matches[..., None]
        assert 0 < matches.sum() < matches.numel() or number == 0
    torch.testing.assert_close(found, torch.zeros_like(found))
    alone = memory(shown[:, 40:80], None)
    torch.testing.assert_close(alone, memory(shown, torch.from_numpy(stories)[None])[:, 40:80])


def test_a_window_in_training_reads_means_without_itself():
    tokens, stories = text()
    memory = filled(tokens, stories).train()
    window = slice(85, 125)  # of two stories
    shown, story = (torch.from_numpy(each[window])[None] for each in (tokens, stories))
    followed = torch.from_numpy(tokens[86:126])[None].clone()
    followed[0, stories[window] != stories[86:126]] = -1
    found = memory(shown, story, followed)

    others = NgramMemory(ROWS, VOCABULARY, WIDTH)
    others.load_state_dict(memory.state_dict())
    others.count(tokens, stories)
    for number, (row, fingerprint) in enumerate(contexts(shown, story, ROWS)):
        counted = others.counted[number]
        for place in range(40):
            if place <= number:
                continue  # of the story's beginning, which is not in the window, nothing is known
            owned = others.fingerprint(number)[row[0, place]] == fingerprint[0, place]
            if owned and followed[0, place] >= 0:
                entries = range(counted.starts[row[0, place]], counted.starts[row[0, place] + 1])
                (entry,) = (e for e in entries if counted.tokens[e] == followed[0, place])
                counted.counts[entry] -= 1
                counted.totals[row[0, place]] -= 1
    others.refit()
    torch.testing.assert_close(found, others.eval()(shown, story))
    assert not torch.allclose(found, memory.eval()(shown, story))


def test_counting_in_pieces_changes_nothing(monkeypatch):
    tokens, stories = text()
    whole = filled(tokens, stories).state_dict()
    monkeypatch.setattr(ngram_embedding, "AT_ONCE", 37)
    pieces = filled(tokens, stories).state_dict()
    for name, values in whole.items():
        assert torch.equal(values, pieces[name]), name


def test_gradients_reach_what_is_learnt_and_the_rows_are_saved(tmp_path):
    tokens, stories = text()
    model = make(vocabulary=VOCABULARY, memory=(16, 32)).train()
    model.memory.count(tokens, stories)
    shown = torch.from_numpy(tokens[:80]).view(2, 40)
    model(shown, None, shown.roll(-1, 1)).square().sum().backward()
    for parameter in (model.memory.prior, *(table.weight for table in model.memory.followed_by)):
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0
    model.memory.refit()
    io.save(model, tmp_path)
    assert torch.equal(io.load(tmp_path)(shown), model.eval()(shown))


@pytest.mark.parametrize("memory", [[3], [1], [2**17], [4, 4, 4, 4, 4], [0]])
def test_other_sizes_are_refused(memory):
    with pytest.raises(ValueError, match="must be at most 4 powers of two from 2 to 65536"):
        TinyTransformerConfig(8, 4, 1, 1, 4, 4, memory=memory)
