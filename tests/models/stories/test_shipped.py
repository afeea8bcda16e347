"""The model of stories that comes with the project: small, quick to answer, and ready for a page and a chip."""

import json
import re
import resource
import subprocess
import sys

import pytest

from models import io
from tests import stages
from tests.exporters.commands import ROOT, command
from tests.processor import within

FOLDER = ROOT / "models/pretrained/tinystories-real"
WORDS = ["predict.py", "--workload", "tinystories", "--model", str(FOLDER), "prompt=Once upon a time", "length=200"]


@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_it_is_small_and_answers_within_five_seconds_of_a_new_process(tmp_path, fresh):
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2 * 2**20
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = stages.stage(tmp_path, *WORDS, fresh=fresh)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = json.loads(done.stdout)
    assert len(answer["text"].split()) > 30
    assert within(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 5)


def test_it_reads_prompts_in_the_lower_case_of_its_stories():
    model = io.load(FOLDER)
    assert model.lower_case
    assert model.encoded("Once Upon") == model.encoded("once upon")
    told = [next(model.predict([{"prompt": prompt}], temperature=0, length=20)) for prompt in ("Once", "once")]
    assert told[0]["text"] == told[1]["text"]
    assert told[0]["prompt"] == "Once"


def test_it_says_what_it_cannot_read_of_a_prompt():
    unread, read = io.load(FOLDER).predict([{"prompt": "the cat \u65e5\U0001f600"}, {"prompt": "the cat"}], length=2)
    assert unread["note"] == "7 bytes of the prompt did not occur in the stories this model learnt from"
    assert "note" not in read


@pytest.mark.slow
@pytest.mark.parametrize("form", ["web", "rp2040"])
def test_it_is_exported_as_it_is(form, tmp_path):
    done = command(form, FOLDER, "--out", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["run"] == "tinystories-real"
    if form == "web":
        page = (tmp_path / "index.html").read_text()
        assert '"prompt": "once upon a time"' in page
        assert '"lower_case": true' in page
        assert len(page) < 3_500_000
    else:
        words = ["/tokens 8", "/temperature 0", "once upon a time", "Once upon a time"]
        chip = [sys.executable, ROOT / "tests/exporters/rp2040/chip.py", tmp_path / "story.uf2", *words]
        told = subprocess.run(chip, capture_output=True, text=True, check=True).stdout
        assert "an empty line tells: once upon a time" in told
        small, capital = re.findall(r"nce upon a time\n(.+)\n\[8 tokens", told)
        assert small == capital
