"""Requests to our own processes, against misbehaving servers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest

from console.core.fetch import TooLargeError, fetch
from tests.support.ports import free_port


@contextmanager
def server(first: bytes, drips: bytes = b"") -> Iterator[str]:
    """Serve one connection: `first`, then a drip every 20 ms until it closes."""
    over = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            caller, _ = listening.accept()
            with caller:
                caller.recv(65536)
                caller.sendall(first)
                while drips and not over.wait(0.02):
                    caller.sendall(drips)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/metrics"
    finally:
        over.set()
        listening.close()
        thread.join(10)


HEAD = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"


def test_complete_response() -> None:
    with server(b"HTTP/1.1 503 No\r\ncontent-length: 5\r\n\r\nlater") as url:
        assert fetch("GET", url, deadline_s=30, max_bytes=5) == (503, b"later")


def test_endless_slow_response_is_abandoned() -> None:
    with server(HEAD, b"x") as url, pytest.raises(httpx.TimeoutException):
        fetch("GET", url, deadline_s=0.3, max_bytes=10**9)


def test_endless_fast_response_is_abandoned() -> None:
    with server(HEAD, b"x" * 65536) as url, pytest.raises(TooLargeError):
        fetch("GET", url, deadline_s=30, max_bytes=100_000)


@pytest.mark.parametrize("url", ["http://.bad./metrics", "http://[::1/metrics", "nothing"])
def test_invalid_url_is_an_httpx_error(url: str) -> None:
    with pytest.raises((httpx.HTTPError, httpx.InvalidURL)):
        fetch("GET", url, deadline_s=30, max_bytes=10)


def test_closed_port_is_distinguished_from_silence() -> None:
    with pytest.raises(httpx.ConnectError):
        fetch("GET", f"http://127.0.0.1:{free_port()}/", deadline_s=30, max_bytes=10)
