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
from tests import forked
from tests.forked import LONG, until
from tests.stages import PYTHONPATH, ROOT
from tests.workloads.tinystories.texts import STORIES

TINY = "pipelines.workloads.tinystories"


def command(constants, *pairs):
    words = [word if isinstance(word, str) else json.dumps(word) for pair in pairs for word in pair]
    return [ROOT / "tests/prepare_directly.py", "tinystories", json.dumps(constants), *words]


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


def started(words, folder):
    """A command in a new interpreter."""
    return subprocess.Popen([sys.executable, *words], cwd=folder, env=environment(), stdout=subprocess.DEVNULL)


def peak(words, folder):
    """The most memory, but for files that are mapped, that a command has: `ru_maxrss` begins at its parent's."""
    process, most = started(words, folder), 0
    while process.poll() is None:
        with contextlib.suppress(OSError):
            found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
            most = max(most, 1024 * int(found[1]) if found else 0)
        time.sleep(0.01)
    assert process.returncode == 0
    return most


@pytest.mark.slow
@pytest.mark.parametrize(
    ("between", "megabytes"),
    [
        ("\n<|endoftext|>\n", 50),
        *(pytest.param(between, 100, marks=pytest.mark.exhaustive) for between in ("\n<|endoftext|>\n", " ")),
    ],
)
def test_memory_does_not_grow_with_the_text(tmp_path, between, megabytes):
    """Of a single process, because each process of several takes as much; the tokenizer's own share is held fixed."""
    sizes = [megabytes * 100_000, megabytes * 1_000_000]
    sources = [{"source": text(tmp_path / f"{size}.txt", size, between)} for size in sizes]
    constants = {f"{TINY}.data.FITTED_BYTES": 2_000_000, "common.workers.WORTH": 1e9}
    pairs = [("small", sources[0]), ("large", sources[1]), ("share", {**sources[1], "percent": 10})]
    small, large, share = (peak(command(constants, pair), tmp_path) for pair in pairs)
    peaks = ", ".join(f"{each / 1e6:.0f}" for each in (small, large, share))
    print(f"peaks of {peaks} MB for {sizes} bytes, and for a tenth of the larger text")
    assert large - small < 0.4 * sizes[1]
    assert share - large < 10_000_000


def prepare(constants, name, section, folder):
    done = forked.run(command(constants, (name, section)), folder, environment())
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_killed_preparation_leaves_no_process_and_begins_again_to_the_same_end(tmp_path):
    constants = {
        "common.workers.WORTH": -1,
        f"{TINY}.story_blocks.STRETCH": 200_000,
        f"{TINY}.story_blocks.SHARD": 20_000,
    }
    section = {"source": text(tmp_path / "text.txt", 3_000_000)}
    prepare(constants, "whole", section, tmp_path)
    whole = digests(tmp_path / "whole")
    assert len(whole) > 100
    for files in (3, 60):
        killed = started(command(constants, ("killed", section)), tmp_path)
        try:
            assert until(lambda: len(list((tmp_path / "killed").rglob("*.arrow"))) >= files, LONG)  # noqa: B023
            workers = psutil.Process(killed.pid).children(recursive=True)
        finally:
            killed.kill()
            killed.wait()
        assert len(workers) >= 2
        assert until(lambda: not any(worker.is_running() for worker in workers), LONG)  # noqa: B023
    prepare(constants, "killed", section, tmp_path)
    assert digests(tmp_path / "killed") == whole
