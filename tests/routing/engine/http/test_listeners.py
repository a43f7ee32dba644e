"""Listening sockets: families, names, and errors with a remedy."""

from __future__ import annotations

import asyncio
import gc
import socket
from typing import cast

import pytest

from routing.engine.config import Address
from routing.engine.http.listeners import Listener, StartError
from tests.support.ports import free_port


class Hello(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        there = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        there.write(b"hello")
        there.close()


async def hello(host: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        return await reader.read(-1)
    finally:
        writer.close()


async def test_both_wildcards_share_a_port() -> None:
    """An address is of one family, whatever the machine's default is."""
    # The one of `bind(0)` is free for IPv6 only: another process may listen on it with IPv4.
    six = Listener(Address("::", free_port()), Hello, 16)
    await six.open()
    with pytest.raises(ConnectionRefusedError):
        await hello("127.0.0.1", six.address.port)
    four = Listener(Address("0.0.0.0", six.address.port), Hello, 16)
    await four.open()
    for host in ("127.0.0.1", "::1"):
        assert await hello(host, six.address.port) == b"hello"
    four.close()
    six.close()
    with pytest.raises(ConnectionRefusedError):
        await hello("::1", six.address.port)


async def test_hostname_listens_on_all_its_addresses() -> None:
    named = Listener(Address("localhost", 0), Hello, 16)
    await named.open()
    assert named.address.port > 0
    assert await hello("localhost", named.address.port) == b"hello"
    named.close()


async def test_connection_accepted_just_before_a_renewal_is_served() -> None:
    listener = Listener(Address("127.0.0.1", 0), Hello, 16)
    await listener.open()
    renewal = asyncio.create_task(listener.renew(None))
    gc.disable()  # it would close a connection that was dropped
    try:
        with socket.create_connection(("127.0.0.1", listener.address.port)) as client:
            await renewal
            client.setblocking(False)
            got = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 9), 60)
    finally:
        gc.enable()
    assert got == b"hello"
    listener.close()


async def test_renewing_listeners_refuses_no_connection() -> None:
    listener = Listener(Address("127.0.0.1", 0), Hello, 16)
    await listener.open()
    for _ in range(20):
        requested = asyncio.gather(*(hello("127.0.0.1", listener.address.port) for _ in range(5)))
        await listener.renew(None)
        assert await requested == [b"hello"] * 5
    assert len(listener._servers) == 1
    listener.close()


@pytest.mark.parametrize("host", ["203.0.113.1", "does-not-exist.invalid"])
async def test_unusable_addresses_are_reported(host: str) -> None:
    with pytest.raises(StartError, match="Choose another address"):
        await Listener(Address(host, 1), Hello, 16).open()


async def test_port_in_use_is_reported() -> None:
    first = Listener(Address("127.0.0.1", 0), Hello, 16)
    await first.open()
    with pytest.raises(StartError, match="cannot listen on 127"):
        await Listener(first.address, Hello, 16).open()
    first.close()


def connected(port: int) -> socket.socket:
    """Connect without letting the loop run: the connection stays in a listener's queue."""
    return socket.create_connection(("127.0.0.1", port))


async def replies(clients: list[socket.socket]) -> list[bytes]:
    loop = asyncio.get_running_loop()
    for client in clients:
        client.setblocking(False)
    found = [await loop.sock_recv(client, 16) for client in clients]
    for client in clients:
        client.close()
    return found


async def test_listeners_of_one_port_serve_it_until_the_last_is_closed() -> None:
    first = Listener(Address("127.0.0.1", 0), Hello, 64, reuse_port=True)
    await first.open()
    second = Listener(first.address, Hello, 64, reuse_port=True)
    await second.open()
    port = first.address.port
    queued = [connected(port) for _ in range(40)]
    await first.close_drained()
    assert await replies(queued) == [b"hello"] * 40
    assert await replies([connected(port) for _ in range(20)]) == [b"hello"] * 20
    await second.close_drained()
    with pytest.raises(ConnectionRefusedError):
        connected(port)


async def test_shared_port_is_closed_to_other_listeners() -> None:
    first = Listener(Address("127.0.0.1", 0), Hello, 16, reuse_port=True)
    await first.open()
    with pytest.raises(StartError, match="cannot listen on 127"):
        await Listener(first.address, Hello, 16).open()
    first.close()
