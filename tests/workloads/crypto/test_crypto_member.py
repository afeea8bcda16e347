"""One model of a run of many is an ordinary run: --name RUN/MEMBER goes to every stage."""

import json
import re

import pytest

from tests.report.pages import checked
from tests.stages import export, refused, stage

WORDS = [
    *("data.symbols=[AAAUSDT,BBBUSDT]", "data.simulated_candles=1700", "data.lookback=16", "training.batch_size=64"),
    *("training.epochs=1", "model.width=16", "evaluation.repetitions=100"),
]
SIMULATED = "the candles of AAAUSDT, BBBUSDT are simulated, no market's; data.folder=FOLDER takes files of real ones"
MEMBER = ("--workload", "crypto", "--name", "default/AAAUSDT")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("members")
    done = stage(folder, "train.py", "--workload", "crypto", *WORDS)
    assert done.returncode == 0, done.stderr
    assert SIMULATED in done.stderr
    return folder


@pytest.mark.slow
def test_a_member_is_evaluated_in_its_own_folder(trained):
    done = stage(trained, "evaluate.py", *MEMBER)
    assert done.returncode == 0, done.stderr
    member = trained / "runs/crypto/default/members/AAAUSDT"
    summary = json.loads((member / "evaluations/test.json").read_text())
    assert summary["coins"] == 1
    assert "verdict" in summary["AAAUSDT"]
    assert [row["coin"] for row in summary["table"]] == ["AAAUSDT"]
    assert SIMULATED in done.stderr
    heading = checked((member / "report.html").read_text()).headings()[0]
    assert " of 1 simulated coin pays its costs" in heading
    assert heading.endswith("; 1 of 2 coins prepared together")
    assert json.loads((member / "model/best/rule.json").read_text())["headline"] == summary["headline"]
    assert not (trained / "runs/crypto/default/evaluations").exists()


@pytest.mark.slow
def test_a_member_goes_on_training_and_is_exported_by_itself(trained):
    done = stage(trained, "train.py", *MEMBER, "--resume", "training.epochs=2")
    assert done.returncode == 0, done.stderr
    assert "resumed from runs/crypto/default/members/AAAUSDT/checkpoints/" in done.stderr
    member = trained / "runs/crypto/default/members/AAAUSDT"
    assert export("safetensors", member).returncode == 0
    assert (member / "exports/safetensors/manifest.json").is_file()


@pytest.mark.slow
def test_benchmark_times_one_member(trained):
    done = stage(trained, "benchmark.py", *MEMBER, "--steps", "1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["batch_size"] == 64


@pytest.mark.slow
def test_a_member_that_there_is_not_is_refused(trained):
    refused(stage(trained, "evaluate.py", "--workload", "crypto", "--name", "default/CCCUSDT"), "there is no run")


def test_preparing_says_that_a_real_coins_name_does_not_make_its_candles_real(tmp_path):
    words = ["data.symbols=[BTCUSDT]", "data.simulated_candles=1700", "data.lookback=16"]
    done = stage(tmp_path, "prepare.py", "--workload", "crypto", *words)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the candles of BTCUSDT are simulated") == 1
    assert "note" not in done.stdout


def test_preparing_shows_thirty_facts_and_where_the_others_are(tmp_path):
    words = ["data.symbols=[AUSDT,BUSDT]", "data.simulated_candles=1700", "data.lookback=16"]
    done = stage(tmp_path, "prepare.py", "--workload", "crypto", *words)
    *facts, more, empty, prepared = done.stdout.splitlines()
    assert (len(facts), empty) == (30, ""), done.stdout
    assert re.fullmatch(r"\.\.\. and \d+ more", more)
    assert re.fullmatch(r"prepared: data/crypto/\w+, with all of these in manifest\.json", prepared)
