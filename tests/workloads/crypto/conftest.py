"""Evaluations of the tests stay in their own process, where what they put in place of the real thing is seen."""

import pytest

from pipelines.members import processes
from pipelines.workloads.crypto.verdict import looks


@pytest.fixture(scope="module", autouse=True)
def one_core(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "cores", lambda: 1)
        # The folders of one session lie side by side, and each module's looks are its own.
        patch.setattr(looks, "LEDGER", f"{request.module.__name__}.jsonl")
        yield
