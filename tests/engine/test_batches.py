"""Data order is a pure function of (seed, step)."""

import contextlib
import platform
import re
import signal
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator, DistributedType
from hypothesis import given
from hypothesis import strategies as st

from common import machine, workers
from common.errors import Stopped, UserError
from common.stopping import StopRequest
from pipelines.engine.batches import Order, Resident, check_divides, is_out_of_memory, mapper, smaller, stream


@given(size=st.integers(1, 50), batch=st.integers(1, 70), epochs=st.integers(1, 4))
def test_every_item_comes_once_per_epoch_even_where_batches_reach_across(size, batch, epochs):
    order = Order(size, batch, seed=3)
    steps = -(-size * epochs // batch)
    read = torch.cat([order.items(step) for step in range(steps)])
    for epoch in range(epochs):
        assert sorted(read[epoch * size : (epoch + 1) * size].tolist()) == list(range(size))


@given(size=st.none() | st.integers(1, 40), step=st.integers(0, 30), seed=st.integers(0, 5))
def test_a_step_has_the_same_items_whatever_was_read_before(size, step, seed):
    straight = Order(size, 12, seed)
    for earlier in range(step):
        straight.items(earlier)
    assert torch.equal(straight.items(step), Order(size, 12, seed).items(step))


@given(world=st.sampled_from([1, 2, 3, 4, 6]), step=st.integers(0, 9))
def test_the_shares_of_all_ranks_make_up_the_global_batch(world, step):
    order = Order(31, 12, seed=0)
    assert torch.equal(torch.cat([order.items(step, rank, world) for rank in range(world)]), order.items(step))


def test_seeds_and_epochs_give_different_orders():
    first, other = Order(100, 100, 0), Order(100, 100, 1)
    assert not torch.equal(first.items(0), other.items(0))
    assert not torch.equal(first.items(0), first.items(1))


def test_an_endless_source_never_repeats_an_item():
    order = Order(None, 8, 0)
    assert torch.equal(torch.cat([order.items(0), order.items(1)]), torch.arange(16))


class _Loaded(Resident):
    workers = 2


@pytest.mark.parametrize(
    ("batch", "world", "micro", "wrong"),
    [
        (12, 2, 6, ""),
        (12, 2, "auto", ""),
        (12, 2, 4, "the 6 examples of each process (training.batch_size=12 over 2 processes); try one of 1, 2, 3, 6"),
        (12, 1, 5, "does not divide the 12 examples of each process (training.batch_size=12 over 1 process); try one"),
        (12, 5, 1, "training.batch_size=12 does not divide over 5 processes; try training.batch_size=10 or 15"),
        (3, 5, 1, "training.batch_size=3 does not divide over 5 processes; try training.batch_size=5"),
    ],
)
def test_a_batch_is_divided_over_processes_and_micro_batches_or_refused(batch, world, micro, wrong):
    with pytest.raises(UserError, match=re.escape(wrong)) if wrong else contextlib.nullcontext():
        check_divides(batch, world, micro)


@pytest.mark.parametrize("kind", [Resident, _Loaded])
def test_loading_ahead_changes_neither_order_nor_content(kind):
    source = kind({"x": torch.arange(40) * 10}, torch.device("cpu"))
    order = Order(40, 8, 5)
    plan = (order.items(step) for step in range(7))
    got = list(stream(source, plan, torch.device("cpu")))
    assert len(got) == 7
    for step, (items, batch) in enumerate(got):
        assert torch.equal(items, order.items(step))
        assert torch.equal(batch["x"], order.items(step) * 10)


def test_a_resident_batch_is_picked_by_rows_in_this_process():
    rows, asked = torch.arange(6).view(3, 2), []
    source = Resident({"x": rows}, torch.device("cpu"))
    source.batch = lambda items: asked.append(items) or Resident.batch(source, items)
    ((items, batch),) = stream(source, iter([torch.tensor([2, 0])]), torch.device("cpu"))
    assert torch.equal(batch["x"], rows[[2, 0]])
    assert asked == [items]


@pytest.mark.parametrize(("size", "mine"), [(5, [3, 4, 0]), (1, [0])])
def test_each_rank_maps_an_equal_share_filled_up_with_the_first_item(size, mine):
    second = SimpleNamespace(
        distributed_type=DistributedType.MULTI_CPU,
        num_processes=2,
        process_index=1,
        is_main_process=False,
        device=torch.device("cpu"),
        autocast=contextlib.nullcontext,
        gather=lambda values: values,
    )
    asked = []
    source = Resident({"x": torch.arange(size)}, torch.device("cpu"))
    mapper(second)(source, lambda batch: asked.extend(batch["x"].tolist()) or batch)
    assert asked == mine


def test_mapping_ends_before_the_next_batch_where_a_signal_came():
    source = Resident({"x": torch.arange(4)}, torch.device("cpu"))
    with StopRequest().listening(), pytest.raises(Stopped):
        mapper(Accelerator(cpu=True))(source, lambda batch: signal.raise_signal(signal.SIGTERM) or batch, 2)


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (torch.OutOfMemoryError("any words"), True),
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (RuntimeError("shapes do not match"), False),
        (KeyboardInterrupt("CUDA out of memory."), False),
    ],
)
def test_a_lack_of_memory_is_told_from_other_errors(error, known):
    assert is_out_of_memory(error) is known


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no other keeps what is freed")
def test_freed_memory_goes_back_between_batches_of_training_validation_and_evaluation(monkeypatch):
    looks = []
    monkeypatch.setattr(machine, "resident_bytes", lambda: looks.append("how much it is") or 0)
    source = Resident({"x": torch.arange(6)}, torch.device("cpu"))
    mapper(Accelerator(cpu=True))(source, lambda batch: batch, 2)
    assert len(looks) == 3
    batches = stream(source, iter(torch.arange(6).split(3)), torch.device("cpu"))
    for _ in range(2):
        next(batches)
    assert len(looks) == 4


@given(local=st.integers(1, 512), micro=st.integers(1, 512))
def test_a_smaller_micro_batch_divides_and_is_at_most_half(local, micro):
    size = smaller(micro, local)
    assert (size is None) == (micro < 2)
    if size:
        assert local % size == 0
        assert size <= micro // 2


@pytest.mark.parametrize("kind", [Resident, _Loaded])
@pytest.mark.parametrize(("most", "tried"), [(3, [10, 5, 3]), (1, [10, 5, 3, 2, 1])])
def test_mapping_goes_on_with_smaller_batches_where_memory_runs_out(kind, most, tried):
    asked = []

    def doubled(batch):
        asked.append(len(batch["x"]))
        if len(batch["x"]) > most:
            raise torch.OutOfMemoryError("pretended")
        return {"x": 2 * batch["x"]}

    source = kind({"x": torch.arange(21)}, torch.device("cpu"))
    found = mapper(Accelerator(cpu=True))(source, doubled, batch_size=10)
    assert torch.equal(found["x"], 2 * torch.arange(21))
    assert asked[: len(tried)] == tried
    assert max(asked[len(tried) :]) == most  # what does not fit is not tried again


def test_mapping_shows_its_progress_only_where_it_has_a_name(monkeypatch, capsys):
    monkeypatch.setattr(workers, "SECONDS", 0)
    source = Resident({"x": torch.arange(4)}, torch.device("cpu"))
    mapper(Accelerator(cpu=True))(source, lambda batch: batch, batch_size=2)
    assert capsys.readouterr().err == ""
    shown = mapper(Accelerator(cpu=True), what="evaluating, batches")
    for part in (1, 2):
        shown(source, lambda batch: batch, batch_size=2)
        lines = [f"evaluating, batches of part {part}: {done} of 2  left 0:00\n" for done in (1, 2)]
        assert capsys.readouterr().err == "".join(lines)


def test_one_item_that_does_not_fit_and_other_errors_are_raised():
    source = Resident({"x": torch.arange(4)}, torch.device("cpu"))

    def fail(error):
        def function(batch):
            raise error

        return lambda: mapper(Accelerator(cpu=True))(source, function)

    with pytest.raises(torch.OutOfMemoryError, match="pretended"):
        fail(torch.OutOfMemoryError("pretended"))()
    with pytest.raises(RuntimeError, match="shapes"):
        fail(RuntimeError("shapes"))()
