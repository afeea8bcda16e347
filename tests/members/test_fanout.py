"""Runs of many models: who trains which member, how each of them ends, and what --resume does again."""

import errno
import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from common import workers
from common.disk.files import digests
from common.errors import MembersFailedError, Stopped, UserError
from pipelines import loading, train
from pipelines.members import fanout, processes
from pipelines.run.folder import Run
from tests.members import toys as members

TRAINING = {"steps": 4, "batch_size": 16, "checkpoint_steps": 2}
DEVICE = torch.device("cpu")


class FakeAccelerator:
    """One process of several that do not exist."""

    device, mixed_precision = DEVICE, "no"

    def __init__(self, rank=0, world=1):
        self.process_index, self.num_processes, self.is_main_process = rank, world, rank == 0
        self.said = []

    def wait_for_everyone(self):
        pass

    def print(self, line):
        self.said.append(line)


def begun():
    """What a run of many records of its start is of no account here."""


def config_of(training=(), **options):
    return members.Config(training={**TRAINING, **dict(training)}, model=options)


def job_of(configs, tmp_path, resume=False):
    return fanout.Job(Run("toy", "many"), configs, tmp_path, {}, resume, members.find)


def write_outcome(run, outcome):
    run.folder.mkdir(parents=True, exist_ok=True)
    run.outcome_file.write_text(json.dumps(outcome))


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(members.io, "save", members.io.save)  # put back what `find` replaces


@pytest.fixture
def pool(monkeypatch):
    """A stand-in for the processes: `given` lists what this rank is to train, `number` is the signal that comes."""
    fake = SimpleNamespace(given=[], number=None, outcomes={})

    class Pool:
        def __init__(self, job, device, precision):
            self.job = job

        def train(self, names):
            fake.given += names
            for name, outcome in fake.outcomes.items():
                write_outcome(self.job.run.member(name), outcome)
            return fake.number

    monkeypatch.setattr(fanout, "Pool", Pool)
    return fake


def test_members_are_dealt_to_the_ranks_in_turn(tmp_path, pool):
    names = ["a", "b", "c", "d", "e"]
    pool.outcomes = {name: {"state": "done"} for name in names}
    dealt = []
    for rank in range(2):
        pool.given = []
        job = job_of(dict.fromkeys(names, config_of()), tmp_path)
        fanout.train_all(job, names, FakeAccelerator(rank, 2), begun)
        dealt.append(pool.given)
    assert dealt == [["a", "c", "e"], ["b", "d"]]
    fanout.train_all(job, ["a"], FakeAccelerator(), begun)  # one of them again, by --only
    assert {name: job.run.member(name).outcome() for name in names} == pool.outcomes


def test_members_that_a_signal_left_out_are_not_trained_and_not_failed(tmp_path, pool):
    pool.number, pool.outcomes = signal.SIGTERM, {"a": {"state": "stopped", "reason": "after step 3"}}
    with pytest.raises(Stopped, match=r"stopped by SIGTERM; members .* saved; continue with --resume"):
        fanout.train_all(job_of(dict.fromkeys("ab", config_of()), tmp_path), ["a", "b"], FakeAccelerator(), begun)
    outcomes = {name: Run("toy", "many").member(name).outcome() for name in "ab"}
    assert outcomes == {**pool.outcomes, "b": {}}


def test_members_that_are_done_and_lack_checkpoints_are_not_trained_over(tmp_path, pool):
    job = job_of({name: fanout.of_one_thread(config_of()) for name in "abc"}, tmp_path, resume=True)
    for name in "abc":
        run = job.run.member(name)
        run.begin(job.configs[name], 1, {})
        run.best.mkdir(parents=True)
        (run.best / "weights").write_text(name)
        write_outcome(run, {"state": "done", "models": digests(run.best.parent)})
        if name != "b":
            (run.checkpoints / "step-000004").mkdir(parents=True)
    longer = replace(job, configs=dict.fromkeys("abc", config_of({"steps": 8})))
    with pytest.raises(UserError, match=r"^runs/toy/many/members/b is done, and its checkpoints are gone"):
        fanout.train_all(longer, list("abc"), FakeAccelerator(), lambda: pytest.fail("the run keeps its config"))
    assert [job.run.member(name).outcome()["state"] for name in "abc"] == ["done"] * 3
    pool.outcomes = {"a": {"state": "done"}, "c": {"state": "done"}}
    fanout.train_all(longer, ["a", "c"], FakeAccelerator(), begun)
    pool.outcomes = {}
    fanout.train_all(job, ["b"], FakeAccelerator(), begun)  # which asks for nothing more
    assert pool.given == ["a", "c"]


def test_a_signal_reaches_a_member_that_is_being_started(tmp_path, monkeypatch):
    class Process:
        """Is started while the signal comes, before the pool knows of it."""

        ended = False

        def start(self):
            pool.stop.number = signal.SIGTERM
            pool.end_all()

        def terminate(self):
            self.ended = True

    context = SimpleNamespace(Process=lambda **_: Process())
    monkeypatch.setattr(workers, "start_server", lambda modules: context)
    pool = fanout.Pool(job_of({"a": config_of()}, tmp_path), DEVICE)
    pool.start(["a"])
    assert pool.running["a"].ended


def test_after_a_signal_no_member_is_started_and_a_second_kills_what_runs(tmp_path, monkeypatch):
    started = []

    class Process:
        """Trains on, whatever it is asked."""

        exitcode = sentinel = None

        def start(self):
            started.append(self)

        def kill(self):
            self.killed = True

    def wait(sentinels, timeout):
        if pool.stop.number:
            raise KeyboardInterrupt
        pool.stop.number, pool.at_once = signal.SIGINT, 3

    monkeypatch.setattr(workers, "start_server", lambda modules: SimpleNamespace(Process=lambda **_: Process()))
    monkeypatch.setattr(fanout.connection, "wait", wait)
    pool = fanout.Pool(job_of(dict.fromkeys("abc", config_of()), tmp_path), DEVICE)
    pool.at_once = 1
    with pytest.raises(KeyboardInterrupt):
        pool.train(["a", "b", "c"])
    assert [process.killed for process in started] == [True]


def test_a_member_that_cannot_write_its_log_says_so(tmp_path, monkeypatch):
    job = job_of({"a": config_of()}, tmp_path)
    monkeypatch.setattr(processes, "stand_alone", lambda device: None)
    (job.run.member("a").folder / "train.log").mkdir(parents=True)
    with pytest.raises(SystemExit, match="1"):
        fanout.work(job, ["a"], "cpu")
    assert "IsADirectoryError" in job.run.member("a").outcome()["reason"]


def test_how_a_member_ended_before_counts_no_more(tmp_path, pool):
    """Otherwise another rank could take an old failure for the end of this training."""
    job = job_of(dict.fromkeys("ab", config_of()), tmp_path, resume=True)
    write_outcome(job.run.member("a"), {"state": "failed", "reason": "of old"})
    pool.number = signal.SIGTERM
    with pytest.raises(Stopped):
        fanout.train_all(job, ["a"], FakeAccelerator(), begun)
    assert job.run.member("a").outcome() == {}


def test_how_a_member_ended_before_is_named_where_it_cannot_be_removed(tmp_path, pool, monkeypatch):
    job = job_of({"a": config_of()}, tmp_path, resume=True)
    write_outcome(job.run.member("a"), {"state": "failed", "reason": "of old"})

    def unlink(path, missing_ok=False):
        raise PermissionError(errno.EACCES, "no", str(path))

    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.raises(UserError, match=r"cannot write runs/toy/many/members/a/outcome\.json: no permission"):
        fanout.train_all(job, ["a"], FakeAccelerator(), begun)


def test_resume_trains_again_what_was_done_under_another_config(tmp_path, pool):
    names = ("same", "other", "no-best", "damaged", "older", "failed")  # older: from before sums were written down
    configs = {name: fanout.of_one_thread(config_of()) for name in names}
    for name, config in configs.items():
        run = Run("toy", "many").member(name)
        run.begin(config, 1, {})
        for folder in (run.best, run.last):
            folder.mkdir(parents=True)
            (folder / "weights").write_text(name)
        models = {} if name == "older" else {"models": digests(run.best.parent)}
        write_outcome(run, {"state": "failed" if name == "failed" else "done", "reason": "", **models})
        if name == "no-best":
            shutil.rmtree(run.best)
        if name == "other":
            (run.checkpoints / "step-000002").mkdir(parents=True)
        if name == "damaged":
            (run.last / "weights").write_text("Damaged")
    left = [Run("toy", "many").member("same").folder / name for name in (".lock", ".outcome.json.tmp")]
    for path in left:  # by a process that was killed after its last word
        path.touch()
    configs["other"] = config_of({"learning_rate": 0.5})
    accelerator = FakeAccelerator()
    pool.outcomes = {name: {"state": "done"} for name in configs if name != "same"}
    fanout.train_all(job_of(configs, tmp_path, resume=True), list(configs), accelerator, begun)
    assert pool.given == ["other", "no-best", "damaged", "older", "failed"]
    assert accelerator.said == ["1 of 6 members are done"]
    assert not any(path.exists() for path in left)
    pool.given, pool.outcomes = [], {name: {"state": "done"} for name in configs}
    fanout.train_all(job_of(configs, tmp_path), list(configs), FakeAccelerator(), begun)
    assert pool.given == list(configs)  # without --resume, all


class OfParts(members.Config):
    """The config of a member that learns from the part of the data which has its name."""

    def content(self, manifest):
        return manifest[self.model.toy]


@pytest.fixture
def of_parts():
    """Configs of members whose training is done; of c it was not yet written down what it learnt from."""
    configs = {name: fanout.of_one_thread(OfParts(training=TRAINING, model={"toy": name})) for name in "abc"}
    for name, facts in {"a": {"content": 1}, "b": {"content": 2}, "c": {}}.items():
        run = Run("toy", "many").member(name)
        run.begin(configs[name], 1, facts)
        run.last.mkdir(parents=True)
        write_outcome(run, {"state": "done", "models": {}})
    return configs


def test_resume_trains_again_what_learnt_from_other_data(tmp_path, pool, of_parts):
    pool.outcomes = {"b": {"state": "done"}}
    job = replace(job_of(of_parts, tmp_path, resume=True), manifest={"a": 1, "b": 3, "c": 4})
    fanout.train_all(job, list(of_parts), FakeAccelerator(), begun)
    assert pool.given == ["b"]


def test_members_that_learnt_from_other_data_are_left_out_of_an_evaluation(tmp_path, monkeypatch, of_parts):
    monkeypatch.setattr(loading, "load_model", lambda folder, *_: folder)
    run, accelerator = Run("toy", "many"), FakeAccelerator()
    workload = SimpleNamespace(expand=lambda *_: of_parts)
    found = loading.trained_models(workload, of_parts["a"], tmp_path, {"a": 1, "b": 3, "c": 4}, run, accelerator)
    assert found == {name: run.member(name).best for name in "ac"}
    reason = "its data have changed; continue with pipelines/train.py --resume"
    assert accelerator.said[-1] == f"b is left out: stale {reason}"


def test_only_chooses_members_in_their_own_order_and_names_an_unknown_one():
    assert train.chosen_members(None, ["a", "b", "c"]) == ["a", "b", "c"]
    assert train.chosen_members("c,a", ["a", "b", "c"]) == ["a", "c"]
    with pytest.raises(UserError, match=r"--only a,z: z is not among the members \(a, b\)"):
        train.chosen_members("a,z", ["a", "b"])
    with pytest.raises(UserError, match="--only: this run "):
        train.chosen_members("a", [])


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """What came of real members, one of every kind: (folder, outcomes, the error)."""
    folder = tmp_path_factory.mktemp("members")
    configs = {
        "good": config_of(),
        "nan": config_of(toy={"nan_at": 3}),
        "broken": config_of(fault="exception"),
        "killed": config_of(fault="kill"),
        "stopped": config_of(toy={"signal_at": 3}),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with pytest.raises(MembersFailedError) as error:
            fanout.train_all(job_of(configs, folder), list(configs), FakeAccelerator(), begun)
        outcomes = {name: Run("toy", "many").member(name).outcome() for name in configs}
    return folder, outcomes, str(error.value)


@pytest.mark.slow
def test_each_member_ends_in_a_state_with_its_reason(ended):
    _, outcomes, error = ended
    assert {name: outcome["state"] for name, outcome in outcomes.items()} == {
        "good": "done",
        "nan": "failed",
        "broken": "failed",
        "killed": "failed",
        "stopped": "stopped",
    }
    assert outcomes["good"]["step"] == 4
    assert "not finite at step 3" in outcomes["nan"]["reason"]
    assert outcomes["broken"]["reason"].startswith("RuntimeError: pretended; see ")
    assert outcomes["stopped"]["reason"] == "stopped by SIGTERM after step 3; continue with --resume"
    assert error.startswith("4 of 5 members failed, the others are trained:\n  nan: ")


@pytest.mark.slow
def test_a_member_that_was_killed_is_named_with_its_signal(ended):
    _, outcomes, error = ended
    reason = "its process was killed by SIGKILL; see runs/toy/many/members/killed/train.log"
    assert outcomes["killed"] == {"state": "failed", "reason": reason}
    assert f"  killed: {reason}" in error.splitlines()


@pytest.mark.slow
def test_what_a_member_prints_is_in_its_log(ended):
    folder, _, _ = ended
    run = folder / "runs/toy/many/members"
    assert "Traceback" in (run / "broken/train.log").read_text()
    log = (run / "nan/train.log").read_text()
    assert "failed: loss or gradient is not finite" in log
    assert "Traceback" not in log


def weights(run):
    return {path.parent.name: path.read_bytes() for path in run.best.parent.rglob("*.safetensors")}


@pytest.mark.slow
def test_the_only_member_is_trained_in_this_process_with_the_weights_it_has_among_others(tmp_path, monkeypatch, capfd):
    config = config_of(toy={"dropout": 0.3})
    fanout.train_all(job_of(dict.fromkeys("ab", config), tmp_path), ["a"], FakeAccelerator(), begun)
    among = weights(Run("toy", "many").member("a"))
    shutil.rmtree(tmp_path / "runs")
    monkeypatch.setattr(fanout, "Pool", None)
    monkeypatch.setattr(workers, "start_server", None)
    capfd.readouterr()
    fanout.train_all(job_of({"a": config}, tmp_path), ["a"], FakeAccelerator(), begun)
    run = Run("toy", "many").member("a")
    assert weights(run) == among
    assert run.outcome()["state"] == "done"
    assert not (run.folder / "train.log").exists()
    assert "step 4/4" in capfd.readouterr().err
    again = FakeAccelerator()
    fanout.train_all(job_of({"a": config_of(toy={"dropout": 0.3})}, tmp_path, resume=True), ["a"], again, begun)
    assert again.said == ["1 of 1 members are done"]


def test_where_its_end_cannot_be_written_down_what_ended_a_member_is_told(tmp_path, monkeypatch, capfd):
    def write_json(*_):
        raise UserError("the disk is full")

    monkeypatch.setattr(fanout, "write_json", write_json)
    with pytest.raises(RuntimeError, match="pretended"):
        fanout.train_all(job_of({"a": config_of(fault="exception")}, tmp_path), ["a"], FakeAccelerator(), begun)
    assert "error: the disk is full" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "error", "state", "reason"),
    [
        ({"toy": {"nan_at": 3}}, UserError, "failed", "not finite at step 3"),
        ({"toy": {"signal_at": 3}}, Stopped, "stopped", "stopped by SIGTERM after step 3"),
        ({"fault": "exception"}, RuntimeError, "failed", "RuntimeError: pretended"),
    ],
)
def test_the_only_member_ends_as_any_other_run_and_its_end_is_written_down(tmp_path, options, error, state, reason):
    with pytest.raises(error):
        fanout.train_all(job_of({"a": config_of(**options)}, tmp_path), ["a"], FakeAccelerator(), begun)
    outcome = Run("toy", "many").member("a").outcome()
    assert outcome["state"] == state
    assert reason in outcome["reason"]


@pytest.fixture
def gpu(monkeypatch):
    """A GPU with `free` bytes, and room for nine processes by the number of cores."""
    fake = SimpleNamespace(type="cuda", free=1000)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (device.free, 1000))
    monkeypatch.setattr(fanout, "cores", lambda: 9)
    monkeypatch.setattr(workers, "start_server", lambda modules: None)
    return fake


def test_a_gpu_takes_a_process_more_if_it_has_the_memory_of_those_before(tmp_path, gpu):
    pool = fanout.Pool(job_of(dict.fromkeys("abcd", config_of()), tmp_path), gpu)
    assert pool.has_room()  # the first one, whatever it takes
    pool.running["a"], pool.began["a"], gpu.free = None, 100.0, 700
    assert not pool.has_room()  # it has not trained yet, so what it takes is not known
    Run("toy", "many").member("a").folder.mkdir(parents=True)
    Run("toy", "many").member("a").record({"step": 1, "time": 99.0})
    assert not pool.has_room()  # a record from before --resume
    Run("toy", "many").member("a").record({"step": 2, "time": 101.0})
    assert pool.has_room()  # 300 were taken, 360 are wanted
    gpu.free = 450
    assert not pool.has_room()  # 550 were taken, 660 are wanted
    pool.running["b"], pool.began["b"] = None, 102.0
    assert not pool.has_room()
    gpu.free = 800
    assert pool.has_room()  # 200 were taken, and 240 each are wanted for two: b may still take as much as a
    gpu.free = 450
    Run("toy", "many").member("b").folder.mkdir(parents=True)
    Run("toy", "many").member("b").record({"step": 1, "time": 103.0})
    assert pool.has_room()  # 275 were taken by each, 330 are wanted


def test_cores_limit_the_processes_on_a_cpu_and_on_a_gpu(tmp_path, gpu, monkeypatch):
    for device in (gpu, DEVICE):
        monkeypatch.setattr(fanout, "cores", lambda: 4)
        two = members.Config(training=TRAINING, hardware={"threads": 2})
        pool = fanout.Pool(job_of({"a": two, "b": config_of()}, tmp_path), device)
        assert pool.at_once == 2
        pool.running = dict.fromkeys("ab")
        assert not pool.has_room()
