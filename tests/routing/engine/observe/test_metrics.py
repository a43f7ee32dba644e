"""Usage parsing, decision ring, keys and counters."""

from __future__ import annotations

import hashlib
import json
import socket
from typing import Any

import pytest

from routing.engine.errors import KINDS, REASONS, Refusal
from routing.engine.fleet.connection_pool import describe_connect_error
from routing.engine.observe.decisions import Decision, DecisionRing
from routing.engine.observe.metric_types import Registry
from routing.engine.observe.metrics import MODELS_LIMIT, Metrics
from routing.engine.tokens import usage

# -- usage

CHAT_USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 7,
    "total_tokens": 107,
    "prompt_tokens_details": {"cached_tokens": 96},
}


@pytest.mark.parametrize("indent", [None, 2])
def test_usage_of_a_plain_answer(indent: int | None) -> None:
    body = json.dumps({"choices": ["x" * 9000], "usage": CHAT_USAGE, "z": None}, indent=indent)
    assert usage.read_usage(body.encode()[-usage.TAIL_BYTES :]) == usage.TokenUsage(100, 7, 96)


def test_usage_of_a_stream_is_the_last_that_has_numbers() -> None:
    events = [
        b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n',
        b"data: " + json.dumps({"usage": CHAT_USAGE}).encode() + b"\n\n",
        b'data: {"choices":[],"usage":null}\n\n',
        b"data: [DONE]\n\n",
    ]
    assert usage.read_usage(b"".join(events)) == usage.TokenUsage(100, 7, 96)


def test_usage_in_other_dialects() -> None:
    responses = b'{"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":4}}}'
    assert usage.read_usage(responses) == usage.TokenUsage(5, None, 4)
    messages = b'{"usage":{"input_tokens":5,"output_tokens":6,"cache_read_input_tokens":3}}'
    assert usage.read_usage(messages) == usage.TokenUsage(8, 6, 3), (
        "Anthropic's input is without what was cached"
    )
    unknown = b'{"usage":{"prompt_tokens":5,"prompt_tokens_details":null}}'
    assert usage.read_usage(unknown) == usage.TokenUsage(5, None, None)


def test_invalid_token_counts_are_not_reported() -> None:
    odd = b'{"usage":{"prompt_tokens":-5,"completion_tokens":1.5,"cached_tokens":1e30}}'
    assert usage.read_usage(odd) == usage.TokenUsage(None, None, None)
    broken_last = b'{"usage":{"prompt_tokens":5}}{"usage":{"prompt_tokens":6,}}'
    assert usage.read_usage(broken_last) == usage.TokenUsage(5, None, None)


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b'"usage":',
        b'"usage":{"prompt_tokens":5,}',
        b'"usage":{"prompt_tokens":5',  # cut off: the number may be too
        json.dumps({"content": json.dumps({"usage": CHAT_USAGE})}).encode(),  # generated text
        b'"usage":{' + b" " * 4000 + b'"prompt_tokens":5}',
    ],
)
def test_unclear_usage_is_not_reported(tail: bytes) -> None:
    assert usage.read_usage(tail) is None


# -- decisions


def decision(number: int) -> Decision:
    return Decision(f"d{number}", float(number), "prefixaware")


def test_ring_keeps_the_newest_records() -> None:
    ring = DecisionRing(3)
    for number in range(5):
        ring.add(decision(number))
    assert [item.id for item in ring.newest(10)] == ["d4", "d3", "d2"]
    assert [item.id for item in ring.newest(2)] == ["d4", "d3"]
    assert ring.get("d1") is None
    assert ring.get("d2") is not None
    assert len(ring) == 3
    smaller = ring.resized(2)
    assert [item.id for item in smaller.newest(9)] == ["d4", "d3"]
    larger = smaller.resized(4)
    larger.add(decision(9))
    assert [item.id for item in larger.newest(9)] == ["d9", "d4", "d3"]


def test_record_contains_no_session_and_no_unkeyed_hash() -> None:
    record = decision(1)
    record.session = b"alice@example.org"
    record.prefix = [0x1122334455667788]
    shown = json.dumps(record.show("demo", lambda data: hashlib.sha256(b"k" + data).hexdigest()))
    assert "alice" not in shown
    assert "1122334455667788" not in shown
    assert str(0x1122334455667788) not in shown


# -- errors and counters


def test_errors_have_the_openai_shape() -> None:
    for code, kind in KINDS.items():
        body: dict[str, Any] = json.loads(Refusal(code, "why", "model").body())
        assert body == {
            "error": {
                "message": "why",
                "type": kind.type,
                "code": kind.shown or code,
                "param": "model",
            }
        }
        assert kind.reason in REASONS


def test_the_text_format() -> None:
    registry = Registry({"namespace": "n", "endpoint": 'e"\\\n'})
    counter = registry.counter("c_total", "Help.", ("a",))
    counter.child("x").value += 2
    registry.gauge("g", "Help.").child().value = 0.5
    histogram = registry.histogram("h_seconds", "Help.", (0.1, 1.0)).child()
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    base = 'namespace="n",endpoint="e\\"\\\\\\n"'
    assert registry.render().decode().splitlines() == [
        "# HELP c_total Help.",
        "# TYPE c_total counter",
        f'c_total{{{base},a="x"}} 2',
        "# HELP g Help.",
        "# TYPE g gauge",
        f"g{{{base}}} 0.5",
        "# HELP h_seconds Help.",
        "# TYPE h_seconds histogram",
        f'h_seconds_bucket{{{base},le="0.1"}} 2',
        f'h_seconds_bucket{{{base},le="1.0"}} 3',
        f'h_seconds_bucket{{{base},le="+Inf"}} 4',
        f"h_seconds_sum{{{base}}} 7.65",
        f"h_seconds_count{{{base}}} 4",
    ]


def test_callers_cannot_add_label_values() -> None:
    metrics = Metrics("n", "e")
    metrics.know_model("served")
    assert metrics.model("served", "k").name == "served"
    assert metrics.model("x" * 99, "k").name == "other"
    for index in range(1000):
        metrics.know_model(f"adapter-{index}")
    assert len(metrics.requests.children) < (MODELS_LIMIT + 1) * 10


def test_requests_of_the_console_have_their_own_series() -> None:
    metrics = Metrics("n", "e")
    metrics.know_model("served")
    of_callers, of_console = (metrics.model("served", key) for key in ("k", "console"))
    metrics.count(of_callers, 200)
    for _ in range(2):
        metrics.count(metrics.model("served", "console"), 200)
    metrics.count(of_console, 418)
    of_console.cached.value += 7
    lines = metrics.registry.render().decode().splitlines()
    base = 'emberline_router_requests_total{namespace="n",endpoint="e",model="served",code='
    assert f'{base}"200"}} 1' in lines
    assert f'{base}"200",traffic="console"}} 2' in lines
    assert f'{base}"418",traffic="console"}} 1' in lines
    cached = "emberline_router_cached_prompt_tokens_total"
    assert f'{cached}{{namespace="n",endpoint="e",model="served"}} 0' in lines


def test_counters_start_at_zero() -> None:
    text = Metrics("n", "e").registry.render().decode()
    for reason in REASONS:
        assert f'errors_total{{namespace="n",endpoint="e",reason="{reason}"}} 0' in text


@pytest.mark.parametrize(
    ("error", "words", "refused"),
    [
        (ConnectionRefusedError(111, "x"), "cannot connect: Connection refused", True),
        (TimeoutError(110, "x"), "cannot connect: Connection timed out", False),
        # A name with several addresses: loops put all into one text.
        (
            OSError("Multiple exceptions: [Errno 111] ('::1', 1), [Errno 111] ('127.0.0.1', 1)"),
            "cannot connect: Connection refused",
            True,
        ),
        (
            OSError("Multiple exceptions: [Errno 101] ('::1', 1), [Errno 111] ('127.0.0.1', 1)"),
            "cannot connect: Multiple exceptions",
            False,
        ),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known", False),
    ],
)
def test_connect_failure_reasons(error: OSError, words: str, refused: bool) -> None:
    text, is_refusal = describe_connect_error(error)
    assert words in text
    assert is_refusal is refused
