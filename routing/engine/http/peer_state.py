"""Is the peer of a connection still there? What TCP knows and asyncio does not tell.

A peer which shut down its sending side and one which is gone look the same: a FIN came. Only
bytes sent there tell them apart: whoever still reads acknowledges them, a closed socket answers
with a reset. Promises to find that reset without a read, which a paused or half-closed
connection no longer does, and to let the kernel find a machine that vanished without a word.
Must not know HTTP.
"""

from __future__ import annotations

import asyncio
import select
import socket

# A machine that vanished is known after IDLE + COUNT * EVERY seconds of silence, or when what
# was sent there stays unacknowledged for UNACKNOWLEDGED.
_IDLE_S, _EVERY_S, _COUNT, _UNACKNOWLEDGED_S = 15, 5, 3, 60
_END = getattr(select, "POLLRDHUP", 0)  # Linux; elsewhere a reset is seen, an end is not


def gone(transport: asyncio.BaseTransport) -> bool:
    """A reset (or another error) has come since the last look."""
    sock = None if transport.is_closing() else transport.get_extra_info("socket")
    return sock is not None and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0


def ended(transport: asyncio.BaseTransport) -> bool:
    """Has the peer sent its end? Asked without reading what it sent before."""
    sock = None if transport.is_closing() else transport.get_extra_info("socket")
    if sock is None or not _END:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), _END)
    return bool(poll.poll(0))


def half_closes(transport: asyncio.BaseTransport) -> bool:
    """Can this connection be open in one direction only? TLS cannot."""
    return transport.get_extra_info("sslcontext") is None


def watch(transport: asyncio.BaseTransport) -> None:
    """Let the kernel ask a silent peer now and then; nothing wakes this process for it."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not every system has all of them.
    for name, value in (
        ("TCP_KEEPIDLE", _IDLE_S),
        ("TCP_KEEPINTVL", _EVERY_S),
        ("TCP_KEEPCNT", _COUNT),
        ("TCP_USER_TIMEOUT", _UNACKNOWLEDGED_S * 1000),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
