"""Passwords: the correct one is always accepted, wrong ones are limited by address."""

from __future__ import annotations

import hmac
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from cachetier.engine.errors import ConfigError
from cachetier.engine.net import access
from cachetier.engine.net.access import Gatekeeper, LoginVerdict, PasswordFile, read_passwords
from tests.cachetier.engine.conftest import Start
from tests.support.waiting import until

OK, WRONG, LOCKED = LoginVerdict.OK, LoginVerdict.WRONG, LoginVerdict.LOCKED


def gate(*users: str, password: str = "sesame", failures: int = 3) -> Gatekeeper:
    return Gatekeeper(users or ("default",), (password,) if password else (), failures)


@pytest.mark.parametrize(
    ("user", "password", "verdict"),
    [
        (b"default", b"sesame", OK),
        (b"default", b"sesam", WRONG),
        (b"default", b"sesame ", WRONG),
        (b"default", b"", WRONG),
        (b"Default", b"sesame", WRONG),
        (b"", b"sesame", WRONG),
        (b"\xff\xfe", b"\xff", WRONG),
    ],
)
def test_name_and_password_must_both_match(
    user: bytes, password: bytes, verdict: LoginVerdict
) -> None:
    assert gate().judge("1.2.3.4", user, password, 0.0) is verdict


def test_name_and_password_are_compared_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    """The duration of a rejection does not depend on the password."""
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(access.hmac, "compare_digest", compare)
    for user, password in ((b"kv", b"sesame"), (b"nobody", b"x"), (b"kv", b"x" * 10_000)):
        compared.clear()
        gate("kv", "default").judge("h", user, password, 0.0)
        assert len(compared) == 3
        assert {len(word) for pair in compared for word in pair} == {32}, "digests"


def test_custom_user_disables_the_default_one() -> None:
    only, both = gate("kv"), gate("kv", "default")
    assert only.judge("h", b"kv", b"sesame", 0.0) is OK
    assert only.judge("h", b"default", b"sesame", 0.0) is WRONG
    assert both.judge("h", b"default", b"sesame", 0.0) is OK
    assert both.judge("h", b"kv", b"sesame", 0.0) is OK
    assert both.judge("h", b"other", b"sesame", 0.0) is WRONG


def test_without_a_password_existing_users_need_none() -> None:
    open_ = gate(password="")
    assert open_.judge("h", b"default", b"what", 0.0) is OK
    assert open_.judge("h", b"other", b"what", 0.0) is WRONG


def test_wrong_passwords_are_limited_and_the_limit_recovers() -> None:
    one = gate(failures=3)
    judged = [one.judge("h", b"default", b"%d" % i, 0.0) for i in range(5)]
    assert judged == [WRONG] * 3 + [LOCKED] * 2
    assert one.wait_s("h", 0.0) == 20
    assert one.judge("h", b"default", b"guess", 19.0) is LOCKED
    assert one.judge("h", b"default", b"guess", 20.0) is WRONG
    assert one.judge("h", b"default", b"guess", 20.0) is LOCKED


def test_correct_password_is_never_locked_out() -> None:
    """All workers of a machine share an address: one with an old password must not stop them."""
    one = gate("kv", "default", failures=1)
    for _ in range(1000):
        one.judge("h", b"default", b"guess", 0.0)
        assert one.judge("h", b"default", b"sesame", 0.0) is OK
        assert one.judge("h", b"kv", b"sesame", 0.0) is OK


def test_attempts_beyond_the_limit_do_not_extend_it() -> None:
    one = gate(failures=1)
    one.judge("h", b"default", b"guess", 0.0)
    for second in range(60):
        assert one.judge("h", b"default", b"guess", float(second)) is LOCKED
    assert one.judge("h", b"default", b"guess", 60.0) is WRONG


def test_correct_passwords_use_no_budget() -> None:
    one = gate(failures=1)
    assert {one.judge("h", b"default", b"sesame", 0.0) for _ in range(100)} == {OK}


def test_other_hosts_are_not_locked_out() -> None:
    one = gate(failures=1)
    one.judge("1.2.3.4", b"default", b"guess", 0.0)
    assert one.judge("1.2.3.4", b"default", b"guess", 0.0) is LOCKED
    assert one.judge("1.2.3.5", b"default", b"guess", 0.0) is WRONG


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2001:db8::1", "2001:db8::ffff:1"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("fe80::1%eth0", "fe80::2"),
    ],
)
def test_one_host_has_one_budget_for_all_its_addresses(first: str, second: str) -> None:
    one = gate(failures=1)
    one.judge(first, b"default", b"guess", 0.0)
    assert one.judge(second, b"default", b"guess", 0.0) is LOCKED


def test_remembered_addresses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_MAX_ADDRESSES", 100)
    one = gate(failures=2)
    for number in range(1000):
        one.judge(f"10.0.{number // 250}.{number % 250}", b"default", b"guess", 0.0)
    assert len(one._left) == 100


def test_previous_password_is_valid_while_listed(start: Start) -> None:
    node = start("--login-failures", "100000", password="first")
    path = next(node.log.parent.glob("password-*"))

    def lets_in(password: str) -> bool:
        one = redis.Redis(port=node.port, password=password, retry=Retry(NoBackoff(), 0))
        try:
            return bool(one.ping())
        except redis.AuthenticationError:
            return False
        finally:
            one.close()

    inside = redis.Redis(port=node.port, password="first")
    inside.set("k", "v")
    path.write_text("second\nfirst\n")
    until(lambda: lets_in("second"), what="the new password")
    assert lets_in("first")
    path.write_text("second\n")
    until(lambda: not lets_in("first"), what="the old one's end")
    assert inside.get("k") == b"v", "who is in stays in, and nothing is lost"
    path.write_text("")
    until(lambda: "previous passwords stay valid" in node.log.read_text(), what="the empty file")
    assert lets_in("second")
    assert not lets_in("")
    for word in ("first", "second"):
        assert word not in node.log.read_text()


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "is empty"), (b"\n\r\n", "is empty"), (b"a\nb\nc", "has 3 lines"), (b"\xff", "UTF-8")],
)
def test_files_without_a_password(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        read_passwords(str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_passwords(str(tmp_path / "absent"))


def test_broken_file_is_logged_once_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "secret"
    path.write_text("good")
    one = PasswordFile(str(path), read_passwords(str(path)))
    assert not one.renew()
    path.unlink()
    for _ in range(5):
        assert not one.renew()
    assert one.lines == ("good",)
    assert len(caplog.records) == 1
    path.write_text("better\ngood")
    assert one.renew()
    assert one.lines == ("better", "good")


def test_node_never_drops_its_password() -> None:
    gate = Gatekeeper(("default",), ("good",), 10)
    gate.renew(())
    assert gate.judge("h", b"default", b"", 0.0) is LoginVerdict.WRONG
    assert gate.judge("h", b"default", b"good", 0.0) is LoginVerdict.OK
