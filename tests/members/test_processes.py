"""Trained members are examined by several processes, and nothing depends on how many there are."""

import functools
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from threading import Event

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
    assert set(processes.map_parts(toys.process_of, jobs).values()) <= examiners
    with pytest.raises(UserError, match="cannot be examined"):
        processes.map_members(examine, {**jobs, "e": "mistake"}, DEVICE, None)


def test_what_processes_that_were_killed_were_to_draw_is_drawn_here(monkeypatch, capsys):
    pool = ProcessPoolExecutor(1)
    pool.submit(os._exit, 1).exception()
    monkeypatch.setattr(processes, "pool", pool)
    assert set(processes.map_parts(toys.process_of, dict.fromkeys("abc", 1)).values()) == {os.getpid()}
    assert "was killed; going on in this one" in capsys.readouterr().err
    assert processes.pool is None


def test_an_error_in_a_part_cancels_those_that_have_not_begun(monkeypatch):
    begun, end = [], Event()

    def work(job):
        begun.append(job)
        if job == 0:
            raise UserError("it cannot be drawn")
        end.wait(9)

    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(processes, "pool", pool)
        with pytest.raises(UserError, match="it cannot be drawn"):
            processes.map_parts(work, {str(number): number for number in range(5)})
        end.set()
    assert len(begun) < 3


def test_one_core_or_few_jobs_need_no_process(monkeypatch):
    here = mapper(Accelerator(cpu=True))
    for num, jobs in ((1, dict.fromkeys("abcd", 1)), (2, {"a": 1, "b": 2})):
        monkeypatch.setattr(processes, "cores", lambda num=num: num)
        found = processes.map_members(functools.partial(toys.examined, 3), jobs, DEVICE, here)
        assert {each["process"] for each in found.values()} == {os.getpid()}
        assert found["a"]["items"] == [0, 3, 6, 9, 12]
    monkeypatch.setattr(processes, "pool", None)
    assert set(processes.map_parts(toys.process_of, dict.fromkeys("abc", 1)).values()) == {os.getpid()}
