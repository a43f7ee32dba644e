"""Long values copied by threads: what they use stays theirs until they are done."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from cachetier.engine.config import parse
from cachetier.engine.net.sockets import SocketClient
from cachetier.engine.net.transfer_threads import MIN_BYTES, Copy, TransferThreads
from cachetier.engine.node import Node
from cachetier.engine.server import HANDLERS
from cachetier.engine.store import Condition

MIB = 1024 * 1024
VALUE = b"0123456789abcdef" * (MIB // 16)
SET = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % MIB
GET = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
REPLY = b"$%d\r\n" % MIB + VALUE + b"\r\n"


class HeldThreads(TransferThreads):
    """Takes every long copy and runs it when the test does."""

    def __init__(self) -> None:
        super().__init__(4)
        self.copies: list[Copy] = []
        self.directions: set[bool] = set()

    def suits(self, owner: int, length: int, *, is_receiving: bool) -> bool:
        return length >= MIN_BYTES

    def start(self, copy: Copy) -> None:
        self.copies.append(copy)
        self.directions.add(copy.is_receiving)


class Talk:
    """One client of a node in this process."""

    def __init__(self) -> None:
        self.node = Node(parse(("--memory", "64MiB")))
        self.threads = self.node.transfers = HeldThreads()
        mine, self.peer = socket.socketpair()
        mine.setblocking(False)
        self.peer.setblocking(False)
        self.client = SocketClient(mine, self.node, set(), HANDLERS)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.peer, data)

    async def receive(self, count: int) -> bytes:
        got = bytearray()
        while len(got) < count:
            part = await asyncio.get_running_loop().sock_recv(self.peer, count - len(got))
            if not part:
                break
            got += part
        return bytes(got)

    async def copy(self) -> Copy:
        """The next copy that was handed over."""
        while not self.threads.copies:
            await asyncio.sleep(0.001)
        return self.threads.copies.pop(0)

    def store(self) -> None:
        now = time.monotonic()
        self.node.store.put(b"k", VALUE, now=now, ttl_s=None, condition=Condition.ALWAYS)

    @property
    def used(self) -> int:
        return self.node.store.usage().used_bytes


@pytest.fixture
async def talk() -> Talk:
    return Talk()


@contextlib.asynccontextmanager
async def running(talk: Talk) -> AsyncIterator[None]:
    """Copies run on other threads as they are handed over."""

    async def run() -> None:
        while True:
            copy = await talk.copy()
            await asyncio.to_thread(copy.run, lambda: False)
            copy.done(copy)

    task = asyncio.create_task(run())
    yield
    task.cancel()


async def test_a_value_goes_through_threads_both_ways(talk: Talk) -> None:
    async with asyncio.timeout(60), running(talk):
        sending = asyncio.create_task(talk.send(SET + VALUE + b"\r\n" + GET))
        assert await talk.receive(5 + len(REPLY)) == b"+OK\r\n" + REPLY
        await sending
        assert talk.threads.directions == {True, False}


async def test_memory_of_a_closed_client_is_kept_until_its_copy_ends(talk: Talk) -> None:
    async with asyncio.timeout(60):
        await talk.send(SET + VALUE[:100_000])
        receiving = await talk.copy()
        talk.client.abort()
        assert talk.node.store.usage().receiving_bytes == MIB
        assert await talk.receive(1) == b"", "the client is cut off at once"
        receiving.run(lambda: False)
        assert receiving.moved < receiving.length, "the thread does not wait for the rest"
        receiving.done(receiving)
        assert (talk.used, talk.node.sessions) == (0, {})


async def test_a_value_being_sent_stays_when_it_is_dropped_and_its_client_killed(
    talk: Talk,
) -> None:
    talk.store()
    async with asyncio.timeout(60):
        await talk.send(GET)
        sending = await talk.copy()
        talk.node.store.drop(b"k", time.monotonic())
        talk.client.abort()
        assert talk.used > MIB
        assert b"".join(sending.buffers)[-MIB - 2 : -2] == VALUE
        sending.done(sending)
        assert (talk.used, talk.node.sessions) == (0, {})


async def test_requests_behind_a_copy_wait_for_it(talk: Talk) -> None:
    talk.store()
    async with asyncio.timeout(60):
        await talk.send(GET + b"EXISTS k\r\n")
        sending = await talk.copy()
        talk.client.resume()
        await asyncio.sleep(0)
        with pytest.raises(BlockingIOError):
            talk.peer.recv(1)
        talk.threads.copies.append(sending)
        async with running(talk):
            assert await talk.receive(len(REPLY) + 4) == REPLY + b":1\r\n"


async def test_a_client_that_reads_nothing_is_left_to_the_event_loop(talk: Talk) -> None:
    talk.store()
    async with asyncio.timeout(60):
        await talk.send(GET * 3)
        sending = await talk.copy()
        while sending.moved < sending.length:
            await asyncio.to_thread(sending.run, lambda: False)
            before, length = sending.moved, sending.length
            sending.done(sending)
            if before < length:
                break
            sending = await talk.copy()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not talk.threads.copies, "handed over again although the socket is full"
        talk.client.abort()


async def test_a_reset_during_a_copy_ends_the_connection(talk: Talk) -> None:
    talk.store()
    async with asyncio.timeout(60):
        await talk.send(GET)
        sending = await talk.copy()
        talk.peer.close()
        sending.run(lambda: False)
        assert sending.failed
        sending.done(sending)
        assert talk.node.sessions == {}


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def receive(sock: socket.socket, length: int) -> tuple[Copy, bytearray]:
    target = bytearray(length)
    return Copy(sock, [memoryview(target)], length, True, lambda _copy: None), target


def test_a_copy_ends_when_idle_and_goes_on_where_it_ended(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    copy, target = receive(pair[0], 10)
    pair[1].send(b"abc")
    copy.run(lambda: False)
    assert (copy.moved, copy.has_ended, copy.failed) == (3, False, False)
    pair[1].send(b"defghij")
    copy.run(lambda: False)
    assert (copy.moved, bytes(target)) == (10, b"abcdefghij")


def test_a_copy_ends_with_the_stream(pair: tuple[socket.socket, socket.socket]) -> None:
    copy, _ = receive(pair[0], 10)
    pair[1].close()
    copy.run(lambda: False)
    assert (copy.moved, copy.has_ended) == (0, True)


def test_only_clients_that_transfer_at_once_are_handed_over() -> None:
    threads = TransferThreads(4)
    assert not threads.suits(1, MIB, is_receiving=True), "nobody else before"
    assert not threads.suits(1, MIB, is_receiving=True), "still the only one"
    threads._last_at = time.monotonic() + 60  # as if it were just now, however slow the machine
    assert threads.suits(2, MIB, is_receiving=True)
    assert not threads.suits(2, MIN_BYTES - 1, is_receiving=True)


@pytest.mark.parametrize(("count", "sends", "receives"), [(0, False, False), (2, True, False)])
def test_threads_by_cores(count: int, sends: bool, receives: bool) -> None:
    threads = TransferThreads(count)
    for is_receiving, expected in ((False, sends), (True, receives)):
        threads._last_owner, threads._last_at = 1, time.monotonic() + 60
        assert threads.suits(2, MIB, is_receiving=is_receiving) is expected


async def test_copies_run_on_threads_and_end_on_the_event_loop() -> None:
    threads = TransferThreads(2)
    ended: list[int] = []
    here = threading.get_ident()
    pairs = [socket.socketpair() for _ in range(6)]
    async with asyncio.timeout(60):
        for ours, theirs in pairs:
            ours.setblocking(False)
            theirs.send(b"abc")
            done = lambda _copy: ended.append(threading.get_ident())  # noqa: E731
            threads.start(Copy(ours, [memoryview(bytearray(3))], 3, True, done))
        assert threads.suits(1, MIB, is_receiving=False), "copies are running"
        while len(ended) < len(pairs):
            await asyncio.sleep(0.001)
    assert set(ended) == {here}
    assert len(threads._threads) == 2
    threads.close()
    for thread in threads._threads:
        thread.join(30)
        assert not thread.is_alive()
    for both in pairs:
        for sock in both:
            sock.close()
