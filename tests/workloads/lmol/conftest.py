"""Prepared digits and small tasks, shared by tests that do not change them."""

import fcntl
import hashlib
import os

import numpy as np
import pytest

from models.images import image_files
from pipelines.workloads.lmol import data
from tests.workloads.lmol.small import config, make


@pytest.fixture(scope="session", autouse=True)
def near_duplicates_found_once(tmp_path_factory):
    """Look for near duplicates among the same images once, for all workers; it takes most of a preparation."""
    find, folder = image_files.near_duplicates, tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder

    def remembered(thumbnails):
        path = folder / f"near-duplicates-{hashlib.sha256(thumbnails.tobytes()).hexdigest()}.npy"
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                with path.with_suffix(".part").open("wb") as file:
                    np.save(file, find(thumbnails))
                path.with_suffix(".part").rename(path)
        return np.load(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image_files, "near_duplicates", remembered)
        yield


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """A folder of prepared digits."""
    folder = tmp_path_factory.mktemp("digits")
    data.prepare(config(), folder)
    return folder


@pytest.fixture(scope="session")
def whole(prepared):
    """A task of each small kind, for tests that do not change it."""
    return {kind: make(prepared, kind) for kind in ("siamese", "scorer")}
