"""Plans being written: their texts outlive the server, are read once, and do not keep others waiting."""

import pytest

from models import io
from pipelines.server.limits import Limits, Refused
from pipelines.server.text_routes import LONGEST_SESSION, MOST_SESSIONS, Sessions
from tests.models.plans.test_suggester import with_text
from tests.server.test_server import ask, served

CLAUSE = "abc dad cab."


@pytest.fixture
def folder(tmp_path):
    io.save(with_text(one=f"# ab\n{CLAUSE}\n", other="# cd\nbad cab dad.\n"), tmp_path / "bep/tiny")
    return tmp_path


def test_a_plan_is_written_over_a_restart_of_the_server(folder):
    words, limits = [f"bep={folder / 'bep/tiny'}"], Limits(sessions=folder / "sessions")
    with served(words, limits) as port:
        status, begun = ask(port, "/sessions", {"text": "dad.\n\n"})
        assert (status, begun["characters"]) == (200, 6)
        path = f"/sessions/{begun['session']}/text"
        assert ask(port, path, {"append": "# ab\n\n"})[1]["characters"] == 12
    with served(words, limits) as port:
        asked = {"field_type": "", "partial_text": "abc ", "session": begun["session"]}
        status, found = ask(port, "/suggest", asked)
        assert (status, [each["text"] for each in found["suggestions"]]) == (200, ["dad cab."])
        document = {"field_type": "", "partial_text": "abc ", "document": "dad.\n\n# ab\n\n"}
        assert ask(port, "/suggest", document)[1] == found
        assert ask(port, path, {"text": "bad", "append": "d"})[1]["characters"] == 4
        assert ask(port, f"/sessions/{begun['session']}", method="DELETE")[0] == 200
        assert ask(port, "/suggest", asked)[0] == 404
        assert ask(port, "/sessions/x/text", {})[0] == 404


def test_a_session_keeps_the_ends_of_lines_that_it_was_given(tmp_path):
    sessions = Sessions(tmp_path)
    sessions.write("0" * 32, text := "one\r\ntwo\rthree\n\u2028")
    assert sessions.text("0" * 32) == text


def test_old_sessions_go_and_long_ones_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.server.text_routes.MOST_SESSIONS", 2)
    sessions = Sessions(tmp_path / "kept")
    names = [f"{number:032x}" for number in range(3)]
    for name in names:
        sessions.write(name, name)
    assert sum(1 for _ in (tmp_path / "kept").glob("*.txt")) == 2 < MOST_SESSIONS
    assert sessions.text(names[2]) == names[2]
    assert (tmp_path / "kept").stat().st_mode & 0o077 == 0
    with pytest.raises(Refused, match="404"):
        sessions.text("../secret")
    with pytest.raises(Refused, match="413"):
        sessions.write(names[0], "a" * (LONGEST_SESSION + 1))
