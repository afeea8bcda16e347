"""Clients that take what a server has: time, places, memory, or what a page of another site wants to know."""

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from models import io
from pipelines import serve
from pipelines.answers.trained import Trained
from pipelines.server import answering
from pipelines.server.limits import Limits
from pipelines.workloads.cvrp import input_files
from tests.forked import LONG, until
from tests.models.test_prediction import SQUARE, stories
from tests.server.test_server import MODELS, ask, events, served

PATH, BODY = "/runs/tinystories/small/stream", {"input": {"prompt": "The cat"}}


@pytest.fixture(scope="module")
def word(tmp_path_factory):
    """The word for serve.py of a small model of stories."""
    folder = tmp_path_factory.mktemp("models") / "small"
    io.save(stories(), folder)
    return f"tinystories={folder}"


@pytest.fixture
def told(monkeypatch):
    """Lets texts never end; what was told of them so far."""
    pieces = []

    def endless(*_):
        while True:
            time.sleep(0.005)
            pieces.append("again " * 20_000)
            yield pieces[-1]

    monkeypatch.setattr(Trained, "pieces", endless)
    return pieces


@contextlib.contextmanager
def begun(port, path=PATH, body=BODY, missing=0, chunked=False):
    """A connection on which a request was sent, but for the last bytes of its body; `chunked` hides its length."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(LONG)
        sent = f"{head}content-length: {len(data)}\r\n\r\n".encode() + data
        if chunked:
            length = f"content-length: 0\r\ntransfer-encoding: chunked\r\n\r\n{len(data):x}\r\n"
            sent = f"{head}{length}".encode() + data
        connection.sendall(sent[: len(sent) - missing])
        yield connection


def is_open(port):
    return int(re.search(r"^run_open.* (\d+)$", ask(port, "/metrics")[1], re.MULTILINE)[1])


def until_closed(port):
    """Wait until no request of the run is open."""
    assert until(lambda: not is_open(port), LONG), "the request is still open"


def test_a_stream_ends_with_an_error_after_the_time_of_an_answer(word, told):
    with served([word], Limits(seconds=0.3)) as port:
        status, text = ask(port, PATH, BODY)  # which would never end
        assert status == 200
        assert events(text)[-1] == {"error": "the answer took more than 0.3 s"}
        until_closed(port)


@pytest.mark.parametrize("reads", [True, False])
def test_a_text_is_not_told_on_to_a_client_that_is_gone_or_does_not_read(word, told, reads):
    with served([word], Limits(seconds=60 if reads else 1)) as port:
        with begun(port) as connection:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            assert is_open(port)
            if reads:
                connection.close()
            until_closed(port)
        number = len(told)
        time.sleep(0.1)
        assert len(told) <= number + 1


def test_a_client_that_pauses_is_told_on_when_it_reads_again(word, told):
    with served([word], Limits(seconds=60)) as port, begun(port) as connection:
        connection.recv(100)
        assert until(lambda: len(told) > 3, LONG)
        seen = -1
        while len(told) > seen:  # until what lies between the two is full
            seen = len(told)
            time.sleep(0.2)
        wanted = 2 * len(told[0]) * seen + 2**20
        while wanted > 0:
            part = connection.recv(2**20)
            assert part
            wanted -= len(part)
        assert len(told) > seen


def test_a_stream_takes_a_place_and_the_next_one_is_refused_before_it_begins(word, told):
    with served([word], Limits(waiting=1)) as port, begun(port) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        status, refused = ask(port, PATH, BODY)
        assert (status, refused["error"].startswith("1 requests to this run are unanswered")) == (429, True)


def test_what_nobody_waits_for_any_longer_is_not_computed(word, monkeypatch):
    def slow(_, asked, settings):
        computed.extend(asked)
        time.sleep(0.05)
        return [{"text": ""} for _ in asked]

    computed = []
    monkeypatch.setattr(Trained, "together", slow)
    with served([word], Limits(seconds=0.3), at_once=1) as port:
        status, found = ask(port, "/runs/tinystories/small/predict", {"inputs": [{"prompt": ""}] * 64})
        assert (status, found["error"]) == (503, "the answer took more than 0.3 s")
        number = len(computed)
        time.sleep(0.2)
        assert len(computed) <= number + 1 < 64


@pytest.mark.parametrize("path", ["/v1/completions", "/runs/tinystories/small/predict"])
def test_what_a_client_that_is_gone_asked_for_is_not_computed(word, path, monkeypatch):
    def slow(_, asked, settings):
        computed.extend(asked)
        time.sleep(0.05)
        return [{"text": "", "finish": "length"} for _ in asked]

    computed = []
    monkeypatch.setattr(Trained, "together", slow)
    body = {"model": "tinystories/small", "prompt": ["A"] * 64} if "v1" in path else {"inputs": [{"prompt": "A"}] * 64}
    with served([word], Limits(), at_once=1) as port:
        with begun(port, path, body):
            assert until(lambda: len(computed) > 2, LONG)
        until_closed(port)
        assert len(computed) < 32


def test_requests_for_many_answers_take_turns_with_others(word, monkeypatch):
    first, computed, together = threading.Event(), [], Trained.together

    def recorded(self, asked, settings):
        first.wait(LONG)
        computed.append([each.prompt for each in asked])
        return together(self, asked, settings)

    monkeypatch.setattr(Trained, "together", recorded)
    path, settings = "/runs/tinystories/small/predict", {"length": 2, "arithmetic": "integer"}
    with served([word], Limits()) as port, ThreadPoolExecutor(2) as clients:
        long = clients.submit(ask, port, path, {"inputs": [{"prompt": "The cat"}] * 10, "settings": settings})
        assert until(lambda: is_open(port) == 1, LONG)
        short = clients.submit(ask, port, path, {"inputs": [{"prompt": "A dog"}], "settings": {**settings, "seed": 1}})
        assert until(lambda: is_open(port) == 2, LONG)
        first.set()
        assert [len(each.result()[1]["outputs"]) for each in (long, short)] == [10, 1]
    cats = [len(batch) for batch in computed if batch[0] == "The cat"]
    assert computed.index(["A dog"]) <= 2
    assert cats[0] == 1  # of which nothing is known
    assert max(cats) <= 4
    assert sum(cats) == 10


def test_many_large_inputs_leave_room_for_small_ones_and_end_with_their_client(word, monkeypatch):
    """Sixty-four that take 50 ms each, in one request and then in as many, with a turn of that length."""

    def slow(_, asked, settings):
        computed.extend(each.prompt for each in asked)
        time.sleep(sum(0.05 if len(each.prompt) > 50 else 0.001 for each in asked))
        return [{"text": ""} for _ in asked]

    def small(seed):
        assert ask(port, path, {"inputs": [{"prompt": "A dog"}], "settings": {"seed": seed}})[0] == 200

    path, computed = "/runs/tinystories/small/predict", []
    large = {"prompt": "The cat sat. " * 10}
    monkeypatch.setattr(Trained, "together", slow)
    monkeypatch.setattr(answering, "TURN_SECONDS", 0.05)
    with served([word], Limits(), at_once=16) as port:
        with begun(port, path, {"inputs": [large] * 64}):
            assert until(lambda: len(computed) > 2, LONG)
            for seed in range(5):
                small(seed)
            assert len(computed) < 60
        until_closed(port)
        assert len(computed) < 64
        with contextlib.ExitStack() as clients:
            for _ in range(64):
                clients.enter_context(begun(port, path, {"inputs": [large]}))
            before = len(computed)
            small(9)
            assert len(computed) - before < 60


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_that_do_not_arrive_are_given_up_and_bounded_together(word, chunked):
    limits = Limits(body_bytes=80, bodies=1, seconds=2)
    with served([word], limits) as port, begun(port, missing=1, chunked=chunked) as slow:
        deadline = time.monotonic() + 5
        while (found := ask(port, PATH, {**BODY, "settings": {"length": 5}}))[0] == 200:
            assert time.monotonic() < deadline  # the slow one has not been heard yet
        assert (found[0], "are unanswered; try later" in found[1]["error"]) == (429, True)
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
        assert ask(port, PATH, BODY)[0] == 200


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nhost", b"GET / HTTP/1.1\r\nx: " + b"x" * 70_000])
def test_headers_that_do_not_end_end_the_connection(word, sent):
    began = time.monotonic()
    with served([word], Limits(seconds=0.5 if len(sent) < 100 else 60)) as port:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.settimeout(10)
            connection.sendall(sent)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(100)[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 431")
        assert time.monotonic() - began < 5
        assert ask(port, "/health")[0] == 200


def test_rivals_have_the_time_that_the_model_takes_and_not_what_it_waits(tmp_path, monkeypatch):
    given, together, allowed = {"input": SQUARE}, Trained.together, []
    io.save(MODELS["cvrp"](), tmp_path / "small")

    def slow(self, asked, settings):
        time.sleep(1 if settings else 0)
        return together(self, asked, {})

    monkeypatch.setattr(Trained, "together", slow)
    asked = replace(input_files.INPUTS, rivals=lambda _, seconds: allowed.append(seconds) or {})
    monkeypatch.setattr(input_files, "INPUTS", asked)
    with served([f"cvrp={tmp_path / 'small'}"], Limits()) as port:
        busy = {"inputs": [SQUARE], "settings": {"seed": 1}}
        with begun(port, "/runs/cvrp/small/predict", busy):
            time.sleep(0.2)
            assert ask(port, "/runs/cvrp/small/rivals", given)[0] == 200
    assert allowed[0] < 0.6


def test_the_model_beside_its_rivals_keeps_to_the_seconds_of_an_answer(tmp_path):
    io.save(MODELS["cvrp"](), tmp_path / "small")
    timed = {**SQUARE, "customers": SQUARE["customers"] * 40, "demands": SQUARE["demands"] * 40, "hours": [0, 1e6]}
    with served([f"cvrp={tmp_path / 'small'}"], Limits(seconds=1)) as port:
        assert ask(port, "/runs/cvrp/small/rivals", {"input": timed, "milliseconds": 1})[0] == 200


SITES = [
    ({"origin": "http://localhost"}, 200),
    ({"origin": "http://localhost:8000", "host": "localhost:8000"}, 200),
    ({"origin": "http://another.site"}, 403),
    ({"origin": "http://localhost:3000", "host": "localhost:8000"}, 403),
    ({"origin": "null"}, 403),
    ({"host": "another.site"}, 400),
    ({"host": "another.site", "origin": "http://another.site"}, 400),
    ({"host": ""}, 400),
    ({"host": "127.0.0.1:8000"}, 200),
    ({"host": "[::1]:8000"}, 200),
]


def test_pages_of_other_sites_are_refused_and_refusals_counted(word):
    with served([word], Limits(), serve.hosts("127.0.0.1", None)) as port:
        for headers, status in SITES:
            assert ask(port, "/health", headers=headers)[0] == status, headers
        counted = re.findall(r'requests_total\{route="none",status="(\d+)"\} (\d+)', ask(port, "/metrics")[1])
        assert counted == [("400", "3"), ("403", "3")]

        async def headers_of_a_refusal():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /health HTTP/1.1\r\nhost: another.site\r\n\r\n")
            found = await reader.readuntil(b"\r\n\r\n")
            writer.close()
            return found

        assert b"x-content-type-options: nosniff" in asyncio.run(headers_of_a_refusal())


def test_a_server_for_others_is_asked_by_its_own_names_unless_it_asks_for_a_token(word):
    own = serve.hosts("0.0.0.0", None)
    assert "localhost" in own
    assert socket.gethostname().lower() in own
    assert serve.hosts("0.0.0.0", "a token") is None
    with served([word], Limits(token="a secret of some length"), None) as port:
        headers = {"host": "models.example", "origin": "https://models.example"}
        assert ask(port, "/health", headers=headers)[0] == 200
