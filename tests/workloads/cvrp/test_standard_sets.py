"""The standard test sets are the published ones."""

import numpy as np
import pytest

from pipelines.workloads.cvrp.instances.generated import standard_test_set
from tests.workloads.cvrp.files import same


@pytest.mark.parametrize(
    ("customers", "demand", "capacity"),
    [(20, [5, 3, 5, 8, 5], 30), (50, [9, 2, 7, 5, 7], 40), (100, [1, 3, 1, 4, 4], 50)],
)
def test_the_standard_test_set_holds_the_published_instances(customers, demand, capacity):
    first = standard_test_set(customers, 1)[0]
    assert first.locs[0] == pytest.approx([0.19151945, 0.62210877], abs=5e-9)
    assert first.demand[:6].tolist() == [0, *demand]
    assert (first.customers, first.capacity, first.rounding) == (customers, capacity, "exact")
    assert first.locs.dtype == np.float64
    assert first.demand.dtype == np.int64


def test_a_smaller_standard_test_set_is_the_beginning_of_a_larger_one():
    few, many = standard_test_set(10, 3), standard_test_set(10, 10_000)
    assert all(same(one, two) for one, two in zip(few, many, strict=False))
    assert len(many) == len({problem.name for problem in many}) == 10_000
