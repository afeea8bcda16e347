"""A market followed through deaths, gaps, wrong clocks and a failing exchange: the answers are those of one piece."""

import json
import os
import random
import signal
import subprocess

import pytest

from pipelines.answers import trained
from pipelines.following import drift, loop
from tests import forked
from tests.following.replay import COIN, FIRST, NAME, STEP, Exchange, answers, follower, inputs, market
from tests.stages import PYTHONPATH, ROOT, stage


class Death(BaseException):
    """Ends a follower as kill -9 would."""


@pytest.fixture(scope="module")
def model():
    return trained.find("crypto", NAME, None, "cpu")


def in_one_piece(folder, candles, model):
    """The answers of a follower that sees all candles at once, after the last has closed."""
    exchange = Exchange(market(candles), lambda: FIRST + candles * STEP, 0)
    exchange.random.random, exchange.milliseconds = lambda: 1.0, exchange.now
    one = follower(folder, exchange, exchange.now, model)
    while one.look():
        pass
    return answers(folder)


@pytest.mark.parametrize("candles", [20, pytest.param(96, marks=pytest.mark.slow)])
def test_a_day_through_deaths_gaps_wrong_clocks_and_failures(tmp_path, model, monkeypatch, capsys, candles):
    chance = random.Random(1)
    monkeypatch.setattr(drift, "CALM", 1.05)  # so that there are alarms
    whole = in_one_piece(tmp_path / "whole", candles, model)
    now = [FIRST]
    exchange = Exchange(market(candles), lambda: now[0], 3)

    def torn(path, *rest):
        if chance.random() < 0.1:
            raise Death
        if chance.random() < 0.1:
            with path.open("a") as file:
                file.write('{"source": "BBBU')
            raise Death

    add, write = loop.add, loop.write_json
    monkeypatch.setattr(loop, "add", lambda path, entries: (torn(path), add(path, entries)))
    monkeypatch.setattr(loop, "write_json", lambda path, value: (chance.random() < 0.1 and die()) or write(path, value))
    deaths, following = 0, None
    while following is None or following.state.answered[COIN] < exchange.rows[-1][0]:
        now[0] += STEP // 2
        try:
            following = following or follower(tmp_path / "torn", exchange, exchange.clock, model)
            following.look()
        except Death:
            deaths, following = deaths + 1, None
    assert deaths > candles // 10
    assert answers(tmp_path / "torn") == whole
    assert any("alarms" in each for each in whole)
    assert "no network" in capsys.readouterr().err


@pytest.mark.parametrize("hours", [0, 51])
def test_answers_to_old_candles_are_said_to_be_late(tmp_path, model, capsys, hours):
    known = market(3)
    exchange = Exchange(known, lambda: int(known.time[-1]) + STEP + hours * 3_600_000, 0)
    exchange.random.random, exchange.milliseconds = lambda: 1.0, exchange.now
    one = follower(tmp_path, exchange, exchange.now, model)
    assert one.look() == 3
    said = capsys.readouterr().err
    late = f"{COIN}: 2024-01-08 07:30 UTC is the newest candle, answered 51.0 hours after its end\n"
    assert said[20:] == (late if hours else "")
    assert one.look() == 0
    assert not capsys.readouterr().err


def test_no_candle_is_called_the_newest_before_the_newest_is_answered(tmp_path, model, capsys):
    known = market(20)  # of which three are missing
    exchange = Exchange(known, lambda: int(known.time[-1]) + STEP + 51 * 3_600_000, 0)
    exchange.random.random, exchange.milliseconds = lambda: 1.0, exchange.now
    one = follower(tmp_path, exchange, exchange.now, model)
    for answers_given, late in ((loop.AT_ONCE, 0), (1, 1), (0, 0)):
        assert one.look() == answers_given
        assert capsys.readouterr().err.count("is the newest candle, answered 51.0 hours after its end") == late


def test_neither_an_emptied_log_nor_a_damaged_state_brings_a_former_model_back(tmp_path, model, capsys):
    now = [FIRST + 3 * STEP]
    exchange = Exchange(market(4), lambda: now[0], 0)
    exchange.random.random, exchange.milliseconds = lambda: 1.0, exchange.now
    one = follower(tmp_path, exchange, exchange.now, model)
    assert one.look() == 3
    one.save(models=("newer", NAME))
    now[0] += STEP
    assert one.look() == 1
    for name, text in (("state.json", "{"), ("answers.jsonl", "")):
        (tmp_path / name).write_text(text)
        again = follower(tmp_path, exchange, exchange.now, model)
        assert again.state.models == ("newer", NAME)
        assert again.look() == 0
        again.save()
    assert "state.json is damaged, continuing from the log" in capsys.readouterr().err


def die():
    raise Death


@pytest.mark.parametrize(
    ("candles", "speed", "kills"),
    [
        pytest.param(32, 3000, 1, marks=pytest.mark.slow),
        pytest.param(96, 1000, 3, marks=pytest.mark.exhaustive),
        pytest.param(672, 5000, 3, marks=pytest.mark.exhaustive),
    ],
)
def test_processes_that_are_killed_answer_as_one_piece_and_as_predict(tmp_path, model, candles, speed, kills):
    whole, chance = in_one_piece(tmp_path / "whole", candles, model), random.Random(2)
    words = [ROOT / "tests/following/replay.py", tmp_path / "torn", candles, speed]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
    killed, process = 0, None
    while process is None or process.returncode:
        process = forked.Process([*map(str, words), str(killed)], ROOT, environment)
        try:
            process.wait(chance.uniform(5000, 25_000) / speed)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
            killed += 1
        process.output()  # which closes what it went to
    assert killed >= kills
    assert answers(tmp_path / "torn") == whole
    (tmp_path / "cut.jsonl").write_text("".join(json.dumps(each) + "\n" for each in inputs(candles)))
    done = stage(tmp_path, "predict.py", "--workload", "crypto", "--name", NAME, "cut.jsonl", "now=newest")
    own = {"source", "time", "model", "outcome", "strangeness", "alarms"}
    for line, answer in zip(done.stdout.splitlines(), whole, strict=True):
        told = {key: value for key, value in json.loads(line).items() if key not in own}
        assert told == {key: value for key, value in answer.items() if key not in own}
