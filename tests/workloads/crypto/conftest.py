"""Evaluations of the tests stay in their own process, where what they put in place of the real thing is seen."""

import pytest

from pipelines.engine import fanout


@pytest.fixture(scope="module", autouse=True)
def one_core():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fanout, "cores", lambda: 1)
        yield
