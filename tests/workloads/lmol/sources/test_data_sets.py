"""Data sets of the library datasets with images in a column are read from their own files."""

import datasets
import numpy as np
import pandas
import pytest
from PIL import Image

from common.errors import UserError
from models.images import image_files
from pipelines.workloads.lmol import sources
from pipelines.workloads.lmol.config import Data
from tests.models.images.made_files import LIMIT, encoded, picture

FORMS = ["parquet", "parquet below"]


def written(folder, form, **columns):
    """Write 12 images, the last one of which is damaged, with scores of 0 to 11, in a form of data sets."""
    content = [*(encoded(picture(row), "PNG") for row in range(11)), b"no image"]
    images = [{"bytes": each, "path": f"{row}.png"} for row, each in enumerate(content)]
    kind = datasets.Features({"picture": datasets.Image(), **{name: datasets.Value("float32") for name in columns}})
    rows = datasets.Dataset.from_dict({"picture": images, **columns}, kind)
    half = [rows.select(range(6)), rows.select(range(6, 12))]
    below = folder / ("data" if "below" in form else "")
    below.mkdir(exist_ok=True)
    for name, part in zip(("train-0", "train-1"), half, strict=True):
        part.to_parquet(below / f"{name}.parquet")


@pytest.mark.parametrize("form", FORMS)
def test_a_data_set_gives_its_images_and_scores_whatever_it_is_stored_as(tmp_path, form):
    folder = tmp_path / "set [v2]"  # no pattern
    folder.mkdir()
    pandas.DataFrame({"x": [1.0]}).to_parquet(folder / "features.parquet")  # of something else
    written(folder, form, mos=[row / 2 for row in range(12)])
    data = Data(source=str(folder), size=32)
    found = sources.read(data, tmp_path / "images.npy")
    assert found.names == [f"row-{row}" for row in range(11)]
    assert (found.scores * float(found.unit)).tolist() == [row / 2 for row in range(11)]
    assert (found.images[3] == image_files.decode(encoded(picture(3)), 32, LIMIT)).all()
    assert found.facts["quarantined"]["row-11"].startswith("not an image")
    assert found.attribute == "score"
    assert sorted(data.inputs()) == sorted(folder.rglob("train-*.parquet"))


def test_a_column_that_is_named_is_the_attribute(tmp_path):
    written(tmp_path, "parquet", beauty=list(range(12)), quality=list(range(12, 0, -1)))
    for name in ("beauty", "quality"):
        found = sources.read(Data(source=str(tmp_path), columns={"score": name}), tmp_path / "images.npy")
        assert found.attribute == name
        assert bool(found.scores[0] < found.scores[1]) == (name == "beauty")


def test_a_data_set_without_images_or_scores_is_refused_by_name(tmp_path):
    written(tmp_path, "parquet", width=list(range(12)))
    with pytest.raises(UserError, match="has the columns picture, width; it must have image,score"):
        sources.read(Data(source=str(tmp_path)), tmp_path / "images.npy")
    with pytest.raises(UserError, match="width has no image bytes; columns with such: picture"):
        sources.read(Data(source=str(tmp_path), columns={"image": "width"}), tmp_path / "images.npy")


def test_a_data_set_that_has_paths_alone_reads_none_of_them(tmp_path):
    Image.fromarray(np.zeros((32, 32), np.uint8)).save(tmp_path / "secret.png")
    table = datasets.Dataset.from_dict(
        {"image": [{"bytes": None, "path": str(tmp_path / "secret.png")}] * 3, "score": [1.0, 2.0, 3.0]}
    ).data.table
    kind = datasets.Features({"image": datasets.Image(), "score": datasets.Value("float64")})
    (tmp_path / "set").mkdir()
    import pyarrow.parquet

    pyarrow.parquet.write_table(table.cast(kind.arrow_schema), tmp_path / "set" / "a.parquet")
    with pytest.raises(UserError, match="the data set has no bytes of it"):
        sources.read(Data(source=str(tmp_path / "set")), tmp_path / "images.npy")


@pytest.mark.parametrize("kind", ["struct", "bytes"])
def test_images_need_no_type_of_the_library(tmp_path, kind):
    content = [encoded(picture(row), "PNG") for row in range(6)]
    images = content if kind == "bytes" else [{"bytes": each, "path": "a.png"} for each in content]
    images[4] = None
    pandas.DataFrame({"image": images, "score": range(6)}).to_parquet(tmp_path / "a.PARQUET")
    found = sources.read(Data(source=str(tmp_path / "a.PARQUET"), size=32), tmp_path / "images.npy")
    assert found.names == ["row-0", "row-1", "row-2", "row-3", "row-5"]
    assert found.facts["quarantined"] == {"row-4": "the data set has no bytes of it; save it with its images"}


def test_parquet_files_of_something_else_leave_a_folder_as_it_was(tmp_path):
    for row in range(4):
        picture(row).save(tmp_path / f"{row}.png")
    (tmp_path / "scores.csv").write_text("image,score\n" + "".join(f"{row}.png,{row}\n" for row in range(4)))
    (tmp_path / "emb").mkdir()
    pandas.DataFrame({"x": [1.0, 2.0]}).to_parquet(tmp_path / "emb" / "features.parquet")
    found = sources.read(Data(source=str(tmp_path), size=32), tmp_path / "images.npy")
    assert found.names == ["0.png", "1.png", "2.png", "3.png"]


def test_what_cannot_be_read_as_a_data_set_is_refused_in_a_line(tmp_path):
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(UserError, match=r"torn\.parquet: its parquet files are no data set of one schema: "):
        sources.read(Data(source=str(tmp_path / "torn.parquet")), tmp_path / "images.npy")
    with pytest.raises(UserError, match=r"none\.parquet"):
        sources.read(Data(source=str(tmp_path / "none.parquet")), tmp_path / "images.npy")
    images = [{"bytes": encoded(picture(row), "PNG"), "path": None} for row in range(3)]
    both = {"image": images, "winner": ["foo-1", "foo-2", "foo-0"], "loser": ["foo-0", "foo-1", "foo-2"]}
    pandas.DataFrame(both).to_parquet(tmp_path / "pairs.parquet")
    with pytest.raises(UserError, match="the data set has no bytes of it"):
        sources.read(Data(source=str(tmp_path / "pairs.parquet")), tmp_path / "images.npy")
