"""TCP state of a peer that asyncio does not expose.

Half-closed and closed peers both send FIN; only a closed one answers data with a reset.
"""

from __future__ import annotations

import asyncio
import select
import socket

# A vanished host is detected after IDLE + COUNT * EVERY seconds of silence, or UNACKNOWLEDGED after
# data was sent.
_IDLE_S, _INTERVAL_S, _PROBES, _UNACKNOWLEDGED_S = 15, 5, 3, 60
_POLL_RDHUP = getattr(select, "POLLRDHUP", 0)  # Linux only; elsewhere only resets are detected


def was_reset(transport: asyncio.BaseTransport) -> bool:
    """Return True if a reset or another socket error occurred since the last call."""
    sock = None if transport.is_closing() else transport.get_extra_info("socket")
    return sock is not None and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0


def sent_fin(transport: asyncio.BaseTransport) -> bool:
    """Return True if the peer sent FIN, without reading pending data."""
    sock = None if transport.is_closing() else transport.get_extra_info("socket")
    if sock is None or not _POLL_RDHUP:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), _POLL_RDHUP)
    return bool(poll.poll(0))


def can_half_close(transport: asyncio.BaseTransport) -> bool:
    """Return True if the connection can be half-closed; TLS cannot."""
    return transport.get_extra_info("sslcontext") is None


def enable_keepalive(transport: asyncio.BaseTransport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not every system has all options.
    for name, value in (
        ("TCP_KEEPIDLE", _IDLE_S),
        ("TCP_KEEPINTVL", _INTERVAL_S),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", _UNACKNOWLEDGED_S * 1000),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
