"""Signals that ask a process to stop."""

import copy
import os
import signal

import pytest

from common.errors import Stopped
from common.stopping import STOPPING, StopRequest, stop_if_asked


@pytest.fixture(autouse=True)
def _as_in_a_terminal():
    """Hear the signals that a job in the background, or under nohup, ignores from its start."""
    default = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in default.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_is_remembered_and_ends_nothing(number):
    before, called, stop = signal.getsignal(number), [], StopRequest()
    with stop.listening(then=lambda: called.append(stop.number)):
        os.kill(os.getpid(), number)
    assert stop.number == number
    assert called == [number]
    assert signal.getsignal(number) is before


def test_what_is_ignored_stays_ignored_as_the_end_of_a_terminal_is_under_nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = StopRequest()
        with stop.listening():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert stop.number is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_long_work_ends_where_a_signal_asked_to_stop():
    stop = StopRequest()
    with stop.listening():
        stop_if_asked()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Stopped) as stopped:
            stop_if_asked()
    stop_if_asked()  # nobody listens any more
    again = copy.copy(stopped.value)  # made anew as on other processes
    assert again.number == signal.SIGTERM
    assert str(again) == str(stopped.value) == "stopped by SIGTERM; continue with --resume"


def test_a_second_interrupt_stops_at_once():
    stop = StopRequest()
    with stop.listening():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_system_without_some_of_the_signals_hears_the_others(monkeypatch):
    assert set(STOPPING) >= {signal.SIGINT, signal.SIGTERM}
    monkeypatch.setattr("common.stopping.STOPPING", [signal.SIGTERM])  # as on Windows, where there is no SIGHUP
    with StopRequest().listening():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
