"""Tables as people have them: other names and separators, raters, preferences, a folder per rank."""

import time
from fractions import Fraction

import numpy as np
import pytest

from common.foreign_text import to_csv
from models.images.ranking import FIRST, SECOND, SIMILAR
from pipelines.workloads.lmol.config import Columns
from pipelines.workloads.lmol.sources import finding
from pipelines.workloads.lmol.sources.scores import SCALE
from pipelines.workloads.lmol.sources.tables import read_table
from tests.stages import stage
from tests.workloads.lmol.sources.files import SCORES, data, folder, paired, picture, read, refusal


def given(path, text, name="scores.csv"):
    """A folder of four pictures and a table of this text."""
    folder(path, {"a.png": "1", "b.png": "2", "c.png": "3", "d.png": "4"})
    (path / "scores.csv").unlink()
    (path / name).write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("filename;MOS\na.png;1,5\nb.png;2\n", "scores.csv"),
        ("Image Name\tMean Opinion Score\na.png\t1.5\nb.png\t2\n", "scores.tsv"),
        ("sep=;\nDateiname;Bewertung\na.png;1,5\nb.png;2\n", "scores.csv"),
        ("\n\nDateiname,Bewertung\na.png,1.5\nb.png,2\n", "scores.csv"),
        ('Dateiname,Bewertung\na.png,"1,5"\nb.png,"2,0"\n', "scores.csv"),
        ('"SEP=;"\nDateiname;Bewertung, Mittel\na.png;1,5\nb.png;2\n'.replace(", Mittel", ""), "scores.csv"),
        ('Dateiname,Bewertung\na.png,"+1,5"\nb.png,"2,0"\n', "scores.csv"),
        ("MOS,id,file\n1.5,7,a.png\n2,8,b.png\n", "scores.csv"),
        ("image,Elo\na.png,1.5\nb.png,2\n", "scores.csv"),
        ("photo;Stars\na.png;1,5\nb.png;2\n", "scores.csv"),
        ("Dateiname;Bewertung\na.png;1,5\nb.png;2\n", "scores.csv"),
        ('{"image": "a.png", "MOS": 1.5, "note": null}\n\n{"image": "b.png", "MOS": 2}\n', "scores.jsonl"),
        ('\n[{"image": "a.png", "MOS": "1.5"}, {"MOS": 2, "image": "b.png"}]', "scores.json"),
    ],
)
def test_usual_names_and_separators_are_understood_and_what_was_guessed_is_said(tmp_path, text, name):
    found = read(data(given(tmp_path, text, name)))
    assert found.names == ["a.png", "b.png"]
    assert [float(score * found.unit) for score in found.scores] == [1.5, 2]
    assert any(note.startswith("score is read from the column") for note in found.facts["columns"])


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252"])
def test_a_table_is_read_in_the_encoding_that_a_spreadsheet_saves(tmp_path, encoding):
    given(tmp_path, "")
    (tmp_path / "a.png").rename(tmp_path / "grün.png")
    (tmp_path / "scores.csv").write_bytes("image;score\r\ngrün.png;1,5\r\nb.png;2\r\n".encode(encoding))
    assert read(data(tmp_path)).names == ["grün.png", "b.png"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("votes.json", '["a.png", "b.png"]', 'its rows are not objects; give some such as {"image": "a.png", '),
        ("votes.jsonl", '{"winner": "a.png"', "line 1 is not JSON"),
        ("votes.csv", "from;to\na.png;b.png\n", "votes.csv has the columns from, to; it must have image,score"),
    ],
)
def test_a_table_that_cannot_be_used_is_named_also_beside_folders_of_images(tmp_path, name, text, said):
    (given(tmp_path, text, name) / "below").mkdir()
    picture(5).save(tmp_path / "below/e.png")
    assert said in refusal(tmp_path)


def test_unusual_names_are_given_by_the_config(tmp_path):
    given(tmp_path, "bild,note\na.png,1\nb.png,2\n")
    said = refusal(tmp_path)
    assert "data.columns.score=NAME" in said
    assert "data.columns.first=NAME data.columns.second=NAME data.columns.label=NAME" in said
    found = read(data(tmp_path, columns=Columns(image="bild", score="note")))
    assert found.scores.tolist() == [1, 2]
    assert found.facts["columns"][1:] == [f"passed over in {tmp_path}: images that scores.csv does not list (2)"]
    assert "data.columns.score=grade" in refusal(tmp_path, columns=Columns(image="bild", score="grade"))


def test_ratings_of_several_raters_are_averaged_and_their_spread_is_kept(tmp_path):
    found = read(data(given(tmp_path, "image,rater,score\na.png,x,1\na.png,y,2\na.png,z,2\nb.png,x,3\nb.png,y,3\n")))
    assert [float(score * found.unit) for score in found.scores] == pytest.approx([5 / 3, 3], abs=0.05)
    assert (found.errors > 0.2).all()  # raters who agree about an image may be wrong too


def test_a_count_that_is_no_number_is_named(tmp_path):
    said = refusal(given(tmp_path, "image,score,std,count\na.png,1,0.5,25\nb.png,2,0.8,many\n"))
    assert "scores.csv, line 3: count is 'many', which is not a number" in said


def test_a_standard_deviation_needs_a_count(tmp_path):
    found = read(data(given(tmp_path, "image,score,std,count\na.png,1,0.5,25\nb.png,2,0.8,16\n")))
    assert found.errors == pytest.approx([0.1, 0.2], abs=0.03)  # an image's own, drawn to that of all
    (tmp_path / "scores.csv").write_text("image,score,std\na.png,1,0.5\nb.png,2,0.8\n")
    found = read(data(tmp_path))
    assert found.errors == pytest.approx([0.125, 0.125])  # as of any score that stands alone
    assert any("std is ignored: without a column count" in note for note in found.facts["columns"])


@pytest.mark.parametrize(
    "text",
    [
        "img1,img2,label\na.png,b.png,First\nb.png,c.png,2\nc.png,a.png,c.png\nd.png,a.png,tie\n",
        "winner,loser,tie\na.png,b.png,0\nc.png,b.png,no\nc.png,a.png,\nd.png,a.png,1\n",
        "first,second,winner\na.png,b.png,a.png\nb.png,c.png,second\na.png,c.png,c.png\nd.png,a.png,tie\n",
        "Left Image,Right Image,vote\na.png,b.png,l\nb.png,c.png,r\na.png,c.png,R\nd.png,a.png,tie\n",
        "A,B,chosen\na.png,b.png,A\nb.png,c.png,B\na.png,c.png,./c.png\nd.png,a.png,draw\n",
    ],
)
def test_preferences_need_no_scores(tmp_path, text):
    found = read(data(given(tmp_path, text)))
    assert not found.scored
    wins = {
        tuple(found.names[row] for row in ((b, a) if label == SECOND else (a, b)))
        for a, b, label in found.labels.tolist()
        if label != SIMILAR
    }
    assert wins == {("a.png", "b.png"), ("c.png", "b.png"), ("c.png", "a.png")}
    assert found.labels[3, 2] == SIMILAR
    assert "only preferences" in refusal(tmp_path, theta=0.5)


def test_ones_and_noughts_alone_are_refused_with_both_readings(tmp_path):
    begin = "img1,img2,label\na.png,b.png,1\nb.png,c.png,0\n"
    assert "scores.csv, line 3: the label is '0'" in (said := refusal(given(tmp_path, begin + "c.png,d.png,0\n")))
    assert "0 may mean Second or Similar" in said
    for row, labels in {
        "c.png,d.png,2": [FIRST, SIMILAR, SECOND],
        "c.png,d.png,right": [FIRST, SIMILAR, SECOND],
    }.items():
        (tmp_path / "scores.csv").write_text(f"{begin}{row}\n")
        assert read(data(tmp_path)).labels[:, 2].tolist() == labels
    (tmp_path / "scores.csv").write_text("img1,img2,label\na.png,b.png,First\nb.png,c.png,0\n")
    assert read(data(tmp_path)).labels[:, 2].tolist() == [FIRST, SIMILAR]


def test_an_image_has_one_name(tmp_path):
    given(tmp_path, f"image,score\n./a.png,1\n{tmp_path}/b.png,2\n.//c.png,3\na.png,1\n../d.png,4\n")
    found = read(data(tmp_path))
    assert found.names == ["a.png", "b.png", "c.png"]
    assert list(found.facts["quarantined"]) == ["../d.png"]


@pytest.mark.parametrize("words", [["prepare.py"], ["train.py", "--name", "x", "training.steps=1"]])
def test_columns_have_no_effect_on_a_terminal(tmp_path, words):
    names = [f"{number}.png" for number in range(30)]
    (tmp_path / "made").mkdir()
    folder(tmp_path / "made", dict.fromkeys(names, "1"))
    rows = "".join(f"{name},{score},x\n" for score, name in enumerate(names))
    (tmp_path / "made/scores.csv").write_text(f"image,score,a\x1b[2J\n{rows}")
    done = stage(tmp_path, words[0], "--workload", "lmol", "data.source=made", *words[1:])
    assert done.returncode == 0, done.stderr
    assert r"not used: the columns a\x1b[2J" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_names_are_read_as_windows_writes_them(tmp_path):
    given(tmp_path, "image,score\nfar\\a.png,1\n.\\b.png,2\nc.png,3\n")
    (tmp_path / "far").mkdir()
    (tmp_path / "a.png").rename(tmp_path / "far/a.png")
    assert read(data(tmp_path)).names == ["far/a.png", "b.png", "c.png"]


def test_names_that_a_csv_guards_against_spreadsheets_are_read_as_they_are(tmp_path):
    folder(tmp_path, {"=a.png": "1", "-b.png": "2"})
    (tmp_path / "scores.csv").write_text(to_csv(("image", "score"), [("=a.png", "-1"), ("-b.png", "2")]))
    found = read(data(tmp_path))
    assert found.names == ["=a.png", "-b.png"]
    assert found.scores.tolist() == [-1, 2]


def test_a_count_is_as_many_answers(tmp_path):
    found = read(data(given(tmp_path, "winner,loser,count\na.png,b.png,3\nb.png,c.png,0\nb.png,a.png,1\n")))
    assert sorted(map(tuple, found.labels[:, :2].tolist())) == [tuple(found.labels[0, :2].tolist())] * 4
    winners = [found.names[(a, b)[label == SECOND]] for a, b, label in found.labels.tolist()]
    assert winners == ["a.png", "a.png", "a.png", "b.png"]
    (tmp_path / "scores.csv").write_text("winner,loser,count\na.png,b.png,-1\n")
    assert "line 2: count is -1" in refusal(tmp_path)
    (tmp_path / "scores.csv").write_text("winner,loser\na.png,a.png\n")
    assert "compared with itself" in refusal(tmp_path)


def test_where_the_winner_comes_first_in_the_table_either_image_comes_first_in_the_pair(tmp_path):
    names = [f"{number:02}.png" for number in range(20)]
    folder(tmp_path, dict.fromkeys(names, "1"))
    rows = [f"{a},{b}\n" for a in names for b in names if a < b]
    (tmp_path / "scores.csv").write_text("winner,loser\n" + "".join(rows))
    labels = read(data(tmp_path)).labels[:, 2]
    assert len(labels) == len(rows)
    assert abs(np.mean(labels == FIRST) - 0.5) < 4 * (0.25 / len(rows)) ** 0.5
    assert set(labels.tolist()) == {FIRST, SECOND}


def test_a_folder_per_rank_scores_its_images(tmp_path):
    for seed, name in enumerate(("1-poor/a.png", "1-poor/b.png", "10/c.png")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        picture(seed).save(tmp_path / name)
    (tmp_path / ".thumbnails").mkdir()
    for hidden in (".thumbnails/a.png", "10/._c.png"):
        (tmp_path / hidden).write_bytes(b"")
    found = read(data(tmp_path, attribute="quality"))
    assert found.names == ["1-poor/a.png", "1-poor/b.png", "10/c.png"]
    assert found.scores.tolist() == [1, 1, 10]
    assert not found.facts["quarantined"]
    (tmp_path / "10").rename(tmp_path / "good")
    assert "the folder good does not begin with a rank" in refusal(tmp_path)


def test_labels_that_contradict_scores_are_kept_as_given(tmp_path):
    found = read(data(paired(tmp_path, SCORES, Fraction("0.2"), wrong=(1,))))
    assert found.scored
    assert found.labels[1].tolist() == [0, 2, FIRST]  # a has less than c


def test_the_tables_of_kadid_and_koniq_are_read_as_they_are_published(tmp_path):
    text = "dist_img,ref_img,dmos,var\nimages/a.png,I01.png,4.57,0.496\nimages/b.png,I01.png,4.33,0.869\n"
    (tmp_path / "images").mkdir()
    table = given(tmp_path, text, "dmos.csv")
    for name in ("a.png", "b.png"):
        (tmp_path / name).rename(tmp_path / "images" / name)
    found = read(data(table))
    assert found.names == ["images/a.png", "images/b.png"]
    assert found.groups == ["I01.png", "I01.png"]
    koniq = '"image_name","c1","c2","c3","c4","c5","c_total","MOS","SD","MOS_zscore"\n'
    koniq += '"a.png",0,0,25,73,7,105,3.83,0.55,78.5\n"b.png",0,3,45,47,1,96,3.48,0.58,69.6\n'
    (tmp_path / "scores_and_distributions.csv").write_text(koniq)
    found = read(data(tmp_path / "scores_and_distributions.csv"))
    assert [float(score * found.unit) for score in found.scores] == [3.83, 3.48]
    assert found.errors == pytest.approx([0.55 / 105**0.5, 0.58 / 96**0.5], rel=0.1)


@pytest.mark.parametrize(
    ("name", "lines", "files", "scores", "groups"),
    [
        (
            "mos_with_names.txt",  # TID2013
            ["5.5 I01_01_1.bmp", "3.25 I01_02_1.bmp", "4.0 i02_01_1.bmp"],
            ["distorted_images/i01_01_1.bmp", "distorted_images/I01_02_1.BMP", "distorted_images/i02_01_1.bmp"],
            ["5.5", "3.25", "4.0"],
            ["i01", "i01", "i02"],
        ),
        (
            "A0001.txt",  # PIPAL
            ["A0001_00_00.bmp,1461.7840", "A0001_00_01.bmp,1502.2", "A0002_00_00.bmp,1300.5"],
            ["Distortion_1/A0001_00_00.bmp", "Distortion_1/A0001_00_01.bmp", "Distortion_2/A0002_00_00.bmp"],
            ["1461.7840", "1502.2", "1300.5"],
            ["a0001", "a0001", "a0002"],
        ),
        ("list.csv", ["a.png;3.5", "b.png;4"], ["a.png", "b.png"], ["3.5", "4"], ["", ""]),
    ],
)
def test_lists_without_a_header_are_read_by_what_their_first_row_holds(tmp_path, name, lines, files, scores, groups):
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / name).write_text("\n".join(lines))
    (tmp_path / "readme.txt").write_text("the scores and their images\n")
    assert finding.find_table(str(tmp_path), {}) == tmp_path / name
    found = read_table(tmp_path / name, {})
    assert list(found.scores) == files
    assert list(found.scores.values()) == scores
    assert [group.lower() for group in found.groups.values()] == groups


def test_pairs_in_pick_a_pics_form_are_choices_of_images_named_without_ending(tmp_path):
    (tmp_path / "images").mkdir()
    for name in ("u1.jpg", "u2.jpg", "u3.jpg"):
        (tmp_path / "images" / name).touch()
    header = "image_0_uid,image_1_uid,best_image_uid,label_0,label_1,user_id,caption"
    rows = ["u1,u2,u1,1,0,7,a cat", "u2,u3,tie,0.5,0.5,8,a dog", "u3,u1,u1,0,1,7,a bird"]
    (tmp_path / "pairs.csv").write_text("\n".join([header, *rows]))
    found = read_table(tmp_path / "pairs.csv", {})
    one, two, three = (f"images/u{number}.jpg" for number in (1, 2, 3))
    assert [pair[1:] for pair in found.pairs] == [(one, two, 0), (two, three, 2), (three, one, 1)]
    assert found.answered_by == ["7", "8", "7"]


def test_commas_of_raters_are_no_decimal_ones(tmp_path):
    rows = ['a.png,1,"1,2"', "a.png,2,1.2", 'b.png,2,"1,2"', "b.png,3,1.2"]
    found = read_table(given(tmp_path, "\n".join(["image,score,rater", *rows])) / "scores.csv", None)
    assert {each["rater"] for each in found.raters} == {"1,2", "1.2"}


def test_a_table_with_a_damaged_row_is_not_passed_over_for_another(tmp_path):
    folder(tmp_path, {"a.png": "1", "b.png": "2"})
    (tmp_path / "scores.csv").write_text('image,score\na.png,1\n"b"x.png,3\n')
    (tmp_path / "zz_old.csv").write_text("image,score\na.png,2\nb.png,1\n")
    assert "scores.csv, line 3: this is not CSV" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("text", "attribute", "scores"),
    [
        ("image,quality,beauty\na.png,1,8\nb.png,2,7\n", "beauty", [8, 7]),
        ("image,quality,Beauty\na.png,1,8\nb.png,2,7\n", "beauty", [8, 7]),
        ("image,level\na.png,1\nb.png,2\n", "level", [1, 2]),
        ("image,attribute,score\na.png,beauty,8\na.png,quality,1\nb.png,beauty,7\nb.png,quality,2\n", "beauty", [8, 7]),
        ("image,score,beauty\na.png,1,8\nb.png,2,7\n", "sharpness", [1, 2]),  # a word for the scores
    ],
)
def test_images_are_ranked_by_the_column_or_the_rows_of_the_attribute(tmp_path, text, attribute, scores):
    found = read(data(given(tmp_path, text), attribute=attribute))
    assert (found.attribute, [float(score * found.unit) for score in found.scores]) == (attribute, scores)


def test_a_word_for_what_is_ranked_may_be_the_name_of_the_answers_or_of_another_column(tmp_path):
    given(tmp_path, "image,quality,beauty\na.png,1,8\nb.png,2,7\n")
    found = read(data(tmp_path, attribute="beauty", columns=Columns(score="quality")))
    assert (found.attribute, found.scores.tolist()) == ("beauty", [1, 2])
    (tmp_path / "scores.csv").unlink()
    found = read(
        data(given(tmp_path, "image,quality,std,count\na.png,1,0.5,25\nb.png,2,0.8,16\n"), attribute="quality")
    )
    assert found.errors == pytest.approx([0.1, 0.2], abs=0.03)
    (tmp_path / "scores.csv").unlink()
    found = read(data(given(tmp_path, "img1,img2,preference\na.png,b.png,First\n"), attribute="preference"))
    assert (found.scored, found.labels.tolist()) == (False, [[0, 1, FIRST]])


@pytest.mark.parametrize("written", ["{}%", "{}/10", "{} / 10", "{} %"])
@pytest.mark.parametrize("points", [("7.6", "8"), ("7,6", "8,0")])
def test_scores_of_one_scale_are_read_without_it(tmp_path, written, points):
    one, two = map(written.format, points)
    found = read(data(given(tmp_path, f"image;score\na.png;{one}\nb.png;{two}\nc.png;\n")))
    assert [float(score * found.unit) for score in found.scores] == [7.6, 8]
    assert any("without the scale behind each" in note for note in found.facts["columns"])
    assert list(found.facts["quarantined"]) == ["c.png"]


def test_scores_of_several_scales_are_not(tmp_path):
    found = read(data(given(tmp_path, "image,score\na.png,76%\nb.png,7.6/10\nc.png,8\nd.png,9\n")))
    assert found.names == ["c.png", "d.png"]
    assert "its score is '76%', which is not a number" in found.facts["quarantined"]["a.png"]
    assert not any("scale" in note for note in found.facts["columns"])


def test_scores_of_pairs_are_read_as_those_of_images_are(tmp_path):
    text = 'img1,img2,score1,score2,label\na.png,b.png,"7,5/10",2/10,First\nb.png,c.png,2/10,9/10,Second\n'
    found = read(data(given(tmp_path, text)))
    assert [float(score * found.unit) for score in found.scores] == [7.5, 2, 9]


@pytest.mark.parametrize(
    ("text", "attribute", "scores"),
    [
        ("image,score\na.png,1\nb.png,2\n", "image", [1, 2]),
        ("image,score,group\na.png,1,9\nb.png,2,8\n", "group", [1, 2]),
        ("image,score,rater\na.png,1,9\nb.png,2,9\n", "Rater", [1, 2]),
        ("image,score,std,count\na.png,1,9,4\nb.png,2,8,4\n", "std", [1, 2]),
        ("image,score,style\na.png,1,oil\nb.png,2,pencil\n", "style", [1, 2]),
        ("image,score,visual_beauty\na.png,1,8\nb.png,2,7\n", "visual beauty", [8, 7]),
        ("image,score,beauty\na.png,1,80 %\nb.png,2,70 %\n", "beauty", [80, 70]),
        ("image,score,größe,grüße\na.png,1,3,8\nb.png,2,4,7\n", "Grüße", [8, 7]),
        ("image,attribute,score\na.png,Beauty,8\nb.png,beauty,7\na.png,group,1\nb.png,group,2\n", "beauty", [8, 7]),
        ("image,attribute,score\na.png,Beauty,8\nb.png,beauty,7\n", None, [8, 7]),
    ],
)
def test_only_columns_of_numbers_that_say_nothing_else_are_attributes_however_spelled(
    tmp_path, text, attribute, scores
):
    found = read(data(given(tmp_path, text), attribute=attribute))
    assert [float(score * found.unit) for score in found.scores] == scores


def test_rows_about_an_attribute_count_however_it_is_spelled_and_others_are_named_once(tmp_path):
    text = "image,attribute,score\na.png,Beauty,8\nb.png,beauty,7\na.png,noise,1\nb.png,noise,2\n"
    found = read(data(given(tmp_path, text), attributes=("beauty", "noise")))
    assert [float(score * found.unit) for score in found.scores] == [8, 7]
    assert "rows about 2 attributes; give data.attribute=" in refusal(tmp_path)


def test_the_spread_of_the_usual_scores_is_not_that_of_another_attribute(tmp_path):
    text = "image,quality,beauty,std,count\na.png,1,8,0.5,25\nb.png,2,6,0.5,25\n"
    one, both = (data(given(tmp_path, text), **key) for key in ({"attribute": "beauty"}, {"attributes": ("beauty",)}))
    assert read(one).errors.tolist() == read(both).errors.tolist()
    assert read(data(tmp_path, attribute="quality")).errors == pytest.approx([0.1, 0.1], abs=0.01)
    named = data(tmp_path, attribute="beauty", columns=Columns(std="std"))
    assert read(named).errors == pytest.approx([0.1, 0.1], abs=0.01)


@pytest.mark.parametrize("scores", [("2024/5", "2023/5"), ("2024/05", "2023/05"), ("7/0", "8/0"), ("7/10", "11/10")])
def test_what_is_no_scale_is_not_taken_for_one(tmp_path, scores):
    assert "which is not a number" in refusal(given(tmp_path, "image,score\na.png,{}\nb.png,{}\n".format(*scores)))


def test_blanks_within_a_score_take_no_time():
    started = time.perf_counter()
    assert SCALE.search("1" + " " * 100_000 + "x")
    assert time.perf_counter() - started < 1
