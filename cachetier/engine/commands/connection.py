"""Connection commands: AUTH, HELLO, protocol version and similar."""

from __future__ import annotations

import logging
import time

from cachetier.engine.commands.arguments import SYNTAX, make_container, parse_integer
from cachetier.engine.commands.clients import parse_client_name
from cachetier.engine.net.access import LoginVerdict
from cachetier.engine.net.session import ClientSession, CommandError, Handler, ReplySteps
from cachetier.wire import replies

# redis-server version whose replies the command table matches.
REDIS_VERSION = "7.2.0"
# Delay of the reply after too many wrong passwords from an address.
_REFUSAL_DELAY_S = 1.0
# Share of --max-clients that may wait for a delayed error; others get it at once.
_DELAYED_SHARE = 8

log = logging.getLogger(__name__)


def ping(session: ClientSession, words: list[bytes]) -> None:
    if len(words) > 1:
        raise CommandError("ERR wrong number of arguments for 'ping' command")
    session.reply(replies.bulk(words[0]) if words else replies.PONG)


def echo(session: ClientSession, words: list[bytes]) -> None:
    session.reply(replies.bulk(words[0]))


def quit_(session: ClientSession, _words: list[bytes]) -> None:
    session.reply(replies.OK)
    session.closing = True


def reset(session: ClientSession, _words: list[bytes]) -> None:
    session.log_out()
    session.reply(replies.simple("RESET"))


def select(session: ClientSession, words: list[bytes]) -> None:
    if parse_integer(words[0]) != 0:
        raise CommandError("ERR DB index is out of range")
    session.reply(replies.OK)


def auth(session: ClientSession, words: list[bytes]) -> ReplySteps | None:
    if len(words) > 2:
        raise CommandError(SYNTAX)
    user, password = (words[0], words[1]) if len(words) == 2 else (b"default", words[0])
    if len(words) == 1 and not session.node.config.passwords:
        raise CommandError(
            "ERR AUTH <password> called without any password configured for the default user. "
            "Are you sure your configuration is correct?"
        )
    if not _log_in(session, user, password):
        return _reject_delayed(session)
    session.reply(replies.OK)
    return None


def _log_in(session: ClientSession, user: bytes, password: bytes) -> bool:
    """Log in and return True; False after too many wrong passwords. Raise WRONGPASS before."""
    node, now = session.node, time.monotonic()
    verdict = node.gate.judge(session.host, user, password, now)
    node.counters.logins[verdict] += 1
    if verdict is LoginVerdict.OK:
        session.log_in(user.decode())
        return True
    if verdict is LoginVerdict.WRONG:
        log.warning("Wrong user or password from %s", session.host)
        raise CommandError("WRONGPASS invalid username-password pair or user is disabled.")
    return False


def _reject_delayed(session: ClientSession) -> ReplySteps:
    """Reply with the error after a delay, then close, to slow down password guessing.

    The number of delayed connections is limited, so that they do not use up the connection limit.
    """
    node = session.node
    if node.late_refusals < max(node.config.max_clients // _DELAYED_SHARE, 1):
        node.late_refusals += 1
        try:
            session.out.pause()
            node.later(_REFUSAL_DELAY_S, session.out.resume)
            yield
        finally:
            node.late_refusals -= 1
    node.counters.closed["wrong_password"] += 1
    session.reply(
        replies.error(
            "WRONGPASS invalid username-password pair or user is disabled. Too many wrong "
            "passwords from this address: the connection is closed"
        )
    )
    session.closing = True


def hello(session: ClientSession, words: list[bytes]) -> ReplySteps | None:
    version, name, login = _parse_hello(session, words)
    if login is not None and not _log_in(session, *login):
        return _reject_delayed(session)
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
    return None


def _parse_hello(
    session: ClientSession, words: list[bytes]
) -> tuple[int, str, tuple[bytes, bytes] | None]:
    """Parse HELLO into (protocol version, name, login) before applying any of it."""
    if not words:
        return session.version, session.name, None
    try:
        version = parse_integer(words[0])
    except CommandError:
        raise CommandError("ERR Protocol version is not an integer or out of range") from None
    if version not in (2, 3):
        raise CommandError("NOPROTO unsupported protocol version")
    name, login = session.name, None
    place = 1
    while place < len(words):
        option, left = words[place].upper(), len(words) - place
        if option == b"AUTH" and left >= 3:
            login, place = (words[place + 1], words[place + 2]), place + 3
        elif option == b"SETNAME" and left >= 2:
            name, place = parse_client_name(words[place + 1]), place + 2
        else:
            said = words[place][:32].decode(errors="replace")
            raise CommandError(f"ERR Syntax error in HELLO option '{said}'")
    return version, name, login


def whoami(session: ClientSession, _words: list[bytes]) -> None:
    session.reply(replies.text(session.user))


HANDLERS: dict[str, Handler] = {
    "ping": ping,
    "echo": echo,
    "quit": quit_,
    "reset": reset,
    "select": select,
    "auth": auth,
    "hello": hello,
    "acl": make_container("acl", {"whoami": whoami}),
}
