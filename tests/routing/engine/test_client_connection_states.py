"""Any order of events on a client's and its workers' connections, found by hypothesis.

The protocol objects are the real ones, over transports which only remember. Whatever happens in
whatever order: nothing raises, load comes back to nothing, a kept connection is clean, what the
client got parses (as h11 reads it), and an answer counted as good is whole.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from bench.fuzz import reference
from bench.fuzz.wires import World
from routing.engine.fleet.worker_connection import WorkerConnection

POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n"
FROM_CLIENT = (
    POST + b"content-length: 2\r\n\r\n{}",
    POST + b"content-length: 2\r\n\r\n{}" + POST + b"content-length: 2\r\n\r\n[]",
    POST + b"expect: 100-continue\r\ncontent-length: 4\r\n\r\n",
    b"null",
    POST + b"content-length: 400\r\n\r\n" + b"x" * 390,
    b"y" * 10,
    POST + b"transfer-encoding: chunked\r\n\r\n",
    b"190\r\n" + b"x" * 400 + b"\r\n",
    b"0\r\n\r\n",
    b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n",
    b"HEAD /x HTTP/1.1\r\nhost: a\r\n\r\n",
    b"GET /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
    b"GET /x HTTP/1.0\r\n\r\n",
    b"\r\n",
    b"nonsense\r\n\r\n",
)
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
FROM_WORKER = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n",
    b"ok",
    EVENTS + b"transfer-encoding: chunked\r\n\r\n",
    b"a\r\ndata: {}\n\n\r\n",
    b"a\r\ndata: ",
    b"{}\n\n\r\n",
    b"0\r\n\r\n",
    EVENTS + b"\r\ndata: {}\n\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 204 No\r\n\r\n",
    b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 413 Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    b"nonsense\r\n\r\n",
)


GOOD = (  # whole answers, and streams which have begun
    FROM_WORKER[0],
    FROM_WORKER[3] + FROM_WORKER[4],
    FROM_WORKER[3] + FROM_WORKER[4] + FROM_WORKER[7],
    FROM_WORKER[8],
)
CUTS = st.sampled_from((0, 0, 0, 1, 7, 60))  # 0: all of it
RARELY = st.sampled_from((False, False, False, True))
NUMBERS = st.integers(0, 9)


class Connections(RuleBasedStateMachine):
    """One client and two workers of one router."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.patches = [
            patch.object(module, "perf_counter", lambda: self.now)
            for name, module in sorted(sys.modules.items())
            if name.startswith("routing.engine.") and hasattr(module, "perf_counter")
        ]
        for one in self.patches:
            one.start()
        self.world = World(workers=2)
        self.paused = False
        self.lost: set[int] = set()

    # -- what can happen

    @initialize(data=st.sampled_from((*FROM_CLIENT[:2] * 4, *FROM_CLIENT)))
    def a_request_comes_first(self, data: bytes) -> None:
        self.world.client.data_received(data)
        self.world.turn()

    @precondition(lambda self: self.reads())
    @rule(data=st.sampled_from(FROM_CLIENT), cut=CUTS)
    def the_client_sends(self, data: bytes, cut: int) -> None:
        self.world.client.data_received(data[:cut] or data)

    @precondition(lambda self: self.reads())
    @rule(data=st.sampled_from(FROM_CLIENT[:2]))
    def the_client_asks_and_is_connected(self, data: bytes) -> None:
        self.world.client.data_received(data)
        self.world.turn()

    @precondition(lambda self: self.reads() and not self.world.client._end_sent)
    @rule(now=RARELY)
    def the_client_ends_its_side(self, now: bool) -> None:
        if now and not self.world.client.eof_received():
            self.world.out.close()

    @precondition(lambda self: not self.world.lost)
    @rule(now=RARELY)
    def the_client_is_gone(self, now: bool) -> None:
        if now:
            self.world.out.abort()

    @precondition(lambda self: not self.world.lost and not self.world.out.closing)
    @rule()
    def the_client_reads_slowly_or_again(self) -> None:
        self.paused = not self.paused
        client = self.world.client
        (client.pause_writing if self.paused else client.resume_writing)()

    @precondition(lambda self: not self.world.lost and not self.world.out.closing)
    @rule()
    def the_next_byte_fills_the_clients_buffer(self) -> None:
        self.world.out.on_write = self.fill

    def fill(self) -> None:
        if not self.paused:
            self.paused = True
            self.world.client.pause_writing()

    @rule()
    def connections_are_made(self) -> None:
        self.world.turn()

    @rule(refused=st.booleans())
    def connections_fail(self, refused: bool) -> None:
        for pool in self.world.pools:
            tasks, pool.tasks = pool.tasks, []
            for task in tasks:
                if task.run is not None:
                    task.failed("cannot connect", refused)

    @precondition(lambda self: self.open())
    @rule(data=st.sampled_from(FROM_WORKER), number=NUMBERS, cut=CUTS)
    def a_worker_sends(self, data: bytes, number: int, cut: int) -> None:
        connection = self.busy_or_open()[number % len(self.busy_or_open())]
        if not connection.transport.paused:
            connection.data_received(data[:cut] or data)

    @precondition(lambda self: self.open())
    @rule(number=NUMBERS, data=st.sampled_from(GOOD))
    def a_worker_answers_well(self, number: int, data: bytes) -> None:
        connection = self.busy_or_open()[number % len(self.busy_or_open())]
        if not connection.transport.paused:
            connection.data_received(data)

    @precondition(lambda self: self.open())
    @rule(number=NUMBERS, clean=st.booleans(), now=RARELY)
    def a_worker_ends(self, number: int, clean: bool, now: bool) -> None:
        if not now:
            return
        connection = self.busy_or_open()[number % len(self.busy_or_open())]
        connection.transport.close()
        self.lose(connection, None if clean else ConnectionResetError())

    @precondition(lambda self: self.open())
    @rule(number=NUMBERS, paused=st.booleans())
    def a_worker_reads_slowly_or_again(self, number: int, paused: bool) -> None:
        connection = self.open()[number % len(self.open())]
        (connection.pause_writing if paused else connection.resume_writing)()

    @rule(later=st.sampled_from((0.0, 0.0, 0.0, 20.0, 400.0, 4000.0)))
    def time_passes(self, later: float) -> None:
        self.now += later
        if not self.world.lost:
            self.world.client.tick(self.now)
        self.world.router.table.tick(self.now)
        for pool in self.world.pools:
            pool.tick(self.now)

    @rule()
    def workers_recover(self) -> None:
        for worker in self.world.workers:
            self.world.router.table.probed(worker, "", False, 1)

    # -- what a loop does by itself

    def reads(self) -> bool:
        out = self.world.out
        return not (self.world.lost or out.closing or out.paused or self.world.client._end_sent)

    def open(self) -> list[WorkerConnection]:
        return [
            connection
            for pool in self.world.pools
            for connection in pool.connections
            if not connection.transport.closing
        ]

    def busy_or_open(self) -> list[WorkerConnection]:
        """Those with a request, if there are any; bytes on others are rarer."""
        return [one for one in self.open() if one._receiver is not None] or self.open()

    def lose(self, connection: WorkerConnection, error: Exception | None) -> None:
        if id(connection) not in self.lost:
            self.lost.add(id(connection))
            connection.connection_lost(error)

    @invariant()
    def closed_connections_are_told(self) -> None:
        world = self.world
        for pool in world.pools:
            for connection in pool.connections:
                if connection.transport.closing:
                    self.lose(connection, None)
        if world.out.closing and not world.lost:
            world.lost = True
            world.client.connection_lost(None)

    # -- what must hold

    @invariant()
    def load_is_that_of_the_request_in_hand(self) -> None:
        in_flight = [worker.in_flight for worker in self.world.workers]
        assert all(count >= 0 for count in in_flight)
        assert sum(in_flight) <= 1
        if self.world.client._exchange is None:
            assert sum(in_flight) == 0
            assert all(worker.load == 0 for worker in self.world.workers)

    @invariant()
    def kept_connections_are_clean(self) -> None:
        for pool in self.world.pools:
            for connection in pool.idle:
                assert connection._receiver is None
                assert not connection._paused
                assert not connection.transport.paused
                asked, rest = reference.requests(bytes(connection.transport.written))
                assert (len(asked), rest) == (connection.uses, ""), "a request is not whole"

    @invariant()
    def what_the_client_got_parses(self) -> None:
        world = self.world
        methods = [head.method for head in world.router.heads]
        ended = world.out.closing and not world.out.aborted
        found, rest = reference.answers(bytes(world.out.written), [*methods, b"GET"], ended)
        assert rest in ("", "nothing", "unfinished", "closed", "ended"), rest
        assert all(answer.whole for answer in found[:-1])
        good = [one for one in world.router.ring.newest(99) if one.error == "" and one.duration_s]
        assert sum(answer.whole for answer in found) >= len(good), "counted as good, is not whole"

    def teardown(self) -> None:
        world = self.world
        world.end()
        for one in self.patches:
            one.stop()
        self.closed_connections_are_told()
        self.load_is_that_of_the_request_in_hand()
        assert world.client._exchange is None
        for connection in self.open():
            assert connection._receiver is None, "nobody is left to answer, and it goes on"


TestConnections: Any = Connections.TestCase
TestConnections.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


def test_client_pause_is_no_worker_timeout() -> None:
    """While the client does not read, the worker may not write."""
    machine = Connections()
    client = machine.world.client
    try:
        machine.a_request_comes_first(FROM_CLIENT[0])
        machine.a_worker_answers_well(0, GOOD[1])
        machine.the_client_reads_slowly_or_again()
        machine.now += 299.0
        client.tick(machine.now)
        machine.the_client_reads_slowly_or_again()
        machine.now += 299.0  # the worker has its full time from here on
        client.tick(machine.now)
        assert client._exchange is not None
        machine.now += 2.0
        client.tick(machine.now)
        assert client._exchange is None
    finally:
        machine.teardown()


def test_full_client_buffer_pauses_no_kept_connection() -> None:
    """Found by the machine above: an answer without a body fills the client's buffer when the
    worker's connection has been given back already. Whoever got it next would wait for ever."""
    state = Connections()
    try:
        state.a_request_comes_first(
            data=b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}"
        )
        state.the_next_byte_fills_the_clients_buffer()
        state.a_worker_sends(cut=0, data=b"HTTP/1.1 204 No\r\n\r\n", number=0)
        assert any(pool.idle for pool in state.world.pools)
        state.kept_connections_are_clean()
    finally:
        state.teardown()
