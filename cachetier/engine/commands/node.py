"""Node commands: DBSIZE, FLUSHALL, TIME, INFO, CONFIG GET and MEMORY USAGE."""

from __future__ import annotations

import os
import platform
import time

from cachetier.engine.commands.arguments import SYNTAX, make_container, parse_integer
from cachetier.engine.commands.connection import REDIS_VERSION
from cachetier.engine.commands.scan import compile_glob
from cachetier.engine.disk import counters as disk_facts
from cachetier.engine.net.session import ClientSession, CommandError, Handler
from cachetier.engine.node import VERSION, Node, is_compiled
from cachetier.engine.store import EvictionReason
from cachetier.wire import replies

# Closest Redis term: any key may be evicted, whatever the policy.
REDIS_POLICY = "allkeys-lru"
# Shown only on explicit request or with "everything".
_EXPLICIT_SECTIONS = ("commandstats",)

InfoFields = dict[str, object]


def info(session: ClientSession, words: list[bytes]) -> None:
    sections = {word.decode(errors="replace").lower() for word in words}
    standard = not sections or "default" in sections
    everything = bool(sections & {"all", "everything"})
    parts = [
        f"# {title}\r\n" + "".join(f"{name}:{value}\r\n" for name, value in section.items())
        for title, section in _sections(session.node).items()
        if everything
        or title.lower() in sections
        or (standard and title.lower() not in _EXPLICIT_SECTIONS)
    ]
    session.reply(replies.verbatim("\r\n".join(parts), session.version))


def _sections(node: Node) -> dict[str, InfoFields]:
    entries = node.entries()
    return {
        "Server": _server(node),
        "Clients": {
            "connected_clients": len(node.sessions),
            "maxclients": node.config.max_clients,
            "blocked_clients": 0,
        },
        "Memory": _memory(node),
        "Persistence": {"loading": 0, "async_loading": 0},
        "Stats": _stats(node),
        "Replication": {"role": "master", "connected_slaves": 0},
        "Commandstats": _commands(node),
        "Keyspace": {"db0": f"keys={entries}"} if entries else {},
        "Disk": {}
        if node.disk is None
        else disk_facts.info_fields(node.disk.usage(), node.disk.counters),
    }


def _server(node: Node) -> InfoFields:
    uptime_s = int(time.monotonic() - node.started_at)
    return {
        "redis_version": REDIS_VERSION,
        "server_name": "emberline",
        "emberline_version": VERSION,
        "emberline_compiled": "yes" if is_compiled() else "no",
        "redis_mode": "standalone",
        "os": platform.platform(),
        "arch_bits": 64,
        "process_id": os.getpid(),
        "run_id": node.run_id,
        "tcp_port": node.config.listen.port,
        "server_time_usec": time.time_ns() // 1000,
        "uptime_in_seconds": uptime_s,
        "uptime_in_days": uptime_s // 86400,
    }


def _memory(node: Node) -> InfoFields:
    usage = node.store.usage()
    return {
        "used_memory": usage.used_bytes,
        "used_memory_human": _format_bytes(usage.used_bytes),
        "maxmemory": usage.capacity_bytes,
        "maxmemory_human": _format_bytes(usage.capacity_bytes),
        "maxmemory_policy": REDIS_POLICY,
        "emberline_policy": node.config.policy,
        "emberline_held_bytes": usage.held_bytes,
        "emberline_receiving_bytes": usage.receiving_bytes,
    }


def _stats(node: Node) -> InfoFields:
    counters = node.counters
    hits, lookups = counters.hit_rate()
    expired = counters.evicted[EvictionReason.TTL]
    return {
        "total_commands_processed": sum(calls.count for calls in node.calls.values()),
        "total_net_input_bytes": counters.written_bytes,
        "total_net_output_bytes": counters.read_bytes,
        "rejected_connections": counters.closed["max_clients"],
        "expired_keys": expired,
        "evicted_keys": counters.evicted[EvictionReason.CAPACITY],
        "keyspace_hits": hits,
        "keyspace_misses": lookups - hits,
    }


def _commands(node: Node) -> InfoFields:
    """Return statistics of every used command, in Redis' format."""
    return {
        f"cmdstat_{name}": (
            f"calls={calls.count},usec={calls.seconds * 1e6:.0f},"
            f"usec_per_call={calls.seconds * 1e6 / calls.count:.2f},failed_calls={calls.failed}"
        )
        for name, calls in node.calls.items()
        if calls.count
    }


def _format_bytes(count: int) -> str:
    size, unit = float(count), "B"
    for unit in ("B", "K", "M", "G"):
        if size < 1024 or unit == "G":
            break
        size /= 1024
    return f"{count}B" if unit == "B" else f"{size:.2f}{unit}"


_MAX_PATTERNS = 64


def dbsize(session: ClientSession, _words: list[bytes]) -> None:
    session.reply(replies.integer(session.node.entries()))


def flush(session: ClientSession, words: list[bytes]) -> None:
    if words and (len(words) > 1 or words[0].upper() not in (b"ASYNC", b"SYNC")):
        raise CommandError(SYNTAX)
    if not session.node.config.allow_flush:
        raise CommandError("ERR FLUSHALL is disabled (start the node with --allow-flush)")
    session.node.store.clear(time.monotonic())
    session.reply(replies.OK)


def config_get(session: ClientSession, words: list[bytes]) -> None:
    if len(words) > _MAX_PATTERNS:
        raise CommandError(f"ERR {len(words)} patterns are more than {_MAX_PATTERNS}")
    globs = [compile_glob(word.lower()) for word in words]
    pairs = [
        (replies.text(name), replies.text(value))
        for name, value in _list_settings(session).items()
        if any(pattern.fullmatch(name.encode()) for pattern in globs)
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
    entry = session.node.store.peek(words[0], time.monotonic())
    if entry is None:
        session.reply(replies.null(session.version))
        return
    session.reply(replies.integer(entry.cost))


def time_(session: ClientSession, _words: list[bytes]) -> None:
    seconds, microseconds = divmod(time.time_ns() // 1000, 1_000_000)
    session.reply(replies.array([replies.text(str(seconds)), replies.text(str(microseconds))]))


HANDLERS: dict[str, Handler] = {
    "dbsize": dbsize,
    "flushall": flush,
    "flushdb": flush,
    "time": time_,
    "info": info,
    "config": make_container("config", {"get": config_get}),
    "memory": make_container("memory", {"usage": memory_usage}),
}
