"""The tests of this folder take a minute, and nothing uses its parts yet: they run with the slow ones."""

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
