"""The commands about one connection: who is asking, in which version of the protocol."""

from __future__ import annotations

import logging
import time

from cachetier.engine.access import Verdict
from cachetier.engine.clients import client_name
from cachetier.engine.lifetimes import SYNTAX, integer
from cachetier.engine.session import CommandError, Handler, Session
from cachetier.engine.subcommands import container
from cachetier.wire import replies

# What redis-server of this level would answer to the commands in the table.
REDIS_VERSION = "7.2.0"


log = logging.getLogger(__name__)


def ping(session: Session, words: list[bytes]) -> None:
    if len(words) > 1:
        raise CommandError("ERR wrong number of arguments for 'ping' command")
    session.reply(replies.bulk(words[0]) if words else replies.PONG)


def echo(session: Session, words: list[bytes]) -> None:
    session.reply(replies.bulk(words[0]))


def quit_(session: Session, _words: list[bytes]) -> None:
    session.reply(replies.OK)
    session.closing = True


def reset(session: Session, _words: list[bytes]) -> None:
    session.log_out()
    session.reply(replies.simple("RESET"))


def select(session: Session, words: list[bytes]) -> None:
    if integer(words[0]) != 0:
        raise CommandError("ERR DB index is out of range")
    session.reply(replies.OK)


def auth(session: Session, words: list[bytes]) -> None:
    if len(words) > 2:
        raise CommandError(SYNTAX)
    user, password = (words[0], words[1]) if len(words) == 2 else (b"default", words[0])
    if len(words) == 1 and not session.node.config.passwords:
        raise CommandError(
            "ERR AUTH <password> called without any password configured for the default user. "
            "Are you sure your configuration is correct?"
        )
    _check_password(session, user, password)
    session.reply(replies.OK)


def _check_password(session: Session, user: bytes, password: bytes) -> None:
    node, now = session.node, time.monotonic()
    verdict = node.gate.judge(session.host, user, password, now)
    node.counters.logins[verdict] += 1
    if verdict is Verdict.OK:
        session.log_in(user.decode())
        return
    if verdict is Verdict.WRONG:
        log.warning("wrong user or password from %s", session.host)
        raise CommandError("WRONGPASS invalid username-password pair or user is disabled.")
    wait_s = node.gate.wait_s(session.host, now)
    raise CommandError(f"ERR too many wrong passwords from this address, try again in {wait_s} s")


def hello(session: Session, words: list[bytes]) -> None:
    version, name, login = _hello_options(session, words)
    if login is not None:
        _check_password(session, *login)
    if not session.logged_in:
        raise CommandError(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the "
            "HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and "
            "select the RESP protocol version at the same time"
        )
    session.version, session.name = version, name
    pairs = [
        (replies.text("server"), replies.text("emberline")),
        (replies.text("version"), replies.text(REDIS_VERSION)),
        (replies.text("proto"), replies.integer(version)),
        (replies.text("id"), replies.integer(session.id)),
        (replies.text("mode"), replies.text("standalone")),
        (replies.text("role"), replies.text("master")),
        (replies.text("modules"), replies.array([])),
    ]
    session.reply(replies.mapping(pairs, version))


def _hello_options(
    session: Session, words: list[bytes]
) -> tuple[int, str, tuple[bytes, bytes] | None]:
    """Protocol version, name, login: read as a whole before any of it counts."""
    if not words:
        return session.version, session.name, None
    try:
        version = integer(words[0])
    except CommandError:
        raise CommandError("ERR Protocol version is not an integer or out of range") from None
    if version not in (2, 3):
        raise CommandError("NOPROTO unsupported protocol version")
    name, login = session.name, None
    rest = words[1:]
    while rest:
        option = rest[0].upper()
        if option == b"AUTH" and len(rest) >= 3:
            login, rest = (rest[1], rest[2]), rest[3:]
        elif option == b"SETNAME" and len(rest) >= 2:
            name, rest = client_name(rest[1]), rest[2:]
        else:
            said = rest[0][:32].decode(errors="replace")
            raise CommandError(f"ERR Syntax error in HELLO option '{said}'")
    return version, name, login


def whoami(session: Session, _words: list[bytes]) -> None:
    session.reply(replies.text(session.user))


HANDLERS: dict[str, Handler] = {
    "ping": ping,
    "echo": echo,
    "quit": quit_,
    "reset": reset,
    "select": select,
    "auth": auth,
    "hello": hello,
    "acl": container("acl", {"whoami": whoami}),
}
