"""What an update of routes sends to a device stays within bounds."""

import pytest

from tests.gpu import launches


@pytest.mark.slow
def test_an_update_of_routes_sends_at_most_400_operations_and_waits_once_a_record(tmp_path):
    found = launches.counted("cvrp", tmp_path, last=15)
    assert found["operations"] <= 400, found
    assert found["waits"] <= 1 / launches.FIRST, found


@pytest.mark.slow
def test_scoring_tours_by_kernels_holds_no_tensor_over_all_steps():
    found = launches.scoring_memory()
    assert found["torch"] > 5
    assert found["kernels"] < 0.2
