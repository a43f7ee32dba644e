"""RESP replies, server side: Python values to bytes, in version 2 or 3 of the protocol."""

from __future__ import annotations

OK = b"+OK\r\n"
PONG = b"+PONG\r\n"
_NULL = {2: b"$-1\r\n", 3: b"_\r\n"}


def simple(text: str) -> bytes:
    return b"+%s\r\n" % text.encode()


def error(text: str) -> bytes:
    """`text` begins with a code in capitals, as Redis' do. Line ends would end the reply."""
    return b"-%s\r\n" % text.encode(errors="replace").replace(b"\r", b" ").replace(b"\n", b" ")


def integer(value: int) -> bytes:
    return b":%d\r\n" % value


def null(version: int) -> bytes:
    return _NULL[version]


def bulk_head(length: int) -> bytes:
    """What comes before a bulk string sent from where it lies; CR LF follows it."""
    return b"$%d\r\n" % length


def bulk(value: bytes | bytearray) -> bytes:
    return b"".join((b"$%d\r\n" % len(value), value, b"\r\n"))


def text(value: str) -> bytes:
    return bulk(value.encode())


def verbatim(value: str, version: int) -> bytes:
    """Text for people: its own type in version 3, a bulk string in version 2."""
    if version == 2:
        return text(value)
    data = b"txt:" + value.encode()
    return b"=%d\r\n%b\r\n" % (len(data), data)


def array_head(count: int) -> bytes:
    return b"*%d\r\n" % count


def array(items: list[bytes]) -> bytes:
    """`items` are replies already."""
    return array_head(len(items)) + b"".join(items)


def members(items: list[bytes], version: int) -> bytes:
    """A set in version 3, an array in version 2."""
    return array(items) if version == 2 else b"~%d\r\n" % len(items) + b"".join(items)


def mapping(pairs: list[tuple[bytes, bytes]], version: int) -> bytes:
    """A map in version 3, a flat array in version 2; keys and values are replies already."""
    head = b"%%%d\r\n" % len(pairs) if version == 3 else array_head(2 * len(pairs))
    return head + b"".join(part for pair in pairs for part in pair)
