"""Tests of the stream checker: complete and incomplete streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bench.router_streams import Client, Worker


class Wire:
    """Transport that records writes."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


async def stream(name: str, events: int = 30) -> bytes:
    """Return a worker's whole response to the client of this name."""
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    requested, answered = Wire(), Wire()
    Client(name, ended).connection_made(requested)
    worker = Worker(events, 0.0)
    worker.connection_made(answered)
    worker.data_received(requested.written)
    while not answered.written.endswith(b"\r\n0\r\n\r\n"):
        await asyncio.sleep(0)
    return answered.written


async def verdict(name: str, answer: bytes, step: int = 1 << 20) -> str:
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    client = Client(name, ended)
    client.connection_made(Wire())
    for at in range(0, len(answer), step):
        client.data_received(answer[at : at + step])
    client.connection_lost(None)
    return await ended


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
async def test_what_arrives_as_it_was_sent_is_whole(step: int) -> None:
    assert await verdict("a", await stream("a"), step) == "whole"


async def test_chunks_may_be_cut_anew() -> None:
    head, _, body = (await stream("a")).partition(b"\r\n\r\n")
    payload = b""
    while body != b"0\r\n\r\n":
        size, _, rest = body.partition(b"\r\n")
        payload, body = payload + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    first = payload.index(b"\n\n") + 2
    pieces = [payload[:first], payload[first:100], payload[100:]]
    again = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    assert await verdict("a", head + b"\r\n\r\n" + again + b"0\r\n\r\n") == "whole"


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def without_a_chunk(data: bytes) -> bytes:
    start = data.index(b'data: {"n":') - 4
    start = data.rindex(b"\r\n", 0, start + 2) + 2
    end = data.index(b"\n\n\r\n", start) + 4
    return data[:start] + data[end:]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (flip(600), "altered"),
        (flip(-40), "altered"),
        (without_a_chunk, "altered"),
        (lambda data: data[:-1], "lost"),
        (lambda data: data[:700], "lost"),
        (lambda data: data + b"x", "altered"),
        (lambda _: b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "refused"),
    ],
)
async def test_what_does_not_is_not(change: Callable[[bytes], bytes], expected: str) -> None:
    assert (await verdict("a", change(await stream("a")))).startswith(expected)


async def test_anothers_stream_is_not_ours() -> None:
    assert await verdict("a", await stream("b")) == "altered: another stream's"
