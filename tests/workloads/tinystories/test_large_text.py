"""Large texts: memory that does not grow with them, and a preparation that is killed and begun again."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from common.disk.files import digests
from tests.forked import LONG, until
from tests.stages import PYTHONPATH, ROOT
from tests.workloads.tinystories.texts import STORIES

TINY = "pipelines.workloads.tinystories"


def command(constants, *pairs):
    words = [word if isinstance(word, str) else json.dumps(word) for pair in pairs for word in pair]
    return [sys.executable, ROOT / "tests/prepare_directly.py", "tinystories", json.dumps(constants), *words]


def environment(**changes):
    return {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1", **changes}


def text(path, size, between="\n<|endoftext|>\n"):
    """A file of `size` bytes or a little more, of stories that are told apart by a number."""
    number = 0
    with path.open("w") as file:
        while file.tell() < size:
            file.write("".join(f"{story} This was story {number + k}.{between}" for k, story in enumerate(STORIES)))
            number += len(STORIES)
    return str(path)


def peak(words, folder):
    """The most memory, but for files that are mapped, that a command has: `ru_maxrss` begins at its parent's."""
    process, most = subprocess.Popen(words, cwd=folder, env=environment(), stdout=subprocess.DEVNULL), 0
    while process.poll() is None:
        with contextlib.suppress(OSError):
            found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
            most = max(most, 1024 * int(found[1]) if found else 0)
        time.sleep(0.01)
    assert process.returncode == 0
    return most


@pytest.mark.slow
@pytest.mark.parametrize("between", ["\n<|endoftext|>\n", pytest.param(" ", marks=pytest.mark.exhaustive)])
def test_memory_does_not_grow_with_the_text(tmp_path, between):
    """Of a single process, because each process of several takes as much; the tokenizer's own share is held fixed."""
    sources = [{"source": text(tmp_path / f"{size}.txt", size * 1_000_000, between)} for size in (10, 100)]
    constants = {f"{TINY}.data.FITTED_BYTES": 2_000_000, "common.workers.WORTH": 1e9}
    pairs = [("10", sources[0]), ("100", sources[1]), ("share", {**sources[1], "percent": 10})]
    small, large, share = (peak(command(constants, pair), tmp_path) for pair in pairs)
    print(f"peak {small / 1e6:.0f} MB for 10 MB, {large / 1e6:.0f} MB for 100 MB of text, {share / 1e6:.0f} MB")
    assert large - small < 40_000_000
    assert share - large < 10_000_000


@pytest.mark.slow
def test_a_killed_preparation_leaves_no_process_and_begins_again_to_the_same_end(tmp_path):
    constants = {
        "common.workers.WORTH": -1,
        f"{TINY}.story_blocks.STRETCH": 200_000,
        f"{TINY}.story_blocks.SHARD": 20_000,
    }
    section = {"source": text(tmp_path / "text.txt", 3_000_000)}
    subprocess.run(command(constants, ("whole", section)), cwd=tmp_path, env=environment(), check=True)
    whole = digests(tmp_path / "whole")
    assert len(whole) > 100
    for files in (3, 60):
        killed = subprocess.Popen(command(constants, ("killed", section)), cwd=tmp_path, env=environment())
        try:
            assert until(lambda: len(list((tmp_path / "killed").rglob("*.arrow"))) >= files, LONG)  # noqa: B023
            workers = psutil.Process(killed.pid).children(recursive=True)
        finally:
            killed.kill()
            killed.wait()
        assert len(workers) >= 2
        assert until(lambda: not any(worker.is_running() for worker in workers), LONG)  # noqa: B023
    subprocess.run(command(constants, ("killed", section)), cwd=tmp_path, env=environment(), check=True)
    assert digests(tmp_path / "killed") == whole
