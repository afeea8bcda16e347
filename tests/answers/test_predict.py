"""Inputs as the command reads them, and the command itself on a model that comes with the project."""

import io
import json
import os
import random
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from common.errors import UserError
from common.foreign_text import from_csv
from common.input_files import files_in
from pipelines import workloads
from pipelines.answers import command_inputs
from pipelines.predict import Table
from tests.processor import within
from tests.stages import ROOT, command, refused, stage
from tests.workloads.cvrp.files import SMALL

PRETRAINED = ["--name", "cvrp-20", "augment=false", "starts=1", "milliseconds=0"]


def problem(number):
    generator = random.Random(number)
    customers = [[generator.random(), generator.random()] for _ in range(3)]
    return {"name": str(number), "depot": [0, 0], "customers": customers, "demands": [1, 2, 3], "capacity": 4}


def answers(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_a_bad_line_among_many_is_named_and_the_others_are_answered(tmp_path):
    lines = [json.dumps(problem(number)) for number in range(250)]
    lines[116] = lines[116][:-9]
    (tmp_path / "many.jsonl").write_text("\n".join(lines) + "\n")
    done = stage(tmp_path, "predict.py", *PRETRAINED, "many.jsonl", "milliseconds=0.5")
    assert done.returncode == 1, done.stderr
    found = answers(done)
    assert [each["source"] for each in found] == [f"many.jsonl:{number + 1}" for number in range(250)]
    assert [number for number, each in enumerate(found) if "routes" not in each] == [116]
    assert "this is not JSON" in found[116]["error"]
    assert "1 input could not be used, or only in part; the first: many.jsonl:117: this is not JSON" in done.stderr


def test_files_have_their_solutions_beside_them_and_a_best_known_one_stays(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.vrp").write_text(SMALL)
    (tmp_path / "one.sol").write_text("Cost 1\n")
    (tmp_path / "torn.vrp").write_text(SMALL[:60])
    done = stage(tmp_path, "predict.py", "--name", "cvrp-20", ".", "absent.vrp")
    assert done.returncode == 2  # for the one asked for by name
    assert "2 inputs could not be used" in done.stderr
    found = answers(done)
    assert [("cost" in each, each["source"]) for each in found] == [
        *((True, "one.vrp"), (False, "torn.vrp"), (True, "two.vrp"), (False, "absent.vrp"))
    ]
    assert (tmp_path / "one.sol").read_text() == "Cost 1\n"
    for name in ("one", "two"):
        assert (tmp_path / f"{name}.cvrp-20.sol").read_text().endswith(f"Cost {found[0]['cost']:g}\n")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        (["--name", "cvrp-20", "starst=2"], ["settings: starst: unknown key; did you mean 'starts'?"]),
        (["--name", "cvrp-20", "starts=2", "decode=greedy"], ["starts=2 needs decode=multistart"]),
        (["--name", "nobody", "x.vrp"], ["there is no run runs/cvrp/nobody", "--model FOLDER"]),
        (["--name", "cvrp20", "x.vrp"], ["there is no run runs/cvrp/cvrp20; did you mean --name cvrp-20 or"]),
        (["input={pretrained}"], ["unknown key input; give a file or folder without a key: {pretrained}"]),
        (["--csv", "absent/t.csv", "x.vrp"], ["--csv absent/t.csv: there is no such folder"]),
        (["--csv", "t.csv", "--stream", "x.vrp"], ["leave out --stream"]),
        (
            ["--csv", "runs", "x.vrp"],
            ["--csv runs: this is a folder, an input, or a file other than answers; give a new one, as in --csv ans"],
        ),
        (["--csv", "runs/../mine.csv", "mine.csv"], ["mine.csv: this is a folder, an input, or a file other than"]),
        (["--csv", "/dev/null", "x.vrp"], ["--csv /dev/null: this is a folder, an input, or a file other than"]),
        (["--name", "cvrp-20", "--model", "{pretrained}", "x.vrp"], ["--model: not allowed with argument --name"]),
        (["--workload", "tinystories", "promt=Once"], ["promt=Once: unknown key promt; did you mean prompt=Once?"]),
        (["--workload", "crypto", "now=2025-01-16"], ["is a date: give it in ms since 1970, now=1736985600000, or"]),
        (["--model", "nowhere", "x.vrp"], ["no model in nowhere"]),
        (["--device", "gpu", "x.vrp"], ["--device gpu: Expected one of cpu, cuda", "; give one such as cpu or cuda:0"]),
        (["--device", "cuda:99", "x.vrp"], ["--device cuda:99: ", "; give one such as cpu or cuda:0"]),
        (["--model", "runs/cvrp/dgt", "x.vrp"], ["give --name dgt, or --model runs/cvrp/dgt/model/best"]),
        (
            ["--workload", "tinystories", "--model", "{pretrained}", "prompt=x"],
            ["of the family routing are not of the workload tinystories"],
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, given, texts):
    pretrained = str(ROOT / "models/pretrained/cvrp-20")
    (tmp_path / "runs").mkdir()
    if "runs/cvrp/dgt" in given:
        (tmp_path / "runs/cvrp/dgt/model/best").mkdir(parents=True)
        (tmp_path / "runs/cvrp/dgt/config.yaml").touch()
    given, texts = ([each.replace("{pretrained}", pretrained) for each in words] for words in (given, texts))
    refused(stage(tmp_path, "predict.py", *given), *texts)


@pytest.mark.slow
def test_pipes_go_in_and_out_one_answer_at_a_time(tmp_path):
    words = command("predict.py", *PRETRAINED)
    process = subprocess.Popen(words, cwd=tmp_path, stdin=-1, stdout=-1, stderr=-1, text=True)
    for number in range(3):
        process.stdin.write(json.dumps(problem(number)) + "\n")
        process.stdin.flush()
        found = json.loads(process.stdout.readline())  # before the next line is written
        assert (found["source"], found["name"]) == (f"-:{number + 1}", str(number))
    process.stdin.write('{"depot": 3}\n')
    out, err = process.communicate(timeout=600)
    assert process.returncode == 1
    assert "depot: " in json.loads(out)["error"]
    assert "the first: -:4: an input: depot: " in err
    line = json.dumps(problem(0)) + "\n"
    piped = f"{' '.join(words)} many.jsonl | head -n 1"
    (tmp_path / "many.jsonl").write_text(line * 3000)
    done = subprocess.run(["bash", "-c", piped], cwd=tmp_path, capture_output=True, text=True)
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


def read(inputs, text):
    return list(command_inputs.of_lines(io.BytesIO(text.encode()), "-", inputs))


def test_a_pipe_is_read_in_the_encodings_that_a_file_is():
    inputs = workloads.inputs("tinystories")
    lines = ["A caf\xe9\n".encode("cp1252"), "A caf\xe9\n".encode(), '{"prompt": "na\xefve"}\n'.encode("cp1252")]
    found = list(command_inputs.of_lines([b"\xef\xbb\xbf" + lines[1], *lines], "-", inputs))
    assert [each.input["prompt"] for each in found] == [*["A caf\xe9"] * 3, "na\xefve"]
    (found,) = command_inputs.of_lines(io.BytesIO("One\nTwo\n".encode("utf-16")), "-", inputs)
    assert (found.input, found.error) == (None, "-: this is UTF-16; convert it first: iconv -f UTF-16 -t UTF-8")


def test_a_line_is_an_object_or_a_prompt_or_a_file(tmp_path):
    found = read(workloads.inputs("tinystories"), 'Once\n\n{"prompt": "Two", "item": 9}\r\n{"prompt": \n[1]\n')
    assert [each.source for each in found] == ["-:1", "-:3", "-:4", "-:5"]
    assert [each.input for each in found[:2]] == [{"item": 0, "prompt": "Once"}, {"item": 9, "prompt": "Two"}]
    assert "this is not JSON" in found[2].error
    assert "an input must be an object" in found[3].error
    (tmp_path / "a.vrp").write_text(SMALL)
    good, bad = read(workloads.inputs("cvrp"), f"{tmp_path}/a.vrp\n{tmp_path}/b.vrp\n")
    assert good.input["name"] == "a"
    assert "there is no such file" in bad.error


def test_a_line_that_is_neither_an_object_nor_a_file_is_named_by_its_number(tmp_path):
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(problem(0))}\ndepot: 3\n")
    good, bad = command_inputs.given([tmp_path / "a.jsonl"], {}, workloads.inputs("cvrp"), None)
    assert good.input["name"] == "0"
    assert bad.source == f"{tmp_path}/a.jsonl:2"
    assert "depot: 3: there is no such file or folder; a line is a JSON object or a file name" in bad.error


@pytest.mark.parametrize("name", ["tinystories", "bep"])
def test_a_text_instead_of_a_file_is_answered_with_the_word_for_it(name):
    (found,) = command_inputs.given([Path("Once upon a time")], {}, workloads.inputs(name), None)
    assert 'there is no such file or folder; for a text to continue, give prompt="Once upon a time"' in found.error


def test_words_are_files_settings_or_fields_of_one_input(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b").write_text("Once\n")
    inputs = workloads.inputs("tinystories")
    paths, settings, fields = command_inputs.sorted_out(["a=b", "seed=3", "prompt=The plan: 1", "x.txt", "-"], inputs)
    assert ([str(path) for path in paths], settings, fields) == (
        ["a=b", "x.txt", "-"], {"seed": 3}, {"prompt": "The plan: 1"},
    )  # fmt: skip
    assert command_inputs.sorted_out([f"prompt={'long ' * 100}"], inputs)[2] == {"prompt": "long " * 100}
    assert command_inputs.sorted_out(["seed=3", "prompt=Once", "seed=4", "seed=4"], inputs)[1] == {"seed": 4}
    assert capsys.readouterr().err == "seed is given 3 times: 4 counts\n"
    for word in ("seed=x", "seed={", "length=0", "sed=1"):
        with pytest.raises(UserError, match=word.partition("=")[0]):
            command_inputs.sorted_out([word], inputs)


def test_a_file_where_a_text_belongs_is_refused_with_the_word_that_gives_its_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.md").write_text("# Project scope\n")
    told = 'document=plan.md: this is a file, not the text; give document="$(cat plan.md)"'
    with pytest.raises(UserError, match=re.escape(told)):
        command_inputs.sorted_out(["field=projectScope", "document=plan.md"], workloads.inputs("bep"))
    (tmp_path / "a.png").touch()
    assert command_inputs.sorted_out(["first=a.png", "second=a.png"], workloads.inputs("lmol"))[2]["first"] == "a.png"


def test_forms_have_their_fields_and_an_empty_one_its_usual_beginning(tmp_path):
    inputs = workloads.inputs("bep")
    (tmp_path / "form.json").write_text(json.dumps({"projectScope": "", "bimObjectives": "To"}))
    (tmp_path / "torn.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "lines.txt").write_text("One\n\nTwo\n")
    found = list(inputs.read([tmp_path]))
    by_source = {each.source.rpartition("/")[2]: each for each in found}
    assert inputs.completed(by_source["form.json:projectScope"].input)["prompt"] == "The scope of the works includes "
    assert inputs.completed(by_source["form.json:bimObjectives"].input)["prompt"] == "To"
    assert by_source["lines.txt:3"].input["prompt"] == "Two"
    assert "this is not JSON" in by_source["torn.json"].error
    assert "a form is an object" in by_source["list.json"].error
    assert inputs.completed({"field": "3.4 Clash detection process"})["field"] == "clashDetection"
    with pytest.raises(UserError) as error:
        inputs.completed({"field": "model colours"})
    near = "the nearest: modelingStandards, modelRequirements, taskTeamExchange"
    assert str(error.value) == f"field 'model colours' has no usual beginning, so give a prompt; {near}"


def test_images_are_one_ranking_and_those_of_a_folder_another(tmp_path):
    inputs = workloads.inputs("lmol")
    for name in ("a.png", "b.PNG", "note.txt", ".c.png"):
        (tmp_path / name).touch()
    (tmp_path / "empty").mkdir()
    one, other, none = inputs.read([tmp_path / "a.png", tmp_path, tmp_path / "b.PNG", tmp_path / "empty"])
    assert len(one.input["images"]) == 2
    assert other.input["images"] == [str(tmp_path / "a.png"), str(tmp_path / "b.PNG")]
    assert "holds no file that ends in .jpg" in none.error


def test_help_has_the_settings_and_comes_without_torch(tmp_path):
    code = f"import sys; sys.argv = ['predict.py', '--workload', 'crypto', '--help']; sys.path[0] = '{ROOT}'\n"
    code += "import atexit, runpy\natexit.register(lambda: print('torch' in sys.modules, file=sys.stderr))\n"
    code += f"runpy.run_path('{ROOT}/pipelines/predict.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "False\n")
    assert "  candles.close  ([number, ...])" in done.stdout
    assert "  threshold=null  (0 < number <= 1 / null)" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.slow
def test_what_answers_say_of_themselves_is_said_beside_a_table(tmp_path):
    for level in (60, 160):
        Image.new("RGB", (60, 40), (level, 40, 255 - level)).save(tmp_path / f"{level}.png")
    words = ("--workload", "lmol", "--name", "lmol-digits", str(tmp_path), "--csv", "ranking.csv")
    done = stage(tmp_path, "predict.py", *words)
    note = "2 of 2 rows: unlike the images that the model was trained on: this answer means little"
    assert done.stdout.splitlines() == ["ranking.csv: 2 rows", note], done.stderr


def test_names_of_files_that_are_no_utf_8_are_escaped_as_json_has_them(tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    Image.new("RGB", (60, 40), (60, 40, 195)).save(tmp_path / name)
    words = ("--workload", "lmol", "--name", "lmol-digits", ".")
    done = stage(tmp_path, "predict.py", *words, fresh=True, PYTHONIOENCODING="utf-8")
    assert done.returncode == 0, done.stderr
    assert [each["image"] for each in answers(done)[0]["ranking"]] == [name]


def test_thousands_of_files_and_a_folder_of_them_are_found_at_once(tmp_path):
    for number in range(4000):
        (tmp_path / f"{number:04}.txt").touch()
    (tmp_path / "a.png").touch()
    began = time.thread_time()
    files = files_in(tmp_path, [".txt"])
    paths, *_ = command_inputs.sorted_out([f"{file.name}.absent" for file in files * 2], workloads.inputs("lmol"))
    assert within(time.thread_time() - began, 1)
    assert (len(files), len(paths)) == (4000, 8000)


def test_only_a_text_is_offered_as_one_in_place_of_a_file_that_is_absent():
    stories = workloads.inputs("tinystories")
    numbers = replace(stories, line=lambda text: {"past": text.split()})
    for inputs, hint in ((stories, '; for a text to continue, give prompt="a b"'), (numbers, "")):
        (found,) = command_inputs.given([Path("a b")], {}, inputs, None)
        assert found.error == f"a b: there is no such file or folder{hint}"


@pytest.mark.parametrize("workload", ["tinystories", "bep"])
def test_objects_are_read_from_ndjson_and_no_line_from_what_is_no_text(tmp_path, workload):
    def given(name, data):
        path = tmp_path / name
        path.write_bytes(data)
        return list(command_inputs.given([path], {}, workloads.inputs(workload), None))

    assert [dict(each.input) for each in given("a.ndjson", b'{"prompt": "A"}')] == [{"item": 0, "prompt": "A"}]
    assert [each.input for each in given("a.json", b'[{"prompt": "A"}]')] == [None]
    for data in (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"PK\x03\x04\x14\0"):
        (found,) = given("a.txt", data)
        assert (
            found.error
            == f"{tmp_path}/a.txt: not lines of text; save them as .txt, or JSON objects, one a line, as .jsonl"
        )
    for encoding in ("utf-8-sig", "utf-16"):
        assert [each.input["prompt"] for each in given("a.txt", "Aé\nB".encode(encoding))] == ["Aé", "B"]


def test_fields_that_hold_for_all_files_hold_for_those_that_a_pipe_names(tmp_path):
    inputs = workloads.inputs("cvrp")
    (tmp_path / "a.csv").write_text("x,y,demand\n0,0,0\n1,0,2\n0,1,2\n")
    pipe = io.BytesIO(f"{tmp_path}/a.csv\n".encode())
    (found,) = command_inputs.given([], {"capacity": 7}, inputs, pipe)
    assert (found.source, found.input["capacity"], found.input["demands"]) == (f"{tmp_path}/a.csv", 7, [2, 2])
    for fields, pipe in (({"capacity": 7}, None), ({"capacity": 7, "depot": [0, 0]}, io.BytesIO(b"unread\n"))):
        assert [dict(each.input) for each in command_inputs.given([], fields, inputs, pipe)] == [fields]


def test_a_list_of_texts_is_a_list_and_a_text_may_begin_with_a_bracket():
    inputs = workloads.inputs("tinystories")
    _, settings, fields = command_inputs.sorted_out(["stop=[., 'The End']", "prompt=[sic]"], inputs)
    assert (settings, fields) == ({"stop": [".", "The End"]}, {"prompt": "[sic]"})
    assert command_inputs.sorted_out(["stop=. A"], inputs)[1] == {"stop": ". A"}


def test_many_answers_make_a_table_without_what_a_cell_cannot_hold(tmp_path):
    lines = [json.dumps(problem(number)) for number in range(3)]
    (tmp_path / "many.jsonl").write_text("\n".join([*lines, "{}"]) + "\n")
    done = stage(tmp_path, "predict.py", *PRETRAINED, "many.jsonl", "--csv", "answers.csv")
    assert done.returncode == 1, done.stderr
    assert done.stdout == "answers.csv: 4 rows; left out, as a cell cannot hold them: routes\n"
    rows = from_csv((tmp_path / "answers.csv").read_text())
    assert [row["source"] for row in rows] == [f"many.jsonl:{number}" for number in range(1, 5)]
    assert [row["name"] for row in rows] == ["0", "1", "2", ""]
    assert all(float(row["cost"]) > 0 for row in rows[:3])
    assert "depot: it is missing" in rows[3]["error"]


def test_a_table_replaces_nothing_but_a_table_of_answers(tmp_path):
    folder = tmp_path / "lines"
    folder.mkdir()
    (folder / "a.txt").write_text("Once\n")
    words = ("--workload", "tinystories", "length=2", str(folder), "--csv")
    refused(stage(tmp_path, "predict.py", *words, "lines/a.txt"), "--csv lines/a.txt: this is a folder, an input, or")
    assert (folder / "a.txt").read_text() == "Once\n"
    (tmp_path / "blank.csv").write_text("\n" * 8 + "mine,1\n")
    refused(
        stage(tmp_path, "predict.py", *words, "blank.csv"), "--csv blank.csv: this is a folder, an input, or a file"
    )
    (tmp_path / "answers.csv").touch()
    (tmp_path / "link.csv").symlink_to("answers.csv")
    for name in ("link.csv", "answers.csv"):
        assert stage(tmp_path, "predict.py", *words, name).stdout == f"{name}: 1 rows\n"
        assert (tmp_path / "answers.csv").read_text().startswith(f"source,prompt,text,finish\n{folder}/a.txt:1,Once,")
    assert (tmp_path / "link.csv").is_symlink()


def test_a_ranking_is_a_row_for_each_image_and_plain_objects_are_columns():
    table = Table()
    ranking = [{"image": "b.png", "score": 2.0, "low": 1.5}, {"image": "a.png", "score": 1.0, "low": 0.5}]
    table.add("images/", {"ranking": ranking, "errors": [{"image": "c.png", "error": "torn"}]})
    assert [(row["source"], row.get("rank"), row["image"]) for row in table.rows] == [
        *(("images/", 1, "b.png"), ("images/", 2, "a.png"), ("images/", None, "c.png"))
    ]
    assert table.text().splitlines()[0] == "source,rank,image,score,low,error"
    assert not table.left_out
    table.add("a.csv", {"signal": "LONG", "probabilities": {"SHORT": 0.2, "LONG": 0.8}, "parts": [[1]]})
    assert table.rows[-1] == {
        "source": "a.csv",
        "signal": "LONG",
        "probabilities.SHORT": 0.2,
        "probabilities.LONG": 0.8,
    }
    assert list(table.left_out) == ["parts"]
    table.add("few/", {"ranking": ranking, "errors": [{"image": "c.png", "error": "torn"}], "note": "little learnt"})
    few = [(row.get("rank"), row["image"], row.get("note")) for row in table.rows[-3:]]
    assert few == [(1, "b.png", "little learnt"), (2, "a.png", "little learnt"), (None, "c.png", None)]
