"""Many images: memory that does not grow with them, the same bytes from any number of processes."""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from common import workers
from common.disk.files import digests
from pipelines.workloads.lmol.sources import image_set
from tests.stages import PYTHONPATH, ROOT
from tests.workloads.lmol.test_lmol_data import prepared, user_folder


def test_images_written_in_parts_make_the_file_that_numpy_saves(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), np.uint8)
    found, thumbnails = image_set.write(tmp_path / "parts.npy", np.split(images, [0, 1, 7]))
    np.save(tmp_path / "whole.npy", images)
    assert (tmp_path / "parts.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert (found == images).all()
    assert len(thumbnails) == 12


@pytest.mark.slow
def test_images_are_the_same_from_any_number_of_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "WORTH", -1)
    path = tmp_path / "mine"
    path.mkdir()
    user_folder(path, {f"{row:03d}.png": str(row % 9) for row in range(200)})
    (path / "150.png").write_text("no image")
    for source in (path, "photos"):
        found = {}
        for count in (1, 2):
            monkeypatch.setattr(workers, "cores", lambda: count)  # noqa: B023
            found[count] = prepared(tmp_path / f"{count}", source, size=24)[1], digests(tmp_path / f"{count}")
        assert found[1] == found[2]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_images(tmp_path):
    """Of a single process, because each process of several takes as much."""
    generator = np.random.default_rng(0)
    names = [f"{number:04d}.jpg" for number in range(4000)]
    for name in names:
        Image.fromarray(generator.integers(0, 256, (8, 8, 3), np.uint8)).resize((96, 96)).save(tmp_path / name)
    words = []
    for count in (400, 4000):
        with (tmp_path / f"{count}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("image", "score"), *((name, int(name[:4]) % 37) for name in names[:count])])
        words += [str(count), json.dumps({"source": str(tmp_path / f"{count}.csv"), "size": 96})]
    command = [sys.executable, ROOT / "tests/prepare_directly.py", "lmol", '{"common.workers.WORTH": 1e9}', *words]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    few, many = map(int, done.stdout.split())
    size = (tmp_path / "4000/images.npy").stat().st_size
    print(f"peak {few / 1e6:.0f} MB for 400 images, {many / 1e6:.0f} MB for 4,000 of together {size / 1e6:.0f} MB")
    assert size > 100_000_000
    assert many - few < 30_000_000
