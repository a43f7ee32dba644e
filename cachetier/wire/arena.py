"""The first bytes of an arena in shared memory, by which a reader knows that it is the right one.

    magic "EMBARENA" | version | page bytes | pid | token (16 random bytes) | size of the file

A node tells the token with every lease; a reader which maps a file of that name compares, and so
notices another host, another container's /dev/shm, and a file left behind by an earlier node. The
header takes the arena's whole first page; values lie behind it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAGIC = b"EMBARENA"
VERSION = 1
# Where POSIX shared memory appears as files on Linux.
FOLDER = "/dev/shm"  # noqa: S108 - not a temporary folder: shared memory's own place
_LAYOUT = struct.Struct(">8sIIQ16sQ")
HEADER_BYTES = _LAYOUT.size


@dataclass(frozen=True, slots=True)
class Header:
    page_bytes: int
    pid: int
    token: bytes
    file_bytes: int


def pack(header: Header) -> bytes:
    return _LAYOUT.pack(
        MAGIC, VERSION, header.page_bytes, header.pid, header.token, header.file_bytes
    )


def unpack(data: bytes | memoryview) -> Header | None:
    """None for what is not an arena of this version."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, page, pid, token, size = _LAYOUT.unpack(data[:HEADER_BYTES])
    if (magic, version) != (MAGIC, VERSION):
        return None
    return Header(page, pid, token, size)
