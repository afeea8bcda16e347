"""Versions of a document are one family; other documents are not part of it."""

import random
import time

import numpy as np
import pytest

from pipelines.workloads.bep.documents import families

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


def test_hundreds_of_documents_take_seconds():
    texts = {f"{n:03}": prose(n, 300) for n in range(100)}
    texts["copy"] = texts["007"]
    begin = time.process_time()
    groups, _ = families.group(texts, 0.8)
    assert time.process_time() - begin < 10
    assert [group for group in groups if len(group) > 1] == [["007", "copy"]]


def test_case_and_punctuation_do_not_change_a_shingle():
    assert np.array_equal(families._shingles("a b c d e"), families._shingles("A b, c. D e!"))
    assert not np.array_equal(families._shingles("a b c d e"), families._shingles("b a c d e"))


def test_documents_of_a_project_are_one_family():
    texts = {name: f"{name} is unlike any other text of these" for name in "abc"}
    groups, pairs = families.group(texts, 0.8, {"a": "p", "c": "p"})
    assert (groups, pairs) == ([["a", "c"], ["b"]], {})


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("folder", {"A/1.md": "A", "A/sub/2.md": "A", "B/22-0417 plan.md": "B"}),
        (r"^(\w)/", {"A/1.md": "A", "A/sub/2.md": "A", "B/22-0417 plan.md": "B"}),
        (None, {"B/22-0417 plan.md": "22-0417", "4711_BAP.md": "4711"}),
        (r"^(A)?", {"A/1.md": "A", "A/sub/2.md": "A"}),  # whose group is of no part of the others
        (r"\d*(?=\.md)", {"A/1.md": "1", "A/sub/2.md": "2", "plan 2023-05.md": "05"}),
    ],
)
def test_projects_are_declared_or_found_by_numbers_in_names(how, found):
    names = ["A/1.md", "A/sub/2.md", "B/22-0417 plan.md", "4711_BAP.md", "ISO 19650 guide.md", "plan 2023-05.md"]
    assert families.projects(names, how) == found


def test_sources_are_shown_by_project_or_hidden():
    project = {"a": "Wharf", "b": "Wharf"}
    assert list(families.labels("abc", project, "project").values()) == ["Wharf 1", "Wharf 2", "project 1"]
    assert list(families.labels("abc", project, "hidden").values()) == ["document 1", "document 2", "document 3"]
