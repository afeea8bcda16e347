"""Prepared digits, and small tasks of them that tests leave as they are."""

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
    """A task of each small kind, for tests that leave it as it is."""
    return {kind: make(prepared, kind) for kind in ("siamese", "cross")}
