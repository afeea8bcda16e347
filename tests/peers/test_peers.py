"""The comparisons of this folder at small sizes; at full size they are parts of tests/evidence.py, with bounds."""

import json
import shutil
from pathlib import Path

import pytest

from pipelines.workloads.tinystories import generated_stories
from tests import forked
from tests.stages import ROOT

pytestmark = pytest.mark.slow


def measured(script, *words):
    """Return the figures that a script of this folder prints last."""
    path = Path(__file__).with_name(script)
    done = forked.run([str(path), *words], ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.exhaustive
def test_coins_are_trained_by_one_command_and_by_a_plain_loop():
    found = measured("against_plain_loop.py", "4", "20000", "1")
    # 0.94 on an idle machine, as in so short a time the start of processes counts most; beside other tests 0.48.
    assert found["times_faster"] >= 0.25, found


def test_searches_are_measured_side_by_side_in_their_time():
    # A search ends by its thread's clock, and the process's, which is told, may lag behind it by a thousandth.
    for _ in range(3):
        found = measured("routing_front.py", "cvrp-20", "20", "100", "2", "policy:0", "mix:4", "local:0.6", "hgs:0.5")
        if found["local:0.6"]["core ms"][0] >= 0.6:
            break
    assert found["mix:4"]["gap %"][0] < found["local:0.6"]["gap %"][0] < found["policy:0"]["gap %"][0]
    assert found["hgs:0.5"]["core ms"][0] >= 0.5
    assert found["local:0.6"]["core ms"][0] >= 0.6


@pytest.mark.parametrize("customers", ["20", "150"])  # standard instances, and generated ones
def test_ways_to_divide_the_time_are_measured_for_any_size(customers):
    found = measured("division.py", customers, "2", "3")
    assert len(found) == 20
    assert all(cost > 0 and above >= 0 for cost, above in found.values())


def test_a_search_trains_each_candidate_once(tmp_path):
    text = tmp_path / "stories.txt"
    text.write_text("\n\n".join(generated_stories.generate(0, 60_000)))
    script = Path(__file__).with_name("story_search.py")
    told = []
    for _ in range(2):
        done = forked.run([str(script), str(text), "0.5", "half the tables"], tmp_path)
        assert done.returncode == 0, done.stderr
        told.append(done.stdout)
        shutil.rmtree(tmp_path / "runs/tinystories", ignore_errors=True)
        (tmp_path / "runs/tinystories").write_text("")  # nothing can be trained any more
    assert told[0] == told[1]
    candidate, together = map(json.loads, told[0].splitlines())
    assert candidate["updates"] >= 1
    assert candidate["mixed"]["validation"] <= candidate["validation"]
    assert together["together"] == {key: candidate[key] for key in ("validation", "held_out", "mixed")} | {
        "candidates": ["half the tables"]
    }
