"""The shipped workloads, killed and failing at every change to the disk: --resume ends in the undisturbed run.

A run here is the shortest that makes every kind of change: data are prepared, two updates are each logged, validated
and saved, the second checkpoint replaces the first.

A process that is killed leaves the disk as it was between two changes, or in the midst of a write, and leaves nothing
else: locks go with it. So a kill at every change is every state of the disk that an undisturbed training passes, each
copied while the training waits, and resumed from; what other processes of its group do is seen where the example
workload's are really killed (tests/engine/test_durability.py). Some changes make no state of their own: those that
leave the disk as it was, such as fsync and making a folder that exists, and those within a temporary folder, whatever
it holds, since the next start removes it unread.

Failing changes really fail, with each kind of error in turn: which errors are explained, and how, is one table in
`common.disk.files`, the same for all. Of changes that are the same operation on the same file from the same lines of
code, as the writes of one table are, the first fails. What several of them leave alike is resumed from once.
"""

import pytest

from tests import test_stages
from tests.engine.calm import Calm
from tests.workloads.bep import test_bep as bep
from tests.workloads.lmol import test_lmol as lmol
from tests.workloads.tinystories import test_tinystories as tinystories

KINDS = ("ENOSPC", "EACCES", "EIO")
SHORT = ["training.epochs=null", "training.steps=2", "training.checkpoint_steps=1", "training.validation_steps=1"]
SHORT += ["training.log_steps=1", "training.keep_checkpoints=1"]
CANDLES = ["data.simulated_candles=1700", "data.lookback=16", "model.width=16", "training.batch_size=64"]
SHIPPED = {  # the quickest first
    "cvrp": [*test_stages.TINY, "training.baseline=rollout", "training.challenge_instances=100"],
    "tinystories": tinystories.TINY,
    "lmol": [*lmol.FEW, "model.width=16"],
    "crypto, members": [*CANDLES, "data.symbols=[AAAUSDT,BBBUSDT]", "model.kind=cnn_lstm"],
    "crypto": [*CANDLES, "data.symbols=[AAAUSDT]", "model.coins=[AAAUSDT]"],
    "bep": [*bep.TINY, "model.mixing_places=50"],
}
# Members are forked here, and the fork of one of several ranks would take itself for a rank.
CASES = [(workload, number) for number in (1, 2) for workload in SHIPPED if number == 1 or "members" not in workload]


@pytest.fixture
def documents(tmp_path):
    """What bep reads."""
    bep.write_documents(tmp_path / "given/documents", 4, 55)
    return tmp_path / "given"


def calm(workload, documents, tmp_path, processes, keep):
    name = workload.partition(",")[0]
    given = documents if name == "bep" else None
    return Calm(name, tmp_path / "calm", [*SHIPPED[workload], *SHORT], processes, given, keep)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("workload", "processes"), CASES)
def test_a_kill_at_any_change_costs_nothing(documents, tmp_path, workload, processes):
    undisturbed = calm(workload, documents, tmp_path, processes, keep=True)
    for state in undisturbed.states:
        undisturbed.check_state(state, tmp_path / "case")
    print(f"killed: {workload}, {processes}: {len(undisturbed.states)}")


@pytest.mark.exhaustive
@pytest.mark.parametrize("workload", SHIPPED)
def test_a_failing_change_costs_nothing_and_is_named(documents, tmp_path, workload):
    undisturbed = calm(workload, documents, tmp_path, processes=1, keep=False)
    for number in (numbers := undisturbed.distinct()):
        undisturbed.check_fault(tmp_path / str(number), KINDS[number % len(KINDS)], number)
    print(f"failing: {workload}: {len(numbers)} of {len(undisturbed.changes)}, left {len(undisturbed.sound)}")
