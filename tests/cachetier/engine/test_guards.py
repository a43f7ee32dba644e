"""Who may speak to a node: its users, its patience, and flags that contradict each other."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import redis

from cachetier.engine.config import ConfigError, parse
from cachetier.engine.guards import Guards
from cachetier.engine.patience import overdue
from tests.cachetier.engine.conftest import Start
from tests.support.certificates import authority, stranger
from tests.support.resp import RawClient
from tests.support.waiting import until

MEMORY = ("--memory", "64MiB")
CLOSED = "emberline_l2_closed_connections_total"
LOGINS = "emberline_l2_logins_total"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--user", "kv"), "--user kv needs a password"),
        (("--keep-default-user",), "--keep-default-user means nothing without --user"),
        (("--user", "k v", "--password-file", "secret"), "--user 'k v' must be"),
        (("--login-failures", "0"), "--login-failures 0 would let nobody in"),
        (("--idle-timeout", "-1"), "--idle-timeout -1 must be 0 to"),
        (("--stall-timeout", "nan"), "--stall-timeout nan must be 0 to"),
        (("--login-timeout", "1e9"), "--login-timeout 1e\\+09 must be 0 to"),
        (("--tls-cert", "good.crt"), "--tls-key is missing"),
        (("--tls-key", "good.key"), "--tls-cert is missing"),
        (("--tls-client-ca", "good.crt"), "--tls-cert is missing"),
        (("--tls-cert", "absent", "--tls-key", "good.key"), "--tls-cert absent .* cannot be read"),
        (("--tls-cert", "good.crt", "--tls-key", "other.key"), "cannot be used .*mismatch"),
        (("--tls-cert", "secret", "--tls-key", "good.key"), "--tls-cert secret .* give PEM"),
        (
            ("--tls-cert", "good.crt", "--tls-key", "good.key", "--tls-client-ca", "secret"),
            "--tls-client-ca secret cannot be used",
        ),
        (("--admin-plain",), "--admin-plain means nothing without --tls-cert"),
        (
            ("--listen", "0.0.0.0:1", "--tls-cert", "good.crt", "--tls-key", "good.key"),
            "other mach",
        ),
    ],
)
def test_contradictions_are_refused_naming_the_flag(
    flags: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    authority().write(tmp_path, "localhost", stem="good")
    stranger().write(tmp_path, "localhost", stem="other")
    (tmp_path / "secret").write_text("sesame\n")
    with pytest.raises(ConfigError, match=words):
        parse((*MEMORY, *flags))


def test_others_may_come_with_a_password_a_certificate_or_if_told_so(tmp_path: Path) -> None:
    cert, key = authority().write(tmp_path, "localhost")
    ca = authority().write_ca(tmp_path / "ca.pem")
    (tmp_path / "secret").write_text("sesame\n")
    mutual = ("--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(ca))
    for flags in (mutual, ("--unprotected",), ("--password-file", str(tmp_path / "secret"))):
        assert parse((*MEMORY, "--listen", "0.0.0.0:6400", *flags)).listen.host == "0.0.0.0"


# -- users -------------------------------------------------------------------------------------
def test_a_named_user_logs_in_and_default_does_not(start: Start) -> None:
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
        assert raw.say("RESET") == ("+", b"RESET")
        assert raw.ask("GET", "k")[1].startswith(b"NOAUTH")
    assert node.metric(LOGINS, result="wrong") == 2
    both = start("--user", "kv", "--keep-default-user", password="open sesame")
    assert redis.Redis(port=both.port, password="open sesame").acl_whoami() == "default"


def test_guessing_is_slowed_down_and_who_is_in_stays_in(start: Start) -> None:
    node = start("--login-failures", "3", password="open sesame")
    with RawClient(node.port) as inside, RawClient(node.port) as outside:
        assert inside.ask("AUTH", "open sesame") == ("+", b"OK")
        for number in range(3):
            assert outside.ask("AUTH", f"guess{number}")[1].startswith(b"WRONGPASS")
        for words in (("AUTH", "open sesame"), ("HELLO", "3", "AUTH", "default", "open sesame")):
            refused = outside.ask(*words)[1]
            assert refused.startswith(b"ERR too many wrong passwords from this address"), refused
        assert outside.ask("GET", "k")[1].startswith(b"NOAUTH")
        assert inside.ask("SET", "k", "v") == ("+", b"OK")
    assert node.metric(LOGINS, result="locked") == 2
    assert node.metric(LOGINS, result="ok") == 1


def test_before_login_no_value_is_taken_in(start: Start) -> None:
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
    """What `overdue` asks of a session."""

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
def test_patience_ends(talk: Talk, after: float, reason: str) -> None:
    assert overdue(talk, PATIENT, 100.0 + after) == reason
    assert overdue(talk, Guards(login_timeout_s=0, stall_timeout_s=0), 100.0 + after) == ""


def test_patience_begins_again_when_bytes_move() -> None:
    talk = Talk(between=False)
    talk.bytes = (50, 0)
    assert overdue(talk, PATIENT, 150.0) == ""
    assert overdue(talk, PATIENT, 209.0) == ""
    talk.bytes = (40, 0)
    assert overdue(talk, PATIENT, 212.0) == ""
    assert overdue(talk, PATIENT, 273.0) == "stalled"


def test_who_does_not_log_in_is_shown_the_door(start: Start) -> None:
    node = start("--login-timeout", "0.05", password="open sesame")
    with RawClient(node.port) as inside, RawClient(node.port) as outside:
        assert inside.ask("AUTH", "open sesame") == ("+", b"OK")
        assert outside.is_closed()
        assert inside.say("PING") == ("+", b"PONG")
    assert node.metric(CLOSED, reason="login_timeout") == 1


@pytest.mark.parametrize("direction", ["in", "out"])
def test_who_is_stuck_half_way_lets_go_of_memory(start: Start, direction: str) -> None:
    node = start("--stall-timeout", "0.05", memory="64MiB")
    with RawClient(node.port) as patient, RawClient(node.port) as stuck:
        patient.ask("SET", "k", bytes(8 << 20))
        if direction == "in":
            stuck.socket.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$1000000\r\nhalf")
        else:
            stuck.socket.sendall(b"GET k\r\n" * 100)
        until(lambda: node.metric(CLOSED, reason="stalled") == 1, what="the stuck one closed")
        assert patient.say("PING") == ("+", b"PONG")


def test_who_says_nothing_is_closed_only_where_it_was_asked_for(start: Start) -> None:
    node = start("--idle-timeout", "0.05")
    with RawClient(node.port) as raw:
        raw.say("PING")
        assert raw.is_closed()
    assert node.metric(CLOSED, reason="idle_timeout") >= 1


def test_a_client_which_vanished_is_asked_after(start: Start) -> None:
    """The kernel's keepalive timer runs on the node's side of the connection."""
    node = start()
    with RawClient(node.port) as raw:
        assert raw.say("PING") == ("+", b"PONG")
        ours = f"{raw.socket.getsockname()[1]:04X}"
        timers = [
            fields[5].split(":")[0]
            for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines()[1:])
            if fields[1].endswith(f":{node.port:04X}") and fields[2].endswith(f":{ours}")
        ]
        assert timers == ["02"], "timer 2 is keepalive"


def test_closing_others(start: Start) -> None:
    node = start()
    with RawClient(node.port) as one, RawClient(node.port) as two:
        number = two.say("CLIENT ID")[1]
        assert one.say(f"CLIENT KILL ID {number}") == (":", 1)
        assert two.is_closed()
        assert one.say("CLIENT KILL TYPE normal") == (":", 0), "not oneself, unless one says so"
        assert one.say("PING") == ("+", b"PONG")
        assert one.say("CLIENT KILL TYPE normal SKIPME no")[1] >= 1
        assert one.is_closed()


def test_a_client_which_takes_nothing_can_be_closed(start: Start) -> None:
    node = start()
    with RawClient(node.port) as one, socket.create_connection(("127.0.0.1", node.port)) as slow:
        one.ask("SET", "k", bytes(8 << 20))
        slow.sendall(b"GET k\r\n" * 100)
        address = f"127.0.0.1:{slow.getsockname()[1]}"
        until(lambda: address.encode() in one.say("CLIENT LIST")[1], what="the slow one")
        assert one.say(f"CLIENT KILL {address}") == ("+", b"OK")
        until(lambda: address.encode() not in one.say("CLIENT LIST")[1], what="it is gone")
