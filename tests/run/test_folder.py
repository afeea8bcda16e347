"""Where a run lies on disk; a member of a run of many models is an ordinary run."""

from pathlib import Path

import pytest

from common.errors import UserError
from pipelines import workloads
from pipelines.engine.config import BaseConfig
from pipelines.run.folder import Run


def test_a_member_is_a_run_in_a_folder_below_that_of_all():
    member = Run("crypto", "default/BTCUSDT")
    assert member.folder == Path("runs/crypto/default/members/BTCUSDT")
    assert member.best == member.folder / "model/best"
    assert vars(member) == vars(Run("crypto", "default").member("BTCUSDT"))


@pytest.mark.parametrize("name", ["", "..", "../up", "a/b/c", "/a", "a/", ".hidden", "a b"])
def test_a_name_that_is_no_folder_below_runs_is_refused(name):
    with pytest.raises(UserError, match="--name"):
        Run("crypto", name)


def test_a_run_that_was_never_begun_says_how_to_train_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UserError, match=r"there is no run runs/toy/a, nor any other of toy\. .*train.py --workload toy --name a$"
    ):
        Run("toy", "a").config(BaseConfig)
    run = Run("toy", "a/b")
    run.begin(BaseConfig(seed=3), 1, {})
    assert run.started()
    assert run.config(BaseConfig, ["seed=4"]).seed == 4
    assert run.outcome() is None


def test_records_after_a_torn_line_are_kept_and_rewound_like_those_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run("toy", "a")
    run.folder.mkdir(parents=True)
    run.record({"step": 1, "train/loss": 3.0})
    with run.metrics_file.open("ab") as file:
        file.write(b'{"step": 2, "train/lo\n{"step": 2, "train/l\xff\xfe": 1}\n7\n{"stfp": 2}\n')
    for entry in ({"step": 2, "train/loss": 2.0}, {"step": 2, "val/loss": 2.5}, {"step": 3, "train/loss": 1.0}):
        run.record(entry)
    assert [entry.get("step") for entry in run.metrics()] == [1, None, 2, 2, 3]
    run.rewind(2, 0)
    assert run.metrics() == [{"step": 1, "train/loss": 3.0}, {"step": 2, "train/loss": 2.0}]
    assert len(run.metrics_file.read_text().splitlines()) == 2


def test_a_damaged_provenance_is_named_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run("toy", "a")
    assert run.provenance() == {}
    run.begin(BaseConfig(), 1, {"content": "x"}, "bf16")
    assert (run.provenance()["mixed_precision"], run.learnt_from("y")) == ("bf16", False)
    content = run.provenance_file.read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"\xff\xfe", b"7"):
        run.provenance_file.write_bytes(damaged)
        for asked in (run.provenance, lambda: run.learnt_from("x"), lambda: run.begin(BaseConfig(), 1, {})):
            with pytest.raises(UserError, match=r"provenance.json is damaged .* delete it and continue with --resume"):
                asked()


def test_a_run_of_an_earlier_version_goes_on_without_ways_of_evaluating_that_went(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    config, run = workloads.find("cvrp").config, Run("cvrp", "old")
    run.begin(config(), 1, {})
    text = run.config_file.read_text()
    assert "evaluation:\n" in text
    run.config_file.write_text(text.replace("evaluation:\n", "evaluation:\n  local_search: 4\n  ruin_rounds: 0\n"))
    assert run.config(config) == config()
    assert capsys.readouterr().err == (
        "runs/cvrp/old/config.yaml: evaluation has no local_search, ruin_rounds any more: left out\n"
    )
    run.config_file.write_text(text.replace("training:\n", "training:\n  momentum: 4\n"))
    with pytest.raises(UserError, match=r"training\.momentum: unknown key"):
        run.config(config)
