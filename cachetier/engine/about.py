"""The commands about the connection and the node: who is asking, what is here, how it is going."""

from __future__ import annotations

import hmac
import os
import platform
import time
from fnmatch import translate
from re import DOTALL, Pattern
from re import compile as compile_pattern

from cachetier.engine.node import VERSION
from cachetier.engine.session import CommandError, Handler, Session
from cachetier.engine.values import integer
from cachetier.wire import replies
from cachetier.wire.commands import TABLE, Command

# What redis-server of this level would answer to the commands in the table.
REDIS_VERSION = "7.2.0"
_SYNTAX = "ERR syntax error"
_MAX_NAME = 256


# -- connection --------------------------------------------------------------------------------
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
        raise CommandError(_SYNTAX)
    user, password = (words[0], words[1]) if len(words) == 2 else (b"default", words[0])
    _check_password(session, user, password)
    session.reply(replies.OK)


def _check_password(session: Session, user: bytes, password: bytes) -> None:
    wanted = session.node.config.password
    if not wanted:
        raise CommandError("ERR AUTH was given, but this node has no password")
    well = hmac.compare_digest(password, wanted.encode())
    if not well or user != b"default":
        raise CommandError("WRONGPASS invalid username-password pair or user is disabled.")
    session.log_in()


def hello(session: Session, words: list[bytes]) -> None:
    version = session.version
    options = iter(words)
    first = next(options, None)
    if first is not None:
        if first not in (b"2", b"3"):
            raise CommandError("NOPROTO unsupported protocol version")
        version = int(first)
    name = session.name
    for option in options:
        if option.upper() == b"AUTH":
            _check_password(session, next(options, b""), next(options, b""))
        elif option.upper() == b"SETNAME":
            name = _client_name(next(options, b""))
        else:
            raise CommandError(
                f"{_SYNTAX} in HELLO option '{option[:32].decode(errors='replace')}'"
            )
    if not session.logged_in:
        raise CommandError(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the "
            "HELLO <proto> AUTH <user> <pass> option can be used"
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


def _client_name(word: bytes) -> str:
    if len(word) > _MAX_NAME or any(byte < 33 or byte > 126 for byte in word):
        raise CommandError(
            "ERR Client names cannot contain spaces, newlines or special characters."
        )
    return word.decode()


def client(session: Session, words: list[bytes]) -> None:
    what = words[0].upper()
    if what == b"SETNAME" and len(words) == 2:
        session.name = _client_name(words[1])
        session.reply(replies.OK)
    elif what == b"SETINFO" and len(words) == 3:
        attribute = words[1].decode(errors="replace").lower()
        if attribute not in ("lib-name", "lib-ver"):
            raise CommandError("ERR Unrecognized option of CLIENT SETINFO")
        session.library[attribute] = _client_name(words[2])
        session.reply(replies.OK)
    elif what == b"GETNAME" and len(words) == 1:
        session.reply(replies.text(session.name))
    elif what == b"ID" and len(words) == 1:
        session.reply(replies.integer(session.id))
    elif what == b"INFO" and len(words) == 1:
        session.reply(replies.text(_describe(session) + "\n"))
    elif what == b"LIST" and len(words) == 1:
        every = (_describe(other) + "\n" for other in session.node.sessions.values())
        session.reply(replies.text("".join(every)))
    else:
        raise CommandError(f"ERR unknown subcommand '{what[:32].decode(errors='replace')}'")


def _describe(session: Session) -> str:
    age = int(time.monotonic() - session.born_at)
    library = session.library
    return (
        f"id={session.id} name={session.name} age={age} db=0 cmd={session.last_command} "
        f"resp={session.version} lib-name={library.get('lib-name', '')} "
        f"lib-ver={library.get('lib-ver', '')}"
    )


# -- node --------------------------------------------------------------------------------------
def dbsize(session: Session, _words: list[bytes]) -> None:
    session.reply(replies.integer(session.node.store.usage().entries))


def scan(session: Session, words: list[bytes]) -> None:
    pattern, count = None, 10
    options = iter(words[1:])
    for option in options:
        name, word = option.upper(), next(options, None)
        if name == b"MATCH" and word is not None:
            pattern = _pattern(word)
        elif name == b"COUNT" and word is not None and integer(word) > 0:
            count = integer(word)
        else:
            raise CommandError(_SYNTAX)
    found = session.node.walk(integer(words[0]), count)
    if found is None:
        raise CommandError("ERR invalid cursor")
    cursor, keys = found
    items = [replies.bulk(key) for key in _alive(session, keys, pattern)]
    session.reply(replies.array([replies.text(str(cursor)), replies.array(items)]))


def keys(session: Session, words: list[bytes]) -> None:
    found = _alive(session, list(session.node.store.keys()), _pattern(words[0]))
    session.reply(replies.array([replies.bulk(key) for key in found]))


def _pattern(word: bytes) -> Pattern[bytes]:
    return compile_pattern(translate(word.decode("latin-1")).encode("latin-1"), DOTALL)


def _alive(
    session: Session, candidates: list[bytes], pattern: Pattern[bytes] | None
) -> list[bytes]:
    now, store = time.monotonic(), session.node.store
    return [
        key
        for key in candidates
        if (pattern is None or pattern.match(key)) and store.peek(key, now) is not None
    ]


def flush(session: Session, _words: list[bytes]) -> None:
    if not session.node.config.allow_flush:
        raise CommandError(
            "ERR dropping everything is switched off here (start with --allow-flush)"
        )
    session.node.store.clear(time.monotonic())
    session.reply(replies.OK)


def config(session: Session, words: list[bytes]) -> None:
    if words[0].upper() != b"GET" or len(words) < 2:
        raise CommandError("ERR settings are given on the command line; only CONFIG GET is known")
    settings = {
        "maxmemory": str(session.node.config.memory_bytes),
        "maxmemory-policy": "allkeys-lru",
        "maxclients": str(session.node.config.max_clients),
        "proto-max-bulk-len": str(session.node.config.max_value_bytes),
        "databases": "1",
        "save": "",
        "appendonly": "no",
    }
    wanted = [_pattern(word.lower()) for word in words[1:]]
    pairs = [
        (replies.text(name), replies.text(value))
        for name, value in settings.items()
        if any(pattern.match(name.encode()) for pattern in wanted)
    ]
    session.reply(replies.mapping(pairs, session.version))


def info(session: Session, words: list[bytes]) -> None:
    wanted = {word.decode(errors="replace").lower() for word in words}
    everything = not wanted or wanted & {"all", "default", "everything"}
    parts = [
        f"# {title}\r\n" + "".join(f"{name}:{value}\r\n" for name, value in facts.items())
        for title, facts in _sections(session).items()
        if everything or title.lower() in wanted
    ]
    session.reply(replies.text("\r\n".join(parts)))


def _sections(session: Session) -> dict[str, dict[str, object]]:
    node = session.node
    usage, counters = node.store.usage(), node.counters
    hits, lookups = counters.hit_rate()
    evicted = sum(counters.evicted.values())
    return {
        "Server": {
            "redis_version": REDIS_VERSION,
            "server_name": "emberline",
            "emberline_version": VERSION,
            "redis_mode": "standalone",
            "os": platform.platform(),
            "process_id": os.getpid(),
            "run_id": node.run_id,
            "tcp_port": node.config.listen.port,
            "uptime_in_seconds": int(time.monotonic() - node.started_at),
        },
        "Clients": {
            "connected_clients": len(node.sessions),
            "maxclients": node.config.max_clients,
        },
        "Memory": {
            "used_memory": usage.used_bytes,
            "maxmemory": usage.capacity_bytes,
            "maxmemory_policy": "allkeys-lru",
        },
        "Stats": {
            "keyspace_hits": hits,
            "keyspace_misses": lookups - hits,
            "evicted_keys": evicted,
            "total_net_output_bytes": counters.read_bytes,
            "total_net_input_bytes": counters.written_bytes,
        },
        "Replication": {"role": "master", "connected_slaves": 0},
        "Keyspace": {"db0": f"keys={usage.entries}"} if usage.entries else {},
    }


def command(session: Session, words: list[bytes]) -> None:
    what = words[0].upper() if words else b""
    named = [TABLE.get(word.decode(errors="replace").lower()) for word in words[1:]]
    if what == b"COUNT":
        session.reply(replies.integer(len(TABLE)))
    elif what in (b"", b"INFO"):
        chosen = named if words[1:] else list(TABLE.values())
        session.reply(replies.array([_entry(session, one) for one in chosen]))
    elif what == b"DOCS":
        docs = [one for one in named if one] if words[1:] else list(TABLE.values())
        pairs = [(replies.text(one.name), _documentation(session, one)) for one in docs]
        session.reply(replies.mapping(pairs, session.version))
    else:
        raise CommandError(f"ERR unknown subcommand '{what[:32].decode(errors='replace')}'")


def _entry(session: Session, one: Command | None) -> bytes:
    if one is None:
        return replies.null(session.version)
    return replies.array(
        [
            replies.text(one.name),
            replies.integer(one.arity),
            replies.array([replies.simple(flag) for flag in one.flags]),
            replies.integer(one.first_key),
            replies.integer(one.last_key),
            replies.integer(one.step),
            *([replies.array([])] * 4),  # ACL categories, tips, key specs, subcommands
        ]
    )


def _documentation(session: Session, one: Command) -> bytes:
    pairs = [
        (replies.text("summary"), replies.text(one.summary)),
        (replies.text("group"), replies.text("string" if one.first_key else "server")),
    ]
    return replies.mapping(pairs, session.version)


HANDLERS: dict[str, Handler] = {
    "ping": ping,
    "echo": echo,
    "quit": quit_,
    "reset": reset,
    "select": select,
    "auth": auth,
    "hello": hello,
    "client": client,
    "dbsize": dbsize,
    "scan": scan,
    "keys": keys,
    "flushall": flush,
    "flushdb": flush,
    "config": config,
    "info": info,
    "command": command,
}
