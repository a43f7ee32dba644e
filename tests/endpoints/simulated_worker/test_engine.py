"""Queueing, disconnects and shutdown."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

from tests.support.simulated import SimulatedWorker
from tests.support.waiting import until

SLOW = 0.01  # a prompt of 100 tokens takes a minute
STEADY = 1.0  # a generated token takes 30 ms


def begin(worker: SimulatedWorker, prompt: int, length: int = 100) -> socket.socket:
    """Send a request, and leave it."""
    requested = {"prompt": [prompt] * length, "max_tokens": 500, "ignore_eos": True, "stream": True}
    body = json.dumps(requested).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
    sock = socket.create_connection(("127.0.0.1", worker.port), timeout=120)
    sock.sendall(head.encode() + body)
    return sock


def test_one_prefill_runs_at_a_time(start: Any) -> None:
    worker = start(speed=SLOW)
    socks = [begin(worker, n) for n in range(3)]
    until(lambda: worker.metric("vllm:num_requests_waiting") == 2)
    assert worker.metric("vllm:num_requests_running") == 1
    assert worker.metric("vllm:num_requests_waiting_by_reason", reason="capacity") == 2
    assert worker.metric("vllm:kv_cache_usage_perc") > 0
    socks[1].close()  # one that waits
    until(lambda: worker.metric("vllm:num_requests_waiting") == 1)
    socks[0].close()  # the one that runs: the next takes its place
    until(lambda: worker.metric("vllm:num_requests_waiting") == 0)
    assert worker.metric("vllm:num_requests_running") == 1
    socks[2].close()
    until(lambda: worker.metric("vllm:num_requests_running") == 0)
    assert worker.metric("vllm:request_success_total", finished_reason="abort") == 3
    assert worker.metric("vllm:kv_cache_usage_perc") == 0


def test_running_sequences_are_limited(start: Any) -> None:
    worker = start("--max-num-seqs", "1", speed=STEADY)
    first = begin(worker, 1, length=2)
    assert b"200 OK" in first.recv(4096)
    second = begin(worker, 2, length=2)
    until(lambda: worker.metric("vllm:num_requests_waiting") == 1)
    first.close()
    assert b"200 OK" in second.recv(4096)
    second.close()


def test_requests_wait_for_blocks_in_use(start: Any) -> None:
    worker = start("--device-blocks", "20", speed=STEADY)
    first = begin(worker, 1, length=2)
    assert b"200 OK" in first.recv(4096)
    second = begin(worker, 2, length=90)
    until(lambda: worker.metric("vllm:num_requests_waiting") == 1)
    first.close()
    assert b"200 OK" in second.recv(4096)
    second.close()


def test_term_completes_streams_and_rejects_new_ones(start: Any) -> None:
    worker = start(speed=STEADY)
    events: list[str] = []
    begun = threading.Event()

    def read() -> None:
        for event in worker.stream("/v1/completions", {"prompt": "x", "max_tokens": 100}):
            events.append(event)
            begun.set()

    reading = threading.Thread(target=read)
    reading.start()
    assert begun.wait(60)
    worker.terminate()
    until(lambda: worker.get("/health")[0] == 503)
    status, answer = worker.post("/v1/completions", {"prompt": "y"})
    assert status == 503
    assert answer["error"]["type"] == "ServiceUnavailableError"
    reading.join(60)
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["choices"][0]["finish_reason"] in ("length", "stop")
    assert worker.process.wait(60) == 0


def test_term_without_requests_exits_at_once(start: Any) -> None:
    worker = start()
    idle = worker.connect()
    idle.request("GET", "/health")
    idle.getresponse().read()  # kept alive: no reason to wait
    worker.terminate()
    assert worker.process.wait(60) == 0
    idle.close()


def test_term_waits_at_most_its_timeout(start: Any) -> None:
    worker = start("--shutdown-timeout", "0.2", speed=SLOW)
    sock = begin(worker, 1)
    until(lambda: worker.metric("vllm:num_requests_running") == 1)
    worker.terminate()
    assert worker.process.wait(60) == 0
    assert sock.recv(4096) == b""
    sock.close()
    assert "canceled requests" in worker.log.read_text()


def test_slow_reader_is_awaited(start: Any) -> None:
    worker = start("--max-model-len", "200000", "--device-blocks", "8000", speed=1e6)
    body = json.dumps(
        {"prompt": "x", "max_tokens": 150000, "ignore_eos": True, "stream": True}
    ).encode()
    sock = socket.create_connection(("127.0.0.1", worker.port), timeout=60)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    head = f"POST /v1/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
    sock.sendall(head.encode() + body)
    seen = [-1.0, -2.0]

    def stands_still() -> bool:
        seen.append(worker.metric("vllm:generation_tokens_total"))
        return seen[-1] > 100 and seen[-1] == seen[-2] == seen[-3]

    until(stands_still)
    assert seen[-1] < 150000
    sock.close()
    until(lambda: worker.metric("vllm:num_requests_running") == 0)
