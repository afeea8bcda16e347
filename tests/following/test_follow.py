"""`follow.py` as its users run it: files that grow, signals, refusals, and models trained meanwhile."""

import contextlib
import json
import shutil
import signal
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from models import io
from tests import forked
from tests.following.replay import answers
from tests.stages import command, refused, stage
from tests.workloads.crypto.test_crypto import WORDS, write

COIN = "AUSDT"


def follow(folder, *words, **options):
    return stage(folder, "follow.py", "--workload", "crypto", *words, **options)


def test_what_cannot_be_followed_is_refused(tmp_path):
    refused(follow(tmp_path, "--once"), "there is no run runs/crypto/default")
    refused(stage(tmp_path, "follow.py", "--workload", "cvrp"), "cvrp: it has nothing to follow")
    (tmp_path / "runs/crypto/mine").mkdir(parents=True)
    (tmp_path / "runs/crypto/mine/config.yaml").write_text("data:\n  source: simulate\n")
    refused(
        follow(tmp_path, "--name", "mine", "--refit-hours", "3", "--once"), "--refit-hours 3: hours above 0, not with"
    )
    refused(follow(tmp_path, "--name", "mine", "--refit-hours", "nan"), "--refit-hours nan: hours above 0")
    refused(follow(tmp_path, "--name", "mine"), "a simulated market has no new candles; give data.folder=FOLDER")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a coin's candles, and a run that learnt from them and was evaluated."""
    folder = tmp_path_factory.mktemp("followed")
    write(folder / "market", COIN, 2600)
    words = [word for word in WORDS if not word.startswith("data.symbols")]
    for script, own in (("train.py", words), ("evaluate.py", [])):
        done = stage(folder, script, "--workload", "crypto", *own)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_files_that_grow_are_answered_by_the_evaluated_rule(trained):
    folder, log = trained, trained / "runs/crypto/default/follow"
    assert follow(folder, "--once").returncode == 0
    write(folder / "market", COIN, 2610)
    assert follow(folder, "--once").returncode == 0
    assert follow(folder, "--once").returncode == 0  # nothing new
    (folder / "market/AUSDT-15m.csv").write_text("half,a,file")
    done = follow(folder, "--once")
    assert (done.returncode, "AUSDT: retrying" in done.stderr) == (1, True)
    write(folder / "market", COIN, 2610)
    found = answers(log)
    assert len(found) == 11
    assert {each["time"] - before["time"] for before, each in pairwise(found)} == {900_000}
    told = json.loads(stage(folder, "predict.py", "--workload", "crypto", "market", "now=newest").stdout)
    assert {**found[-1], "source": "market/AUSDT-15m.csv"} | told == {**found[-1], "source": "market/AUSDT-15m.csv"}
    assert "reason" in told or told["signal"] in ("SHORT", "NO_TRADE", "LONG")
    assert found[-1]["outcome"][0] == found[-4]["time"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AUSDT-15m.csv", "A_USDT.csv"])
@pytest.mark.parametrize("cut", [45, -5])  # within a price, and within the volume, whose beginning is a number, too
def test_a_line_that_is_half_written_is_no_candle_yet(trained, tmp_path, name, cut):
    folder = shutil.copytree(trained, tmp_path / "copy")
    shutil.rmtree(folder / "runs/crypto/default/follow", ignore_errors=True)
    write(folder / "market", COIN, 2620)
    whole = (folder / "market/AUSDT-15m.csv").read_text().splitlines(keepends=True)
    (folder / "market/AUSDT-15m.csv").unlink()
    (folder / "market" / name).write_text("".join(whole[:-1]) + whole[-1][:cut])
    for times, text in ((1, None), (2, "".join(whole))):
        if text:
            (folder / "market" / name).write_text(text)
        done = follow(folder, "--once")
        assert (done.returncode, "retrying" in done.stderr) == (0, False), done.stderr
        found = [each["time"] for each in answers(folder / "runs/crypto/default/follow")]
        assert found == [int(line.split(",")[0]) for line in whole[-2:][:times]]


@pytest.mark.slow
def test_a_member_is_followed_with_its_run(trained):
    refused(follow(trained, "--name", "default/AUSDT"), "a member is followed with its run; give --name default")


@pytest.mark.slow
def test_a_damaged_state_file_costs_no_answer(trained, tmp_path):
    folder = shutil.copytree(trained, tmp_path / "copy")
    log = folder / "runs/crypto/default/follow"
    follow(folder, "--once")
    write(folder / "market", COIN, 2620)
    (log / "state.json").write_text("{")
    done = follow(folder, "--once")
    assert "state.json is damaged, continuing from the log" in done.stderr
    times = [each["time"] for each in answers(log)]
    assert times == list(range(times[0], times[-1] + 1, 900_000))


@pytest.mark.slow
def test_a_model_trained_meanwhile_takes_over_and_a_damaged_one_gives_way(trained, tmp_path):
    folder = shutil.copytree(trained, tmp_path / "copy")
    log = folder / "runs/crypto/default/follow"
    follow(folder, "--once")
    state = json.loads((log / "state.json").read_text())
    (log / "state.json").write_text(json.dumps({**state, "tried": 1}))
    (old,) = (folder / "runs/crypto/default").glob("members/*/model/best")
    worse = io.load(old)
    for each in worse.parameters():
        each.data.mul_(3)
    io.save(worse, old)  # whatever the CPU rounds, the new model is not worse
    write(folder / "market", COIN, 2650)
    for number, awaited in ((signal.SIGKILL, "training default-"), (signal.SIGTERM, "answers from now on")):
        words = command("follow.py", "--workload", "crypto", "--refit-hours", "24")[1:]
        process = forked.Process(words, folder)
        wait_for(awaited, process)
        process.send_signal(number)
        assert process.finish() == (-number if number == signal.SIGKILL else 128 + number)
        process.output()  # which closes what it went to
    new, old = json.loads((log / "state.json").read_text())["models"]
    assert (old, new[:8]) == ("default", "default-")
    write(folder / "market", COIN, 2651)
    follow(folder, "--once")
    assert answers(log)[-1]["model"] == new
    (weights,) = (folder / "runs/crypto" / new).glob("members/*/model/best/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:1000])
    write(folder / "market", COIN, 2652)
    assert f"{new} cannot be loaded, default answers" in follow(folder, "--once").stderr
    assert answers(log)[-1]["model"] == "default"


def wait_for(text, process, seconds=240):
    """Wait until a process has said a text. Other tests are as urgent as what it trains."""
    errors = Path(f"/proc/self/fd/{process.streams[1].fileno()}")  # opened anew, it has a place of its own
    end = time.monotonic() + seconds
    while text not in (said := errors.read_text()):
        assert process.poll() is None, said
        assert time.monotonic() < end, said
        with contextlib.suppress(psutil.Error):  # one has ended, or this is not root's
            for child in psutil.Process(process.pid).children():
                child.nice(0)
        time.sleep(0.2)
