"""A new password without a restart, which would empty the cache; a broken file changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from cachetier.engine.errors import ConfigError
from cachetier.engine.net.access import Gatekeeper, LoginVerdict
from cachetier.engine.net.passwords import PasswordFile, read_passwords
from tests.cachetier.engine.conftest import Start
from tests.support.waiting import until


def test_the_old_one_is_good_as_long_as_the_file_says(start: Start) -> None:
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
    [(b"", "is empty"), (b"\n\r\n", "is empty"), (b"a\nb\nc", "holds 3 lines"), (b"\xff", "UTF-8")],
)
def test_files_which_hold_no_password(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        read_passwords(str(path))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_passwords(str(tmp_path / "absent"))


def test_a_broken_file_is_told_once_and_changes_nothing(
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


def test_a_node_never_opens_itself() -> None:
    gate = Gatekeeper(("default",), ("good",), 10)
    gate.renew(())
    assert gate.judge("h", b"default", b"", 0.0) is LoginVerdict.WRONG
    assert gate.judge("h", b"default", b"good", 0.0) is LoginVerdict.OK
