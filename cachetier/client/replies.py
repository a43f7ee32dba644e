"""One key's request and the reading of its reply, as an Outcome; the connection stays in step.

Whatever ends the connection is raised (CacheError); whatever concerns the one value is returned.
"""

from __future__ import annotations

from cachetier.client.cluster import Redirect, read_redirect
from cachetier.client.connection import BrokenError, Connection, ReplyError
from cachetier.client.outcomes import KeyOutcome
from cachetier.wire import envelope

# Longer than any reply that is not ours may be before the connection is dropped instead of read.
_MAX_SKIP = 64 * 1024 * 1024
# An error which is about who we are or how the node is, not about the value.
_ABOUT_THE_NODE = (
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "READONLY",
    "DENIED",
)

# What the envelope says of a body which came whole.
INTACT = {True: KeyOutcome.OK, False: KeyOutcome.CORRUPT, None: KeyOutcome.UNREADABLE}

# Where a cluster's node sent us for a key; filled by the readers below.
Redirects = dict[bytes, Redirect]


def exists_reply(
    connection: Connection, key: bytes, redirects: Redirects, deadline: float
) -> KeyOutcome:
    try:
        return KeyOutcome.OK if connection.read_integer(deadline) else KeyOutcome.MISSING
    except ReplyError as exc:
        return _refusal(exc, key, redirects)


def store_reply(
    connection: Connection, key: bytes, redirects: Redirects, deadline: float
) -> KeyOutcome:
    try:
        connection.read_ok(deadline)  # False: it was there already, which is as good
    except ReplyError as exc:
        return _refusal(exc, key, redirects)
    return KeyOutcome.OK


def load_reply(
    connection: Connection, key: bytes, target: memoryview, redirects: Redirects, deadline: float
) -> KeyOutcome:
    try:
        length = connection.read_bulk_length(deadline)
    except ReplyError as exc:
        return _refusal(exc, key, redirects)
    if length < 0:
        return KeyOutcome.MISSING
    if length > _MAX_SKIP and length != envelope.HEADER_BYTES + target.nbytes:
        raise BrokenError(f"a value of {length} bytes where {target.nbytes} were expected")
    header = bytearray(min(length, envelope.HEADER_BYTES))
    connection.read_into(memoryview(header), deadline)
    rest = length - len(header)
    if envelope.expected_length(header, key) != rest or rest != target.nbytes:
        connection.skip(rest, deadline)
        connection.end_bulk(deadline)
        return KeyOutcome.CORRUPT
    connection.read_into(target, deadline)
    connection.end_bulk(deadline)
    return INTACT[envelope.is_intact(header, target)]


def _refusal(exc: ReplyError, key: bytes, redirects: Redirects) -> KeyOutcome:
    """An answered error is about this value (full, too large), unless it is about the node."""
    text = str(exc)
    if text.startswith(_ABOUT_THE_NODE):
        raise BrokenError(text) from None
    redirect = read_redirect(text)
    if redirect is None:
        return KeyOutcome.REFUSED
    redirects[key] = redirect
    return KeyOutcome.MOVED


def set_head(key: bytes, body: memoryview, words: int) -> bytes:
    header = envelope.pack(key, body, envelope.fastest_seal())
    length = len(header) + body.nbytes
    return b"*%d\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b" % (
        words,
        len(key),
        key,
        length,
        header,
    )


def set_tail(ttl_s: int) -> bytes:
    tail = b"\r\n$2\r\nNX\r\n"
    if ttl_s:
        tail += b"$2\r\nEX\r\n$%d\r\n%d\r\n" % (len(str(ttl_s)), ttl_s)
    return tail
