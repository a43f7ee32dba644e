"""POST to a user-supplied URL, protected against SSRF.

The deadline holds however slowly the server responds. Redirects are not followed, at most
`MAX_ANSWER` bytes are read, and the connection goes to the address that was checked (no DNS
rebinding). Errors contain neither path nor query of the URL nor the response body.

console.core.outbound defines the forbidden addresses. Private networks are allowed: chat servers
and relays run there.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from console.core.counters import increment
from console.core.outbound import address_problem, url_problem

DEADLINE_S: Final = 10.0
MAX_ANSWER: Final = 4096
_CONNECT_S: Final = 4.0


class PostError(Exception):
    """`permanent`: a retry would fail alike. `after_s`: delay requested by the server. The text is
    user-facing and holds no secret.
    """

    def __init__(self, text: str, *, permanent: bool = False, after_s: float = 0.0) -> None:
        super().__init__(text)
        self.permanent = permanent
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class PostReply:
    status: int
    retry_after_s: float
    start: bytes


def redact_url(url: str) -> str:
    """Return the URL without path and query, which may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…"


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, deadline_s: float = DEADLINE_S
) -> PostReply:
    """Send the body; raise `PostError` on failure."""
    end = time.monotonic() + deadline_s
    refused = url_problem(url, query=True)
    if refused:
        raise PostError(refused, permanent=True)
    parts = urlsplit(url)
    where = redact_url(url)
    try:
        return _send_request(parts, body, headers, end)
    except ssl.SSLCertVerificationError as error:
        text = f"{where}: certificate rejected ({error.verify_message})."
        raise PostError(text) from None
    except ssl.SSLError:
        raise PostError(f"{where}: TLS handshake failed.") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PostError(f"{where} {_worded(error, end)}.") from None


def _worded(error: Exception, end: float) -> str:
    if isinstance(error, TimeoutError) or time.monotonic() >= end:
        return "did not respond in time"
    if isinstance(error, ConnectionRefusedError):
        return "refused the connection"
    if isinstance(error, http.client.HTTPException):
        return "did not respond with HTTP"
    return f"cannot be reached ({type(error).__name__})"


def _send_request(
    parts: SplitResult, body: bytes, headers: Mapping[str, str], end: float
) -> PostReply:
    host = parts.hostname or ""
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    raw = _connected(host, port, end)
    context = _tls()
    sock: socket.socket = raw
    if secure:
        sock = context.wrap_socket(raw, server_hostname=host, do_handshake_on_connect=False)
    with _until(sock, end) as was_cut:
        if isinstance(sock, ssl.SSLSocket):
            sock.do_handshake()
        connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(host, port, context=context)
            if secure
            else http.client.HTTPConnection(host, port)
        )
        connection.sock = sock
        target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        connection.request("POST", target, body, {**headers, "Connection": "close"})
        answer = connection.getresponse()
        start = answer.read(MAX_ANSWER)
        if was_cut.is_set():  # a truncated response may look complete
            raise TimeoutError
        return PostReply(answer.status, _pause(answer.headers.get("Retry-After", "")), start)


def _connected(host: str, port: int, end: float) -> socket.socket:
    """Connect to the first reachable address of the host; all its addresses must be allowed."""
    addresses = _resolved(host, port, end)
    for one in addresses:
        refused = address_problem(*one)
        if refused:
            increment("outbound_refused")
            raise PostError(f"{host} is {one[0]}: {refused}", permanent=True)
    last: OSError = OSError("no address")
    for one in addresses:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        try:
            return socket.create_connection(one[:2], timeout=min(left, _CONNECT_S))
        except OSError as error:
            last = error
    raise last


_resolvers = ThreadPoolExecutor(4, thread_name_prefix="resolver")


def _resolved(host: str, port: int, end: float) -> list[tuple[str, int]]:
    """Resolve in a thread: getaddrinfo has no timeout."""
    found: Future[Any] = _resolvers.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        rows = found.result(max(0.0, min(_CONNECT_S, end - time.monotonic())))
    except FutureTimeout:
        raise TimeoutError from None
    except (socket.gaierror, UnicodeError):
        raise PostError(f"Host {host} not found.") from None
    return [(str(row[4][0]), port) for row in rows]


@contextmanager
def _until(sock: socket.socket, end: float) -> Iterator[threading.Event]:
    """Shut the socket down at the deadline: a timeout per read does not stop a slow server."""
    was_cut = threading.Event()
    left = max(0.0, end - time.monotonic())
    sock.settimeout(left or 0.001)
    timer = threading.Timer(left, _cut, (sock, was_cut))
    timer.daemon = True
    timer.start()
    try:
        yield was_cut
    finally:
        timer.cancel()
        sock.close()


def _cut(sock: socket.socket, was_cut: threading.Event) -> None:
    """Shut down the socket below TLS, which another thread is using."""
    was_cut.set()
    try:
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        return  # already closed


def _pause(text: str) -> float:
    return float(min(int(text), 3600)) if text.isascii() and text.isdecimal() else 0.0


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
