"""Random numbers: the published sequence, independence, and functions of key and item alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from common.random import derive_key, first_uniform, uniform

INT64 = st.integers(-(2**63), 2**63 - 1)
KEY = derive_key(1, "test")


def reference(key: int, item: int, column: int) -> float:
    """The same number by Python's unbounded integers."""
    mask = 2**64 - 1

    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    row = mix((mix(item & mask) + key) & mask)
    return (mix((row + column * 0x9E3779B97F4A7C15) & mask) >> 41) / 2**23


def p_of_equal_frequencies(numbers: torch.Tensor, bins: int = 256) -> float:
    return stats.chisquare(torch.histc(numbers, bins, 0, 1).numpy()).pvalue


def p_of_independence(one: torch.Tensor, other: torch.Tensor, bins: int = 16) -> float:
    cells = (one * bins).long() * bins + (other * bins).long()
    return stats.chisquare(torch.bincount(cells.flatten(), minlength=bins * bins).numpy()).pvalue


def test_key_0_and_item_0_give_the_published_splitmix64_sequence():
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert uniform(0, torch.tensor([0]), 4).tolist() == [[(number >> 41) / 2**23 for number in published]]


def test_golden_values_never_change():
    key = derive_key(7, "instances", 3)
    assert (derive_key(0), key) == (-7203015550239113044, -1627679841771859296)
    numbers = (uniform(key, torch.tensor([0, 1, -5]), 2) * 2**23).long()
    assert numbers.tolist() == [[4230451, 157528], [4165517, 6859935], [7191285, 1482560]]


@given(INT64, INT64, st.integers(1, 300))
@settings(deadline=None)
def test_numbers_are_those_of_unbounded_integers(key, item, column):
    assert uniform(key, torch.tensor([item]), column)[0, -1].item() == reference(key, item, column)


def test_numbers_are_multiples_of_2_to_the_minus_23_below_1():
    numbers = uniform(KEY, torch.arange(2000), 500)
    assert numbers.dtype == torch.float32
    assert numbers.min() >= 0
    assert numbers.max() <= 1 - 2**-23
    assert torch.equal(numbers * 2**23, (numbers * 2**23).round())


def test_a_row_depends_on_its_item_alone_and_its_beginning_not_on_the_count():
    items = torch.tensor([5, 2**40, -1, 5])
    together = uniform(KEY, items, 7)
    assert torch.equal(together[0], together[3])
    for item, row in zip(items, together, strict=True):
        assert torch.equal(uniform(KEY, item[None], 3)[0], row[:3])


def test_items_are_not_changed():
    items = torch.arange(4)
    uniform(KEY, items, 2)
    assert items.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("keys", [500, pytest.param(5_000, marks=pytest.mark.slow)])
def test_numbers_are_uniform_along_items_columns_and_keys(keys):
    by_item, by_column = uniform(KEY, torch.arange(100_000), 1), uniform(KEY, torch.zeros(1).long(), 100_000)
    by_key = torch.cat([uniform(key, torch.tensor([0]), 1) for key in range(keys)])
    for numbers in (by_item, by_column, by_key):
        assert p_of_equal_frequencies(numbers) > 1e-3  # a fixed draw: it passes always or never
        assert stats.kstest(numbers.flatten().numpy(), "uniform").pvalue > 1e-3


def test_low_bits_are_uniform_too():
    low = (uniform(KEY, torch.arange(100_000), 1) * 2**23).long() % 256
    assert stats.chisquare(torch.bincount(low.flatten(), minlength=256).numpy()).pvalue > 1e-3


@pytest.mark.parametrize("other", [KEY + 1, KEY ^ (1 << 40), derive_key(2, "test")])
def test_neighbouring_keys_are_independent(other):
    items = torch.arange(100_000)
    assert p_of_independence(uniform(KEY, items, 1), uniform(other, items, 1)) > 1e-3


@pytest.mark.parametrize("stride", [1, 2, 1 << 20, 1 << 40])
def test_neighbouring_items_and_columns_are_independent(stride):
    numbers = uniform(KEY, torch.arange(100_000) * stride, 2)
    assert p_of_independence(numbers[1:, 0], numbers[:-1, 0]) > 1e-3
    assert p_of_independence(numbers[:, 0], numbers[:, 1]) > 1e-3


def test_no_two_streams_share_a_key():
    keys = [derive_key(seed, name, step) for seed in range(10) for name in ("noise", "items") for step in range(200)]
    keys += [
        derive_key(1, 23),
        derive_key(12, 3),
        derive_key(1, "23"),
        derive_key(123),
        derive_key(1, 2, 3),
        derive_key(1, "2", 3),
        derive_key(1, "a", "b"),
    ]
    assert len(set(keys)) == len(keys)
    assert all(-(2**63) <= key < 2**63 for key in keys)


@pytest.mark.parametrize("part", [1.0, True, None, (1,)])
def test_derive_key_refuses_what_is_neither_int_nor_str(part):
    with pytest.raises(TypeError, match="derive_key takes int and str, got"):
        derive_key(0, part)


@given(INT64, INT64)
@settings(deadline=None)
def test_the_first_number_without_tensors_is_the_same(key, item):
    assert first_uniform(key, item) == reference(key, item, 1)
