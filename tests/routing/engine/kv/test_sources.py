"""Event sources of a worker, and reasons for missing ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from routing.engine.kv.sources import (
    EventSource,
    SourceError,
    configured_sources,
    discovered_sources,
    resolve_endpoint,
)


def ask(data: Any, status: int = 200, host: str = "10.0.0.7") -> list[EventSource]:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    return discovered_sources(status, body, host)


# As captured from vLLM 0.32.
ANSWER = {
    "0": {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": "tcp://*:8103",
        "replay_endpoint": "tcp://*:8104",
        "buffer_steps": 1000,
        "hwm": 100000,
        "max_queue_size": 100000,
        "topic": "kv@w1@smollm2",
    }
}


def test_wildcard_address_is_the_host_of_the_worker() -> None:
    assert ask(ANSWER) == [EventSource(0, "tcp://10.0.0.7:8103", "tcp://10.0.0.7:8104")]
    assert ask(ANSWER, host="fd00::7")[0].events == "tcp://[fd00::7]:8103"


def test_each_rank_has_its_own_source() -> None:
    ranks = {str(rank): {"endpoint": f"tcp://*:{9000 + rank}"} for rank in range(3)}
    assert [(item.rank, item.events[-4:], item.replay) for item in ask(ranks)] == [
        (0, "9000", ""),
        (1, "9001", ""),
        (2, "9002", ""),
    ]


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("tcp://*:5557", "tcp://h:5557"),
        ("tcp://[::]:5557", "tcp://h:5557"),
        ("tcp://:::5557", "tcp://h:5557"),
        ("tcp://10.1.2.3:40001", "tcp://10.1.2.3:40001"),  # bound to a port the kernel chose
        ("tcp://[fe80::1]:5557", "tcp://[fe80::1]:5557"),
        ("ipc:///run/kv", "ipc:///run/kv"),
        ("ipc://@kv", "ipc://@kv"),
    ],
)
def test_endpoints(endpoint: str, expected: str) -> None:
    assert resolve_endpoint(endpoint, "h") == expected


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        ("inproc://cache", "endpoint_unusable"),
        ("tcp://*", "endpoint_unusable"),
        ("tcp://*:0", "endpoint_unusable"),
        ("tcp://*:70000", "endpoint_unusable"),
        ("ipc://", "endpoint_unusable"),
        ("ipc://kv-events.sock", "endpoint_unusable"),
        ("", "endpoint_unusable"),
        ("tcp://0.0.0.0:5557", "endpoint_dials_out"),
    ],
)
def test_invalid_endpoints_are_rejected(endpoint: str, reason: str) -> None:
    with pytest.raises(SourceError) as caught:
        resolve_endpoint(endpoint, "h")
    assert caught.value.reason == reason
    assert "tcp://*:PORT" in str(caught.value) or "ipc:///FOLDER" in str(caught.value)


@pytest.mark.parametrize(
    ("data", "status", "reason"),
    [
        ({}, 200, "events_off"),
        ({"0": {"enable_kv_cache_events": False, "endpoint": "tcp://*:1"}}, 200, "events_off"),
        ({"0": {"publisher": "null", "endpoint": "tcp://*:1"}}, 200, "events_off"),
        ({"detail": "Not Found"}, 404, "discovery_missing"),
        ({"error": "x"}, 503, "discovery_failed"),
        (b"<html>", 200, "discovery_failed"),
        ([1], 200, "discovery_failed"),
        ({"a": {}}, 200, "discovery_failed"),
        ({"0": 7}, 200, "discovery_failed"),
        ({"0": {"endpoint": None}}, 200, "discovery_failed"),
        ({str(rank): {} for rank in range(2000)}, 200, "discovery_failed"),
    ],
)
def test_responses_without_sources(data: Any, status: int, reason: str) -> None:
    with pytest.raises(SourceError) as caught:
        ask(data, status)
    assert caught.value.reason == reason


def test_publisher_without_history_has_no_replay() -> None:
    answer = {"0": {**ANSWER["0"], "buffer_steps": 0}}
    assert ask(answer)[0].replay == ""


def test_from_flags() -> None:
    assert configured_sources(["tcp://*:1", "tcp://x:2"], ["tcp://*:3"], "h") == [
        EventSource(0, "tcp://h:1", "tcp://h:3"),
        EventSource(1, "tcp://x:2"),
    ]
    assert configured_sources(["bind:tcp://*:5557"], [], "h") == [
        EventSource(0, "tcp://*:5557", "", True)
    ]
    with pytest.raises(SourceError):
        configured_sources(["bind:udp://x"], [], "h")
