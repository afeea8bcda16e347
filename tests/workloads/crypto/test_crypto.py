"""Many coins in one command: as alone, in parts, killed, resumed; judged, and exported for use."""

import csv
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from models import io
from models.market.candles import COLUMNS
from pipelines.workloads.crypto.candles import files, simulated
from tests import forked
from tests.stages import command, export, refused, stage

COINS = ("AUSDT", "EUSDT", "CUSDT")
WORDS = [
    *("data.folder=market", f"data.symbols=[{','.join(COINS)}]", "data.lookback=16", "training.batch_size=64"),
    *("training.epochs=3", "training.validation_steps=10", "training.checkpoint_steps=10", "model.width=16"),
    "evaluation.repetitions=100",
]
ON_ONE_CORE = """
import os, runpy, sys
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
del sys.argv[0]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def write(folder, symbol, rows):
    """A file of candles as Binance publishes them."""
    folder.mkdir(exist_ok=True)
    coin = simulated.simulate([symbol], rows, "15m", seed=0, signal=1.0)[symbol]
    columns = (coin.time, coin.open, coin.high, coin.low, coin.close, coin.volume)
    lines = [
        ",".join(str(value) for value in row) for row in zip(*(column.tolist() for column in columns), strict=True)
    ]
    (folder / f"{symbol}-15m.csv").write_text("\n".join(lines) + "\n")


def train(folder, *words, **options):
    return stage(folder, "train.py", "--workload", "crypto", *words, **options)


def weights(folder, name="default"):
    members = sorted((folder / "runs/crypto" / name / "members").iterdir())
    return {
        path.name: (path / "model/last/model.safetensors").read_bytes() for path in members if (path / "model").exists()
    }


def outcomes(folder, name="default"):
    files = (folder / "runs/crypto" / name).glob("members/*/outcome.json")
    return {path.parent.name: json.loads(path.read_text()) for path in files}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two coins that can be trained and one that is too short; (folder, finished process)."""
    folder = tmp_path_factory.mktemp("crypto")
    for symbol, rows in zip(COINS, (1700, 1700, 30), strict=True):
        write(folder / "market", symbol, rows)
    return folder, train(folder, *WORDS)


def test_one_coin_that_fails_is_named_and_the_others_are_trained(trained):
    folder, done = trained
    assert done.returncode == 1, done.stderr
    assert "1 of 3 members failed, the others are trained" in done.stderr
    assert "CUSDT: " in done.stderr.splitlines()[-1]
    assert "30" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert {name: outcome["state"] for name, outcome in outcomes(folder).items()} == {
        "AUSDT": "done",
        "EUSDT": "done",
        "CUSDT": "failed",
    }
    assert weights(folder).keys() == {"AUSDT", "EUSDT"}


def test_what_a_model_came_from_is_written_down(trained):
    folder, _ = trained
    run = folder / "runs/crypto/default"
    provenance = json.loads((run / "members/AUSDT/provenance.json").read_text())
    assert len(provenance["commit"]) == 40
    assert provenance["devices"]
    assert provenance["versions"]["torch"]
    known = json.loads((run / "provenance.json").read_text())["data"]
    # By these an export states whose data they are.
    learnt = {name: provenance["data"][name] for name in ("data", "source", "inputs")}
    assert learnt == {name: known[name] for name in learnt}
    assert any(path.startswith("market/") for path in learnt["inputs"])
    for config in (run / "config.yaml", run / "members/AUSDT/config.yaml"):
        assert "\nseed: 0\n" in "\n" + config.read_text()
    assert json.loads((run / "provenance.json").read_text())["data"]["coins"]["AUSDT"]["hash"]


@pytest.mark.slow
def test_a_coin_alone_has_the_weights_it_has_among_others(trained):
    folder, _ = trained
    done = train(folder, "--name", "alone", "--only", "EUSDT", *WORDS)
    assert done.returncode == 0
    assert "training 1 member in 1 process, up to" in done.stderr
    assert "1 model in runs/crypto/alone" in done.stdout
    assert weights(folder, "alone") == {"EUSDT": weights(folder)["EUSDT"]}
    words = ["--workload", "crypto", "--name", "alone", "--only", "DUSDT", "--resume"]
    refused(stage(folder, "train.py", *words), "DUSDT is not among", "AUSDT")


@pytest.mark.slow
def test_two_processes_share_the_coins(trained):
    folder, _ = trained
    done = train(folder, "--name", "shared", *WORDS, processes=2, ACCELERATE_USE_CPU="true")
    assert "1 of 3 members failed" in done.stderr
    assert weights(folder, "shared") == weights(folder)


@pytest.mark.slow
def test_resume_skips_what_is_done_and_tries_again_what_failed(trained):
    folder, _ = trained
    before = {path: path.stat().st_mtime_ns for path in (folder / "runs/crypto/default").rglob("*USDT/model/last/*")}
    done = train(folder, "--resume")
    assert done.returncode == 1
    assert "2 of 3 members are done" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.slow
def test_resume_brings_back_the_damaged_model_of_a_member_that_is_done(trained, tmp_path):
    folder, _ = trained
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    model = tmp_path / "runs/crypto/default/members/AUSDT/model/best/model.safetensors"
    content = model.read_bytes()
    model.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    done = train(tmp_path, "--resume")
    assert "1 of 3 members are done" in done.stdout
    assert model.read_bytes() == content
    assert "is restored from" in (model.parents[2] / "train.log").read_text()


@pytest.mark.slow
def test_a_repaired_and_a_longer_file_have_their_coins_trained_anew_and_a_new_one_is_added(tmp_path):
    names = [f"{letter}USDT" for letter in "ABCD"]
    for name in names:
        write(tmp_path / "market", name, 1200)
    words = [*(word for word in WORDS if "symbols" not in word and "epochs" not in word), "training.epochs=1"]
    assert train(tmp_path, *words).returncode == 0
    models = tmp_path / "runs/crypto/default/members"
    before = {name: (models / name / "model/last/model.safetensors").stat().st_mtime_ns for name in names}
    write(tmp_path / "market", "DUSDT", 1400)
    write(tmp_path / "market", "EUSDT", 1200)
    file = tmp_path / "market/BUSDT-15m.csv"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:400] + lines[401:]))
    refused(stage(tmp_path, "evaluate.py", "--workload", "crypto"), "train.py --resume takes in what has changed")
    done = train(tmp_path, "--resume")
    assert done.returncode == 0, done.stderr
    assert "2 of 5 members are done" in done.stdout
    after = {name: (models / name / "model/last/model.safetensors").stat().st_mtime_ns for name in names}
    assert [name for name in names if after[name] != before[name]] == ["BUSDT", "DUSDT"]
    assert "its data have changed: training starts over" in (models / "DUSDT/train.log").read_text()
    assert train(tmp_path, "--name", "fresh", *words).returncode == 0
    assert weights(tmp_path, "fresh") == weights(tmp_path)

    found, words = [], command("evaluate.py", "--workload", "crypto")[1:]
    for first in (["-c", ON_ONE_CORE], []):
        done = forked.run([*first, *words], tmp_path)
        assert done.returncode == 0, done.stderr
        folder = tmp_path / "runs/crypto/default/evaluations"
        pages = {path.name: path.read_text() for path in folder.glob("*/*.json")}
        found.append([{**json.loads((folder / "test.json").read_text()), "seconds": 0}, pages])
    assert [each[0].pop("looks") for each in found] == [{"evaluations": count, "family": 5} for count in (1, 2)]
    assert found[0] == found[1]
    assert len(found[0][1]) == 5


@pytest.mark.slow
def test_resume_after_kill_9_gives_the_same_weights_and_leaves_no_process_behind(trained):
    folder, _ = trained
    words = ["--name", "killed", *WORDS]
    process = subprocess.Popen(
        command("train.py", "--workload", "crypto", *words), cwd=folder, stderr=subprocess.DEVNULL
    )
    run = folder / "runs/crypto/killed/members"
    until(lambda: any(run.glob("*/checkpoints/step-*")))
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: not any(str(folder) in where for where in working_folders()))
    assert train(folder, "--name", "killed", "--resume").returncode == 1
    assert weights(folder, "killed") == weights(folder)


@pytest.mark.slow
def test_a_member_that_is_killed_is_named_and_sigterm_saves(trained):
    folder, _ = trained
    words = ["--name", "stopped", *WORDS, "training.epochs=2000", "--only", "AUSDT,EUSDT"]
    process = forked.Process(command("train.py", "--workload", "crypto", *words)[1:], folder)
    run = folder / "runs/crypto/stopped/members"
    until(lambda: all(any((run / name / "checkpoints").glob("step-*")) for name in ("AUSDT", "EUSDT")))
    children = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if is_member(pid, run / "AUSDT")]
    assert len(children) == 1
    os.kill(children[0], signal.SIGKILL)
    until(lambda: (run / "AUSDT/outcome.json").exists())
    process.send_signal(signal.SIGTERM)
    assert process.finish() == 128 + signal.SIGTERM
    _, errors = process.output()
    assert "stopped by SIGTERM; members that were being trained are saved; continue with --resume" in errors
    found = outcomes(folder, "stopped")
    assert found["AUSDT"]["state"] == "failed"
    assert "SIGKILL" in found["AUSDT"]["reason"]
    assert found["EUSDT"]["state"] == "stopped"
    assert "after step" in found["EUSDT"]["reason"]


def until(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def working_folders():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            yield os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue


def is_member(pid, folder):
    """Whether what the process prints goes into the folder's log."""
    try:
        return os.readlink(f"/proc/{pid}/fd/1") == str(folder / "train.log")
    except OSError:
        return False


@pytest.mark.slow
def test_evaluated_and_exported_signals_are_the_same(trained):
    folder, _ = trained
    done = stage(folder, "evaluate.py", "--workload", "crypto")
    assert done.returncode == 0, done.stderr
    assert "CUSDT is left out: failed" in done.stdout
    summary = json.loads((folder / "runs/crypto/default/evaluations/test.json").read_text())
    for symbol in COINS[:2]:
        assert summary[symbol]["verdict"].startswith(("skill: ", "no skill shown"))
    assert 0 <= summary["AUSDT"]["macro_f1"] <= 1
    text = (folder / "runs/crypto/default/evaluations/test.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))

    done = export("safetensors", folder / "runs/crypto/default")
    assert done.returncode == 0
    assert "CUSDT is left out" in done.stdout
    for symbol in COINS[:2]:
        artifact = folder / "runs/crypto/default/exports/safetensors" / symbol
        page = json.loads((artifact / "evaluation.json").read_text())
        assert page["test"]["verdict"] == summary[symbol]["verdict"]
        model = io.load(artifact)
        coin, _ = files.read(folder / "market" / f"{symbol}-15m.csv", symbol, "15m", minimum_rows=30)
        coin = coin.rows(coin.segments()[-1])
        wanted = {int(row["time_ms"]): row for row in rows if row["symbol"] == symbol}
        last = max(wanted)  # later candles have no label yet
        part = slice(None, coin.time.tolist().index(last) + 1)
        served = {name: getattr(coin, name)[part][-99 - model.candles_used(symbol) :] for name in COLUMNS}
        times = served["time"].tolist()
        probabilities = model.probabilities(served, now=last + coin.timeframe_ms)
        assert len(probabilities) >= 100
        for time_ms, row in zip(times[-100:], probabilities[-100:].tolist(), strict=True):
            expected = [float(wanted[time_ms][name]) for name in ("SHORT", "NO_TRADE", "LONG")]
            assert row == pytest.approx(expected, abs=1e-6)

    cut = folder / "cut"
    cut.mkdir()
    for symbol in COINS:  # later candles have no label yet
        lines = (folder / f"market/{symbol}-15m.csv").read_text().splitlines(keepends=True)
        (cut / f"{symbol}-15m.csv").write_text("".join(line for line in lines if int(line.split(",")[0]) <= last))
    # By name: other tests here leave newer runs.
    done = stage(folder, "predict.py", "--workload", "crypto", "--name", "default", "cut", "now=newest")
    assert done.returncode == 1  # of the third coin there is no model
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each.get("coin") for each in found] == ["AUSDT", None, "EUSDT"]
    assert "there are models of AUSDT, EUSDT" in found[1]["error"]
    for answer in (found[0], found[2]):
        (row,) = (row for row in rows if row["symbol"] == answer["coin"] and int(row["time_ms"]) == answer["time"])
        expected = {name: float(row[name]) for name in ("SHORT", "NO_TRADE", "LONG")}
        assert answer["probabilities"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_a_pooled_model_learns_all_coins(trained):
    folder, _ = trained
    words = [word for word in WORDS if "symbols" not in word]
    done = train(folder, "--name", "pooled", *words, "data.symbols=[AUSDT,EUSDT]", "model.pooled=true")
    assert done.returncode == 0, done.stderr
    model = io.load(folder / "runs/crypto/pooled/members/all/model/best")
    assert model.config.coins == ("AUSDT", "EUSDT")

    words += ["model.base=runs/crypto/pooled", "training.epochs=4", "training.checkpoint_steps=1", "--name", "tuned"]
    words = [word for word in words if "width" not in word]
    assert train(folder, *words, "data.symbols=[AUSDT,EUSDT]").returncode == 0
    wanted, members = weights(folder, "tuned"), folder / "runs/crypto/tuned/members"
    for member in members.iterdir():  # as if killed after its second step
        (member / "outcome.json").unlink()
        for place in sorted(member.glob("checkpoints/step-*"))[1:]:
            shutil.rmtree(place)
    done = train(folder, "--name", "tuned", "--resume")
    assert done.returncode == 0, done.stderr
    assert "resumed from" in (members / "AUSDT/train.log").read_text()
    assert weights(folder, "tuned") == wanted


def test_a_threshold_below_the_cost_of_a_trade_is_refused(tmp_path):
    refused(
        stage(tmp_path, "train.py", "--workload", "crypto", "data.threshold=0.0025"), "data.threshold=0.0025", "0.003"
    )
