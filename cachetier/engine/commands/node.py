"""Node commands: DBSIZE, FLUSHALL, TIME, INFO, CONFIG GET and MEMORY USAGE."""

from __future__ import annotations

import time

from cachetier.engine.commands import info
from cachetier.engine.commands.arguments import SYNTAX, make_container, parse_integer
from cachetier.engine.commands.info import REDIS_POLICY
from cachetier.engine.commands.scan import compile_glob
from cachetier.engine.net.session import ClientSession, CommandError, Handler
from cachetier.wire import replies

_MAX_PATTERNS = 64


def dbsize(session: ClientSession, _words: list[bytes]) -> None:
    session.reply(replies.integer(session.node.entries()))


def flush(session: ClientSession, words: list[bytes]) -> None:
    if words and (len(words) > 1 or words[0].upper() not in (b"ASYNC", b"SYNC")):
        raise CommandError(SYNTAX)
    if not session.node.config.allow_flush:
        raise CommandError(
            "ERR dropping everything is switched off here (start with --allow-flush)"
        )
    session.node.store.clear(time.monotonic())
    session.reply(replies.OK)


def config_get(session: ClientSession, words: list[bytes]) -> None:
    if len(words) > _MAX_PATTERNS:
        raise CommandError(f"ERR {len(words)} patterns are more than {_MAX_PATTERNS}")
    wanted = [compile_glob(word.lower()) for word in words]
    pairs = [
        (replies.text(name), replies.text(value))
        for name, value in _list_settings(session).items()
        if any(pattern.fullmatch(name.encode()) for pattern in wanted)
    ]
    session.reply(replies.mapping(pairs, session.version))


def _list_settings(session: ClientSession) -> dict[str, str]:
    """Return the node's settings under Redis' names, without secrets."""
    config, guards = session.node.config, session.node.config.guards
    tls_port = config.listen.port if guards.tls is not None else 0
    return {
        "appendonly": "no",
        "bind": config.listen.host,
        "databases": "1",
        "maxclients": str(config.max_clients),
        "maxmemory": str(session.node.store.usage().capacity_bytes),
        "maxmemory-policy": REDIS_POLICY,
        "port": str(0 if tls_port else config.listen.port),
        "proto-max-bulk-len": str(config.max_value_bytes),
        "protected-mode": "no" if guards.unprotected else "yes",
        "save": "",
        "timeout": f"{guards.idle_timeout_s:.0f}",
        "tls-auth-clients": "yes" if guards.asks_for_certificates else "no",
        "tls-port": str(tls_port),
    }


def memory_usage(session: ClientSession, words: list[bytes]) -> None:
    options = words[1:]
    if options and (len(options) != 2 or options[0].upper() != b"SAMPLES"):
        raise CommandError(SYNTAX)
    if options and parse_integer(options[1]) < 0:
        raise CommandError(SYNTAX)
    facts = session.node.store.peek(words[0], time.monotonic())
    if facts is None:
        session.reply(replies.null(session.version))
        return
    session.reply(replies.integer(facts.cost))


def time_(session: ClientSession, _words: list[bytes]) -> None:
    seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
    session.reply(replies.array([replies.text(str(seconds)), replies.text(str(microseconds))]))


HANDLERS: dict[str, Handler] = {
    "dbsize": dbsize,
    "flushall": flush,
    "flushdb": flush,
    "time": time_,
    "info": info.info,
    "config": make_container("config", {"get": config_get}),
    "memory": make_container("memory", {"usage": memory_usage}),
}
