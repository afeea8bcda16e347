"""Where a run lies on disk; a member of a run of many models is an ordinary run."""

from pathlib import Path

import pytest

from common.errors import UserError
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
