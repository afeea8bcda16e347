"""Evaluations of the tests stay in their own process, where what they put in place of the real thing is seen."""

import pytest

from pipelines.members import examination


@pytest.fixture(scope="module", autouse=True)
def one_core():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examination, "cores", lambda: 1)
        yield
