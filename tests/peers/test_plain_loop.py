"""How fast many coins are trained by one command, against the loop one would write without it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_one_command_is_at_least_half_as_fast_again_as_a_plain_loop():
    script = Path(__file__).with_name("against_plain_loop.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["times_faster"] >= 1.5, done.stdout
