"""Request bodies with a content coding, decoded before they are read and sent on.

Workers read plain bodies only. The decoded size is bounded while decoding, so that a small body
cannot expand without limit. RFC 9110 8.4.1, RFC 8878.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Final

import zstandard

from routing.engine.errors import Refusal
from routing.engine.http.bodies import ReadPace

_GZIP_BITS: Final = 31  # zlib: gzip header and checksum
_ZLIB_BITS: Final = 15
_RAW_BITS: Final = -15
_STEP_BYTES = 65_536
_MAX_MEMBERS = 100  # of gzip, which may follow each other (RFC 1952 2.2); each costs a copy
_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024  # the window that RFC 8878 asks decoders to support
_ZSTD_STEP_BYTES = 256  # expand to 8 MiB at most: a block of 4 bytes to 128 KiB
ACCEPTED = (b"gzip", b"x-gzip", b"deflate", b"zstd")


def check_encoding(encoding: bytes) -> None:
    """Raise Refusal unless it is one coding that can be decoded."""
    if encoding in ACCEPTED:
        return
    encoding_text = encoding[:100].decode("latin-1")
    text = f"Content-Encoding {encoding_text!r} is not supported. Use gzip, deflate, zstd or none."
    refusal = Refusal("unsupported_encoding", text)
    refusal.lines = b"accept-encoding: gzip, deflate, zstd\r\n"  # RFC 9110 15.5.16
    raise refusal


def _inflate(body: bytes, bits: int) -> Iterator[bytes]:
    rest = body
    for _ in range(_MAX_MEMBERS):
        decoder = zlib.decompressobj(bits)
        while not decoder.eof:
            piece = decoder.decompress(rest, _STEP_BYTES)
            rest = decoder.unconsumed_tail
            if not (piece or rest or decoder.eof):
                raise ValueError("it ends early")
            yield piece
        rest = decoder.unused_data
        if not rest:
            return
        if bits != _GZIP_BITS:
            raise ValueError("bytes follow its end")
    raise ValueError(f"it has more than {_MAX_MEMBERS} members")


def _unzstd(body: bytes) -> Iterator[bytes]:
    context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    decoder = context.decompressobj()
    for start in range(0, len(body), _ZSTD_STEP_BYTES):
        rest = body[start : start + _ZSTD_STEP_BYTES]
        while rest:
            if decoder.eof:  # frames may follow each other
                decoder = context.decompressobj()
            yield decoder.decompress(rest)
            rest = decoder.unused_data
    if not decoder.eof:
        raise ValueError("it ends early")


def _deflate(body: bytes) -> Iterator[bytes]:
    """Decode `deflate`: with the zlib header of the RFC, or without, as some clients send it."""
    has_header = len(body) > 1 and body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0
    return _inflate(body, _ZLIB_BITS if has_header else _RAW_BITS)


def _gunzip(body: bytes) -> Iterator[bytes]:
    return _inflate(body, _GZIP_BITS)


_DECODERS: dict[bytes, Callable[[bytes], Iterator[bytes]]] = {
    b"gzip": _gunzip,
    b"x-gzip": _gunzip,
    b"deflate": _deflate,
    b"zstd": _unzstd,
}


async def decode(body: bytes, encoding: bytes, limit: int, pace: ReadPace) -> bytes:
    """Return the decoded body, in slices. Raise Refusal if invalid or above `limit` bytes."""
    pieces: list[bytes] = []
    size = 0
    try:
        for piece in _DECODERS[encoding](body):
            size += len(piece)
            if size > limit:
                text = f"The decoded body is larger than {limit} bytes (limits.hold_bytes)."
                raise Refusal("body_too_large", text)
            pieces.append(piece)
            await pace.pause()
    except (ValueError, zlib.error, zstandard.ZstdError) as error:
        text = f"The body is not valid {encoding.decode()}: {str(error)[:100]}."
        raise Refusal("bad_request", text) from None
    return b"".join(pieces)
