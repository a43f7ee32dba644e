"""Access to a node: users, timeouts, and contradicting flags."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from cachetier.engine.config import parse
from cachetier.engine.errors import ConfigError
from cachetier.engine.net.guards import Guards, find_timeout
from tests.cachetier.engine.conftest import Start
from tests.support.cachenode import CacheNode
from tests.support.certificates import authority, stranger
from tests.support.resp import RawClient
from tests.support.waiting import until

MEMORY = ("--memory", "64MiB")
CLOSED = "emberline_l2_closed_connections_total"
LOGINS = "emberline_l2_logins_total"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CacheNode]:
    """Without a password, as a developer's is."""
    one = CacheNode(tmp_path_factory.mktemp("open"))
    yield one
    one.kill()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--user", "kv"), "--user kv needs a password"),
        (("--keep-default-user",), "--keep-default-user requires --user"),
        (("--user", "k v", "--password-file", "secret"), "--user 'k v' must be"),
        (("--login-failures", "0"), "--login-failures 0 would block every login"),
        (("--idle-timeout", "-1"), "--idle-timeout -1 must be 0 to"),
        (("--stall-timeout", "nan"), "--stall-timeout nan must be 0 to"),
        (("--login-timeout", "1e9"), "--login-timeout 1e\\+09 must be 0 to"),
        (("--tls-cert", "good.crt"), "--tls-key is missing"),
        (("--tls-key", "good.key"), "--tls-cert is missing"),
        (("--tls-client-ca", "good.crt"), "--tls-cert is missing"),
        (("--tls-cert", "absent", "--tls-key", "good.key"), "--tls-cert absent .* cannot be read"),
        (("--tls-cert", "good.crt", "--tls-key", "other.key"), "is not usable .*mismatch"),
        (("--tls-cert", "secret", "--tls-key", "good.key"), "--tls-cert secret .* expected PEM"),
        (
            ("--tls-cert", "good.crt", "--tls-key", "good.key", "--tls-client-ca", "secret"),
            "--tls-client-ca secret is not usable",
        ),
        (("--admin-plain",), "--admin-plain requires --tls-cert"),
        (
            ("--listen", "0.0.0.0:1", "--tls-cert", "good.crt", "--tls-key", "good.key"),
            "other mach",
        ),
    ],
)
def test_contradictions_are_rejected_with_the_flag(
    flags: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    authority().write(tmp_path, "localhost", stem="good")
    stranger().write(tmp_path, "localhost", stem="other")
    (tmp_path / "secret").write_text("sesame\n")
    with pytest.raises(ConfigError, match=words):
        parse((*MEMORY, *flags))


def test_remote_access_needs_a_password_a_certificate_or_a_flag(tmp_path: Path) -> None:
    cert, key = authority().write(tmp_path, "localhost")
    ca = authority().write_ca(tmp_path / "ca.pem")
    (tmp_path / "secret").write_text("sesame\n")
    mutual = ("--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(ca))
    for flags in (mutual, ("--unprotected",), ("--password-file", str(tmp_path / "secret"))):
        assert parse((*MEMORY, "--listen", "0.0.0.0:6400", *flags)).listen.host == "0.0.0.0"


# -- users -------------------------------------------------------------------------------------
def test_named_user_logs_in_and_default_does_not(start: Start) -> None:
    node = start("--user", "kv", password="open sesame")
    named = redis.Redis(port=node.port, username="kv", password="open sesame")
    assert named.ping()
    assert named.acl_whoami() == "kv"
    assert named.client_info()["user"] == "kv"
    with RawClient(node.port) as raw:
        assert raw.ask("AUTH", "open sesame")[1].startswith(b"WRONGPASS")
        assert raw.ask("AUTH", "default", "open sesame")[1].startswith(b"WRONGPASS")
        assert raw.ask("GET", "k")[1].startswith(b"NOAUTH")
        assert raw.ask("HELLO", "3", "AUTH", "kv", "open sesame")[0] == "%"
        assert raw.call("RESET") == ("+", b"RESET")
        assert raw.ask("GET", "k")[1].startswith(b"NOAUTH")
    assert node.metric(LOGINS, result="wrong") == 2
    both = start("--user", "kv", "--keep-default-user", password="open sesame")
    assert redis.Redis(port=both.port, password="open sesame").acl_whoami() == "default"


WRONG = (("AUTH", "guess"), ("HELLO", "3", "AUTH", "default", "guess"))
RIGHT = (("AUTH", "open sesame"), ("HELLO", "2", "AUTH", "default", "open sesame"))


@pytest.mark.parametrize("most_waiting", [True, False])
def test_wrong_passwords_affect_only_their_connection(start: Start, most_waiting: bool) -> None:
    """Whether they wait for their refusal or, being too many, are refused at once."""
    few = ("--max-clients", "1024" if most_waiting else "8")
    node = start("--login-failures", "3", *few, password="open sesame")
    with RawClient(node.port) as inside, RawClient(node.port) as outside:
        assert inside.ask("AUTH", "open sesame") == ("+", b"OK")
        for number in range(3):
            assert outside.ask("AUTH", f"guess{number}")[1].startswith(b"WRONGPASS")
        guessing = [RawClient(node.port) for _ in range(4)]
        for number, one in enumerate(guessing):
            one.send(*WRONG[number % 2])
            one.send("SET", "k", "stolen")
        for words in RIGHT:  # while the refusals are under way
            with RawClient(node.port) as other:
                assert other.ask(*words)[0] in "+*"
                assert other.ask("GET", "k")[0] == "$"
        for one in guessing:
            assert one.read()[1].startswith(b"WRONGPASS")
            assert one.is_closed()
            one.close()
        assert outside.ask("GET", "k")[1].startswith(b"NOAUTH")
        assert outside.ask("AUTH", "open sesame") == ("+", b"OK")
        assert inside.ask("GET", "k") == ("$", -1)
    assert node.metric(LOGINS, result="wrong") == 3
    assert node.metric(LOGINS, result="locked") == 4
    assert node.metric(LOGINS, result="ok") == 4
    assert node.metric(CLOSED, reason="wrong_password") == 4


# -- who takes the port for another ------------------------------------------------------------
BODY = "SET stolen value\r\n*3\r\n$3\r\nSET\r\n$6\r\nstolen\r\n$5\r\nvalue\r\n"


@pytest.mark.parametrize(
    "first",
    [
        *(f"{verb} / HTTP/1.1" for verb in ("GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE")),
        "PATCH /",
        "post /x",
        "PRI * HTTP/2.0",
        "get k http/1.0",
        "Host: 127.0.0.1",
        "x-header:value",
        "User-Agent: SET a b",
    ],
)
def test_http_closes_the_connection_without_side_effects(node: CacheNode, first: str) -> None:
    before = node.metric(CLOSED, reason="http")
    with RawClient(node.port) as raw:
        raw.socket.sendall(f"{first}\r\n{BODY}".encode())
        assert raw.read() == ("-", b"ERR Protocol error: this port speaks RESP (Redis), not HTTP")
        with contextlib.suppress(ConnectionResetError):  # what was sent is not read to its end
            assert raw.is_closed()
    assert node.metric(CLOSED, reason="http") == before + 1
    assert redis.Redis(port=node.port).get("stolen") is None
    assert node.log.read_text().count("sent HTTP to the client port") <= 2, "once a minute"


def test_http_words_are_values_in_resp(node: CacheNode) -> None:
    with RawClient(node.port) as raw:
        assert raw.ask("SET", "Host:", "POST / HTTP/1.1") == ("+", b"OK")
        raw.socket.sendall(b"STRLEN Host:\r\n")
        assert raw.read() == (":", 15)
        assert raw.ask("POST", "/")[1].startswith(b"ERR unknown command 'POST'")
        assert raw.call("PING") == ("+", b"PONG")


@pytest.mark.parametrize(
    "header",
    [
        "Host: rebound.example:9091",
        "Host: 10.1.2.3",
        "Origin: http://127.0.0.1:8000",
        "Origin: null",
        "Sec-Fetch-Site: same-origin",
        "Content-Type: text/plain",
        "Content-Type: Application/x-www-form-urlencoded; charset=utf-8",
        "content-type: multipart/form-data; boundary=x",
    ],
)
def test_web_pages_cannot_send_commands(node: CacheNode, header: str) -> None:
    redis.Redis(port=node.port).set("kept", "v")
    before = node.metric("emberline_l2_admin_requests_refused_total")
    lines = ["POST /flush HTTP/1.1", header, "", ""]
    if not header.startswith("Host"):
        lines.insert(1, f"Host: localhost:{node.admin_port}")
    answer = _send(node.admin_port, lines)
    assert answer.startswith("HTTP/1.1 403 ")
    assert '"browser_refused"' in answer
    assert redis.Redis(port=node.port).get("kept") == b"v"
    assert node.metric("emberline_l2_admin_requests_refused_total") == before + 1
    if header.startswith("Host"):
        assert _send(node.admin_port, ["GET /stats HTTP/1.1", header, "", ""])[9:12] == "403"
        assert _send(node.admin_port, ["GET /readyz HTTP/1.1", header, "", ""])[9:12] == "200"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "[::1]:9091", "127.8.8.8", ""])
def test_local_programs_can_send_commands(node: CacheNode, host: str) -> None:
    lines = ["POST /flush?namespace=ab HTTP/1.1", f"Host: {host}", "Content-Type: ", "", ""]
    assert _send(node.admin_port, lines)[9:12] == "200"


def _send(port: int, lines: list[str]) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall("\r\n".join(lines).encode())
        with sock.makefile("r") as answer:
            return answer.read()


def test_values_are_not_buffered_before_login(start: Start) -> None:
    """Nor is room made for one, which would drop what others stored."""
    node = start(password="open sesame")
    head = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n"
    for size in (16 * 1024, 1024 * 1024):
        with RawClient(node.port) as raw:
            raw.socket.sendall(head + b"$%d\r\n" % size)
            assert raw.read() == ("-", b"ERR Protocol error: invalid bulk length")
            assert raw.is_closed()


# -- patience ----------------------------------------------------------------------------------
class Talk:
    """The part of a session that `overdue` uses."""

    def __init__(self, *, logged_in: bool = True, between: bool = True) -> None:
        self.logged_in = logged_in
        self.between = between
        self.bytes = (0, 0)
        self.born_at = self.moved_at = 100.0
        self.seen_progress = (0, 0)

    def is_between_requests(self) -> bool:
        return self.between

    def progress(self) -> tuple[int, int]:
        return self.bytes


PATIENT = Guards(login_timeout_s=10, stall_timeout_s=60, idle_timeout_s=600)


@pytest.mark.parametrize(
    ("talk", "after", "reason"),
    [
        (Talk(logged_in=False), 9, ""),
        (Talk(logged_in=False), 11, "login_timeout"),
        (Talk(logged_in=False, between=False), 11, "login_timeout"),
        (Talk(between=False), 59, ""),
        (Talk(between=False), 61, "stalled"),
        (Talk(), 61, ""),
        (Talk(), 601, "idle_timeout"),
    ],
)
def test_stalled_connection_times_out(talk: Talk, after: float, reason: str) -> None:
    assert find_timeout(talk, PATIENT, 100.0 + after) == reason
    assert find_timeout(talk, Guards(login_timeout_s=0, stall_timeout_s=0), 100.0 + after) == ""


def test_timeout_restarts_when_bytes_arrive() -> None:
    talk = Talk(between=False)
    talk.bytes = (50, 0)
    assert find_timeout(talk, PATIENT, 150.0) == ""
    assert find_timeout(talk, PATIENT, 209.0) == ""
    talk.bytes = (40, 0)
    assert find_timeout(talk, PATIENT, 212.0) == ""
    assert find_timeout(talk, PATIENT, 273.0) == "stalled"


def test_connection_without_login_times_out(start: Start) -> None:
    node = start("--login-timeout", "0.05", password="open sesame")

    def login() -> RawClient | None:
        """Connect and log in, unless a busy machine takes longer than allowed here."""
        found = RawClient(node.port)
        with contextlib.suppress(OSError):
            assert found.ask("AUTH", "open sesame") == ("+", b"OK")
            return found
        found.close()
        return None

    with until(login, what="a login in time") as inside, RawClient(node.port) as outside:
        assert outside.is_closed()
        assert inside.call("PING") == ("+", b"PONG")
    assert node.metric(CLOSED, reason="login_timeout") >= 1


@pytest.mark.parametrize("direction", ["in", "out"])
def test_incomplete_request_releases_its_memory(start: Start, direction: str) -> None:
    node = start("--stall-timeout", "0.05", memory="64MiB")
    with RawClient(node.port) as patient, RawClient(node.port) as stuck:
        patient.ask("SET", "k", bytes(8 << 20))
        if direction == "in":
            stuck.socket.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$1000000\r\nhalf")
        else:
            stuck.socket.sendall(b"GET k\r\n" * 100)
        until(lambda: node.metric(CLOSED, reason="stalled") == 1, what="the stuck one closed")
        assert patient.call("PING") == ("+", b"PONG")


def test_idle_connection_is_closed_only_if_configured(start: Start) -> None:
    node = start("--idle-timeout", "0.05")
    with RawClient(node.port) as raw:
        assert raw.is_closed()
    assert node.metric(CLOSED, reason="idle_timeout") >= 1


def test_vanished_client_is_detected(start: Start) -> None:
    """The kernel's keepalive timer runs on the node's side of the connection."""
    node = start()
    with RawClient(node.port) as raw:
        assert raw.call("PING") == ("+", b"PONG")
        ours = f"{raw.socket.getsockname()[1]:04X}"

        def timers() -> list[str]:
            return [
                fields[5].split(":")[0]
                for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines()[1:])
                if fields[1].endswith(f":{node.port:04X}") and fields[2].endswith(f":{ours}")
            ]

        # 2 is keepalive; 1 until the reply is acknowledged. The table may lack a row as it changes.
        until(lambda: timers() == ["02"], what="the keepalive timer")


def test_client_kill(start: Start) -> None:
    node = start()
    with RawClient(node.port) as one, RawClient(node.port) as two:
        number = two.call("CLIENT ID")[1]
        assert one.call(f"CLIENT KILL ID {number}") == (":", 1)
        assert two.is_closed()
        assert one.call("CLIENT KILL TYPE normal") == (":", 0), "not oneself, unless one says so"
        assert one.call("PING") == ("+", b"PONG")
        assert one.call("CLIENT KILL TYPE normal SKIPME no")[1] >= 1
        assert one.is_closed()


def test_client_that_reads_nothing_can_be_closed(start: Start) -> None:
    node = start()
    with RawClient(node.port) as one, socket.create_connection(("127.0.0.1", node.port)) as slow:
        one.ask("SET", "k", bytes(8 << 20))
        slow.sendall(b"GET k\r\n" * 100)
        address = f"127.0.0.1:{slow.getsockname()[1]}"
        until(lambda: address.encode() in one.call("CLIENT LIST")[1], what="the slow one")
        assert one.call(f"CLIENT KILL {address}") == ("+", b"OK")
        until(lambda: address.encode() not in one.call("CLIENT LIST")[1], what="it is gone")
