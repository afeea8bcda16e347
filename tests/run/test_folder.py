"""Where a run lies on disk; a member of a run of many models is an ordinary run."""

from pathlib import Path

import pytest

from common.disk.files import write_json
from common.errors import UserError
from pipelines import workloads
from pipelines.engine.config import BaseConfig
from pipelines.report import page
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
    assert run.outcome() == {}


def test_a_config_that_could_not_be_read_again_is_refused_before_the_run_is_begun(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = BaseConfig(training={"steps": 1, "hooks": [f"a:{'b' * 40_000}", f"c:{'d' * 40_000}"]})
    with pytest.raises(UserError, match=r"^this config would be too large .*: it is larger than the 65536 bytes"):
        Run("toy", "a").keep_config(config)
    assert not Path("runs").exists()


@pytest.mark.parametrize("content", ["null", "7", "[1]", "{}", '{"state": 3}', '{"state": "do', "\xff"])
def test_what_is_no_outcome_is_that_of_a_run_which_has_not_ended(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    run = Run("toy", "a")
    run.keep_config(BaseConfig())
    run.outcome_file.write_bytes(content.encode("latin-1"))
    assert (run.outcome(), run.models()) == ({}, [])
    run.outcome_file.unlink()
    run.outcome_file.mkdir()
    assert run.outcome() == {}


@pytest.mark.parametrize(
    ("content", "said"), [('{"sta', "of earlier weights: "), ("null", "of earlier weights: "), ("[]", "")]
)
def test_a_verdict_beside_damaged_files_can_be_read(tmp_path, monkeypatch, content, said):
    monkeypatch.chdir(tmp_path)
    run = Run("toy", "a")
    run.keep_config(BaseConfig())
    write_json(run.outcome_file, {"state": "done", "models": {"best": "a"}} if said else {})
    run.verdict_file.write_bytes(b"Better \xff\n")
    run.judged_file.write_text(content)
    assert run.verdict() == f"{said}Better \ufffd"


def test_records_after_a_torn_line_are_kept_and_rewound_like_those_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run("toy", "a")
    run.folder.mkdir(parents=True)
    run.record({"step": 1, "train/loss": 3.0})
    with run.metrics_file.open("ab") as file:
        file.write(b'{"step": 2, "train/lo\n{"step": 2, "train/l\xff\xfe": 1}\n7\n{"stfp": 2}\n')
    for entry in ({"step": 2, "train/loss": 2.0}, {"step": 2, "val/loss": 2.5}, {"step": 3, "train/loss": 1.0}):
        run.record(entry)
    with run.metrics_file.open("a") as file:
        file.write('{"step": null}\n{"step": "2"}\n{"step": NaN, "train/loss": 1}\n')
    assert [entry["step"] for entry in run.metrics()] == [1, 2, 2, 3]
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
    odd = (b"7", b'{"data": null}', b'{"earlier": 0}', b'{"versions": 3}')
    for damaged in (content[: len(content) // 2], b"", b"\xff\xfe", *odd):
        run.provenance_file.write_bytes(damaged)
        for asked in (run.provenance, lambda: run.learnt_from("x"), lambda: run.begin(BaseConfig(), 1, {})):
            with pytest.raises(UserError, match=r"provenance.json is damaged .* delete it and continue with --resume"):
                asked()


def test_a_provenance_that_lacks_something_is_that_of_a_run_of_which_it_is_unknown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run("toy", "a")
    run.keep_config(BaseConfig())
    run.provenance_file.write_text("{}")
    assert run.provenance() == {"command": [], "devices": [], "versions": {}, "data": {}, "earlier": []}
    assert run.learnt_from("x")
    page.write(run, [], [])
    assert ">started</th><td>unknown</td>" in run.report.read_text()
    run.begin(BaseConfig(), 1, {})
    assert len(run.provenance()["earlier"]) == 1


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


def test_a_config_that_was_lost_is_not_one_of_defaults(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run("toy", "a")
    run.begin(BaseConfig(), 1, {})
    run.config_file.write_text("")
    with pytest.raises(UserError, match=r"runs/toy/a/config.yaml is empty: restore a copy, or begin another run"):
        run.config(BaseConfig, ["seed=3"])


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
    assert run.member("a").outcome() == {}
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


def test_a_start_removes_what_a_killed_one_left_in_every_folder_that_is_written_in_parts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run("toy", "a")
    left = [folder / ".half.tmp" for folder in (run.folder, run.best, run.last, run.checkpoints)]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with run.held():
        assert not any(path.exists() for path in left)


def test_the_provenance_keeps_all_earlier_starts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run("toy", "a")
    for precision in ("no", "bf16", "fp16"):
        run.begin(BaseConfig(), 1, {}, precision)
    assert [each["mixed_precision"] for each in run.provenance()["earlier"]] == ["no", "bf16"]


def test_a_member_is_judged_with_its_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = Run("toy", "many")
    member = run.member("a")
    member.keep_config(BaseConfig())
    member.record({"step": 7})
    assert "trained for 7 updates; python pipelines/evaluate.py --workload toy --name many shows" in member.unjudged()
    run.verdict_file.write_text("Better\n")
    assert member.unjudged() == ""
    run.judged_file.write_text('[{"best": "other"}]')
    assert member.unjudged().startswith("trained on since its evaluation, now for 7 updates")


def test_a_run_without_a_verdict_has_none_of_earlier_weights_and_is_judged_by_the_model_that_was_chosen(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run = Run("toy", "a")
    run.keep_config(BaseConfig())
    run.judged_file.write_text('["of other models"]')
    assert (run.verdict(), run.evaluated) == ("", run.best)
    run.judged.mkdir(parents=True)
    assert run.evaluated == run.judged


def test_an_unknown_run_is_answered_with_those_that_there_are_and_those_that_ship(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Run("toy", "second").keep_config(BaseConfig())
    said = "there is no run runs/toy/{}; did you mean --name {}?"
    assert Run("toy", "secnod").unknown() == said.format("secnod", "second")
    assert Run("toy", "shiped").unknown(["shipped"]) == said.format("shiped", "shipped")
    assert Run("toy", "other").unknown() == said.format("other", "second")
