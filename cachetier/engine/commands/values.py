"""Key and value commands."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from functools import partial

from cachetier.engine.commands.arguments import (
    MAX_TTL_S,
    SYNTAX,
    may_expire,
    parse_integer,
    parse_lifetime,
    parse_set_options,
)
from cachetier.engine.commands.retrieval import fetch_from_disk, find_value, load_value
from cachetier.engine.net.session import ClientSession, CommandError, Handler, ReplySteps
from cachetier.engine.node import Node
from cachetier.engine.store import Condition, Declined, DeclineReason, DiskValue, Hold
from cachetier.wire import envelope, replies
from cachetier.wire.frames import Argument, RefusedFrame

_MAX_KEY_BYTES = 4096
# Keys of one command executed without yielding to other clients.
_KEYS_PER_SLICE = 64
# Bytes of a long value copied at a time.
_PART_BYTES = 256 * 1024


def get(session: ClientSession, words: list[bytes]) -> ReplySteps | None:
    value = find_value(session, words[0])
    if value is None or isinstance(value, Hold):
        session.reply_value(value)
        return None
    rest = _get_from_disk(session, words[0], value)
    next(rest)  # once started, it releases the value if the client disconnects
    return rest


def _get_from_disk(session: ClientSession, key: bytes, value: DiskValue) -> ReplySteps:
    session.reply_value((yield from fetch_from_disk(session, key, value)))


def mget(session: ClientSession, words: list[bytes]) -> ReplySteps:
    session.reply(replies.array_head(len(words)))
    for key in words:
        session.reply_value((yield from load_value(session, key)))
        yield


def getrange(session: ClientSession, words: list[bytes]) -> ReplySteps:
    first, last = parse_integer(words[1]), parse_integer(words[2])
    return _getrange(session, words[0], first, last)


def _getrange(session: ClientSession, key: bytes, first: int, last: int) -> ReplySteps:
    value = yield from load_value(session, key)
    length = 0 if value is None else value.length
    backwards = first < 0 and last < 0 and first > last
    first = max(first + length, 0) if first < 0 else first
    last = max(last + length, 0) if last < 0 else last
    stop = 0 if backwards else max(min(last + 1, length), 0)
    try:
        if value is None or first >= stop:
            session.reply(replies.bulk(b""))
        else:
            yield from _reply_parts(session, value, first, stop)
    finally:
        if value is not None:
            value.release()


def _reply_parts(
    session: ClientSession, value: Hold | DiskValue, first: int, stop: int
) -> ReplySteps:
    session.node.counters.read_bytes += stop - first
    session.reply(replies.bulk_head(stop - first))
    for place in range(first, stop, _PART_BYTES):
        session.reply(_copy_range(value, place, min(place + _PART_BYTES, stop)))
        session.flush()  # copy no more than the client reads
        yield
    session.reply(b"\r\n")


def _copy_range(value: Hold | DiskValue, start: int, stop: int) -> bytes:
    if not isinstance(value, Hold):
        return os.pread(value.fd, stop - start, value.offset + start)
    parts: list[memoryview] = []
    place = 0
    for view in value.views:
        parts.append(view[max(start - place, 0) : max(stop - place, 0)])
        place += len(view)
    return b"".join(parts)


def exists(session: ClientSession, words: list[bytes]) -> ReplySteps | None:
    return _count(session, words, _key_exists)


def _key_exists(node: Node, key: bytes) -> bool:
    is_hit = node.store.touch(key, time.monotonic())
    node.counters.operations["exists", "hit" if is_hit else "miss"] += 1
    if key.startswith(envelope.PREFIX):
        node.looked_up(key, is_hit)
    return is_hit


def _count(
    session: ClientSession, words: list[bytes], holds: Callable[[Node, bytes], bool]
) -> ReplySteps | None:
    """Reply with the number of keys for which `holds` is true."""
    if len(words) > _KEYS_PER_SLICE:
        return _count_in_slices(session, words, holds)
    session.reply(replies.integer(sum([holds(session.node, key) for key in words])))
    return None


def _count_in_slices(
    session: ClientSession, words: list[bytes], holds: Callable[[Node, bytes], bool]
) -> ReplySteps:
    count = 0
    for key in words:
        count += holds(session.node, key)
        yield
    session.reply(replies.integer(count))


def strlen(session: ClientSession, words: list[bytes]) -> None:
    entry = session.node.store.peek(words[0], time.monotonic())
    session.reply(replies.integer(entry.length if entry else 0))


def type_(session: ClientSession, words: list[bytes]) -> None:
    there = session.node.store.peek(words[0], time.monotonic()) is not None
    session.reply(replies.simple("string" if there else "none"))


def set_(session: ClientSession, words: list[bytes]) -> None:
    if len(words) == 2:
        stored = _put(session, words[0], None, Condition.ALWAYS)
        session.reply(replies.OK if stored else replies.null(session.version))
        return
    options = parse_set_options(words[2:])
    ttl_s = options.ttl_s
    if options.keep_ttl:
        left = session.node.store.ttl(words[0], time.monotonic())
        ttl_s = None if left in (None, math.inf) else left
    stored = _put(session, words[0], ttl_s, options.condition)
    if stored and ttl_s == 0.0:
        session.node.store.drop(words[0], time.monotonic())
    session.reply(replies.OK if stored else replies.null(session.version))


def _set_expiring(
    session: ClientSession, words: list[bytes], *, command: str, unit_s: float
) -> None:
    _put(session, words[0], parse_lifetime(words[1], unit_s, command), Condition.ALWAYS)
    session.reply(replies.OK)


def setnx(session: ClientSession, words: list[bytes]) -> None:
    stored = _put(session, words[0], None, Condition.ABSENT)
    session.reply(replies.integer(int(stored)))


def _put(session: ClientSession, key: bytes, ttl_s: float | None, condition: Condition) -> bool:
    """Store the value; return False if the condition was not met."""
    node, value = session.node, session.value
    if value is None:
        raise CommandError(SYNTAX)
    if len(key) > _MAX_KEY_BYTES:
        raise CommandError(f"ERR a key of {len(key)} bytes is longer than {_MAX_KEY_BYTES}")
    if isinstance(value, RefusedFrame):  # condition failed before the value arrived
        return _accept_discarded(session, key, value, ttl_s, condition)
    length = len(value) if isinstance(value, bytes) else value.length
    _check_envelope(session, key, value, length)
    declined = _store(session, key, value, ttl_s, condition)
    if declined is not None and declined.reason not in (DeclineReason.EXISTS, DeclineReason.ABSENT):
        raise session.refusal(declined.reason, length, declined.detail)
    node.counters.operations["put", "ok"] += 1
    if declined is None:
        node.counters.written_bytes += length
        if session.name in node.counters.moved_in:
            node.counters.moved_in[session.name] += 1
    return declined is None


def _store(
    session: ClientSession, key: bytes, value: Argument, ttl_s: float | None, condition: Condition
) -> Declined | None:
    now = time.monotonic()
    if isinstance(value, bytes):
        return session.node.store.put(key, value, now=now, ttl_s=ttl_s, condition=condition)
    room = session.take_room()
    return room.commit(now, ttl_s, condition)


def _accept_discarded(
    session: ClientSession,
    key: bytes,
    value: RefusedFrame,
    ttl_s: float | None,
    condition: Condition,
) -> bool:
    """Handle a discarded value whose key exists. For a block, the existing value is identical."""
    session.node.counters.operations["put", "ok"] += 1
    if value.reason == DeclineReason.ABSENT or condition is Condition.ABSENT:
        return False
    session.node.store.expire(key, ttl_s, time.monotonic())
    return True


def _check_envelope(session: ClientSession, key: bytes, value: Argument, length: int) -> None:
    """Reject a block truncated in transit now, instead of on a later read."""
    if not key.startswith(envelope.PREFIX) or isinstance(value, RefusedFrame):
        return
    first = value if isinstance(value, bytes) else value.views[0]
    head = memoryview(first)[: envelope.HEADER_BYTES]
    if envelope.expected_length(head, key) != length - envelope.HEADER_BYTES:
        session.node.counters.integrity_failures += 1
        raise CommandError("ERR the block's envelope does not fit its key or its length")


def delete(session: ClientSession, words: list[bytes]) -> ReplySteps | None:
    return _count(session, words, _drop)


def _drop(node: Node, key: bytes) -> bool:
    there = node.store.drop(key, time.monotonic())
    node.counters.operations["delete", "ok" if there else "miss"] += 1
    return there


def _reply_ttl(
    session: ClientSession, words: list[bytes], *, per_second: int, is_moment: bool = False
) -> None:
    """Reply with the time left, or with the wall clock time of the end."""
    left = session.node.store.ttl(words[0], time.monotonic())
    if left is None or left == math.inf:
        answer = -2 if left is None else -1
    else:
        answer = round((left + (time.time() if is_moment else 0.0)) * per_second)
    session.reply(replies.integer(answer))


def _expire(
    session: ClientSession, words: list[bytes], *, per_second: int, is_moment: bool = False
) -> None:
    seconds = parse_integer(words[1]) / per_second - (time.time() if is_moment else 0.0)
    store, now, key = session.node.store, time.monotonic(), words[0]
    left = store.ttl(key, now)
    allowed = may_expire(words[2:], math.inf if left is None else left, seconds)
    if left is None or not allowed:
        done = False
    elif seconds <= 0:
        done = store.drop(key, now)
    else:
        done = store.expire(key, min(seconds, MAX_TTL_S), now)
    session.reply(replies.integer(int(done)))


def persist(session: ClientSession, words: list[bytes]) -> None:
    store, now = session.node.store, time.monotonic()
    left = store.ttl(words[0], now)
    had_end = left is not None and left != math.inf
    if had_end:
        store.expire(words[0], None, now)
    session.reply(replies.integer(int(had_end)))


HANDLERS: dict[str, Handler] = {
    "get": get,
    "mget": mget,
    "getrange": getrange,
    "exists": exists,
    "touch": exists,
    "strlen": strlen,
    "type": type_,
    "set": set_,
    "setex": partial(_set_expiring, command="setex", unit_s=1.0),
    "psetex": partial(_set_expiring, command="psetex", unit_s=0.001),
    "setnx": setnx,
    "del": delete,
    "unlink": delete,
    "ttl": partial(_reply_ttl, per_second=1),
    "pttl": partial(_reply_ttl, per_second=1000),
    "expire": partial(_expire, per_second=1),
    "pexpire": partial(_expire, per_second=1000),
    "expireat": partial(_expire, per_second=1, is_moment=True),
    "pexpireat": partial(_expire, per_second=1000, is_moment=True),
    "expiretime": partial(_reply_ttl, per_second=1, is_moment=True),
    "pexpiretime": partial(_reply_ttl, per_second=1000, is_moment=True),
    "persist": persist,
}
