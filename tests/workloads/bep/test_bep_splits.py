"""No family is on two sides of a split, blocks have a guard between them, and copies across parts are said."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from pipelines.workloads.bep import data, splits
from tests.workloads.bep.firm import config, prose, read, written


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 50_000), min_size=3, max_size=15), st.integers(0, 5))
def test_no_part_is_empty_and_the_split_follows_the_seed(sizes, seed):
    found = splits.split(sizes, 0.1, 0.1, seed)
    assert len(found) == len(sizes)
    assert set(found) == set(splits.PARTS)
    assert splits.split(sizes, 0.1, 0.1, seed) == found


def test_shares_are_as_near_as_families_allow():
    sizes = [10_000] * 20
    for seed in range(3):
        found = splits.split(sizes, 0.1, 0.2, seed)
        assert [found.count(part) for part in splits.PARTS] == [14, 2, 4]
    assert len({tuple(splits.split(sizes, 0.1, 0.2, seed)) for seed in range(5)}) == 5
    # A family of half of the corpus is for training, whatever the seed.
    sizes = [52_000, 11_000, 9_000, 8_000, 10_000, 10_000]
    for seed in range(5):
        found = splits.split(sizes, 0.1, 0.1, seed)
        assert found[0] == "train"
        assert [sum(s for s, p in zip(sizes, found, strict=True) if p == part) for part in ("validation", "test")] == [
            10_000,
            10_000,
        ]


@settings(deadline=None)
@given(st.lists(st.integers(300, 900), min_size=1, max_size=2), st.integers(0, 60))
def test_blocks_follow_one_another_with_a_guard_between(sizes, guard):
    whole = "".join(chr(0x4E00 + n) for n in range(sum(sizes)))  # each character once
    texts = [("a", whole[: sizes[0]]), ("b", whole[sizes[0] :])][: len(sizes)]
    found = splits.blocks(texts, 0.1, 0.2, guard)
    train, validation, test = ("".join(text for _, text in found[part]) for part in splits.PARTS)
    assert whole.startswith(train)
    assert whole.endswith(test)
    assert whole.index(validation) == len(train) + guard
    assert whole.index(test) == len(train) + len(validation) + 2 * guard
    assert len(validation) == round(0.1 * len(whole))
    assert len(test) == round(0.2 * len(whole))
    held = dict(texts)
    assert all(text in held[name] for rows in found.values() for name, text in rows)


def test_without_a_share_there_is_no_test_part():
    assert set(splits.split([10_000] * 10, 0.1, 0, 0)) == {"train", "validation"}
    found = splits.blocks([("a", "x" * 900 + "y" * 200)], 100 / 1100, 0, 100)
    assert found == {"train": [("a", "x" * 900)], "validation": [("a", "y" * 100)], "test": []}


def test_overlap_counts_the_characters_of_copied_pieces():
    copied = prose(8)[:60]
    held_out, other = "\u0416" * 40 + copied + "\u0416" * 100, "\u0417" * 300
    found = {
        "train": [("t", prose(9)), ("u", f"x{copied}y")],
        "validation": [("v", held_out)],
        "test": [("w", other), ("w", copied[:49])],
    }
    share, by_document = splits.overlap(found, True, {})
    assert by_document == {"v": 60 / 200, "w": 0.0}
    assert share == 60 / 549
    assert splits.most_alike(held_out, found["train"]) == "u"


def test_no_piece_is_copied_from_two_documents():
    text = prose(10)
    found = {"train": [("a", text[:40]), ("b", text[40:80])], "validation": [("v", text[:80])], "test": []}
    assert splits.overlap(found, True, {})[0] == 0


def test_one_document_is_cut_into_blocks_and_a_note_says_so(tmp_path):
    whole = prose(1, 20_000)
    source = written(tmp_path / "in", {"plan": whole}) / "plan.txt"
    facts = data.prepare(config(source, validation=0.1, test=0.2, hold_out=True), tmp_path / "out")
    assert "successive blocks" in facts["split"]
    assert "the figures do not speak for a document the model has not seen" in facts["note"]
    train, validation, test = read(tmp_path / "out")["plan.txt"]
    assert whole.startswith(train)
    assert whole.endswith(test)
    assert whole.index(validation) == len(train) + 100
    assert whole.index(test) == len(train) + len(validation) + 200


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_any_number_of_similar_documents_can_be_trained_on_and_the_overlap_is_said(tmp_path, number):
    shared = prose(0, 10_000)
    texts = {f"plan{each}": f"{shared}\n\n{prose(each + 1, 2_000)}" for each in range(number)}
    facts = data.prepare(config(written(tmp_path / "in", texts)), tmp_path / "out")
    assert set(read(tmp_path / "out")) == {f"{name}.txt" for name in texts}
    assert set(facts["train"]["names"]) == {f"{name}.txt" for name in texts}
    assert facts["train"]["characters"] == sum(map(len, texts.values()))
    assert not facts["held_out"]
    assert "the model is trained on all of the text" in facts["note"]
    assert facts["overlap"]["share"] == pytest.approx(0.83 if number > 1 else 0, abs=0.02)
    assert ("83% of plan0.txt (most of it in " in facts["note"]) == (number > 1)


def test_what_a_document_shares_with_its_versions_is_no_overlap(tmp_path):
    texts = {f"plan{seed}": prose(seed, 5_000) for seed in range(2)}
    versions = {f"{name}-v2": f"{text}\n\n{prose(8, 200)}" for name, text in texts.items()}
    facts = data.prepare(config(written(tmp_path / "in", texts | versions)), tmp_path / "out")
    assert facts["families"] == 2
    assert facts["overlap"]["worst"].keys() == {f"{name}.txt" for name in versions}  # the paragraph that both end with
    assert facts["overlap"]["share"] < 0.03
    assert "leaves each document out in turn, with its versions" in facts["note"]


@pytest.fixture
def copied(tmp_path):
    """Families that share a long passage."""
    texts = {letter: prose(seed) for seed, letter in enumerate("abcdef")}
    passage = prose(99, 1000)
    return written(tmp_path / "copied", {name: f"{text}\n\n{passage}" for name, text in texts.items()})


def test_held_out_text_that_training_has_is_said_with_the_documents(copied, tmp_path):
    facts = data.prepare(config(copied), tmp_path / "out")
    assert 0.2 < facts["overlap"]["share"] < 0.4
    assert set(facts["overlap"]["worst"]) == {*facts["validation"]["names"], *facts["test"]["names"]}
    assert "% of the held-out text also stands in training, in pieces of 50 characters: " in facts["note"]
    assert "(most of it in " in facts["note"]


def test_a_part_with_too_little_is_refused_with_the_keys(tmp_path):
    source = written(tmp_path / "in", {"a": prose(1, 12_000)})
    with pytest.raises(UserError, match=r"characters for \w+ are too few, 500 are needed; .*data\.test="):
        data.prepare(config(source, validation=0.01, hold_out=True), tmp_path / "out")


def test_a_part_of_just_enough_characters_will_do():
    section = config(None).data
    enough = {part: [("a", "x" * splits.FEWEST_PER_PART)] for part in splits.PARTS}
    splits.check_sizes(enough, True, section, "here")
    with pytest.raises(UserError, match="here: 499 characters for test are too few"):
        splits.check_sizes({**enough, "test": [("a", "x" * (splits.FEWEST_PER_PART - 1))]}, True, section, "here")


def test_five_families_are_enough_to_hold_some_of_them_out():
    texts = {name: prose(seed) for seed, name in enumerate("abcde")}
    found, how, note = splits.divide(texts, [[name] for name in texts], config(None).data)
    assert (how, note) == ("by family of documents, seed 0", None)
    assert all(found.values())


def test_no_overlap_is_not_noted():
    texts = {part: [(part, prose(seed))] for seed, part in enumerate(splits.PARTS)}
    family = {part: part for part in splits.PARTS}
    assert splits.described_overlap(texts, True, family) == (0, {}, None)


def test_short_notes_beside_few_plans_are_no_families_to_judge_by(tmp_path):
    notes = {f"note{seed}": prose(seed, 200) for seed in range(5, 9)}
    plans = {f"plan{seed}": prose(seed, 9_000) for seed in range(3)}
    facts = data.prepare(config(written(tmp_path / "in", plans | notes)), tmp_path / "out")
    assert not facts["held_out"]
    assert "families of documents: 3 of 500 characters or more, fewer than 5" in facts["note"]


def test_a_part_is_never_a_note_alone_where_plans_are_left(tmp_path):
    texts = {**{f"plan{seed}": prose(seed, 9_000) for seed in range(5)}, "a": prose(7, 200), "b": prose(8, 200)}
    facts = data.prepare(config(written(tmp_path / "in", texts)), tmp_path / "out")
    assert facts["held_out"]
    assert min(facts[part]["characters"] for part in splits.PARTS) > 8_000
