"""Where members' processes come from."""

import multiprocessing

from pipelines.members import fork_server


def test_without_a_fork_server_each_member_gets_a_new_interpreter(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert fork_server.start_server().get_start_method() == "spawn"
