"""Where a run lies on disk; a member of a run of many models is an ordinary run."""

from pathlib import Path

import pytest

from common.disk.files import write_json
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


def test_a_run_adopts_a_model_that_ships_under_its_name_and_no_other_and_only_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    (shipped / "model.safetensors").touch()
    run = Run("toy", "toy-small")
    run.adopt(shipped)  # which says nothing of a run
    assert not run.folder.exists()
    (shipped / "run.yaml").write_text("seed: 1\n")
    other = Run("toy", "small")
    other.adopt(shipped)
    assert not other.folder.exists()
    run.adopt(shipped)
    assert (run.config_file.read_text(), (run.best / "model.safetensors").exists()) == ("seed: 1\n", True)
    (shipped / "run.yaml").write_text("seed: 2\n")
    run.adopt(shipped)
    assert run.config_file.read_text() == "seed: 1\n"


def test_a_verdict_is_one_of_earlier_weights_once_others_were_trained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run("toy", "many")
    assert (run.verdict(), run.is_blank()) == ("", True)
    run.keep_config(BaseConfig())
    assert run.is_blank()
    for name in ("b", "a"):
        write_json(run.member(name).outcome_file, {"state": "done", "models": {"best": name}})
    assert not run.is_blank()
    assert run.models() == [{"best": "a"}, {"best": "b"}]
    run.verdict_file.write_text("Better\n")
    assert run.verdict() == "Better"  # of a version that noted no models
    write_json(run.judged_file, run.models())
    assert run.verdict() == "Better"
    run.member("a").outcome_file.write_text('{"state": "do')  # as an interrupted copy leaves it
    assert run.member("a").outcome() is None
    assert run.verdict() == "of earlier weights: Better"


@pytest.mark.parametrize(
    ("records", "said"), [([], ""), ([{"step": 7}, {"stfp": 8}], "never evaluated, trained for 7 ")]
)
def test_a_run_without_an_evaluation_says_how_far_it_came(tmp_path, monkeypatch, records, said):
    monkeypatch.chdir(tmp_path)
    run = Run("toy", "a")
    run.keep_config(BaseConfig())
    for entry in records:
        run.record(entry)
    assert run.unjudged().startswith(said)
    assert bool(run.unjudged()) == bool(said)
