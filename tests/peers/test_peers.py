"""How fast and how good ours is, against what it replaces, measured in one run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def measured(script, *words):
    """The figures that a script of this folder prints last."""
    path = Path(__file__).with_name(script)
    done = subprocess.run([sys.executable, str(path), *words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_many_coins_by_one_command_take_at_most_two_thirds_of_a_plain_loops_time():
    found = measured("against_plain_loop.py")
    assert found["times_faster"] >= 1.5, found


def test_the_default_character_lstm_has_30_percent_fewer_bits_than_the_original_in_the_same_seconds():
    found = measured("against_legacy.py", "60")
    assert found["fewer_bits_percent"] >= 30, found
    assert found["times_targets_per_s"] >= 10, found
