"""Probes of servers that respond, refuse, drip, hang up or stay silent."""

from __future__ import annotations

import socket
import threading
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
        limit_s = 0.5 if expected == LATE else 60.0
        (answer,) = probe_targets([ProbeTarget("127.0.0.1", port, "/health", limit_s)])
    assert answer.startswith(expected)


def test_connection_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    assert probe_targets([ProbeTarget("127.0.0.1", port, "/", 5.0)]) == ["connection refused"]


def test_probes_are_concurrent() -> None:
    all_asked = threading.Barrier(3)

    def once_all_are_asked(client: socket.socket, done: threading.Event) -> None:
        with suppress(threading.BrokenBarrierError):
            all_asked.wait(60)
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

    ports = [server(once_all_are_asked) for _ in range(3)]
    with ports[0] as one, ports[1] as two, ports[2] as three:
        targets = [ProbeTarget("127.0.0.1", port, "/", 60.0) for port in (one, two, three)]
        assert probe_targets(targets) == [OK, OK, OK]


def test_no_probes() -> None:
    assert probe_targets([]) == []
