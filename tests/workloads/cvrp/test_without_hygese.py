"""Where the package hygese is missing, as on Python 3.14, other solvers take the place of HGS, and a line says so."""

import sys

import pytest
import torch

from models.routing import native
from pipelines.workloads.cvrp import prepare as preparation
from pipelines.workloads.cvrp.config import Data
from pipelines.workloads.cvrp.instances.generated import generate, problems_of, stream_key
from pipelines.workloads.cvrp.solvers import validator
from tests.workloads.cvrp.files import SMALL, vrp
from tests.workloads.cvrp.test_cvrp_evaluation import evaluated


@pytest.fixture(autouse=True)
def _no_hygese(monkeypatch):
    monkeypatch.setitem(sys.modules, "hygese", None)


@pytest.mark.parametrize("compiler", [True, False])
def test_instances_to_imitate_are_solved_by_others(compiler, monkeypatch, capfd, tmp_path):
    if not compiler:
        monkeypatch.setattr(native, "unavailable", lambda: "no compiler")
    data = Data(customers=10, labels=3)
    first, second = (preparation.labelled(data, tmp_path / name)["tour"] for name in "ab")
    assert torch.equal(first, second)
    problems = problems_of(generate(data, stream_key(0, "labels"), torch.arange(3)))
    for problem, tour in zip(problems, first.long().tolist(), strict=True):
        routes = [[]]
        for node in tour:
            routes = [*routes, []] if node == 0 else [*routes[:-1], [*routes[-1], node]]
        validator.check(problem, [route for route in routes if route])
    other = "ruin and recreate" if compiler else "PyVRP, which takes longer"
    assert f"3.14 and later): instances to imitate are solved by {other}" in capfd.readouterr().err


def test_an_evaluation_goes_on_without_it(tmp_path, capfd):
    methods = [row["method"] for row in evaluated(vrp(tmp_path, SMALL), reference_seconds=[0.001]).table]
    assert any(method.startswith("PyVRP") for method in methods)
    assert any("ruin and recreate" in method for method in methods)
    assert not any(method.startswith("HGS") for method in methods)
    assert "HGS is left out" in capfd.readouterr().err
