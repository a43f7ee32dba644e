"""Requests and reply readers for single keys; the connection stays in sync.

Connection failures raise CacheError; failures of one value are returned as KeyOutcome.
"""

from __future__ import annotations

from cachetier.client.cluster import Redirect, parse_redirect
from cachetier.client.connection import BrokenError, Connection, ReplyError
from cachetier.client.outcomes import KeyOutcome
from cachetier.wire import envelope

# A longer reply of foreign data closes the connection instead of being read.
_MAX_SKIP = 64 * 1024 * 1024
# Error replies about login or node state, not about the value.
_NODE_ERROR_CODES = (
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "READONLY",
    "DENIED",
)

# Envelope verification result of a complete body.
INTEGRITY_OUTCOMES = {True: KeyOutcome.OK, False: KeyOutcome.CORRUPT, None: KeyOutcome.UNREADABLE}

# Redirect per key, filled by the readers below.
Redirects = dict[bytes, Redirect]


def read_exists_reply(
    connection: Connection, key: bytes, redirects: Redirects | None, deadline: float
) -> KeyOutcome:
    try:
        return KeyOutcome.OK if connection.read_integer(deadline) else KeyOutcome.MISSING
    except ReplyError as exc:
        return _map_error_reply(exc, key, redirects)


def read_store_reply(
    connection: Connection, key: bytes, redirects: Redirects | None, deadline: float
) -> KeyOutcome:
    try:
        connection.read_ok(deadline)  # False: the key existed, which counts as stored
    except ReplyError as exc:
        return _map_error_reply(exc, key, redirects)
    return KeyOutcome.OK


def read_load_reply(
    connection: Connection,
    key: bytes,
    target: memoryview,
    redirects: Redirects | None,
    deadline: float,
) -> KeyOutcome:
    try:
        length = connection.read_bulk_length(deadline)
    except ReplyError as exc:
        return _map_error_reply(exc, key, redirects)
    if length < 0:
        return KeyOutcome.MISSING
    if length > _MAX_SKIP and length != envelope.HEADER_BYTES + target.nbytes:
        raise BrokenError(f"value of {length} bytes instead of {target.nbytes}")
    header = bytearray(min(length, envelope.HEADER_BYTES))
    connection.read_into(memoryview(header), deadline)
    rest = length - len(header)
    if envelope.expected_length(header, key) != rest or rest != target.nbytes:
        connection.skip(rest, deadline)
        connection.end_bulk(deadline)
        return KeyOutcome.CORRUPT
    connection.read_into(target, deadline)
    connection.end_bulk(deadline)
    return INTEGRITY_OUTCOMES[envelope.is_intact(header, target)]


def _map_error_reply(exc: ReplyError, key: bytes, redirects: Redirects | None) -> KeyOutcome:
    """Convert an error reply about the value to an outcome; re-raise one about the node."""
    text = str(exc)
    if text.startswith(_NODE_ERROR_CODES):
        raise BrokenError(text) from None
    redirect = parse_redirect(text)
    if redirect is None:
        return KeyOutcome.REFUSED
    if redirects is not None:
        redirects[key] = redirect
    return KeyOutcome.MOVED


def encode_set_head(key: bytes, body: memoryview, words: int) -> bytes:
    header = envelope.pack_header(key, body, envelope.fastest_seal())
    length = len(header) + body.nbytes
    return b"*%d\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b" % (words, len(key), key, length, header)


def encode_set_tail(ttl_s: int) -> bytes:
    tail = b"\r\n$2\r\nNX\r\n"
    if ttl_s:
        tail += b"$2\r\nEX\r\n$%d\r\n%d\r\n" % (len(str(ttl_s)), ttl_s)
    return tail
