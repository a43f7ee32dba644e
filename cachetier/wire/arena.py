"""Header of the shared memory arena, which identifies its node.

    magic "EMBARENA" | version | page bytes | pid | token (16 random bytes) | file size

Leases carry the token; readers compare it to detect another host, another container's /dev/shm or
the file of an earlier node. The header occupies the first page; values follow.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAGIC = b"EMBARENA"
VERSION = 1
# POSIX shared memory directory on Linux.
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
    """Parse the header; None if it is not an arena of this version."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, page, pid, token, size = _LAYOUT.unpack(data[:HEADER_BYTES])
    if (magic, version) != (MAGIC, VERSION):
        return None
    return Header(page, pid, token, size)
