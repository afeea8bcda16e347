import threading

import pytest

from pipelines.engine.checkpoints import Background


def test_work_is_done_in_order_beside_the_caller():
    done, go = [], threading.Event()
    with Background() as background:
        background.start(go.wait)
        background.start(lambda: done.append(1))
        background.start(lambda: done.append(2))
        assert done == []
        go.set()
        background.wait(1)
        assert done[:1] == [1]
        background.wait()
        assert done == [1, 2]


def test_an_error_is_raised_by_the_next_wait_and_nothing_after_it_is_done():
    done, go = [], threading.Event()
    with Background() as background:
        background.start(go.wait)
        background.start(lambda: 1 / 0)
        background.start(lambda: done.append("queued"))
        go.set()
        with pytest.raises(ZeroDivisionError):
            background.wait()
        background.start(lambda: done.append("later"))
        background.wait()  # it is raised once
    assert done == []


def test_leaving_waits_for_all_work():
    done = []
    with Background() as background:
        for number in range(100):
            background.start(lambda number=number: done.append(number))
    assert done == list(range(100))
