"""Signs of life between ranks, here of one process whose other ranks are entries in a store."""

import contextlib
import json
import os
import signal
import time
from datetime import timedelta

import pytest
from torch.distributed import HashStore, PrefixStore, distributed_c10d

from common.errors import LostProcessError
from common.stopping import StopRequest
from pipelines.distributed import ranks, watch
from pipelines.distributed.watch import Watch
from tests import forked


@pytest.fixture
def pair(monkeypatch):
    """Makes rank 0 of two, whose seconds are hundredths; returns it, and what gives a sign of rank 1."""
    for name, seconds in {"BEAT": 0.01, "SILENT": 0.3, "LATE": 0.1, "SOON": 2.0}.items():
        monkeypatch.setattr(watch, name, seconds)
    store = HashStore()
    store.set_timeout(timedelta(seconds=30))
    monkeypatch.setattr(ranks, "world", lambda: 2)
    monkeypatch.setattr(ranks, "rank", lambda: 0)
    monkeypatch.setattr(ranks, "gather", lambda value: [value] * 2)
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: store)
    stop = StopRequest()
    made = Watch(stop, lambda: "training after step 7", patience=0.6)

    def sign(beat, **changes):
        """What rank 1 would write is private: its form is settled between processes of one version."""
        own = json.loads(made._sign(beat)) | {"at": "validating after step 6"} | changes
        PrefixStore("watch", store).set("1", json.dumps(own))

    sign(0)
    return made, stop, sign


def said(capfd, text):
    """Wait until a text was printed; return all that was."""
    lines = []

    def found():
        lines.append(capfd.readouterr().err)
        return text in "".join(lines)

    assert forked.until(found, 30), lines
    return "".join(lines)


def test_a_silent_process_is_named_and_ends_this_one_when_patience_is_over(pair, capfd, monkeypatch):
    made, _, sign = pair
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    with made.watching():
        line = said(capfd, "no sign of life")
        assert "process 1 on " in line
        assert "last seen 0 s ago, validating after step 6; --resume continues" in line
        sign(1)
        said(capfd, "process 1 is back")
        assert "error: process 1 on " in said(capfd, "ending (hardware.patience=0.6)")
    assert ended[0] == 1


def test_a_dead_process_is_named_at_once_and_explains_a_broken_connection(pair, capfd):
    made, _, sign = pair
    gone = forked.Process(["-c", ""], os.getcwd(), fork=False)
    gone.finish()
    gone.output()
    sign(1, pid=gone.pid)
    with pytest.raises(LostProcessError), made.watching():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:1] Connection closed by peer")
    assert "process 1 on " in (line := said(capfd, "has died"))
    assert "validating after step 6" in line


def test_other_errors_stay_what_they_are_and_the_end_of_a_training_is_no_death(pair, capfd):
    made, _, sign = pair
    sign(1, ended=True)

    def fail():
        time.sleep(0.4)
        raise RuntimeError("of its own")

    with pytest.raises(RuntimeError, match="of its own"), made.watching():
        fail()
    assert not capfd.readouterr().err


def test_a_signal_to_one_process_reaches_the_others_and_is_reminded_of_when_nothing_is_saved(pair, capfd):
    made, stop, sign = pair
    with made.watching():
        sign(1, signal=int(signal.SIGUSR1))
        line = said(capfd, "SIGUSR1 came 0 s ago; nothing is saved yet: still training after step 7")
        assert "other processes are validating after step 6" in line
        assert stop.number == signal.SIGUSR1
        assert not stop.own


def test_a_process_that_lives_and_does_not_come_to_where_others_wait_is_named_once(pair, capfd):
    made, _, sign = pair
    with made.watching():
        end, beat, lines = time.monotonic() + 2, 0, ""
        with ranks.waiting():
            while time.monotonic() < end:
                beat += 1
                sign(beat, at="training after step 6", waits=False)
                time.sleep(0.01)
        lines = said(capfd, "is still training after step 6 after")
    assert lines.count("this one waits for it") == 1
    assert "process 1 on " in lines


@pytest.mark.parametrize("waits", [True, False])
def test_no_process_is_named_while_all_wait_or_none_does(pair, capfd, waits):
    made, _, sign = pair
    with made.watching():
        for beat in range(100):
            with ranks.waiting() if waits else contextlib.nullcontext():
                sign(beat, at="training after step 6", waits=waits)
                time.sleep(0.01)
    assert "waits for it" not in capfd.readouterr().err


def test_a_process_that_holds_up_the_others_is_named_once(pair):
    made, _, _ = pair
    assert made.straggler([0.10, 0.12]) is None
    assert made.straggler([0.10, 0.20]) is None  # once may be chance
    assert "all wait for process 1 on " in made.straggler([0.10, 0.20])
    assert made.straggler([0.10, 0.20]) is None
    assert made.straggler([0.20, 0.10]) is None
