"""Bodies as the packages openai 3.54 and langchain-openai 1.7 send them are answered as these expect it."""

import json
import random
import urllib.error
import urllib.request

import pytest
from pydantic import ValidationError

from models import io
from pipelines.server.limits import Limits
from pipelines.server.schemas import Chat, Completion, Generate
from tests.server.test_server import MODELS, events, served

MODEL, STORIES = "bep/small", "tinystories/small"
# What langchain_openai.OpenAI sends, and keys that the server knows nothing of.
LANGCHAIN = {"frequency_penalty": 0, "presence_penalty": 0, "n": 1, "temperature": 0.7, "top_p": 1, "logit_bias": {}}
WORDS = {"model": MODEL, "prompt": "abc ", "max_tokens": 12, "seed": 5}


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    folders = {name: tmp_path_factory.mktemp(name) / "small" for name in ("bep", "tinystories")}
    for name, folder in folders.items():
        io.save(MODELS[name](), folder)
    with served([f"{name}={folder}" for name, folder in folders.items()], Limits(seconds=20)) as number:
        yield number


def post(port, path, body):
    """Status, headers, and the parsed body or its events."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request) as response:
            status, headers, text = response.status, response.headers, response.read().decode()
    except urllib.error.HTTPError as error:
        status, headers, text = error.code, error.headers, error.read().decode()
    return status, headers, events(text) if "event-stream" in headers["content-type"] else json.loads(text)


def completed(port, **words):
    status, headers, found = post(port, "/v1/completions", {**WORDS, **words})
    assert status == 200, found
    return headers, found


def texts(found):
    return [choice["text"] for choice in found["choices"]]


def test_what_langchain_sends_is_answered_and_what_it_asks_in_vain_is_named(port):
    headers, found = completed(port, **LANGCHAIN)
    assert headers["x-ignored-keys"] is None
    assert found["usage"] == {"prompt_tokens": 4, "completion_tokens": 12, "total_tokens": 16}
    headers, _ = completed(port, suffix="", frequency_penalty=1.5, **{"unheard\r\nof": 1})
    assert headers["x-ignored-keys"] == "frequency_penalty, unheard%0D%0Aof"
    for words, said in (
        ({"suffix": "end"}, "from left to right"),
        ({"logprobs": 1, "stream": True}, "logprobs: streams have none; leave out logprobs or stream"),
        ({"logprobs": 1, "model": STORIES}, "logprobs: tinystories/small has none; leave out logprobs"),
    ):
        status, _, found = post(port, "/v1/completions", {**WORDS, **words})
        assert (status, said in found["error"]) == (400, True)


@pytest.mark.parametrize("model", [MODEL, STORIES])
def test_a_stream_ends_as_the_whole_text_does_and_tells_usage_where_that_is_asked(port, model):
    for words in ({"prompt": ["abc ", "The cat"], "max_tokens": 5}, {"stop": [" "], "max_tokens": 40}):
        asked = {"model": model, "seed": 3, **words}
        _, whole = completed(port, **asked)
        _, streamed = completed(port, **asked, stream=True, stream_options={"include_usage": True})
        *chunks, told, done = streamed
        assert (told["choices"], told["usage"], done) == ([], whole["usage"], "[DONE]")
        ends = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["finish_reason"]]
        assert [each["finish_reason"] for each in ends] == [each["finish_reason"] for each in whole["choices"]]
        _, (*chunks, _) = completed(port, **asked, stream=True, stream_options={"include_usage": False})
        assert all(chunk["choices"] and "usage" not in chunk for chunk in chunks)
    lengths = [each["finish_reason"] for each in completed(port, model=model, max_tokens=2)[1]["choices"]]
    assert lengths == ["length"]


def test_bodies_of_other_forms_are_refused_in_words_of_their_keys(port):
    status, _, found = post(port, "/v1/completions", {**WORDS, "prompt": [1, 2]})
    assert (status, found["error"]) == (422, "the body: prompt: Input should be a valid string (given [1, 2])")
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    status, _, found = post(port, "/v1/chat/completions", {"model": MODEL, "messages": image})
    assert (status, "messages.0.content.0.image_url: unknown key (given {'url': 'x'})" in found["error"]) == (422, True)


def test_log_probabilities_are_those_that_a_text_is_written_by(port):
    _, found = completed(port, logprobs=3, temperature=0, echo=True, stop="zz")
    (choice,) = found["choices"]
    told = choice["logprobs"]
    assert "abc " + "".join(told["tokens"]) == choice["text"]
    assert told["text_offset"] == list(range(4, 16))
    for token, value, likely in zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True):
        assert len(likely) == 3
        assert likely[token] == value == max(likely.values())  # the likeliest is written
    messages = [{"role": "user", "content": "abc "}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 12, "temperature": 0}
    _, _, found = post(port, "/v1/chat/completions", {**body, "logprobs": True, "top_logprobs": 2})
    content = found["choices"][0]["logprobs"]["content"]
    assert [each["token"] for each in content] == told["tokens"]
    assert [each["logprob"] for each in content] == told["token_logprobs"]
    assert all(each["top_logprobs"][0]["token"] == each["token"] for each in content)
    assert post(port, "/v1/chat/completions", body)[2]["choices"][0]["logprobs"] is None


def test_a_text_ends_before_the_first_of_several_stops(port):
    (whole,) = texts(completed(port)[1])
    first, second = whole[7], whole[4:6]
    expected = whole[: min(whole.index(first), whole.index(second))]
    _, found = completed(port, stop=[first, second])
    assert (texts(found), found["choices"][0]["finish_reason"]) == ([expected], "stop")
    _, streamed = completed(port, stop=[first, second], stream=True)
    assert "".join(text for chunk in streamed[:-1] for text in texts(chunk)) == expected
    assert streamed[-2]["choices"][0]["finish_reason"] == "stop"


def test_several_completions_are_drawn_differently_and_may_begin_with_the_prompt(port):
    _, found = completed(port, prompt=["abc ", "b"], n=3, echo=True, max_tokens=30)
    assert [choice["index"] for choice in found["choices"]] == list(range(6))
    assert [text[:4] for text in texts(found)[:3]] == ["abc "] * 3
    assert len(set(texts(found)[:3])) == 3
    _, streamed = completed(port, n=2, stream=True)
    for index, whole in enumerate(completed(port, n=2)[1]["choices"]):
        own = [chunk["choices"][0] for chunk in streamed[:-1] if chunk["choices"][0]["index"] == index]
        assert "".join(each["text"] for each in own) == whole["text"]
        assert own[-1]["finish_reason"] == whole["finish_reason"]
    status, _, found = post(port, "/v1/completions", {**WORDS, "n": 128})
    assert (status, "128 completions are asked for" in found["error"]) == (422, True)


def test_a_conversations_text_is_continued(port):
    parts = [{"type": "text", "text": "bc "}]
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": parts, "name": None}]
    body = {"model": MODEL, "messages": messages, "max_completion_tokens": 12, "seed": 5, "temperature": None}
    (expected,) = texts(completed(port, prompt="a\n\nbc ")[1])
    status, _, found = post(port, "/v1/chat/completions", body)
    (choice,) = found["choices"]
    assert (status, found["object"], choice["finish_reason"]) == (200, "chat.completion", "length")
    assert choice["message"] == {"role": "assistant", "content": expected}
    words = {"stream": True, "stream_options": {"include_usage": True}}
    _, headers, (*chunks, done) = post(port, "/v1/chat/completions", {**body, **words})
    assert (headers["x-ignored-keys"], done) == (None, "[DONE]")
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks[:-1]) == expected
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    assert post(port, "/v1/chat/completions", {**body, "messages": image})[0] == 422


def test_a_long_text_is_continued_from_its_end(port):
    drawn = "".join(random.Random(0).choices("abc ", k=10_100))
    prompt = drawn + drawn[:60]  # what its last 60 characters began is not among the last 10,000
    last = {"prompt": prompt[-10_000:]}
    read, forgotten = MODELS["bep"]().predict([{**last, "document": prompt[:-10_000]}, last], length=60, temperature=0)
    assert texts(completed(port, prompt=prompt, temperature=0, max_tokens=60)[1]) == [read["text"]]
    assert read["text"] != forgotten["text"]


def test_what_is_not_asked_is_as_openai_has_it_and_no_text_is_longer_than_is_said():
    usual = {"length": 16, "top_k": 0, "stop": None, "seed": 0, "temperature": 1.0, "top_p": 1.0}
    assert Completion(model="m").settings() == usual
    asked = Completion(model="m", max_tokens=5000, temperature=0, top_p=0.5, seed=-1, stop="", logprobs=0).settings()
    assert asked == {**usual, "length": 1000, "temperature": 0, "top_p": 0.5, "seed": 2**32 - 1, "logprobs": 0}
    message = [{"role": "user", "content": "a"}]
    assert Chat(model="m", messages=message).settings() == {**usual, "length": 200}
    newer = Chat(model="m", messages=message, max_tokens=3, max_completion_tokens=5, logprobs=True, top_logprobs=2)
    assert newer.settings() == {**usual, "length": 5, "logprobs": 2}
    assert Chat(model="m", messages=message, logprobs=False, stop=["", "x"]).settings()["stop"] == ("x",)
    assert (Generate(prompt="a").max_length, Generate(prompt="a").temperature) == (200, 0.7)


@pytest.mark.parametrize("wrong", [{"top_p": 0}, {"top_p": 1.1}, {"temperature": 2.1}, {"n": 129}, {"max_tokens": 0}])
def test_numbers_that_openai_refuses_are_refused(wrong):
    with pytest.raises(ValidationError):
        Completion(model="m", **wrong)
