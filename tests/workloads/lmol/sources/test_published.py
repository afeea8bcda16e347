"""Data sets as their authors publish them: a made folder of each form is read by its name alone."""

import numpy as np
import openpyxl
import pytest

from models.images.ranking import FIRST, SECOND, SIMILAR
from tests.workloads.lmol.sources.files import data, picture, read, refusal

KONIQ = '"image_name","c1","c2","c3","c4","c5","c_total","MOS","SD","MOS_zscore"'
SPAQ = [
    ("Image name", "MOS", "Brightness", "Colorfulness", "Contrast", "Noisiness", "Sharpness"),
    ("00001.jpg", 29, 37.63, 43.54, 39.92, 42.42, 27.33),
    ("00002.jpg", 62.5, 49.11, 40.05, 51.2, 47.27, 58.2),
]
FORMS = {
    "koniq10k": (
        ["1024x768/10004473376.jpg", "1024x768/10007357496.jpg"],
        {
            "koniq10k_scores_and_distributions.csv": f"{KONIQ}\n"
            '"10004473376.jpg",0,0,25,73,7,105,3.82857142857143,0.552,76.3\n'
            '"10007357496.jpg",0,3,45,47,1,96,3.47916666666667,0.58,66.1\n'
        },
        [3.828571, 3.479167],
        None,
    ),
    "SPAQ": (
        ["TestImage/00001.jpg", "TestImage/00002.jpg"],
        {
            "Annotations/MOS and Image attribute scores.xlsx": SPAQ,
            "Annotations/EXIF_tags.xlsx": [("Image name", "Focal length"), ("00001.jpg", 4.25), ("00002.jpg", 3)],
            "Annotations/Scene category labels.xlsx": [("Image name", "Animal"), ("00001.jpg", 0), ("00002.jpg", 1)],
        },
        [29, 62.5],
        None,
    ),
    "kadid10k": (
        ["images/I01_01_01.png", "images/I02_01_02.png"],
        {"dmos.csv": "dist_img,ref_img,dmos,var\nI01_01_01.png,I01.png,4.57,0.496\nI02_01_02.png,I02.png,4.33,0.869\n"},
        [4.57, 4.33],
        ["I01.png", "I02.png"],
    ),
    "tid2013": (
        ["distorted_images/I01_01_1.bmp", "distorted_images/i02_01_2.bmp"],
        {
            "mos_with_names.txt": "5.51429 I01_01_1.bmp\n5.56757 I02_01_2.bmp\n",
            "mos.txt": "5.51429\n5.56757\n",
            "readme": "TID2013\n",
        },
        [5.51429, 5.56757],
        ["I01", "I02"],
    ),
    "AVA_dataset": (
        ["images/953619.jpg", "images/953958.jpg"],
        {
            "AVA.txt": "1 953619 0 1 5 17 38 36 15 6 5 1 1 22 1396\n2 953958 10 7 15 26 26 21 10 8 1 2 15 21 1396\n",
            "tags.txt": "1 Abstract\n2 Cityscape\n",
            "challenges.txt": "1396 A Bizarre One\n",
        },
        [5.637097, 4.698413],
        None,
    ),
    "PIPAL": (
        ["Distortion_1/A0001_00_00.bmp", "Distortion_2/A0001_00_01.bmp", "Distortion_1/A0002_00_00.bmp"],
        {
            "Train_Label/A0001.txt": "A0001_00_00.bmp,1461.7840\nA0001_00_01.bmp,1502.2\n",
            "Train_Label/A0002.txt": "A0002_00_00.bmp,1300.5\n",
        },
        [1461.784, 1502.2, 1300.5],
        ["A0001", "A0001", "A0002"],
    ),
}


def made(path, images, tables):
    """A folder of these images and tables, and an image that none lists."""
    for seed, name in enumerate([*images, "Train_Ref/A0001.bmp"]):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        picture(seed).save(path / name)
    for name, content in tables.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            (path / name).write_text(content)
            continue
        book = openpyxl.Workbook()
        for row in content:
            book.active.append(row)
        book.save(path / name)
    return path


@pytest.mark.parametrize(("images", "tables", "scores", "groups"), FORMS.values(), ids=FORMS)
def test_a_folder_of_scores_as_published_is_read_without_a_key(tmp_path, images, tables, scores, groups):
    found = read(data(made(tmp_path / "set", images, tables)))
    assert found.names == images
    assert [float(score * found.unit) for score in found.scores] == pytest.approx(scores, abs=1e-5)
    assert found.groups == (groups or images)
    assert found.scored


def test_a_folder_of_choices_as_pick_a_pic_has_them_is_read_without_a_key(tmp_path):
    rows = "u1,u2,u1,1,0,7,a cat\nu2,u3,tie,0.5,0.5,8,a dog\nu3,u1,u1,0,1,7,a bird\n"
    text = f"image_0_uid,image_1_uid,best_image_uid,label_0,label_1,user_id,caption\n{rows}"
    images = ["images/u1.jpg", "images/u2.jpg", "images/u3.jpg"]
    found = read(data(made(tmp_path / "set", images, {"pairs.csv": text})))
    assert found.names == images
    assert found.labels.tolist() == [[0, 1, FIRST], [1, 2, SIMILAR], [2, 0, SECOND]]
    assert found.raters.tolist() == ["7", "8", "7"]
    assert not found.scored


def test_counts_of_votes_are_means_deviations_and_numbers_of_votes(tmp_path):
    text = "image,votes_1,votes_2,votes_3\na.png,2,0,2\nb.png,0,8,0\n"
    found = read(data(made(tmp_path, ["a.png", "b.png"], {"votes.csv": text})))
    assert [float(score * found.unit) for score in found.scores] == [2, 2]
    assert found.errors[0] > found.errors[1] > 0
    assert not any("not used" in note for note in found.facts["columns"])
    text = "image,votes_1,votes_2,votes_3,votes_4\na.png,2,0,2,0\nb.png,0,2,0,2\n"
    (tmp_path / "votes.csv").write_text(text)
    assert read(data(tmp_path)).errors == pytest.approx(np.sqrt([4 / 3 / 4] * 2))


def test_lists_of_one_form_in_a_folder_are_one_table(tmp_path):
    lists = {"one.txt": "a.png,1\nb.png,2\n", "two.txt": "c.png,3\n"}
    folder = made(tmp_path, ["a.png", "b.png", "c.png"], lists)
    (folder / "torn.xlsx").write_text("no zip")
    assert read(data(folder)).scores.tolist() == [1, 2, 3]
    (folder / "three.txt").write_text("4,a.png\n")
    assert "it has 3" in refusal(folder)
