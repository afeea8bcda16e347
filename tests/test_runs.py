"""runs.py: the table of runs, the comparison of some, and the removal of what no run needs."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from common import config as configs
from common.disk import prepared
from common.errors import UserError
from pipelines import runs as command
from pipelines import workloads
from pipelines.inventory import compare, found
from pipelines.run.folder import Run
from pipelines.workloads.cvrp.config import Config
from tests import forked
from tests.stages import PYTHONPATH, ROOT, refused


def make(name, words=(), costs=(), examples=None, state="done"):
    """Write a run of cvrp as training and evaluating leave it."""
    run = Run("cvrp", name)
    run.keep_config(configs.build(Config, {}, words, "of the test"))
    for step, cost in enumerate(costs, 1):
        run.record({"step": 10 * step, "train/loss": 1 / step, "val/cost": cost})
    if costs:
        checkpoint = run.checkpoints / "step-000010"
        checkpoint.mkdir(parents=True)
        (checkpoint / "optimizer.pt").write_bytes(bytes(2_000_000))
    if state:
        run.outcome_file.write_text(json.dumps({"state": state}))
    if examples:
        run.evaluations.mkdir()
        mean = sum(examples) / len(examples)
        (run.evaluations / "test.json").write_text(json.dumps({"cost": mean, "n": len(examples), "table": []}))
        rows = "".join(f"i{number},{cost}\n" for number, cost in enumerate(examples))
        (run.evaluations / "test.csv").write_text(f"instance,cost\n{rows}")
        run.verdict_file.write_text("Worse than the strongest alternative: savings\n")
    return run


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A folder with four runs, one of many models and one of which nothing came."""
    monkeypatch.chdir(tmp_path)
    make("one", costs=[7.0, 6.5, 6.75], examples=[6.0, 7.0, 8.0, 9.0])
    make("two", ["training.steps=300"], costs=[8.0], examples=[5.5, 6.5, 7.0, 8.5], state=None)
    make("many", state=None)
    make("many/A", costs=[1.0])
    make("many/B", state="failed")
    make("blank", state=None)
    return tmp_path


def test_the_table_fits_80_columns_and_says_how_each_run_is(runs):
    table = found.table(found.find(), 80)
    assert max(map(len, table.splitlines())) <= 80
    assert table.startswith("cvrp: best val/cost, lower is better\n")
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines()[2:]}
    assert rows["one"][:3] == ["done", "30", "6.5"]
    assert rows["one"][-4:-1] == ["Worse", "than", "the"]
    assert rows["two"][:3] == ["stopped", "10", "8"]
    assert rows["many"][:3] == ["1", "of", "2"]
    assert rows["many"][-2:] == ["2", "MB"]
    assert rows["blank"][0] == "begun"


def test_a_verdict_of_several_words_is_whole_in_a_line_or_wraps_in_its_column(runs):
    said = "Within 2.7 core-ms: first of 9; from 5 ms on, ruin and recreate is better"
    Run("cvrp", "one").verdict_file.write_text(f"{said}\n")
    assert said in found.table(found.find())
    lines = found.table(found.find(), 80).splitlines()
    assert max(map(len, lines)) <= 80
    column = lines[1].index("verdict")
    first = next(place for place, line in enumerate(lines) if line.startswith("  one "))
    assert " ".join(line[column:] for line in lines[first : first + 4] if line[:6] in ("  one ", " " * 6)) == said


def test_a_run_that_another_process_trains_is_left_alone(runs):
    holding = (
        "import sys, common.disk.lock as l, pathlib\nwith l.held(pathlib.Path(sys.argv[1])): print(flush=True); input()"
    )
    lock = Run("cvrp", "two").lock_file
    words = [sys.executable, "-c", holding, str(lock)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, env={**os.environ, "PYTHONPATH": PYTHONPATH}, text=True, **pipes) as process:
        process.stdout.readline()
        (two,) = found.find(["cvrp/two"])
        assert two.state == "training"
        with pytest.raises(UserError, match="cvrp/two is being trained or followed; stop that first"):
            command.clean([two], whole=True, checkpoints=False, really=True)
        process.communicate("\n")
    assert found.find(["cvrp/two"])[0].state == "stopped"


def test_two_runs_are_compared_by_pairs_of_examples(runs):
    said = compare.compared(found.find(["cvrp/one", "runs/cvrp/two/"]), runs / "curves.svg")
    assert "test, all examples  one    two\ncost                7.5  6.875" in said
    # The differences are -0.5, -0.5, -1 and -0.5: their mean -0.625, its standard error 0.125, and t is 3.182.
    assert "cost    -0.625  [-1.02, -0.227]" in said
    assert "training.steps: 2000, 300" in said
    assert "<svg" in (runs / "curves.svg").read_text()
    (runs / "runs/cvrp/two/evaluations/test.csv").write_text("instance,cost\nother,5\n")
    assert "by example" not in compare.compared(found.find(["cvrp/one", "cvrp/two"]), runs / "curves.svg")


@pytest.mark.parametrize("name", ["cvrp/onne", "many/A", "cvrp/many/C"])
def test_an_unknown_run_is_answered_with_the_nearest(runs, name):
    with pytest.raises(UserError, match=r"did you mean .*cvrp/(one|many)"):
        found.find([name])


def test_clean_shows_what_would_go_and_removes_it_when_told_to(runs):
    data = configs.build(Config, {}, [], "of the test").data
    used = prepared.folder_for("cvrp", data, data.layout)
    for folder in (used, used.with_name("unused")):
        folder.mkdir(parents=True)
        (folder / "data.arrow").write_bytes(bytes(5000))
    half = runs / "runs/cvrp/one/checkpoints/.step-000020.tmp"
    half.mkdir()
    shown = command.clean(found.find(), whole=False, checkpoints=False, really=False)
    for path in ("runs/cvrp/blank", "data/cvrp/unused", "runs/cvrp/one/checkpoints/.step-000020.tmp"):
        assert f"  {path}  (" in shown
        assert (runs / path).exists()
    assert len(shown.splitlines()) == 5
    assert shown.endswith("6 kB in all; add --yes to remove it")
    assert command.clean(found.find(), whole=False, checkpoints=False, really=True).startswith("removed:")
    assert not (runs / "runs/cvrp/blank").exists()
    assert not half.exists()
    assert used.exists()
    assert not used.with_name("unused").exists()
    assert command.clean(found.find(), whole=False, checkpoints=False, really=True) == "there is nothing to remove"

    shown = command.clean(found.find(), whole=False, checkpoints=True, really=True)
    assert shown.count("its training is done") == 2
    assert (runs / "runs/cvrp/two/checkpoints").exists()
    assert not (runs / "runs/cvrp/many/members/A/checkpoints").exists()
    command.clean(found.find(["cvrp/two"]), whole=True, checkpoints=False, really=True)
    assert not (runs / "runs/cvrp/two").exists()


def test_checkpoints_of_named_runs_go_without_the_runs_and_without_others(runs):
    make("three", costs=[3.0])
    unused = runs / "data/cvrp/unused"
    unused.mkdir(parents=True)
    named = found.find(["cvrp/one", "cvrp/two", "cvrp/blank"])
    shown = command.clean(named, whole=True, checkpoints=True, really=True)
    assert not (runs / "runs/cvrp/one/checkpoints").exists()
    assert (runs / "runs/cvrp/blank/config.yaml").exists()  # which only `clean` without names takes for waste
    assert shown.count("  runs/cvrp/") == 1  # the other is not done
    for path in ("runs/cvrp/one/config.yaml", "runs/cvrp/two/checkpoints", "runs/cvrp/three/checkpoints"):
        assert (runs / path).exists()
    assert unused.exists()


@pytest.mark.parametrize("lock", [".lock", "members/A/.lock", "members/A/follow/.lock"])
def test_a_member_is_not_removed_while_it_or_its_run_trains_or_it_is_followed(runs, monkeypatch, lock):
    held = Run("cvrp", "many").folder / lock
    held.parent.mkdir(exist_ok=True)
    held.touch()
    monkeypatch.setattr(command, "is_held", lambda path: path == held)
    with pytest.raises(UserError, match="cvrp/many/A is being trained or followed; stop that first"):
        command.clean(found.find(["cvrp/many/A"]), whole=True, checkpoints=False, really=True)
    assert command.clean(found.find(["cvrp/one"]), whole=True, checkpoints=False, really=True).startswith("removed:")


def test_what_another_command_may_be_using_is_no_waste(runs, monkeypatch):
    two, data = Run("cvrp", "two"), Path("data/cvrp/unused")
    half = two.checkpoints / ".step-000020.tmp"
    half.mkdir()
    data.mkdir(parents=True)
    two.lock_file.touch()
    held = {two.lock_file, data.parent / ".lock"}
    monkeypatch.setattr(command, "is_held", lambda path: path in held)
    command.clean(found.find(), whole=False, checkpoints=False, really=True)
    assert (half.exists(), data.exists(), Run("cvrp", "blank").folder.exists()) == (True, True, False)
    held.clear()
    Run("cvrp", "one").config_file.write_text("training: [")  # so that nobody knows which data it needs
    command.clean(found.find(), whole=False, checkpoints=False, really=True)
    assert (half.exists(), data.exists()) == (False, True)


def test_what_is_damaged_or_no_run_hides_no_other_run(runs):
    Run("cvrp", "two").config_file.write_text("training: [")
    Run("cvrp", "many").config_file.write_text("no mapping")
    Run("cvrp", "one").outcome_file.write_text('{"state": "do')
    for folder in ("runs/cvrp/.ipynb_checkpoints", "runs/cvrp/many/members/.ipynb_checkpoints", "runs/cvrp/my notes"):
        (runs / folder).mkdir()
    with Run("cvrp", "one").metrics_file.open("a") as file:
        file.write('{"val/cost": 1}\n')
    Run("cvrp", "many/A").outcome_file.write_text("null")
    Run("cvrp", "many/B").outcome_file.write_text('{"state": "done"}')
    states = {each.name: each.state for each in found.find()}
    assert states == {"cvrp/one": "stopped", "cvrp/two": "stopped", "cvrp/many": "1 of 2", "cvrp/blank": "begun"}
    assert found.table(found.find())


def test_a_table_is_made_while_training_replaces_files(runs):
    folder, over = Run("cvrp", "one").folder, threading.Event()

    def replace():
        while not over.is_set():
            for number in range(10):
                (folder / f".file-{number}.tmp").touch()
            for number in range(10):
                (folder / f".file-{number}.tmp").unlink()

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(40):
            (one,) = found.find(["cvrp/one"])
            assert one.when > 0
    finally:
        over.set()
        thread.join()


def test_a_picture_is_what_its_name_says(runs):
    compared = found.find(["cvrp/one", "cvrp/two"])
    compare.compared(compared, Path("of/them/curves.png"))
    assert Path("of/them/curves.png").read_bytes().startswith(b"\x89PNG")
    compare.compared(compared, Path("curves"))
    assert "<svg" in Path("curves").read_text()
    with pytest.raises(UserError, match=r"--picture curves.word: Format 'word' is not supported \(supported formats: "):
        compare.compared(compared, Path("curves.word"))


def test_a_run_is_done_if_training_has_said_so_or_its_model_ships(runs):
    failed = make("failed", ["training.steps=10"], costs=[8.0], state=None)  # as by a metric that validation lacks
    ships = make("ships", state=None)
    for folder in (failed.best, ships.best, ships.evaluations, Run("cvrp", "blank").evaluations):
        folder.mkdir(parents=True)
    states = [each.state for each in found.find(["cvrp/failed", "cvrp/ships", "cvrp/blank"])]
    assert states == ["stopped", "done", "no model"]


@pytest.mark.parametrize(("workload", "best"), [("cvrp", 1.0), ("lmol", 3.0)])
def test_the_best_value_is_the_lowest_or_the_highest_as_the_metric_has_it(tmp_path, monkeypatch, workload, best):
    monkeypatch.chdir(tmp_path)
    run, metric = Run(workload, "one"), workloads.find(workload).metric
    run.folder.mkdir(parents=True)
    run.metrics_file.write_text(
        "".join(f'{{"step": {step}, "{metric.name}": {value}}}\n' for step, value in enumerate(("NaN", 2.0, 1.0, 3.0)))
    )
    assert found.find([f"{workload}/one"])[0].best == best


def test_the_table_ends_quietly_where_nobody_reads_on(runs, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["runs.py"])
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python begins
    try:
        command.main()
        assert signal.getsignal(signal.SIGPIPE) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGPIPE, before)


def test_the_command_answers_slips_in_a_line(runs):
    def command(*words):
        return forked.run([str(ROOT / "pipelines/runs.py"), *words], runs, fresh=not words)

    assert command().stdout == found.table(found.find()) + "\n"
    refused(command("clean", "cvrp/onne"), "there is no run cvrp/onne; did you mean cvrp/one")
    refused(command("compare", "cvrp/one"), "takes two runs or more")
    refused(command("clean", "--yess"), "unrecognized arguments: --yess")
