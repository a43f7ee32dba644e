"""Long bodies received in parts: whole, in sync with what follows, within the deadline."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from cachetier.client.address import Address
from cachetier.client.connection import Connection, TimedOutError, UnreachableError

BODY = os.urandom(1_500_001)
FAR_S = 30.0


@pytest.fixture
def ends() -> Iterator[tuple[Connection, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address.parse(f"redis://127.0.0.1:{server.getsockname()[1]}/0")
        connection = Connection(address, "", time.monotonic() + FAR_S)
        node, _ = server.accept()
        with node:
            yield connection, node
        connection.close()


@pytest.mark.parametrize("cut", [1, 600_000, len(BODY) - 1, len(BODY), len(BODY) + 1])
def test_replies_are_in_sync_wherever_the_first_is_cut(
    ends: tuple[Connection, socket.socket], cut: int
) -> None:
    connection, node = ends
    reply = BODY + b"\r\n:7\r\n$%d\r\n" % len(BODY) + BODY + b"\r\n:8\r\n"
    requested = threading.Event()

    def serve() -> None:
        node.sendall(b"$%d\r\n" % len(BODY) + reply[:cut])
        requested.wait(FAR_S)
        node.sendall(reply[cut:])

    thread = threading.Thread(target=serve)
    thread.start()
    deadline = time.monotonic() + FAR_S
    for number in (7, 8):
        assert connection.read_bulk_length(deadline) == len(BODY)
        requested.set()
        target = bytearray(len(BODY))
        connection.read_into(memoryview(target), deadline)
        connection.end_bulk(deadline)
        assert target == BODY
        assert connection.read_integer(deadline) == number
    thread.join()


def test_a_body_that_stops_ends_at_the_deadline(ends: tuple[Connection, socket.socket]) -> None:
    connection, node = ends
    node.sendall(BODY[:600_000])
    with pytest.raises(TimedOutError):
        connection.read_into(memoryview(bytearray(len(BODY))), time.monotonic() + 0.1)


@pytest.mark.parametrize("by", ["node", "client"])
def test_a_body_that_is_broken_off(ends: tuple[Connection, socket.socket], by: str) -> None:
    connection, node = ends
    node.sendall(BODY[:600_000])
    stop = node.close if by == "node" else connection.abort
    timer = threading.Timer(0.02, stop)
    timer.start()
    with pytest.raises(UnreachableError):
        connection.read_into(memoryview(bytearray(len(BODY))), time.monotonic() + FAR_S)
    timer.join()
