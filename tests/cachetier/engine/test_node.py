"""Node process: limits, protection, metrics, drain, and standard tools."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from cachetier.engine.config import parse
from cachetier.engine.net import session
from cachetier.engine.node import Node
from cachetier.engine.server import HANDLERS
from cachetier.wire import envelope
from cachetier.wire.envelope import block_key
from tests.cachetier.engine.conftest import Start
from tests.support.cachenode import CacheNode, answers
from tests.support.waiting import until

MIB = 1024 * 1024


def client(node: CacheNode, **options: object) -> redis.Redis:
    return redis.Redis(port=node.port, password=node.password or None, **options)


def block(namespace: str, number: int, size: int = 1000) -> tuple[bytes, bytes]:
    key, body = block_key(namespace, 0, number.to_bytes(4, "big")), os.urandom(size)
    return key, envelope.pack_header(key, body) + body


# -- memory ------------------------------------------------------------------------------------
def test_full_node_evicts_and_never_exceeds_its_capacity(start: Start) -> None:
    node = start(memory="16MiB")
    db = client(node)
    for number in range(60):
        assert db.set(f"k{number}", bytes(MIB))
        assert node.metric("emberline_l2_used_bytes") <= 16 * MIB
    assert db.exists("k59") == 1
    assert db.exists("k0") == 0
    assert node.metric("emberline_l2_evicted_blocks_total", reason="capacity") == 60 - 15
    assert node.metric("emberline_l2_block_age_at_eviction_seconds_count") == 45


def test_oversized_value_is_rejected_with_a_message_and_the_connection_stays(start: Start) -> None:
    node = start(memory="16MiB")
    db = client(node)
    db.set("stays", "1")
    for size in (17, 40):
        with pytest.raises(redis.ResponseError, match=f"{size * MIB} bytes exceeds"):
            db.set("huge", bytes(size * MIB))
    assert db.get("stays") == b"1"
    assert node.metric("emberline_l2_rejected_writes_total", reason="too_large") == 2
    assert node.metric("emberline_l2_operations_total", op="put", result="error") == 2


def test_bytes_being_received_are_bounded_over_all_clients(start: Start) -> None:
    """Two writers that stop half way hold the whole allowance; a third is rejected for now."""
    node = start(memory="32MiB")
    half = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % (8 * MIB) + bytes(MIB)
    stuck = [socket.create_connection(("127.0.0.1", node.port), timeout=60) for _ in range(2)]
    for sock in stuck:
        sock.sendall(half)
    db = client(node)

    def refused() -> bool:
        try:
            db.set("third", bytes(8 * MIB))
        except redis.ResponseError as exc:
            assert "too many bytes are being received" in str(exc)
            return True
        return False

    until(refused, what="backpressure")
    assert node.metric("emberline_l2_rejected_writes_total", reason="backpressure") >= 1
    stuck[0].close()

    def stored() -> bool:
        try:
            return bool(db.set("third", bytes(8 * MIB)))
        except redis.ResponseError:
            return False

    until(stored, what="the allowance given back")
    stuck[1].close()


@pytest.mark.parametrize("commands", [b"GET k\r\n" * 500, b"MGET" + b" k" * 500 + b"\r\n"])
def test_client_that_reads_nothing_blocks_no_other_client(start: Start, commands: bytes) -> None:
    """Its requests wait; neither the node's memory nor other clients pay."""
    node = start(memory="64MiB")
    db = client(node)
    db.set("k", bytes(4 * MIB))
    with socket.create_connection(("127.0.0.1", node.port), timeout=60) as slow:
        slow.sendall(commands)
        until(
            lambda: node.metric("emberline_l2_in_flight_operations", op="get") == 1,
            what="a reply nobody takes",
        )
        assert node.metric("emberline_l2_read_bytes_total") < 50 * 4 * MIB
        assert db.get("k") == bytes(4 * MIB)
        assert _resident_bytes(node) < 300 * MIB
    until(
        lambda: node.metric("emberline_l2_in_flight_operations", op="get") == 0,
        what="the client forgotten",
    )


def _resident_bytes(node: CacheNode) -> int:
    statm = Path(f"/proc/{node.process.pid}/statm").read_text()
    return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_values_expire_without_access(start: Start) -> None:
    node = start()
    client(node).set("k", "v", px=50)
    until(lambda: node.metric("emberline_l2_blocks") == 0, what="the sweep")
    assert node.metric("emberline_l2_evicted_blocks_total", reason="ttl") == 1


# -- blocks ------------------------------------------------------------------------------------
def test_blocks_are_counted_by_namespace(start: Start) -> None:
    node = start()
    db = client(node)
    key, value = block("a" * 32, 1)
    assert db.exists(key) == 0
    db.set(key, value)
    assert db.exists(key) == 1
    assert db.get(key) == value
    db.get("another program's")
    name = "emberline_l2_{}_blocks_total"
    assert node.metric(name.format("lookup"), namespace="a" * 32) == 2
    assert node.metric(name.format("hit"), namespace="a" * 32) == 1
    assert node.metric(name.format("lookup"), namespace="") == 1
    assert node.metric(name.format("hit"), namespace="") == 0


def test_clients_cannot_add_labels_without_bound(start: Start) -> None:
    node = start()
    db = client(node)
    with db.pipeline(transaction=False) as pipe:
        for number in range(300):
            pipe.exists(block_key(f"{number:032x}", 0, b"x"))
        pipe.execute()
    text = node.page("/metrics")
    assert len(re.findall(r"^emberline_l2_lookup_blocks_total", text, re.M)) < 80
    assert node.metric("emberline_l2_lookup_blocks_total", namespace="other") > 200
    assert node.metric("emberline_l2_lookup_blocks_total") == 300


@pytest.mark.parametrize("change", ["cut", "longer", "another's", "no envelope"])
def test_block_with_an_invalid_envelope_is_rejected(start: Start, change: str) -> None:
    node = start()
    db = client(node)
    key, value = block("a" * 32, 1)
    wrong = {
        "cut": value[:-1],
        "longer": value + b"x",
        "another's": block("a" * 32, 2)[1],
        "no envelope": b"hello",
    }[change]
    with pytest.raises(redis.ResponseError, match="envelope"):
        db.set(key, wrong)
    assert db.exists(key) == 0
    assert node.metric("emberline_l2_integrity_failures_total") == 1


# -- people and their tools --------------------------------------------------------------------
def test_flush_all_must_be_allowed(start: Start) -> None:
    kept, dropped = client(start()), client(start("--allow-flush"))
    for db in (kept, dropped):
        db.set("k", "v")
    with pytest.raises(redis.ResponseError, match="allow-flush"):
        kept.flushall()
    assert kept.get("k") == b"v"
    assert dropped.flushall()
    assert dropped.dbsize() == 0


def test_commands_are_counted_by_name(start: Start) -> None:
    db = client(start())
    db.set("k", "v")
    db.get("k")
    db.get("none")
    with pytest.raises(redis.ResponseError):
        db.execute_command("GET", "a", "b")
    requested = db.info("commandstats")
    assert (requested["cmdstat_get"]["calls"], requested["cmdstat_get"]["failed_calls"]) == (3, 1)
    assert requested["cmdstat_set"]["calls"] == 1
    assert "cmdstat_mget" not in requested
    assert "cmdstat_get" not in db.info()
    everything = db.info("everything")
    interpreted = str(session.__file__).endswith(".py")
    assert everything["emberline_compiled"] == ("no" if interpreted else "yes")
    assert everything["cmdstat_get"]["calls"] == 3
    assert everything["total_commands_processed"] >= 6
    assert everything["maxmemory_human"] == "64.00M"


def test_settings_are_shown_without_secrets(start: Start) -> None:
    node = start("--idle-timeout", "600", "--max-clients", "77", password="open sesame")
    reported = client(node).config_get("*")
    assert reported["maxclients"] == "77"
    assert reported["timeout"] == "600"
    assert (reported["port"], reported["tls-port"]) == (str(node.port), "0")
    assert reported["protected-mode"] == "yes"
    assert "sesame" not in str(reported)


def test_large_pipeline_does_not_block_others(start: Start) -> None:
    """One command of a client is answered before all of another client's many."""
    node = start()
    db = client(node)
    with db.pipeline(transaction=False) as pipe:
        for number in range(5000):
            pipe.set(f"k{number}", "")
        pipe.execute()
    with socket.create_connection(("127.0.0.1", node.port), timeout=120) as much:
        much.sendall(b"KEYS x\r\n" * 3000)
        much.recv(1)
        db.ping()
        before = count_lookups(db)
        until(lambda: count_lookups(db) > before, what="the rest of it")


def count_lookups(db: redis.Redis) -> int:
    return int(db.info("commandstats")["cmdstat_keys"]["calls"])


def test_long_request_yields_between_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_TURN_S", -1.0)
    later: list[Callable[[], None]] = []
    node = Node(parse(("--memory", "1MiB")))
    monkeypatch.setattr(node, "soon", later.append)
    out = Out()
    talk = session.ClientSession(node, out, HANDLERS)
    out.resumed = talk.feed
    words = b"MGET" + b" none" * 50 + b"\r\n"
    talk.parser.get_buffer()[: len(words)] = words
    talk.parser.received(len(words))
    talk.feed()
    turns = 0
    while later:
        later.pop()()
        turns += 1
    assert turns >= 50
    assert out.data == b"*50\r\n" + b"$-1\r\n" * 50
    assert talk.is_between_requests()


def test_error_in_a_reply_affects_only_its_client(caplog: pytest.LogCaptureFixture) -> None:
    def broken(talk: session.ClientSession, _words: list[bytes]) -> session.ReplySteps:
        talk.reply(b"*2\r\n")
        yield
        raise ZeroDivisionError

    out = Out()
    talk = session.ClientSession(
        Node(parse(("--memory", "1MiB"))), out, {**HANDLERS, "mget": broken}
    )
    for words in (b"MGET a b\r\n", b"PING\r\n"):
        talk.parser.get_buffer()[: len(words)] = words
        talk.parser.received(len(words))
    talk.feed()
    assert talk.closing
    assert out.data == b"*2\r\n", "nothing after it, which could be taken for the rest of it"
    assert "during its reply" in caplog.text


class Out:
    """A client which takes everything at once."""

    def __init__(self) -> None:
        self.data = b""
        self.resting = False
        self.resumed: Callable[[], None] = lambda: None

    def write(self, data: bytes) -> None:
        self.data += data

    def pending(self) -> int:
        return 0

    def is_behind(self) -> bool:
        return self.resting

    def pause(self) -> None:
        self.resting = True

    def resume(self) -> None:
        self.resting = False
        self.resumed()


# -- connections -------------------------------------------------------------------------------
def test_clients_over_the_limit_get_an_error(start: Start) -> None:
    node = start("--max-clients", "2")
    held = [socket.create_connection(("127.0.0.1", node.port), timeout=60) for _ in range(2)]
    for sock in held:
        sock.sendall(b"PING\r\n")
        assert sock.recv(100) == b"+PONG\r\n"
    with socket.create_connection(("127.0.0.1", node.port), timeout=60) as late:
        assert late.recv(100) == b"-ERR max number of clients reached\r\n"
        assert late.recv(100) == b""
    for sock in held:
        sock.close()
    until(lambda: node.metric("emberline_l2_connections") == 0, what="connections gone")


def test_invalid_resp_closes_the_connection_with_a_message(start: Start) -> None:
    node = start()
    with socket.create_connection(("127.0.0.1", node.port), timeout=60) as sock:
        sock.sendall(b"PING\r\n*1\r\n:5\r\n")
        came = b""
        while data := sock.recv(1000):
            came += data
        assert came == b"+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n"


# -- life --------------------------------------------------------------------------------------
def test_admin_pages(start: Start) -> None:
    node = start("--pool", "warm")
    assert node.page("/healthz") == "ok\n"
    assert node.page("/readyz") == "ready\n"
    text = node.page("/metrics")
    samples = [line for line in text.splitlines() if line.startswith("emberline_")]
    assert samples
    assert all('pool="warm"' in line for line in samples)
    for name in METRICS:
        assert re.search(rf"^# TYPE {name} ", text, re.M), name
        assert re.search(rf"^{name}(_count)?{{", text, re.M), f"{name} has no child at the start"
    for path, status in (("/nothing", 404), ("/drain", 405)):
        assert _status(node, path) == status


def _status(node: CacheNode, path: str) -> int:
    with pytest.raises(urllib.error.HTTPError) as caught:
        node.page(path)
    caught.value.close()
    return caught.value.code


METRICS = [
    "emberline_l2_operations_total",
    "emberline_l2_operation_duration_seconds",
    "emberline_l2_lookup_blocks_total",
    "emberline_l2_hit_blocks_total",
    "emberline_l2_read_bytes_total",
    "emberline_l2_written_bytes_total",
    "emberline_l2_used_bytes",
    "emberline_l2_capacity_bytes",
    "emberline_l2_blocks",
    "emberline_l2_evicted_blocks_total",
    "emberline_l2_block_age_at_eviction_seconds",
    "emberline_l2_rejected_writes_total",
    "emberline_l2_integrity_failures_total",
    "emberline_l2_node_up",
    "emberline_l2_connections",
    "emberline_l2_in_flight_operations",
]


def test_draining_node_rejects_new_clients_and_serves_existing_ones(start: Start) -> None:
    node = start()
    db = client(node)
    db.set("k", "v")
    url = f"http://127.0.0.1:{node.admin_port}/drain"
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=60) as answer:
        assert answer.status == 202
    assert _status(node, "/readyz") == 503
    assert node.page("/healthz") == "ok\n"
    assert node.metric("emberline_l2_node_up") == 0
    assert db.get("k") == b"v"
    with socket.create_connection(("127.0.0.1", node.port), timeout=60) as late:
        assert late.recv(100) == b"-ERR draining\r\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_node_completes_pending_requests(start: Start, number: signal.Signals) -> None:
    """A value half received still gets its answer; an idle client does not hold the node up."""
    node = start()
    idle = client(node)
    idle.ping()
    with socket.create_connection(("127.0.0.1", node.port), timeout=60) as busy:
        busy.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n" + bytes(50_000))
        until(lambda: node.metric("emberline_l2_connections") == 2, what="both connections")
        node.process.send_signal(number)
        until(lambda: not answers(node.port), what="the door closed")
        busy.sendall(bytes(50_000) + b"\r\n")
        assert busy.recv(100) == b"+OK\r\n"
    assert node.process.wait(timeout=60) == 0


def test_port_in_use_is_logged_and_ends_the_process(start: Start) -> None:
    first = start()
    argv = [*first._argv]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "cannot listen" in done.stderr


def test_log_contains_no_secret(start: Start) -> None:
    node = start(password="open sesame")
    client(node).ping()
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=node.port, password="guess").ping()
    node.stop()
    text = node.log.read_text()
    assert "password set" in text
    assert "sesame" not in text
    assert "guess" not in text
