"""Connection commands: AUTH, HELLO, protocol version and similar, and CLIENT."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from cachetier.engine.commands.arguments import SYNTAX, make_container, parse_integer
from cachetier.engine.net.access import LoginVerdict
from cachetier.engine.net.guards import OpenSession
from cachetier.engine.net.session import ClientSession, CommandError, Handler, ReplySteps
from cachetier.wire import replies

# redis-server version whose replies the command table matches.
REDIS_VERSION = "7.2.0"
# Delay of the reply after too many wrong passwords from an address.
_REFUSAL_DELAY_S = 1.0
# Share of --max-clients that may wait for a delayed error; others get it at once.
_DELAYED_SHARE = 8
_MAX_NAME = 256
_TYPES = (b"NORMAL", b"MASTER", b"REPLICA", b"SLAVE", b"PUBSUB")

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
            keyword = words[place][:32].decode(errors="replace")
            raise CommandError(f"ERR Syntax error in HELLO option '{keyword}'")
    return version, name, login


def whoami(session: ClientSession, _words: list[bytes]) -> None:
    session.reply(replies.text(session.user))


def parse_client_name(word: bytes, what: str = "Client names") -> str:
    if len(word) > _MAX_NAME or any(byte < 33 or byte > 126 for byte in word):
        raise CommandError(f"ERR {what} cannot contain spaces, newlines or special characters.")
    return word.decode()


def setname(session: ClientSession, words: list[bytes]) -> None:
    session.name = parse_client_name(words[0])
    session.reply(replies.OK)


def setinfo(session: ClientSession, words: list[bytes]) -> None:
    attribute = words[0].decode(errors="replace").lower()
    if attribute not in ("lib-name", "lib-ver"):
        name = words[0][:32].decode(errors="replace")
        raise CommandError(f"ERR Unrecognized option '{name}'")
    session.library[attribute] = parse_client_name(words[1], attribute)
    session.reply(replies.OK)


def getname(session: ClientSession, _words: list[bytes]) -> None:
    name = session.name
    session.reply(replies.text(name) if name else replies.null(session.version))


def id_(session: ClientSession, _words: list[bytes]) -> None:
    session.reply(replies.integer(session.id))


def getredir(session: ClientSession, _words: list[bytes]) -> None:
    session.reply(replies.integer(-1))


def info(session: ClientSession, _words: list[bytes]) -> None:
    session.reply(replies.verbatim(_describe(session) + "\n", session.version))


def list_(session: ClientSession, words: list[bytes]) -> None:
    chosen = list(session.node.sessions.values())
    if words:
        what, rest = words[0].upper(), words[1:]
        if what == b"TYPE" and len(rest) == 1:
            chosen = chosen if _is_normal(rest[0]) else []
        elif what == b"ID" and rest:
            client_ids = {_parse_client_id(word, "Invalid client ID") for word in rest}
            chosen = [session for session in chosen if session.id in client_ids]
        else:
            raise CommandError(SYNTAX)
    text = "".join(_describe(session) + "\n" for session in chosen)
    session.reply(replies.verbatim(text, session.version))


def no_evict(session: ClientSession, words: list[bytes]) -> None:
    if words[0].upper() not in (b"ON", b"OFF"):
        raise CommandError(SYNTAX)
    session.reply(replies.OK)


def no_touch(session: ClientSession, words: list[bytes]) -> None:
    if words[0].upper() != b"OFF":
        raise CommandError("ERR every read counts as a use, NO-TOUCH supports OFF only")
    session.reply(replies.OK)


def kill(session: ClientSession, words: list[bytes]) -> None:
    """Close connections. The old form (an address) replies OK, the new one a count."""
    everyone = list(session.node.sessions.values())
    if len(words) == 1:
        matching = [session for session in everyone if session.peer.encode() == words[0]]
        if not matching:
            raise CommandError("ERR No such client")
        _close(session, matching)
        session.reply(replies.OK)
        return
    if len(words) % 2:
        raise CommandError(SYNTAX)
    skip_me = True
    tests: dict[bytes, Callable[[OpenSession], bool]] = {}  # the last of duplicate filters counts
    for option, word in zip(words[::2], words[1::2], strict=True):
        name = option.upper()
        if name == b"SKIPME":
            if word.upper() not in (b"YES", b"NO"):
                raise CommandError(SYNTAX)
            skip_me = word.upper() == b"YES"
        else:
            tests[name] = _make_kill_filter(session, name, word)
    chosen = [session for session in everyone if all(test(session) for test in tests.values())]
    if skip_me:
        chosen = [peer for peer in chosen if peer is not session]
    _close(session, chosen)
    session.reply(replies.integer(len(chosen)))


def _make_kill_filter(
    session: ClientSession, name: bytes, word: bytes
) -> Callable[[OpenSession], bool]:
    if name == b"ID":
        number = _parse_client_id(word, "client-id should be greater than 0")
        return lambda one: one.id == number
    if name in (b"ADDR", b"LADDR"):
        return lambda one: (one.peer if name == b"ADDR" else one.local).encode() == word
    if name == b"USER":
        if word.decode(errors="replace") not in session.node.gate.users:
            raise CommandError(f"ERR No such user '{word[:64].decode(errors='replace')}'")
        return lambda one: one.user.encode() == word
    if name == b"TYPE":
        normal = _is_normal(word)
        return lambda _one: normal
    raise CommandError(SYNTAX)


def _close(asking: ClientSession, chosen: list[OpenSession]) -> None:
    """Close the connections, the caller's own last: its reply is still to be sent."""
    for session in chosen:
        session.closing = True
        if session is not asking:
            session.hang_up()


def _parse_client_id(word: bytes, refusal: str) -> int:
    try:
        number = parse_integer(word)
    except CommandError:
        number = 0
    if number <= 0:
        raise CommandError(f"ERR {refusal}")
    return number


def _is_normal(word: bytes) -> bool:
    if word.upper() not in _TYPES:
        printable = word[:32].decode(errors="replace")
        raise CommandError(f"ERR Unknown client type '{printable}'")
    return word.upper() == b"NORMAL"


def _describe(session: OpenSession) -> str:
    now = time.monotonic()
    library = session.library
    return (
        f"id={session.id} addr={session.peer} laddr={session.local} name={session.name} "
        f"age={int(now - session.born_at)} idle={int(now - session.active_at)} flags=N db=0 "
        f"cmd={session.last_command or 'NULL'} user={session.user} resp={session.version} "
        f"lib-name={library.get('lib-name', '')} lib-ver={library.get('lib-ver', '')}"
    )


HANDLERS: dict[str, Handler] = {
    "ping": ping,
    "echo": echo,
    "quit": quit_,
    "reset": reset,
    "select": select,
    "auth": auth,
    "hello": hello,
    "client": make_container(
        "client",
        {
            "getname": getname,
            "getredir": getredir,
            "id": id_,
            "info": info,
            "kill": kill,
            "list": list_,
            "no-evict": no_evict,
            "no-touch": no_touch,
            "setinfo": setinfo,
            "setname": setname,
        },
    ),
    "acl": make_container("acl", {"whoami": whoami}),
}
