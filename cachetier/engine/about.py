"""The commands about the node: what is here, how it is going, what it was told."""

from __future__ import annotations

import os
import platform
import time

from cachetier.engine.connection import REDIS_VERSION
from cachetier.engine.disk import facts
from cachetier.engine.globs import compile_glob
from cachetier.engine.lifetimes import SYNTAX, integer
from cachetier.engine.node import VERSION
from cachetier.engine.session import CommandError, Handler, Session
from cachetier.engine.subcommands import container
from cachetier.wire import replies


def dbsize(session: Session, _words: list[bytes]) -> None:
    session.reply(replies.integer(session.node.entries()))


def flush(session: Session, words: list[bytes]) -> None:
    if words and (len(words) > 1 or words[0].upper() not in (b"ASYNC", b"SYNC")):
        raise CommandError(SYNTAX)
    if not session.node.config.allow_flush:
        raise CommandError(
            "ERR dropping everything is switched off here (start with --allow-flush)"
        )
    session.node.store.clear(time.monotonic())
    session.reply(replies.OK)


def config_get(session: Session, words: list[bytes]) -> None:
    wanted = [compile_glob(word.lower()) for word in words]
    pairs = [
        (replies.text(name), replies.text(value))
        for name, value in _settings(session).items()
        if any(pattern.fullmatch(name.encode()) for pattern in wanted)
    ]
    session.reply(replies.mapping(pairs, session.version))


def _settings(session: Session) -> dict[str, str]:
    """Redis' names for what this node has; never a secret."""
    config = session.node.config
    return {
        "appendonly": "no",
        "bind": config.listen.host,
        "databases": "1",
        "maxclients": str(config.max_clients),
        "maxmemory": str(session.node.store.usage().capacity_bytes),
        "maxmemory-policy": "allkeys-lru",
        "port": str(config.listen.port),
        "proto-max-bulk-len": str(config.max_value_bytes),
        "save": "",
    }


def memory_usage(session: Session, words: list[bytes]) -> None:
    options = words[1:]
    if options and (len(options) != 2 or options[0].upper() != b"SAMPLES"):
        raise CommandError(SYNTAX)
    if options and integer(options[1]) < 0:
        raise CommandError(SYNTAX)
    facts = session.node.store.peek(words[0], time.monotonic())
    if facts is None:
        session.reply(replies.null(session.version))
        return
    session.reply(replies.integer(facts.cost))


def time_(session: Session, _words: list[bytes]) -> None:
    seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
    session.reply(replies.array([replies.text(str(seconds)), replies.text(str(microseconds))]))


def info(session: Session, words: list[bytes]) -> None:
    wanted = {word.decode(errors="replace").lower() for word in words}
    everything = not wanted or wanted & {"all", "default", "everything"}
    parts = [
        f"# {title}\r\n" + "".join(f"{name}:{value}\r\n" for name, value in facts.items())
        for title, facts in _sections(session).items()
        if everything or title.lower() in wanted
    ]
    session.reply(replies.verbatim("\r\n".join(parts), session.version))


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
        "Keyspace": {"db0": f"keys={node.entries()}"} if node.entries() else {},
        "Disk": {} if node.disk is None else facts.about(node.disk.usage(), node.disk.counters),
    }


HANDLERS: dict[str, Handler] = {
    "dbsize": dbsize,
    "flushall": flush,
    "flushdb": flush,
    "time": time_,
    "info": info,
    "config": container("config", {"get": config_get}),
    "memory": container("memory", {"usage": memory_usage}),
}
