"""HTTP parsing at any split, and connections of a real server."""

from __future__ import annotations

import asyncio
import http.client
import socket

import pytest

from endpoints.simulated_worker.http import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    BadRequestError,
    Request,
    read_request,
)
from tests.support.simulated import SimulatedWorker

POST = b"POST /v1/x?a=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
)
GET = b"GET / HTTP/1.0\r\n\r\n"


def parse(*parts: bytes) -> list[Request]:
    async def feed(reader: asyncio.StreamReader) -> None:
        for part in parts:
            reader.feed_data(part)
            await asyncio.sleep(0)
        reader.feed_eof()

    async def read() -> list[Request]:
        reader = asyncio.StreamReader(MAX_HEAD_BYTES)
        feeding = asyncio.create_task(feed(reader))
        found = []
        while (request := await read_request(reader, lambda _: None)) is not None:
            found.append(request)
        await feeding
        return found

    return asyncio.run(read())


CASES = [(POST, "/v1/x", b"hello", True), (CHUNKED, "/c", b"abcde", True), (GET, "/", b"", False)]


@pytest.mark.parametrize(("data", "path", "body", "keep_alive"), CASES)
def test_requests(data: bytes, path: str, body: bytes, keep_alive: bool) -> None:
    (whole,) = parse(data)
    assert (whole.path, whole.body, whole.keep_alive) == (path, body, keep_alive)
    assert parse(*(data[i : i + 1] for i in range(len(data)))) == [whole]
    assert parse(data + data[:7]) == [whole]
    assert parse(data + POST) == [whole, *parse(POST)]
    assert all(not parse(data[:cut]) for cut in range(len(data)))


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA : b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1), 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n", 413),
        (b"GET / HTTP/1.1\r\nA: " + b"x" * 70_000, 431),
    ],
)
def test_invalid_requests(data: bytes, status: int) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse(data)
    assert caught.value.status == status


def test_pipelined_requests_are_answered_in_order(worker: SimulatedWorker) -> None:
    asks = [b"GET /%s HTTP/1.1\r\n\r\n" % path for path in (b"version", b"v1/models", b"nothing")]
    last = b"GET /kv_event_sources HTTP/1.1\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", worker.port), timeout=60) as sock:
        sock.sendall(b"".join(asks) * 20 + last)
        data = b"".join(iter(lambda: sock.recv(65536), b""))
    assert data.count(b"HTTP/1.1 200 OK") == 41
    assert data.count(b"HTTP/1.1 404 Not Found") == 20
    assert data.endswith(b"\r\n\r\n{}")


def test_invalid_request_closes_the_connection(worker: SimulatedWorker) -> None:
    with socket.create_connection(("127.0.0.1", worker.port), timeout=60) as sock:
        sock.sendall(b"GET /version HTTP/1.1\r\n\r\nrubbish\r\n\r\n")
        data = b"".join(iter(lambda: sock.recv(65536), b""))
    assert data.startswith(b"HTTP/1.1 200 OK")
    assert b"HTTP/1.1 400 Bad Request" in data


def test_expect_continue_and_chunked_bodies(worker: SimulatedWorker) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nContent-Length: 28\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection(("127.0.0.1", worker.port), timeout=60) as sock:
        sock.sendall(head)
        assert sock.recv(100).startswith(b"HTTP/1.1 100 Continue")
        sock.sendall(b'{"prompt":"x","max_tokens":1}'[:28])
        assert b"400 Bad Request" in sock.recv(4096)  # one byte short: no JSON
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=60)
    connection.request("POST", "/v1/completions", iter([b'{"prompt"', b':"x"}']))
    assert connection.getresponse().status == 200
    connection.close()
