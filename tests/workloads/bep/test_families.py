"""Versions of a document are one family, and no family is on two sides of a split."""

import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.workloads.bep import families

WORDS = [f"{a}{b}{c}" for a in ("ba", "ne", "sto", "ki") for b in "lmrtv" for c in ("a", "en", "is", "ol", "ump")]


def prose(seed, count=400):
    """Sentences of made-up words."""
    generator = random.Random(seed)
    sentences = [" ".join(generator.choices(WORDS, k=8)).capitalize() + "." for _ in range(count // 8)]
    return "\n".join(sentences)


def exact(a, b):
    """Jaccard similarity of the sets of 5 successive words, by the definition."""
    sets = []
    for text in (a, b):
        found = text.lower().replace(".", "").split()
        sets.append({tuple(found[i : i + 5]) for i in range(len(found) - 4)})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def edited(text, every):
    """The text with another word in every so many lines."""
    lines = text.split("\n")
    return "\n".join(line.replace(" ", " new ", 1) if n % every == 0 else line for n, line in enumerate(lines))


def test_an_edited_copy_joins_and_its_similarity_is_exact():
    one = prose(1)
    copy = edited(one, 10)
    groups, pairs = families.group({"a": one, "b": prose(2), "c": copy}, 0.8)
    assert groups == [["a", "c"], ["b"]]
    assert pairs == {("a", "c"): pytest.approx(exact(one, copy))}
    assert 0.8 < pairs["a", "c"] < 0.95


def test_another_document_of_the_same_template_does_not_join():
    heads = ["1 Purpose of this plan", "2 Roles and responsibilities", "3 Common data environment", "4 Model uses"]
    plans = {
        name: "\n".join(f"{head}\n{prose(seed * 10 + n, 80)}" for n, head in enumerate(heads))
        for seed, name in enumerate("abc")
    }
    groups, pairs = families.group(plans, 0.8)
    assert (groups, pairs) == ([["a"], ["b"], ["c"]], {})


def test_a_family_is_all_that_is_connected():
    one, generator = prose(3).split("\n"), random.Random(0)
    begun, ended = list(one), list(one)
    for line in range(8):
        begun[line], ended[-1 - line] = (" ".join(generator.choices(WORDS, k=8)) for _ in range(2))
    texts = {"a": "\n".join(begun), "b": "\n".join(ended), "c": "\n".join(one), "x": prose(4)}
    assert exact(texts["a"], texts["b"]) < 0.6 < min(exact(texts["a"], texts["c"]), exact(texts["b"], texts["c"]))
    groups, pairs = families.group(texts, 0.6)
    assert groups == [["a", "b", "c"], ["x"]]
    assert set(pairs) == {("a", "c"), ("b", "c")}


def test_the_threshold_decides():
    one = prose(5)
    copy = edited(one, 3)
    similarity = exact(one, copy)
    assert len(families.group({"a": one, "b": copy}, similarity - 0.001)[0]) == 1
    assert len(families.group({"a": one, "b": copy}, similarity + 0.001)[0]) == 2


def test_figures_case_and_line_ends_do_not_make_another_document():
    one = prose(6)
    other = one.upper().replace("\n", "\n12.5 ")
    assert families.group({"a": one, "b": other}, 1.0)[0] == [["a", "b"]]


def test_texts_of_few_words_or_none_are_families_of_their_own_unless_equal():
    texts = {"a": "12 34", "b": "", "c": "Two words", "d": "two words", "e": "words"}
    assert families.group(texts, 0.8)[0] == [["a"], ["b"], ["c", "d"], ["e"]]


def test_signatures_estimate_similarity():
    one = prose(7, 2000)
    copy = edited(one, 4)
    shingles = [families._shingles(text) for text in (one, copy)]
    equal = families._signature(shingles[0]) == families._signature(shingles[1])
    assert equal.mean() == pytest.approx(exact(one, copy), abs=0.15)
    assert families._jaccard(*shingles) == pytest.approx(exact(one, copy))


def test_hundreds_of_documents_take_seconds():
    texts = {f"{n:03}": prose(n, 300) for n in range(100)}
    texts["copy"] = texts["007"]
    begin = time.process_time()
    groups, _ = families.group(texts, 0.8)
    assert time.process_time() - begin < 10
    assert [group for group in groups if len(group) > 1] == [["007", "copy"]]


def test_repeated_lines_are_counted_over_all_documents():
    texts = {"a": "same line\n\nown", "b": " same line \nother\nother"}
    assert families.duplicate_lines(texts) == {"lines": 5, "repeated": 2, "share_of_characters": 14 / 31}
    assert families.duplicate_lines({"a": ""})["share_of_characters"] == 0


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 50_000), min_size=3, max_size=15), st.integers(0, 5))
def test_no_part_is_empty_and_the_split_follows_the_seed(sizes, seed):
    parts = families.split(sizes, 0.1, 0.1, seed)
    assert len(parts) == len(sizes)
    assert set(parts) == set(families.PARTS)
    assert families.split(sizes, 0.1, 0.1, seed) == parts


def test_shares_are_as_near_as_families_allow():
    sizes = [10_000] * 20
    for seed in range(3):
        parts = families.split(sizes, 0.1, 0.2, seed)
        assert [parts.count(part) for part in families.PARTS] == [14, 2, 4]
    assert len({tuple(families.split(sizes, 0.1, 0.2, seed)) for seed in range(5)}) == 5
    # A family of half of the corpus is for training, whatever the seed.
    sizes = [52_000, 11_000, 9_000, 8_000, 10_000, 10_000]
    for seed in range(5):
        parts = families.split(sizes, 0.1, 0.1, seed)
        assert parts[0] == "train"
        assert [sum(s for s, p in zip(sizes, parts, strict=True) if p == part) for part in ("validation", "test")] == [
            10_000,
            10_000,
        ]


@settings(deadline=None)
@given(st.lists(st.integers(300, 900), min_size=1, max_size=2), st.integers(0, 60))
def test_blocks_follow_one_another_with_a_guard_between(sizes, guard):
    whole = "".join(chr(0x4E00 + n) for n in range(sum(sizes)))  # each character once
    texts = [("a", whole[: sizes[0]]), ("b", whole[sizes[0] :])][: len(sizes)]
    parts = families.blocks(texts, 0.1, 0.2, guard)
    train, validation, test = ("".join(text for _, text in parts[part]) for part in families.PARTS)
    assert whole.startswith(train)
    assert whole.endswith(test)
    assert whole.index(validation) == len(train) + guard
    assert whole.index(test) == len(train) + len(validation) + 2 * guard
    assert len(validation) == round(0.1 * len(whole))
    assert len(test) == round(0.2 * len(whole))
    held = dict(texts)
    assert all(text in held[name] for rows in parts.values() for name, text in rows)


def test_without_a_share_there_is_no_test_part():
    assert set(families.split([10_000] * 10, 0.1, 0, 0)) == {"train", "validation"}
    parts = families.blocks([("a", "x" * 900 + "y" * 200)], 100 / 1100, 0, 100)
    assert parts == {"train": [("a", "x" * 900)], "validation": [("a", "y" * 100)], "test": []}


def test_overlap_counts_the_characters_of_copied_pieces():
    copied = prose(8)[:60]
    held_out, other = "\u0416" * 40 + copied + "\u0416" * 100, "\u0417" * 300
    parts = {
        "train": [("t", prose(9)), ("u", f"x{copied}y")],
        "validation": [("v", held_out)],
        "test": [("w", other), ("w", copied[:49])],
    }
    share, by_document = families.overlap(parts)
    assert by_document == {"v": 60 / 200, "w": 0.0}
    assert share == 60 / 549
    assert families.most_alike(held_out, parts["train"]) == "u"


def test_no_piece_is_copied_from_two_documents():
    text = prose(10)
    parts = {"train": [("a", text[:40]), ("b", text[40:80])], "validation": [("v", text[:80])], "test": []}
    assert families.overlap(parts)[0] == 0


def test_case_and_punctuation_do_not_change_a_shingle():
    assert np.array_equal(families._shingles("a b c d e"), families._shingles("A b, c. D e!"))
    assert not np.array_equal(families._shingles("a b c d e"), families._shingles("b a c d e"))
