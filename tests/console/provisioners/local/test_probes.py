"""Probes of servers that respond, refuse, drip, hang up or stay silent."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from console.provisioners.local.probes import LATE, OK, ProbeTarget, probe_targets

Behaviour = Callable[[socket.socket, threading.Event], None]


@contextmanager
def server(behave: Behaviour) -> Iterator[int]:
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with client:
                client.recv(4096)
                with suppress(OSError):
                    behave(client, done)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        done.set()
        thread.join(10)


def send_bytes(data: bytes) -> Behaviour:
    return lambda client, done: client.sendall(data)


def drip(client: socket.socket, done: threading.Event) -> None:
    while not done.wait(0.01):
        client.sendall(b"x")


def silence(client: socket.socket, done: threading.Event) -> None:
    done.wait(30)


@pytest.mark.parametrize(
    ("behave", "expected"),
    [
        (send_bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"), OK),
        (send_bytes(b"HTTP/1.0 200\r\n"), OK),
        (send_bytes(b"HTTP/1.1 503 Service Unavailable\r\n\r\n"), "answers 503"),
        (send_bytes(b"HTTP/1.1 2000 OK\r\n\r\n"), "answers 2000"),
        (send_bytes(b"+OK\r\n"), "no HTTP response"),
        (send_bytes(b"HTTP/1.1 OK\r\n"), "no HTTP response"),
        (send_bytes(b"x" * 10_000), "no HTTP response"),
        (send_bytes(b""), "closed without a response"),
        (silence, LATE),
        (drip, LATE),
    ],
)
def test_probe_results(behave: Behaviour, expected: str) -> None:
    with server(behave) as port:
        (answer,) = probe_targets([ProbeTarget("127.0.0.1", port, "/health", 0.5)])
    assert answer.startswith(expected)


def test_connection_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    assert probe_targets([ProbeTarget("127.0.0.1", port, "/", 5.0)]) == ["connection refused"]


def test_concurrent_probes_wait_for_the_slowest_only() -> None:
    good = send_bytes(b"HTTP/1.1 200 OK\r\n\r\n")
    with server(silence) as one, server(silence) as two, server(good) as three:
        targets = [ProbeTarget("127.0.0.1", port, "/", 3.0) for port in (one, two, three)]
        start = time.monotonic()
        answers = probe_targets(targets)
        took_s = time.monotonic() - start
    assert [answer[: len(LATE)] for answer in answers] == [LATE, LATE, OK]
    assert took_s < 5.9  # concurrently


def test_no_probes() -> None:
    assert probe_targets([]) == []
