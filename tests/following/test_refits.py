"""Trainings beside the answers: what is run, what a kill leads to, and which model answers afterwards."""

import copy
from types import SimpleNamespace

import pytest

from common.disk.lock import held
from pipelines.answers import trained
from pipelines.following import refits
from pipelines.run.folder import Run
from tests.following.replay import COIN, FIRST, NAME, STEP, Exchange, follower, market

CANDLES = 14


@pytest.fixture(scope="module")
def model():
    return trained.find("crypto", NAME, None, "cpu")


@pytest.fixture
def training(tmp_path, monkeypatch, model):
    """Refits after some answers, whose commands end at once with `status`; `ran` lists them."""
    monkeypatch.chdir(tmp_path)
    exchange = Exchange(market(CANDLES), lambda: FIRST + CANDLES * STEP, 0)
    exchange.random.random = lambda: 1.0
    following = follower(tmp_path / "follow", exchange, exchange.now, model)
    assert following.look() == CANDLES
    run = Run("crypto", NAME)
    made = refits.Refits(following, "crypto", run, tmp_path / "follow", hours=3)
    made.ran, made.status, made.exchange = [], 0, exchange

    def begin(script, name, *words):
        made.ran.append((script, *words[2:]))
        Run("crypto", name).folder.mkdir(parents=True, exist_ok=True)
        (Run("crypto", name).folder / "config.yaml").touch()
        made.child = SimpleNamespace(poll=lambda: made.status)

    monkeypatch.setattr(made, "_run", begin)
    return made


def steps(training):
    """Step until nothing is under way; the run that was trained."""
    training.step()
    name = training.follower.state.refit
    while training.follower.state.refit:
        training.step()
    return Run("crypto", name)


@pytest.mark.slow
def test_a_training_is_due_after_its_hours_and_as_good_a_model_takes_over(training):
    run = steps(training)
    assert training.ran == [("train.py",), ("evaluate.py",)]
    assert training.follower.state.models == (run.name, NAME)
    assert run.folder.exists()
    training.step()
    assert training.follower.state.refit is None  # not due again
    training.follower.state = training.follower.state.model_copy(update={"tried": FIRST + 10**12})
    training.step()
    assert training.follower.state.refit  # of a clock that was set back


@pytest.mark.slow
def test_a_model_that_differs_by_rounding_takes_over(training, model):
    def rounded(asked, settings):
        found = model.together(asked, settings)
        for answer in found:
            answer["probabilities"] = {name: (1 - 1e-7) * each for name, each in answer["probabilities"].items()}
        return found

    training.follower.load = lambda name: SimpleNamespace(models=model.models, together=rounded)
    run = steps(training)
    assert training.follower.state.models == (run.name, NAME)


@pytest.mark.slow
def test_a_worse_model_is_turned_down_and_removed(training, model, capsys):
    def worse(name):
        found = copy.deepcopy(model)
        (own,) = found.models.values()
        own.forward = lambda windows, coins: -5 * type(own).forward(own, windows, coins)
        return found

    training.follower.load = worse
    run = steps(training)
    assert training.follower.state.models == (NAME,)
    assert training.follower.model is model
    assert not run.folder.exists()
    assert "rejected, crypto-simulated continues: its log loss is" in capsys.readouterr().err


@pytest.mark.slow
def test_a_new_model_is_not_turned_down_because_the_exchange_does_not_answer_just_then(training, capsys):
    following, exchange = training.follower, training.exchange
    exchange.now = following.clock = lambda: FIRST + (CANDLES + 3) * STEP
    exchange.random.random = lambda: 0.0
    following.feed.series = [*following.feed.series, "ADAUSDT"]  # which never had an answer
    assert following.look() == 0
    run = steps(training)
    assert "no network" in capsys.readouterr().err
    assert following.state.models == (run.name, NAME)


@pytest.mark.slow
def test_a_series_that_can_no_longer_be_read_is_left_out_of_the_comparison(training, capsys):
    following = training.follower
    following.feed.series = ["GONEUSDT", *following.feed.series]  # of an earlier start, whose file is gone
    following.state.answered["GONEUSDT"] = FIRST
    run = steps(training)
    said = capsys.readouterr().err
    assert "GONEUSDT is left out of the comparison: GONEUSDT: " in said
    assert following.state.models == (run.name, NAME)


@pytest.mark.slow
def test_a_new_model_waits_for_an_exchange_that_does_not_answer_after_a_restart(training):
    following, exchange = training.follower, training.exchange
    training.step()
    training.step()
    name = following.state.refit
    for path in (training.folder / "candles").iterdir():
        path.unlink()  # as it was before the answers of that day
    following.feed.read.kept.clear()  # as after a restart
    exchange.random.random = lambda: 0.0
    training.step()
    for _ in range(4):  # evaluated, compared in vain, and then left alone
        following.look()
        training.step()
    assert following.state.refit == name
    assert following.state.models == (NAME,)
    assert training.ran == [("train.py",), ("evaluate.py",)]
    exchange.random.random = lambda: 1.0
    following.failing.clear()
    while following.state.refit:
        training.step()
    assert following.state.models == (name, NAME)


@pytest.mark.slow
@pytest.mark.parametrize(("failures", "takes_over"), [(refits.MOST_FAILURES, True), (99, False)])
def test_comparisons_that_fail_though_looks_do_not_are_counted(training, failures, takes_over, capsys):
    following, fails, new = training.follower, [1] * failures, training.follower.feed.new

    def read(series, after, now):
        if after < following.state.answered[series] and fails:
            fails.pop()
            raise ValueError("no label")
        return new(series, after, now)

    following.feed.new = read
    for _ in range(12):  # without a look, one comparison
        training.step()
    name = following.state.refit
    assert (name is not None, len(fails)) == (True, failures - 1)
    for _ in range(60):
        following.look()
        training.step()
    assert training.ran == [("train.py",), ("evaluate.py",)]
    assert following.state.refit is None
    assert following.state.models == ((name, NAME) if takes_over else (NAME,))
    assert ("rejected, crypto-simulated continues: no series could be" in capsys.readouterr().err) == (not takes_over)


@pytest.mark.parametrize(
    ("status", "times"),
    [(-9, 1 + refits.MOST_FAILURES), pytest.param(143, 1 + refits.MOST_FAILURES, marks=pytest.mark.slow), (2, 1)],
)
def test_a_killed_training_is_resumed_a_few_times_and_a_refused_one_is_not(training, status, times, capsys):
    training.status = status
    steps(training)
    assert training.ran == [("train.py",), *[("train.py", "--resume")] * (times - 1)]
    assert training.follower.state.models == (NAME,)
    assert f"its training ended with status {status}; see" in capsys.readouterr().err


def test_a_training_that_outlived_its_parent_is_waited_for(training):
    training.step()
    run = Run("crypto", training.follower.state.refit)
    with held(run.lock_file):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(refits, "is_held", lambda path: path == run.lock_file)  # by another process
            training.step()
        assert not training.ran
    training.step()
    assert training.ran == [("train.py",)]


def test_a_training_that_outlived_its_parent_and_began_first_is_waited_for(training):
    training.status = 2  # of the one that came second
    training.step()
    training.step()
    run = Run("crypto", training.follower.state.refit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refits, "is_held", lambda path: path == run.lock_file)  # by the first
        training.step()
        training.step()
    assert training.ran == [("train.py",)]
    assert training.follower.state.refit == run.name
    training.step()
    assert training.ran == [("train.py",), ("train.py", "--resume")]


def test_what_is_answered_is_on_disk_for_trainings(training):
    training.step()
    training.step()
    (file,) = (training.folder / "candles").iterdir()
    assert file.name == f"{COIN}-15m.feather"
    assert training.follower.feed.config.data.folder == str(training.folder / "candles")
