"""Evaluations of the tests stay in their own process, where what they put in place of the real thing is seen."""

import hashlib
from types import SimpleNamespace

import pytest

from pipelines.members import processes
from pipelines.workloads.crypto import experts, folds
from pipelines.workloads.crypto.verdict import looks


@pytest.fixture(scope="session", autouse=True)
def rivals_fitted_once():
    """Fit the linear expert that evaluations compare with once for the same rows; it takes half of their time."""
    known = {}

    def remembered(model, train, validation, returns):
        digest = hashlib.sha256(returns.numpy().tobytes())
        for source in (train, validation):
            for each in (*experts.over(source, model.linear_inputs), source.labels[experts.rows_of(source)]):
                digest.update(each.numpy().tobytes())
        key = digest.digest()
        if key in known:
            found, weights = known[key]
            for name, values in weights.items():
                getattr(model, name).copy_(values)
        else:
            found = experts.fit_linear(model, train, validation, returns)
            names = ("location", "scale", "level", "thresholds", "slopes")
            known[key] = found, {name: getattr(model, name).clone() for name in names}
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folds, "experts", SimpleNamespace(**vars(experts) | {"fit_linear": remembered}))
        yield


@pytest.fixture(scope="module", autouse=True)
def one_core(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "cores", lambda: 1)
        # The folders of one session lie side by side, and each module's looks are its own.
        patch.setattr(looks, "LEDGER", f"{request.module.__name__}.jsonl")
        yield
