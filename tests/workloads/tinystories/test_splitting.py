"""Stories are split without leaks, and a book into passages whose end is held out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common.disk import files
from common.disk.prepared import MANIFEST
from common.errors import UserError
from pipelines.workloads.tinystories import data
from pipelines.workloads.tinystories.config import Config
from pipelines.workloads.tinystories.data import cut
from pipelines.workloads.tinystories.generated_stories import generate
from pipelines.workloads.tinystories.task import StoriesTask
from tests.workloads.tinystories.texts import BOOK, STORIES, both, config, parts, written


def test_some_stories_are_held_out_and_none_is_on_both_sides(tmp_path):
    data.prepare(config(), tmp_path)
    train, held_out = parts(tmp_path)
    validation, told = data.stories(tmp_path, "validation"), list(generate(0, 30_000))
    assert len(held_out) == pytest.approx(len(told) / 10, abs=len(told) / 15)
    assert len(validation) == pytest.approx(len(told) / 20, abs=len(told) / 20)
    assert len(train) + len(validation) + len(held_out) == len(told)
    assert {*train, *validation, *held_out} == set(told)


def test_a_story_keeps_its_side_when_others_are_added(tmp_path):
    sides = []
    for name, blocks in (("few", STORIES), ("many", [*STORIES, *generate(3, 40_000)])):
        data.prepare(config(written(tmp_path / f"{name}.txt", blocks)), tmp_path / name)
        sides.append([set(data.stories(tmp_path / name, split)) for split in ("train", "validation", "held_out")])
    assert all(some and some < all_of_side for some, all_of_side in zip(*sides, strict=True))


def test_limits_of_the_held_out_stories_send_the_others_to_the_training_part(tmp_path):
    source = written(tmp_path / "stories.txt", list(generate(3, 60_000)))
    sides = []
    for name, limits in (("free", {}), ("limited", {"test_stories": 2, "validation_stories": 1})):
        data.prepare(config(source, **limits), tmp_path / name)
        sides.append([data.stories(tmp_path / name, split) for split in ("train", "validation", "held_out")])
    (_, validation, held_out), (train, fewer_validation, fewer_held_out) = sides
    assert fewer_held_out == held_out[:2]
    assert fewer_validation == validation[-1:]
    assert set(held_out[2:]) | set(validation[:-1]) < set(train)


def test_the_split_depends_on_the_seed_and_not_on_the_order_of_the_file(tmp_path):
    found = []
    for name, blocks, seed in [("a", STORIES, 0), ("b", STORIES[::-1], 0), ("c", STORIES, 1)]:
        data.prepare(config(written(tmp_path / f"{name}.txt", blocks), seed=seed), tmp_path / name)
        found.append(parts(tmp_path / name))
    assert found[0] == found[1]
    assert set(found[0][1]) != set(found[2][1])


@pytest.mark.parametrize("book", [False, True])
def test_a_larger_share_contains_a_smaller_one_on_the_same_side(tmp_path, book):
    source = written(tmp_path / "stories.txt", [BOOK] if book else STORIES)
    found = {}
    for percent in (1, 10, 20, 55, 100):
        facts = data.prepare(config(source, percent=percent, vocabulary=64), tmp_path / str(percent))
        assert (f"first {percent} %" in facts["split"]) == (percent < 100)
        found[percent] = parts(tmp_path / str(percent))
    whole = found[100]
    for percent, some in found.items():
        for side, all_of_side in zip(some, whole, strict=True):
            count = -(-len(all_of_side) * percent // 100)
            assert side == all_of_side[:count]
            assert count >= 1


def test_stories_that_were_held_out_elsewhere_can_be_trained_on(tmp_path):
    stories = list(generate(5, 200_000))
    data.prepare(config(written(tmp_path / "all.txt", stories)), tmp_path / "all")
    held_out = data.stories(tmp_path / "all", "held_out")  # all of the lowest tenth of hashes
    assert len(held_out) > 20
    data.prepare(config(written(tmp_path / "held_out.txt", held_out)), tmp_path / "own")
    assert len(data.stories(tmp_path / "own", "train")) >= len(held_out) // 2
    assert len(both(tmp_path / "own")) == len(held_out)


def test_duplicates_are_removed_before_the_split(tmp_path):
    twice = [*STORIES, *(f" {story}  \n" for story in STORIES), *(story.replace("\n", "\r\n") for story in STORIES)]
    facts = data.prepare(config(written(tmp_path / "twice.txt", twice)), tmp_path / "twice")
    data.prepare(config(written(tmp_path / "once.txt", STORIES)), tmp_path / "once")
    assert facts["duplicates_removed"] == 60
    assert parts(tmp_path / "twice") == parts(tmp_path / "once")


def test_what_a_preparation_leaves_out_is_told(tmp_path):
    source = written(tmp_path / "twice.txt", [*STORIES, *STORIES[:7], STORIES[7] + "\0"])
    files.write_json(tmp_path / "out" / MANIFEST, data.prepare(config(source), tmp_path / "out"))
    sizes = {"preset": "rp2040-speed", "vocabulary": 160}
    notes = StoriesTask(Config.model_validate({"model": sizes}), tmp_path / "out", torch.device("cpu")).notes
    assert "stories that stand in the text more than once: 8 repetitions are left out" in notes
    assert "NUL characters in the text: 1 are left out" in notes
    told = "these teach few words: model.base=models/pretrained/tinystories-real training.steps=60 "
    assert any(note.startswith(told) for note in notes)


def test_a_book_is_cut_at_ends_of_sentences_and_its_end_is_held_out(tmp_path):
    source = written(tmp_path / "book.txt", [BOOK])
    facts = data.prepare(config(source, vocabulary=60), tmp_path / "out")
    passages = both(tmp_path / "out")
    assert "\n".join(passages) == BOOK.strip()
    assert len(parts(tmp_path / "out")[1]) == len(passages) // 10
    assert len(data.stories(tmp_path / "out", "validation")) == len(passages) // 20
    assert facts["split"] == (
        "passages of up to 500 characters in their order, the last tenth held out, the twentieth before it to pick the "
        "best model"
    )
    for passage in passages:
        assert len(passage) <= 500
        assert passage.startswith("On day")
        assert passage.endswith("slept.")


def test_passages_end_where_they_can():
    assert list(cut(["one two\nthree four five six"], 12)) == ["one two", "three four", "five six"]
    assert list(cut(["x" * 25], 10)) == ["x" * 10, "x" * 10, "x" * 5]
    assert list(cut(['He said\n"No."\nand then\nhe ran'], 18)) == ['He said\n"No."', "and then\nhe ran"]
    assert list(cut(["short"], 10)) == ["short"]


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("ab.! \n"), max_size=40), max_size=5), st.integers(1, 20))
def test_passages_hold_all_of_the_text_however_it_comes(pieces, characters):
    text = "".join(pieces)
    passages = list(cut(pieces, characters))
    assert passages == list(cut([text], characters))
    assert "".join("".join(passages).split()) == "".join(text.split())
    assert all(0 < len(passage) <= characters for passage in passages)


def test_too_few_embedded_stories_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"seed 0: \d passages .* too few .* raise data\.generated_characters"):
        data.prepare(config(generated_characters=2_000), tmp_path)
