"""What `ask.py` writes over, which images and tables it takes, and which words it refuses."""

import pytest
import torch

from common.errors import UserError
from models import io
from models.images.comparator import build
from pipelines.workloads.lmol import asking
from tests import stages
from tests.models.images.comparator.small import SMALL
from tests.models.images.comparator.small import pictures as squares
from tests.workloads.lmol.people.test_preferences import pictures


@pytest.fixture
def folder(tmp_path):
    """Return a folder of three images with answers about them."""
    made = tmp_path / "images"
    made.mkdir()
    pictures(made, ["a.png", "b.png", "c.png"])
    (made / "answers.csv").write_text("img1,img2,label\na.png,b.png,First\nc.png,b.png,First\n")
    return made


def test_one_file_for_the_next_pairs_and_the_ranking_is_refused(folder):
    done = stages.stage(folder, "ask.py", ".", "--next", "out.csv", "--ranking", "../images/out.csv")
    stages.refused(done, "--next and --ranking are one file, out.csv; name two")
    assert not (folder / "out.csv").exists()


@pytest.mark.parametrize("words", [("--seed", "-1"), ("--pairs", "-3")])
def test_counts_below_zero_are_refused(folder, words):
    done = stages.stage(folder, "ask.py", ".", "--next", "next.csv", *words)
    stages.refused(done, "; give 0 or more")


@pytest.mark.parametrize("name", ["scores.csv", "a.png", "notes.txt"])
def test_only_what_ask_wrote_is_written_over(folder, name):
    (folder / "scores.csv").write_text("image,score\na.png,3\nb.png,4\n")
    (folder / "notes.txt").write_text("a.png is the best\n")
    before = (folder / name).read_bytes()
    with pytest.raises(UserError, match=f"{name} is neither a ranking nor pairs to label; name another file"):
        asking.rank(folder, None, [folder / name])
    assert (folder / name).read_bytes() == before
    (folder / name).write_bytes(b"")  # as a temporary file is
    asking.rank(folder / "answers.csv", None, [folder / name])
    (folder / "new.csv").write_text("image,score,low,high,answers\na.png,1,0,2,0\n")
    asking.rank(folder, None, [folder / "new.csv"])


def test_labels_in_columns_of_own_names_are_not_written_over(folder):
    (folder / "answers.csv").write_text("one,other,said\na.png,b.png,First\n")
    words = ["data.columns.first=one", "data.columns.second=other", "data.columns.label=said"]
    following = folder.parent / "next.csv"
    asking.rank(folder, None, [following], words).write_next(following, 1, 0)
    asking.rank(folder, None, [following], words)
    following.write_text(following.read_text().replace(",\n", ",First\n"))
    with pytest.raises(UserError, match="holds 1 answer that would be lost; add them to"):
        asking.rank(folder, None, [following], words)


def test_answers_that_were_added_are_written_over_wherever_the_next_pairs_lie(folder):
    following = folder.parent / "next.csv"  # names in it are relative to the images' folder
    following.write_text("img1,img2,label\na.png,b.png,First\n")
    asking.rank(folder, None, [following])
    following.write_text("img1,img2,label\na.png,c.png,First\n")
    with pytest.raises(UserError, match="holds 1 answer that would be lost"):
        asking.rank(folder, None, [following])


def test_answers_about_another_attribute_are_told_apart_from_those_that_would_be_lost(folder):
    header, told = "img1,img2,label,attribute\n", "a.png,b.png,First,quality\n"
    (folder / "answers.csv").write_text(header + told + "a.png,b.png,Second,beauty\n")
    following = folder.parent / "next.csv"
    following.write_text(header + told)
    asking.rank(folder, None, [following], ["data.attribute=beauty"])  # it is among the answers about quality
    following.write_text(header + "a.png,b.png,First,beauty\n")
    with pytest.raises(UserError, match="holds 1 answer that would be lost"):
        asking.rank(folder, None, [following], ["data.attribute=beauty"])


def test_hidden_images_are_not_asked_about(folder):
    (folder / ".thumbnails").mkdir()
    pictures(folder, [".thumbnails/a.png", "._b.png"])
    (folder / "answers.csv").write_text("img1,img2,label\nx/a.png,b.png,First\n")  # a.png is one file, not two
    found = asking.rank(folder, None)
    assert list(found.names) == ["a.png", "b.png", "c.png"]
    assert found.answers.tolist() == [[0, 1, 0]]


def test_links_to_nothing_and_folders_are_no_tables(folder):
    (folder / ".#answers.csv").symlink_to("me@host.123:456")  # as Emacs locks what it edits
    (folder / "export.csv").mkdir()
    assert len(asking.rank(folder, None).answers) == 2


@pytest.fixture
def of_two():
    """Return a model of two attributes, whose heads know the same images in another order."""
    made = build({"attributes": [{**SMALL, "attribute": name, "references": 6} for name in ("quality", "beauty")]})
    for view, scores in zip(made.views.values(), (range(6), range(6, 0, -1)), strict=True):
        view.reference_images.copy_(squares(6))
        view.reference_scores.copy_(torch.tensor(scores))
        view.fit_scale()
    return made


def test_a_model_of_several_attributes_stands_beside_a_table_that_names_none(folder, of_two):
    io.save(of_two, folder.parent / "model")
    assert len(asking.rank(folder, folder.parent / "model", words=["data.attribute=beauty"]).answers) == 2
    with pytest.raises(UserError, match="attribute is 'taste'; the model ranks by quality, beauty"):
        asking.rank(folder, folder.parent / "model", words=["data.attribute=taste"])
    with pytest.raises(UserError, match="no score in 'beauty'"):  # of no model, it is a mistake
        asking.rank(folder, None, words=["data.attribute=beauty"])


def test_a_model_sees_each_image_once(folder, of_two):
    io.save(of_two, folder.parent / "model")
    model = io.load(folder.parent / "model").of("beauty")
    seen = []
    model.encoder.register_forward_hook(lambda module, given, encoded: seen.append(len(encoded)))
    model.encoded_references()
    seen.clear()
    asking._before_answers(model, [each.numpy() for each in squares(5)])
    assert seen == [5]
