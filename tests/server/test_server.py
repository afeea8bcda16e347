"""A server with a small model of each kind, asked over real connections."""

import asyncio
import contextlib
import json
import re
import sys
import textwrap
import threading
import time
from dataclasses import replace

import pytest
import uvicorn

from common.errors import UserError
from models import io
from pipelines import serve
from pipelines.server import app
from pipelines.server.guard import Connection
from pipelines.server.limits import Limits
from tests.models.images.comparator.test_interface import brightness
from tests.models.market.test_signal_models import NEEDED
from tests.models.market.test_signal_models import make as make_signals
from tests.models.plans.test_char_mixture import mixture, wording
from tests.models.routing.policies import make_policy
from tests.models.test_prediction import SQUARE, columns, png, stories
from tests.server import load
from tests.server.client import Client
from tests.server.mutations import Asked, mutated
from tests.stages import ROOT

MODELS = {
    "cvrp": lambda: make_policy("gt"),
    "tinystories": stories,
    "bep": lambda: mixture(wording(0)),
    "crypto": make_signals,
    "lmol": brightness,
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Words for serve.py: a folder with a small model of each kind."""
    folder = tmp_path_factory.mktemp("models")
    for name, make in MODELS.items():
        io.save(make(), folder / name / "small")
    return {name: f"{name}={folder / name / 'small'}" for name in MODELS}


@contextlib.contextmanager
def served(words, limits, hosts=None, at_once=None):
    """Serve runs in a thread within the block; yield the port."""
    runs = [serve.opened(word, "cpu", limits) for word in words]
    for run in runs if at_once else ():
        run.trained = replace(run.trained, inputs=replace(run.trained.inputs, at_once=at_once))
    listener = serve.listening("127.0.0.1", 0)
    made = app.make(runs, limits, hosts)
    config = uvicorn.Config(made, log_level="warning", http=Connection, timeout_keep_alive=limits.seconds)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def port(folders):
    with served(folders.values(), Limits(body_bytes=200_000, seconds=20)) as number:
        yield number


def ask(port, path, body=None, **words):
    """Return status and parsed answer of one request."""

    async def asked():
        client = Client(port)
        status, data = await client.ask(path, body, **words)
        client.close()
        return status, data

    status, data = asyncio.run(asked())
    return status, json.loads(data) if data[:1] in (b"{", b"[") else data.decode()


def test_every_run_answers_and_errors_stay_in_their_place(port):
    status, runs = ask(port, "/runs")
    assert (status, [run["name"] for run in runs]) == (200, [f"{name}/small" for name in MODELS])
    asked = {
        "cvrp": ([SQUARE, {**SQUARE, "capacity": 0}], {"augment": False}),
        "tinystories": ([{"prompt": "The cat"}, {"prompt": 3}], {"length": 8}),
        "bep": ([{"prompt": "abc", "field": "projectScope"}, {"field": "moon"}], {"length": 8}),
        "crypto": ([columns(), columns(coin="BUSDT")], {"now": "newest"}),
        "lmol": ([{"images": [png(30), png(200)]}, {"images": ["/etc/passwd"]}], {"comparisons": 8}),
    }
    for workload, (inputs, settings) in asked.items():
        status, found = ask(port, f"/runs/{workload}/small/predict", {"inputs": inputs, "settings": settings})
        assert status == 200, found
        assert found["verdict"] == ""
        good, bad = found["outputs"]
        assert "error" not in good
        assert list(bad) == ["error"]
        status, found = ask(port, f"/runs/{workload}/small/predict", {"inputs": inputs[1:], "settings": settings})
        assert (status, found["outputs"]) == (422, [bad])


def test_a_slash_at_the_end_of_an_address_changes_nothing(port):
    body = {"inputs": [SQUARE], "settings": {"augment": False}}
    status, found = ask(port, "/runs/cvrp/small/predict/", body)  # a redirection would lose the body with some clients
    assert (status, len(found["outputs"])) == (200, 1)
    assert ask(port, "/runs/") == ask(port, "/runs")
    assert ask(port, "//")[0] == 200
    assert ask(port, "/nothing/")[1] == ask(port, "/nothing")[1]


def test_an_input_that_is_nothing_is_refused_with_a_reason(port):
    status, found = ask(port, "/runs/cvrp/small/predict", {"inputs": [None, 3]})
    assert status == 422
    assert all(each["error"].startswith("an input: it must be an object with ") for each in found["outputs"])


def test_an_answer_is_what_the_model_predicts(port, folders):
    model = io.load(folders["cvrp"].partition("=")[2])
    _, found = ask(port, "/runs/cvrp/small/predict", {"inputs": [SQUARE], "settings": {"milliseconds": 0}})
    assert found["outputs"] == list(model.predict([SQUARE], milliseconds=0))
    _, found = ask(port, "/runs/cvrp/small/rivals", {"input": SQUARE, "milliseconds": 5})
    assert set(found["outputs"]) == {"savings", "PyVRP", "ruin and recreate", "model"}
    assert sorted(node for route in found["outputs"]["PyVRP"]["routes"] for node in route) == [1, 2, 3, 4]


def events(text):
    return [json.loads(line) if line != "[DONE]" else line for line in re.findall("data: (.*)\n\n", text)]


@pytest.mark.parametrize(("workload", "prompt"), [("tinystories", "The cat"), ("bep", "abc ")])
def test_text_streams_and_openais_clients_are_served(port, workload, prompt, monkeypatch):
    # A model this small writes it all in one turn.
    monkeypatch.setattr("pipelines.server.continuous_batching.TURN_SECONDS", 0)
    name, settings = f"{workload}/small", {"length": 9, "seed": 5, "temperature": 1, "top_k": 0}
    _, found = ask(port, f"/runs/{name}/predict", {"inputs": [{"prompt": prompt}], "settings": settings})
    text = found["outputs"][0]["text"]
    status, streamed = ask(port, f"/runs/{name}/stream", {"input": {"prompt": prompt}, "settings": settings})
    *pieces, last = events(streamed)
    assert (status, last) == (200, {"done": True})
    assert "".join(piece["text"] for piece in pieces) == text
    assert len(pieces) > 1
    words = {"model": name, "prompt": prompt, "max_tokens": 9, "seed": 5}
    status, found = ask(port, "/v1/completions", {**words, "prompt": [prompt, prompt]})
    assert (status, found["object"], found["choices"][0]["text"]) == (200, "text_completion", text)
    assert found["choices"][0]["finish_reason"] in ("stop", "length")
    assert found["choices"][1]["index"] == 1
    *chunks, done = events(ask(port, "/v1/completions", {**words, "stream": True})[1])
    assert ("".join(chunk["choices"][0]["text"] for chunk in chunks), done) == (text, "[DONE]")
    assert name in [each["id"] for each in ask(port, "/v1/models")[1]["data"]]


def test_the_form_is_completed_as_it_asks(port):
    status, found = ask(port, "/suggest", {"field_type": "projectScope", "partial_text": "", "max_length": 7})
    assert (status, found["prompt_used"], len(found["text"])) == (200, "The scope of the works includes ", 7)
    assert all({"text", "likelihood", "document"} <= set(each) for each in found["suggestions"])
    status, found = ask(port, "/suggest", {"field_type": "moon", "partial_text": "abc", "max_length": 7})
    assert (status, found["prompt_used"]) == (200, "abc")
    status, found = ask(port, "/suggest", {"field_type": "moon"})
    assert (status, found["suggestions"], found["text"]) == (200, [], "")  # nothing fits
    status, found = ask(port, "/generate", {"prompt": "abc", "max_length": 5, "temperature": 0.5})
    assert (status, len(found["text"])) == (200, 5)
    status, found = ask(port, "/runs/bep/small/document", {"plan": "# Lifts\n\nTwo.\n"})
    assert (status, found["left"]) == (200, [])
    assert ask(port, "/runs/bep/small/document", {"template": found["document"]})[1] == {"fields": {}}
    in_lines = "\r\n".join(textwrap.wrap(found["document"], 76))
    assert ask(port, "/runs/bep/small/document", {"template": in_lines})[1] == {"fields": {}}
    in_lines = "data:image/png;base64," + "\n".join(textwrap.wrap(png(1).partition(",")[2] or png(1), 76))
    assert ask(port, "/runs/lmol/small/predict", {"inputs": [{"images": [in_lines]}]})[0] == 200
    assert ask(port, "/health")[1]["status"] == "healthy"
    assert ask(port, "/health", method="HEAD")[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "words", "status", "text"),
    [
        ("/runs/cvrp/none/predict", {"inputs": [SQUARE]}, {}, 404, "no run 'cvrp/none' is served; there are cvrp/"),
        ("/runs/cvrp/small/predict", {"inputs": [SQUARE]}, {"method": "PUT"}, 405, "predict takes POST, not PUT"),
        ("/", {}, {}, 405, "/ takes GET, HEAD, not POST"),
        ("/routes.js", {}, {}, 405, "/routes.js takes GET, HEAD, not POST"),
        ("/docs", {}, {}, 405, "/docs takes GET, HEAD, not POST"),
        ("/complete", {"prompt": "x"}, {}, 404, "nothing at /complete: GET /docs lists what there is"),
        ("/runs/cvrp/small/nothing", {}, {}, 404, "nothing at /runs/cvrp/small/nothing: GET /docs"),
        (
            "/suggest",
            {"field_type": "x", "model": "no"},
            {},
            404,
            "no run no completes forms; those that do: bep/small",
        ),
        ("/runs/cvrp/small/predict", b"{", {}, 400, "the body is not JSON"),
        ("/runs/cvrp/small/predict", b"[" * 60_000, {}, 400, "the body is not JSON"),
        ("/runs/cvrp/small/predict", b"x" * 200_001, {}, 413, "more than 200000 bytes"),
        ("/runs/cvrp/small/predict", {"inputs": [SQUARE] * 65}, {}, 413, "65 inputs are more than the 64"),
        ("/v1/completions", b'{"seed": %s}' % (b"9" * 5000), {}, 400, "not JSON: Exceeds the limit (4300 digits)"),
        ("/runs/cvrp/small/predict", {"inputs": []}, {}, 422, "inputs: give 1 or more (given []"),
        ("/runs/cvrp/small/predict", {"input": SQUARE}, {}, 422, "did you mean 'inputs'?"),
        ("/runs/cvrp/small/predict", {"inputs": [SQUARE], "settings": {"startz": 1}}, {}, 422, "mean 'starts'?"),
        ("/runs/cvrp/small/predict", {"inputs": [SQUARE], "settings": {"samples": 1000}}, {}, 422, "the 256 that this"),
        ("/runs/bep/small/stream", {"input": {"prompt": ""}}, {}, 422, "prompt is missing"),
        ("/runs/lmol/small/stream", {"input": {"images": [png(1)]}}, {}, 422, "writes no text"),
        ("/runs/lmol/small/rivals", {"input": {}}, {}, 404, "no rivals"),
        ("/runs/lmol/small/document", {"plan": ""}, {}, 404, "fills no documents"),
        ("/runs/bep/small/document", {"template": "?"}, {}, 422, "template is not base64 ("),
        ("/runs/bep/small/document", {"template": "UEsD BBQA"}, {}, 422, "template is not base64 ("),
        ("/runs/bep/small/predict", None, {"method": "GET"}, 405, "/runs/bep/small/predict takes POST, not GET"),
        ("/sessions/x", None, {"method": "GET"}, 405, "/sessions/x takes DELETE, not GET"),
        ("/nowhere", None, {"method": "GET"}, 404, "nothing at /nowhere: GET /docs lists what there is"),
        ("/runs/bep/small/document", {"template": "bm9uZQ=="}, {}, 422, "template cannot be read as a Word document"),
        ("/v1/completions", {"model": "cvrp/small", "prompt": "x"}, {}, 404, "no text run"),
        ("/suggest", {"field_type": "x"}, {"headers": {"content-type": "text/plain"}}, 415, "application/json"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_a_line(port, path, body, words, status, text):
    found = ask(port, path, body, **words)
    assert found[0] == status, found
    assert text in found[1]["error"]


def test_the_description_is_whole_and_the_page_of_it_needs_nothing_else(port):
    status, found = ask(port, "/openapi.json")
    assert status == 200
    text = json.dumps(found)
    for name in re.findall(r"#/components/schemas/(\w+)", text):
        assert name in found["components"]["schemas"]
    assert "/runs/tinystories/small/stream" in found["paths"]
    assert "/runs/crypto/small/stream" not in found["paths"]
    body = found["paths"]["/runs/cvrp/small/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schemas = found["components"]["schemas"]
    predict = schemas[body["$ref"].rpartition("/")[2]]
    assert predict["required"] == ["inputs"]
    assert {"customers", "demands", "capacity"} <= set(predict["properties"]["inputs"]["items"]["properties"])
    assert "decode" in predict["properties"]["settings"]["properties"]
    status, page = ask(port, "/docs")
    assert "POST /runs/lmol/small/predict" in page
    assert not re.search("(src|href)=.?https?:", page)


def test_the_page_and_what_it_needs_are_there_and_nothing_else(port):
    status, page = ask(port, "/")
    assert (status, "<title>" in page) == (200, True)
    for name in re.findall(r'(?:src|href)="([^":]+)"', page):
        assert ask(port, f"/{name}")[0] == 200, name
    for path in ("/__init__.py", "/../app.py", "/%2e%2e/app.py", "/app.py"):
        assert ask(port, path)[0] == 404
    facts = {run["workload"]: run["model"] for run in ask(port, "/runs")[1]}
    assert facts["crypto"]["coins"] == ["AUSDT"]
    assert facts["crypto"]["candles_needed"] == NEEDED
    assert facts["lmol"]["attribute"] == "score"
    assert facts["tinystories"]["prompt"] == MODELS["tinystories"]().beginning
    assert facts["bep"]["fields"]["projectScope"] == "The scope of the works includes "


def test_pages_have_their_colours_from_one_file():
    pages = [ROOT / "pipelines/server/app.py"]
    for folder in ("common", "exporters/web", "pipelines"):
        pages += [path for path in (ROOT / folder).rglob("*") if path.suffix in (".css", ".html")]
    coloured = re.compile(r"#[0-9a-f]{3,8}\b|\b(rgba?|hsla?)\(|color(-scheme)?: *[a-z]+[;} ]", re.IGNORECASE)
    found = [path.name for path in pages if coloured.search(re.sub(r"color: inherit|#\d{4,}|&#", "", path.read_text()))]
    assert found == ["base.css"]


def test_requests_that_arrive_together_are_answered_together_and_none_is_lost(port):
    before = counts(port)
    asked = [Asked("/runs/cvrp/small/predict", {"inputs": [{**SQUARE, "name": str(i)}]}) for i in range(60)]
    _, statuses, _ = asyncio.run(load.by_clients(port, 30, asked))
    after = counts(port)
    assert statuses == {200: 60}
    assert after["batched"] - before["batched"] == 60
    assert after["batches"] - before["batches"] < 60


def test_texts_of_all_requests_are_written_side_by_side_and_each_as_alone(port, folders):
    model = io.load(folders["bep"].partition("=")[2])
    asked = [
        ({"prompt": "abc "[number % 3 :], "item": number}, {"length": 20 + 5 * number, "temperature": 0.5 + number / 9})
        for number in range(12)
    ]

    async def answered(given, settings):
        client = Client(port)
        body = {"inputs": [given, {"prompt": ""}], "settings": settings}
        _, data = await client.ask("/runs/bep/small/predict", body)
        client.close()
        return json.loads(data)["outputs"]

    async def all_answered():
        return await asyncio.gather(*(answered(*each) for each in asked))

    before = counts(port, "bep")
    found = asyncio.run(all_answered())
    after = counts(port, "bep")
    for (given, settings), (answer, fault) in zip(asked, found, strict=True):
        assert answer == next(model.predict([given], **settings))
        assert "prompt is missing" in fault["error"]
    assert after["batched"] - before["batched"] > 1.5 * (after["batches"] - before["batches"])


def counts(port, workload="cvrp"):
    found = re.findall(rf'^run_(\w+){{run="{workload}/small"}} (\d+)', ask(port, "/metrics")[1], re.MULTILINE)
    return {name: int(count) for name, count in found}


def test_a_token_is_asked_for_and_other_names_are_refused(folders):
    with served([folders["lmol"]], Limits(token="a secret of some length"), ["localhost"]) as port:
        given = {"inputs": [{"images": [png(30)]}]}
        assert ask(port, "/runs/lmol/small/predict", given)[0] == 401
        assert ask(port, "/runs")[0] == 401
        assert ask(port, "/metrics", headers={"authorization": "Bearer another"})[0] == 401
        right = {"authorization": "Bearer a secret of some length"}
        assert ask(port, "/runs/lmol/small/predict", given, headers=right)[0] == 200
        assert ask(port, "/health")[0] == 200
        assert ask(port, "/health", headers={"host": "another.site"})[0] == 400


def test_too_many_requests_are_told_to_come_later(folders, monkeypatch):
    slow = threading.Event()
    with served([folders["cvrp"]], Limits(waiting=2, seconds=1)) as port:
        monkeypatch.setattr("pipelines.answers.trained.Trained.together", lambda *_: slow.wait() and [])
        asked = [Asked("/runs/cvrp/small/predict", {"inputs": [SQUARE], "settings": {"seed": i}}) for i in range(4)]
        _, statuses, wall = asyncio.run(load.by_clients(port, 4, asked))
        slow.set()
    assert statuses == {429: 3, 503: 1}  # two beyond the bound, one that waited and one that was begun
    assert wall < 5


@pytest.mark.slow
def test_the_problems_of_a_request_share_half_of_the_seconds_and_longer_ones_are_refused(folders):
    given = {**SQUARE, "customers": [[i, i % 7] for i in range(60)], "demands": [1] * 60, "windows": [[0, 9e3]] * 60}
    many = {"inputs": [{**given, "name": str(i)} for i in range(12)]}
    with served([folders["cvrp"]], Limits(seconds=4)) as port:  # 600 milliseconds each are 7.2 s
        for _ in range(8):  # other programs may have had the cores in the other half of the seconds
            began = time.monotonic()
            status, found = ask(port, "/runs/cvrp/small/predict", many)
            if status == 200:
                break
        assert (status, len(found["outputs"])) == (200, 12)
        assert all(each["routes"] for each in found["outputs"])
        assert time.monotonic() - began < 4
        asked = {**many, "settings": {"milliseconds": 400}}
        status, found = ask(port, "/runs/cvrp/small/predict", asked)
        said = "milliseconds is 400: for 12 inputs this is all the 4 s of an answer or more; give less than 333.333"
        assert (status, found["error"]) == (422, f"{said}, or fewer inputs at a time")
        asked = {"inputs": many["inputs"][:2], "settings": {"milliseconds": 50}}
        assert ask(port, "/runs/cvrp/small/predict", asked)[0] == 200


def test_a_fault_in_a_model_is_told_to_those_who_asked_and_the_next_are_answered(port, monkeypatch, capfd):
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.answers.trained.Trained.together", lambda *_: 1 / 0)
        assert ask(port, "/runs/cvrp/small/predict", {"inputs": [SQUARE]}) == (
            500, {"error": "the server failed; its log says why"},
        )  # fmt: skip
    assert ask(port, "/runs/cvrp/small/predict", {"inputs": [SQUARE]})[0] == 200
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_changed_request_is_a_function_of_its_seed():
    base = Asked("/runs", {"inputs": [SQUARE]})
    for seed in range(50):
        assert repr(mutated(base, seed)) == repr(mutated(base, seed))
    assert len({repr(mutated(base, seed)) for seed in range(50)}) > 40


def test_settings_that_this_machine_cannot_follow_are_refused(port, monkeypatch):
    monkeypatch.setattr("models.routing.native.unavailable", lambda: "not asked for")
    body = {"inputs": [SQUARE], "settings": {"milliseconds": 5}}
    status, found = ask(port, "/runs/cvrp/small/predict", body)
    assert (status, found["error"]) == (
        422,
        "milliseconds is 5, but this machine has no native code: not asked for; set it to 0",
    )
    body["settings"]["milliseconds"] = 0
    assert ask(port, "/runs/cvrp/small/predict", body)[0] == 200


def test_changed_requests_are_refused_and_never_a_fault(port):
    async def told():
        client = Client(port)
        runs = json.loads((await client.ask("/runs"))[1])
        client.close()
        bases = [Asked(f"/runs/{name}/small/predict", body) for name, body in PREDICT.items()] + load.others(runs)
        wrong = [mutated(bases[seed % len(bases)], seed) for seed in range(150)]
        return (await load.by_clients(port, 8, wrong))[1]

    statuses = asyncio.run(told())
    assert sum(statuses.values()) == 150
    assert max(statuses) < 500, statuses
    assert statuses[0] == 0


PREDICT = {
    "cvrp": {"inputs": [SQUARE], "settings": {"augment": False, "starts": 1}},
    "tinystories": {"inputs": [{"prompt": "The cat", "item": 1}], "settings": {"length": 5}},
    "bep": {"inputs": [{"prompt": "abc", "field": "projectScope", "document": "dad"}], "settings": {"length": 5}},
    "crypto": {"inputs": [columns()], "settings": {"now": "newest", "threshold": 0.5}},
    "lmol": {"inputs": [{"first": png(30), "second": png(200)}], "settings": {"comparisons": 8}},
}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["cvrp/none"], "there is no run runs/cvrp/none"),
        (["cvrp/cvrp20"], r"did you mean cvrp/cvrp-20 or .*\? cvrp=FOLDER takes a folder with a model"),
        (["cvpr/cvrp-20"], "unknown workload 'cvpr'; did you mean cvrp"),
        ([str(ROOT / "models/pretrained/cvrp-20")], "not a run's; give cvrp/cvrp-20$"),
        (["cvrp"], "a run is WORKLOAD/NAME"),
        (["cvrp/cvrp-20", "cvrp/cvrp-20", "--port", "0"], "two runs are called cvrp/cvrp-20"),
        (["--workload", "cvpr"], "unknown workload 'cvpr'; did you mean cvrp"),
        (["--workload", "cvrp", "--name", "cvrp20"], "there is no run runs/cvrp/cvrp20; did you mean cvrp/cvrp-20"),
        (["--workload", "cvrp", "bep/mine"], "--workload cvrp replaces RUN bep/mine; leave one of them out"),
        (["--name", "mine"], "--name mine needs --workload, as in --workload cvrp --name mine"),
        (["cvrp/cvrp-20", "--token-file", "none"], "--token-file none: cannot be read"),
        (["cvrp/cvrp-20", "--token-file", "bytes"], "--token-file bytes: a token is 16 or more printable ASCII"),
        (["cvrp/cvrp-20", "--seconds", "0"], "--seconds 0 must be above 0"),
        (["cvrp/cvrp-20", "--body-megabytes", "nan"], "--body-megabytes nan must be above 0"),
    ],
)
def test_a_server_that_cannot_start_says_why(tmp_path, monkeypatch, words, text):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("sys.argv", ["serve.py", *words])
    (tmp_path / "bytes").write_bytes(bytes(range(128, 160)))
    with pytest.raises(UserError, match=text):
        serve.main()


@pytest.mark.slow
def test_a_load_is_borne_nothing_is_lost_and_the_end_is_graceful(tmp_path, capfd):
    """The measurement of the documents, at a twentieth of its size, on the model that comes with the project."""
    assert load.main(["cvrp/cvrp-20", "--requests", "64", "--memory", "800", "--mutated", "400"]) == 0
    found = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert found["lost"] == found["mutated"]["lost"] == 0
    assert found["memory"]["growth_percent"] <= 5
    assert max(map(int, found["mutated"]["status"])) < 500
