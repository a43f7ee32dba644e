"""API of the simulated worker over real sockets: shapes, streams, usage, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.cachenode import ROOT
from tests.support.simulated import SimulatedWorker

MESSAGES = [{"role": "user", "content": "Say something about the river."}]


def test_models_health_version(worker: SimulatedWorker) -> None:
    assert worker.get("/health") == (200, b"")
    assert worker.get("/ping")[0] == 200
    models = json.loads(worker.get("/v1/models")[1])
    assert [model["id"] for model in models["data"]] == ["demo", "smol"]
    assert models["data"][0]["owned_by"] == "emberline-simulated"
    assert "simulated" in json.loads(worker.get("/version")[1])["version"]
    assert json.loads(worker.get("/kv_event_sources")[1]) == {}


@pytest.mark.parametrize("model", ["demo", "smol", None])
def test_chat(worker: SimulatedWorker, model: str | None) -> None:
    body: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 12}
    status, answer = worker.post("/v1/chat/completions", body | {"model": model})
    assert status == 200
    assert answer["object"] == "chat.completion"
    assert answer["model"] == (model or "demo")
    assert answer["system_fingerprint"] == "emberline-simulated"
    choice = answer["choices"][0]
    assert choice["message"]["content"].startswith("[simulated] No model runs here")
    assert choice["finish_reason"] == "length"
    usage = answer["usage"]
    assert usage["completion_tokens"] == 12
    assert usage["total_tokens"] == usage["prompt_tokens"] + 12


def test_response_depends_only_on_the_prompt(worker: SimulatedWorker) -> None:
    first, again, other = (
        worker.complete(text, 200)["choices"][0] for text in ("one", "one", "two")
    )
    assert first == again
    assert first["finish_reason"] == "stop"
    assert first["text"] != other["text"]


def test_seed_changes_responses(start: Any) -> None:
    one, two = (start("--seed", seed).complete("hi", 64) for seed in ("1", "2"))
    assert one["choices"][0]["text"] != two["choices"][0]["text"]


def test_chat_stream_has_the_same_text_in_chunks(worker: SimulatedWorker) -> None:
    body = {"messages": MESSAGES, "max_tokens": 40, "stream_options": {"include_usage": True}}
    events = list(worker.stream("/v1/chat/completions", body))
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk["system_fingerprint"] for chunk in chunks} == {"emberline-simulated"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    usage = chunks.pop()
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 40
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
    _, whole = worker.post("/v1/chat/completions", body)
    assert text == whole["choices"][0]["message"]["content"]


def test_stream_has_no_usage_unless_requested(worker: SimulatedWorker) -> None:
    events = list(worker.stream("/v1/completions", {"prompt": "x", "max_tokens": 3}))
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["[", "simula", "ted", ""]
    assert all("usage" not in chunk for chunk in chunks)


@pytest.mark.parametrize("streamed", [False, True])
def test_stop_strings(worker: SimulatedWorker, streamed: bool) -> None:
    body = {"prompt": "x", "max_tokens": 60, "stop": ["runs here", "zzz"]}
    if streamed:
        chunks = [json.loads(e) for e in worker.stream("/v1/completions", body) if e != "[DONE]"]
        text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
        finish = chunks[-1]["choices"][0]["finish_reason"]
    else:
        choice = worker.complete(**body)["choices"][0]
        text, finish = choice["text"], choice["finish_reason"]
    assert text == "[simulated] No model "
    assert finish == "stop"


def test_minimum_tokens(worker: SimulatedWorker) -> None:
    assert worker.complete("x", 300, ignore_eos=True)["usage"]["completion_tokens"] == 300
    assert worker.complete("x", 300, min_tokens=200)["usage"]["completion_tokens"] >= 200
    assert worker.complete("x")["usage"]["completion_tokens"] == 1
    _, answer = worker.post("/v1/completions", {"prompt": "x"})
    assert answer["usage"]["completion_tokens"] == 16  # OpenAI's default


def test_tokenize_counts_what_usage_counts(worker: SimulatedWorker) -> None:
    text = "Hello, wonderful world!  grüße\n\n漢字 42"
    _, answer = worker.post("/tokenize", {"prompt": text, "return_token_strs": True})
    assert "".join(answer["token_strs"]) == text
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    assert worker.complete(text)["usage"]["prompt_tokens"] == answer["count"]
    assert worker.complete(answer["tokens"])["usage"]["prompt_tokens"] == answer["count"]
    _, chat = worker.post("/tokenize", {"messages": MESSAGES})
    body = {"messages": MESSAGES, "max_tokens": 1}
    _, response = worker.post("/v1/chat/completions", body)
    assert response["usage"]["prompt_tokens"] == chat["count"]


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/v1/completions", b"{", 400, None),
        ("/v1/completions", b"[]", 400, None),
        ("/v1/completions", b"[" * 100_000, 400, None),
        ("/v1/completions", b'{"prompt": "\\ud800"}', 400, None),
        ("/v1/completions", {}, 400, "prompt"),
        ("/v1/completions", {"prompt": ""}, 400, "prompt"),
        ("/v1/completions", {"prompt": ["a", "b"]}, 400, "prompt"),
        ("/v1/completions", {"prompt": [1, True]}, 400, "prompt"),
        ("/v1/completions", {"prompt": "x", "model": "gpt"}, 404, "model"),
        ("/v1/completions", {"prompt": "x", "max_tokens": 0}, 400, "max_tokens"),
        ("/v1/completions", {"prompt": "x", "max_tokens": True}, 400, "max_tokens"),
        ("/v1/completions", {"prompt": "x", "max_tokens": 100000}, 400, "max_tokens"),
        ("/v1/completions", {"prompt": [1] * 8192}, 400, "max_tokens"),
        ("/v1/completions", {"prompt": "x", "stream": "yes"}, 400, "stream"),
        ("/v1/completions", {"prompt": "x", "stream_options": 1}, 400, "stream_options"),
        ("/v1/completions", {"prompt": "x", "stop": 1}, 400, "stop"),
        ("/v1/completions", {"prompt": "x", "n": 2}, 400, "n"),
        ("/v1/completions", {"prompt": "x", "logprobs": 1}, 400, "logprobs"),
        ("/v1/completions", {"prompt": "x", "echo": True}, 400, "echo"),
        ("/v1/chat/completions", {}, 400, "messages"),
        ("/v1/chat/completions", {"messages": []}, 400, "messages"),
        ("/v1/chat/completions", {"messages": ["hi"]}, 400, "messages"),
        ("/v1/chat/completions", {"messages": [{"content": "x"}]}, 400, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": 1}]}, 400, "messages"),
        ("/tokenize", {"prompt": 1}, 400, "prompt"),
        ("/v1/embeddings", {}, 404, None),
        ("/health", {}, 405, None),
    ],
)
def test_errors_have_the_openai_shape(
    worker: SimulatedWorker, path: str, body: Any, status: int, param: str | None
) -> None:
    got, answer = worker.post(path, body)
    assert got == status
    assert set(answer) == {"error"}
    assert answer["error"]["code"] == status
    assert answer["error"]["param"] == param
    assert answer["error"]["message"]


def test_default_values_of_unsimulated_parameters_are_accepted(worker: SimulatedWorker) -> None:
    worker.complete("x", n=1, logprobs=None, echo=False, temperature=0.7, top_p=1, user="me")


def test_request_id_is_kept(worker: SimulatedWorker) -> None:
    connection = worker.connect()
    connection.request("POST", "/v1/completions", b'{"prompt":"x"}', {"X-Request-Id": "abc"})
    answer = connection.getresponse()
    assert json.loads(answer.read())["id"] == "cmpl-abc"
    assert answer.headers["x-emberline-simulated"] == "1"
    connection.close()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--kv-replay", "tcp://*:5557"], "needs --kv-events"),
        (["--kv-events", "udp://x"], "cannot publish KV events"),
        (["--l2-url", "redis://user:secret@host"], "must not contain credentials"),
        (["--l1-bytes", "much"], "not a size"),
        (["--speed", "0"], "not above 0"),
    ],
)
def test_command_line_errors_are_clear(flags: list[str], text: str) -> None:
    argv = [sys.executable, "-m", "endpoints.simulated_worker", "--listen", "127.0.0.1:1"]
    done = subprocess.run(
        [*argv, "--model", "m", *flags], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert text in done.stderr
    assert "secret" not in done.stderr


def test_other_vllm_arguments_are_named_and_ignored(start: Any) -> None:
    media = ("--allowed-media-domains", "a.example", "b.example")
    worker = start("--dtype", "float32", "--max-model-len=64", "--enforce-eager", *media)
    assert "--dtype float32 --enforce-eager --allowed-media-domains" in worker.log.read_text()
    assert worker.post("/v1/completions", {"prompt": [1] * 64})[0] == 400
