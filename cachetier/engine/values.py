"""The commands about keys and values. Each handler reads its words, asks the store, replies."""

from __future__ import annotations

import math
import time

from cachetier.engine.session import CommandError, Handler, Rest, Session
from cachetier.engine.store import Condition, TooLargeError, Value
from cachetier.wire import envelope, keys, replies

_NOT_INTEGER = "ERR value is not an integer or out of range"
_SYNTAX = "ERR syntax error"
_MAX_KEY_BYTES = 4096
# A hundred years: what a longer life would mean is "for ever", and arithmetic stays exact.
_MAX_TTL_S = 100 * 365 * 86400


def integer(word: bytes) -> int:
    try:
        return int(word)
    except ValueError:
        raise CommandError(_NOT_INTEGER) from None


def _ttl(word: bytes, unit_s: float, command: str) -> float:
    seconds = integer(word) * unit_s
    if not 0 < seconds <= _MAX_TTL_S:
        raise CommandError(f"ERR invalid expire time in '{command}' command")
    return seconds


# -- reading -----------------------------------------------------------------------------------
def get(session: Session, words: list[bytes]) -> None:
    session.reply_value(_find(session, words[0]))


def mget(session: Session, words: list[bytes]) -> Rest:
    session.reply(replies.array_head(len(words)))
    for key in words:
        session.reply_value(_find(session, key))
        yield


def getrange(session: Session, words: list[bytes]) -> None:
    first, last = integer(words[1]), integer(words[2])
    value = _find(session, words[0]) or b""
    backwards = first < 0 and last < 0 and first > last
    first = max(first + len(value), 0) if first < 0 else first
    last = max(last + len(value), 0) if last < 0 else last
    part = b"" if backwards else bytes(memoryview(value)[first : last + 1])
    session.reply_value(part)


def _find(session: Session, key: bytes) -> Value | None:
    counters = session.node.counters
    value = session.node.store.get(key, time.monotonic())
    counters.operations["get", "miss" if value is None else "hit"] += 1
    if not key.startswith(keys.PREFIX):  # a block was looked up by EXISTS before
        counters.looked_up("", value is not None)
    return value


def exists(session: Session, words: list[bytes]) -> None:
    counters = session.node.counters
    count = 0
    for key in words:
        found = session.node.store.touch(key, time.monotonic())
        counters.operations["exists", "hit" if found else "miss"] += 1
        if key.startswith(keys.PREFIX):
            counters.looked_up(keys.namespace_of(key), found)
        count += found
    session.reply(replies.integer(count))


def strlen(session: Session, words: list[bytes]) -> None:
    session.reply(replies.integer(len(_peek(session, words[0]) or b"")))


def type_(session: Session, words: list[bytes]) -> None:
    there = _peek(session, words[0]) is not None
    session.reply(replies.simple("string" if there else "none"))


def _peek(session: Session, key: bytes) -> Value | None:
    return session.node.store.peek(key, time.monotonic())


# -- writing -----------------------------------------------------------------------------------
def set_(session: Session, words: list[bytes]) -> None:
    ttl_s: float | None = None
    condition = Condition.ALWAYS
    options = iter(words[2:])
    for option in options:
        name = option.upper()
        if name in (b"EX", b"PX") and ttl_s is None:
            ttl_s = _ttl(next(options, b""), 1.0 if name == b"EX" else 0.001, "set")
        elif name == b"NX" and condition is Condition.ALWAYS:
            condition = Condition.ABSENT
        elif name == b"XX" and condition is Condition.ALWAYS:
            condition = Condition.PRESENT
        else:
            raise CommandError(_SYNTAX)
    stored = _put(session, words[0], ttl_s, condition)
    session.reply(replies.OK if stored else replies.null(session.version))


def setex(session: Session, words: list[bytes]) -> None:
    _put(session, words[0], _ttl(words[1], 1.0, "setex"), Condition.ALWAYS)
    session.reply(replies.OK)


def psetex(session: Session, words: list[bytes]) -> None:
    _put(session, words[0], _ttl(words[1], 0.001, "psetex"), Condition.ALWAYS)
    session.reply(replies.OK)


def setnx(session: Session, words: list[bytes]) -> None:
    stored = _put(session, words[0], None, Condition.ABSENT)
    session.reply(replies.integer(int(stored)))


def _put(session: Session, key: bytes, ttl_s: float | None, condition: Condition) -> bool:
    node = session.node
    value = session.value
    if value is None:
        raise CommandError(_SYNTAX)
    if len(key) > _MAX_KEY_BYTES:
        raise CommandError(f"ERR a key of {len(key)} bytes is longer than {_MAX_KEY_BYTES}")
    _check_envelope(session, key, value)
    try:
        stored = node.store.put(key, value, now=time.monotonic(), ttl_s=ttl_s, condition=condition)
    except TooLargeError as exc:
        node.counters.rejected["too_large"] += 1
        raise CommandError(f"ERR the value is larger than this node: {exc}") from None
    node.counters.operations["put", "ok"] += 1
    if stored:
        node.counters.written_bytes += len(value)
    return stored


def _check_envelope(session: Session, key: bytes, value: Value) -> None:
    """A block that was cut short on its way in is refused now rather than found out later."""
    if not key.startswith(keys.PREFIX):
        return
    head = memoryview(value)[: envelope.HEADER_BYTES]
    if envelope.expected_length(head, key) != len(value) - envelope.HEADER_BYTES:
        session.node.counters.integrity_failures += 1
        raise CommandError("ERR the block's envelope does not fit its key or its length")


def delete(session: Session, words: list[bytes]) -> None:
    count = 0
    for key in words:
        there = session.node.store.drop(key, time.monotonic())
        session.node.counters.operations["delete", "ok" if there else "miss"] += 1
        count += there
    session.reply(replies.integer(count))


# -- time --------------------------------------------------------------------------------------
def ttl(session: Session, words: list[bytes]) -> None:
    _reply_ttl(session, words[0], 1.0)


def pttl(session: Session, words: list[bytes]) -> None:
    _reply_ttl(session, words[0], 1000.0)


def _reply_ttl(session: Session, key: bytes, per_second: float) -> None:
    left = session.node.store.ttl(key, time.monotonic())
    if left is None:
        answer = -2
    elif left == math.inf:
        answer = -1
    else:
        answer = round(left * per_second)
    session.reply(replies.integer(answer))


def expire(session: Session, words: list[bytes]) -> None:
    _expire(session, words[0], integer(words[1]))


def pexpire(session: Session, words: list[bytes]) -> None:
    _expire(session, words[0], integer(words[1]) / 1000)


def _expire(session: Session, key: bytes, seconds: float) -> None:
    store, now = session.node.store, time.monotonic()
    if seconds <= 0:
        done = store.drop(key, now)
    else:
        done = store.expire(key, min(seconds, _MAX_TTL_S), now)
    session.reply(replies.integer(int(done)))


def persist(session: Session, words: list[bytes]) -> None:
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
    "setex": setex,
    "psetex": psetex,
    "setnx": setnx,
    "del": delete,
    "unlink": delete,
    "ttl": ttl,
    "pttl": pttl,
    "expire": expire,
    "pexpire": pexpire,
    "persist": persist,
}
