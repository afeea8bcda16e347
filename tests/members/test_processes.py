"""Trained members are examined by several processes, and nothing depends on how many there are."""

import functools
import os

import pytest
import torch
from accelerate import Accelerator

from common.errors import UserError
from pipelines.engine.batches import mapper
from pipelines.members import processes
from tests.members import toys

DEVICE = torch.device("cpu")


@pytest.mark.slow
def test_members_are_examined_in_processes_of_one_thread_and_come_back_in_order(monkeypatch):
    jobs = {name: torch.tensor([ord(name)]) for name in "dcba"}
    monkeypatch.setattr(processes, "cores", lambda: 2)
    examine = functools.partial(toys.examined, 3)
    found = processes.map_members(examine, jobs, DEVICE, None)
    assert list(found) == list(jobs)
    assert {name: each["job"] for name, each in found.items()} == jobs
    assert all(each["items"] == [0, 3, 6, 9, 12] for each in found.values())
    assert {each["threads"] for each in found.values()} == {1}
    examiners = {each["process"] for each in found.values()}
    assert os.getpid() not in examiners
    with pytest.raises(UserError, match="cannot be examined"):
        processes.map_members(examine, {**jobs, "e": "mistake"}, DEVICE, None)


def test_one_core_or_few_jobs_need_no_process(monkeypatch):
    here = mapper(Accelerator(cpu=True))
    for num, jobs in ((1, dict.fromkeys("abcd", 1)), (2, {"a": 1, "b": 2})):
        monkeypatch.setattr(processes, "cores", lambda num=num: num)
        found = processes.map_members(functools.partial(toys.examined, 3), jobs, DEVICE, here)
        assert {each["process"] for each in found.values()} == {os.getpid()}
        assert found["a"]["items"] == [0, 3, 6, 9, 12]
