"""Compressors as predictors."""

import numpy as np
import pytest

from common import text


def xz_bits(training, held_out):
    return [row["bits/character"] for row in text.xz_rows(training, held_out, 10**6)]


def test_xz_counts_unicode_characters_not_bytes():
    plain, wide = (xz_bits("", letter * 1000)[0] for letter in "a\u4e00")
    assert wide == pytest.approx(plain, rel=0.2)


def noise(length):
    return "".join(np.random.default_rng(0).choice(list("abcdefgh"), length))


def test_compressors_need_little_for_what_they_have_seen():
    seen = noise(5000)
    alone, after = xz_bits(seen, seen[1000:3000])
    assert 3 < alone < 4
    assert after < 0.2
    fresh, again, known = text.ppmd_bits("", [seen[1000:3000], seen[1000:3000], seen[1000:1500]], 8) / 2000
    assert 3 < fresh < 4
    assert again < 1  # it adapts from piece to piece
    assert known < again


def test_the_order_of_ppmd_is_chosen_on_training_text_and_pieces_add_up():
    words = "the rain in spain stays mainly in the plain " * 40
    name, bits = text.ppmd_baseline(words, ["the rain", " in spain"])
    order = int(name.removeprefix("PPMd, order ").removesuffix(", adapting"))
    assert order in text.PPMD_ORDERS
    assert bits.shape == (2,)
    assert bits.sum() == pytest.approx(text.ppmd_bits(words, ["the rain in spain"], order).sum(), abs=8)
    held_out = words[-len(words) // 10 :]
    found = {o: text.ppmd_bits(words[: -len(held_out)], [held_out], o).sum() for o in text.PPMD_ORDERS}
    assert found[order] <= min(found.values()) + 8


def test_the_rows_of_xz_say_that_only_the_end_of_the_training_text_was_used():
    whole, part = (text.xz_rows("abc" * 99, "abcabc", most) for most in (1000, 10))
    assert [row["predictor"] for row in whole] == ["xz -9e, alone", "xz -9e, after training"]
    assert part[1]["predictor"] == "xz -9e, after training on its last 10 characters"
    assert part[0] == whole[0]
