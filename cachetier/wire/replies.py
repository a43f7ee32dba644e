"""Server-side RESP replies, protocol versions 2 and 3."""

from __future__ import annotations

OK = b"+OK\r\n"
PONG = b"+PONG\r\n"
_NULL = {2: b"$-1\r\n", 3: b"_\r\n"}


def simple(text: str) -> bytes:
    return b"+%s\r\n" % text.encode()


def error(text: str) -> bytes:
    """Encode an error; `text` starts with a code in capitals. Line breaks are replaced."""
    return b"-%s\r\n" % text.encode(errors="replace").replace(b"\r", b" ").replace(b"\n", b" ")


def integer(value: int) -> bytes:
    return b":%d\r\n" % value


def null(version: int) -> bytes:
    return _NULL[version]


def bulk_head(length: int) -> bytes:
    """Return the header of a bulk string whose body is sent separately, followed by CR LF."""
    return b"$%d\r\n" % length


def bulk(value: bytes | bytearray) -> bytes:
    return b"".join((b"$%d\r\n" % len(value), value, b"\r\n"))


def text(value: str) -> bytes:
    return bulk(value.encode())


def verbatim(value: str, version: int) -> bytes:
    """Encode human-readable text: verbatim string in version 3, bulk string in version 2."""
    if version == 2:
        return text(value)
    data = b"txt:" + value.encode()
    return b"=%d\r\n%b\r\n" % (len(data), data)


def array_head(count: int) -> bytes:
    return b"*%d\r\n" % count


def array(items: list[bytes]) -> bytes:
    return array_head(len(items)) + b"".join(items)


def members(items: list[bytes], version: int) -> bytes:
    """Encode a set in version 3, an array in version 2."""
    return array(items) if version == 2 else b"~%d\r\n" % len(items) + b"".join(items)


def mapping(pairs: list[tuple[bytes, bytes]], version: int) -> bytes:
    """Encode a map in version 3, a flat array in version 2; keys and values are encoded replies."""
    head = b"%%%d\r\n" % len(pairs) if version == 3 else array_head(2 * len(pairs))
    return head + b"".join(part for pair in pairs for part in pair)
