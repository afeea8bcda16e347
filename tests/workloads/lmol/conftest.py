"""Prepared digits and small tasks, shared by tests that do not change them."""

import pytest

from pipelines.workloads.lmol import data
from tests.workloads.lmol.small import config, make


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
