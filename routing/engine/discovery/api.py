"""Kubernetes API client: GET requests read whole or line by line.

Token and CA are read for every connection because both are rotated. All waits and sizes are
bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from routing.engine.config import Address, ConfigError, KubernetesConfig
from routing.engine.discovery.base import DiscoveryError
from routing.engine.http import peer_state
from routing.engine.http.http1 import ChunkedBody, ProtocolError, ResponseHead, parse_response

ANSWER_S = 15.0
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_LINE_BYTES = 8 * 1024 * 1024
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_STATUS_REASONS = {401: "unauthorized", 403: "forbidden", 404: "not_found", 410: "expired"}


class KubernetesApi:
    """One API server. Raise ConfigError if no server is configured or detected."""

    reasons: tuple[str, ...] = (
        *_STATUS_REASONS.values(), "unreachable", "no_credentials", "bad_answer", "status",
    )  # fmt: skip

    def __init__(self, config: KubernetesConfig) -> None:
        server = config.server or _in_cluster_server()
        parts = urlsplit(server)
        self._tls = parts.scheme == "https"
        self._address = Address(parts.hostname or "", parts.port or (443 if self._tls else 80))
        # No in-cluster defaults for an explicitly configured server.
        own = not config.server
        self._token_file = config.token_file or (_SERVICE_ACCOUNT / "token" if own else None)
        self._ca_file = config.ca_file or (_SERVICE_ACCOUNT / "ca.crt" if own else None)

    async def get(self, path: str) -> Any:
        """Return the JSON of a response. Raise DiscoveryError."""
        async with asyncio.timeout(ANSWER_S * 4), self._ask(path) as pieces:
            body = bytearray()
            async for piece in pieces:
                body += piece
                if len(body) > MAX_BODY_BYTES:
                    raise DiscoveryError("bad_answer", "the API response is too large")
        return _parse_json(bytes(body))

    async def lines(self, path: str, silence_s: float) -> AsyncGenerator[Any, None]:
        """Yield None once the request is accepted, then the JSON of each line until the server
        closes. Raise DiscoveryError.
        """
        buffer = b""
        async with self._ask(path, silence_s) as pieces:
            yield None
            async for piece in pieces:
                *whole, buffer = (buffer + piece).split(b"\n")
                if len(buffer) > MAX_LINE_BYTES:
                    raise DiscoveryError("bad_answer", "a line of the API response is too long")
                for line in whole:
                    if line.strip():
                        yield _parse_json(line)

    @contextlib.asynccontextmanager
    async def _ask(
        self, path: str, silence_s: float = ANSWER_S
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send the request; yield the body's pieces after status 200."""
        request = self._request(path)
        writer = None
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection(
                    self._address.host, self._address.port, ssl=self._context()
                )
                peer_state.enable_keepalive(writer.transport)
                writer.write(request)
                head = parse_response((await reader.readuntil(b"\r\n\r\n"))[:-2])
            body = _read_body(reader, head, silence_s)
            if head.status != 200:
                raise await _read_error(head.status, body)
            yield body
        except TimeoutError:
            raise DiscoveryError("unreachable", "the API did not respond in time") from None
        except ssl.SSLError as error:
            raise DiscoveryError("unreachable", f"TLS to the API failed: {error}") from None
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise DiscoveryError("unreachable", f"the API cannot be reached: {error}") from None
        except ProtocolError as error:
            raise DiscoveryError("bad_answer", f"the API response is not HTTP: {error}") from None
        finally:
            if writer is not None:
                writer.transport.abort()

    def _request(self, path: str) -> bytes:
        lines = [
            f"GET {path} HTTP/1.1",
            f"host: {self._address}",
            "accept: application/json",
            "user-agent: emberline-router",
            "connection: close",
        ]
        if self._token_file is not None:
            try:
                token = self._token_file.read_text().strip()
            except OSError as error:
                message = f"the token {self._token_file} cannot be read: {error.strerror}"
                raise DiscoveryError("no_credentials", message) from None
            lines.append(f"authorization: Bearer {token}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")

    def _context(self) -> ssl.SSLContext | None:
        if not self._tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:  # includes OpenSSL errors for invalid certificate files
            message = f"the CA {self._ca_file} cannot be used: {error.strerror or error}"
            raise DiscoveryError("no_credentials", message) from None
        context.set_alpn_protocols(["http/1.1"])
        return context


def _in_cluster_server() -> str:
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError(
            "discovery.kubernetes.server",
            "",
            "is not set, and the router does not run in a pod",
            "Give the API server's URL, a token_file and a ca_file.",
        )
    return f"https://{Address(host, int(port))}"


def _parse_json(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        raise DiscoveryError("bad_answer", "the API response is not JSON") from None


async def _read_error(status: int, body: AsyncIterator[bytes]) -> DiscoveryError:
    text = b"".join([piece async for piece in body])[:4096]
    try:
        data = orjson.loads(text)
        message = str(data.get("message", "")) if isinstance(data, dict) else ""
    except orjson.JSONDecodeError:
        message = ""
    reason = _STATUS_REASONS.get(status, "status")
    return DiscoveryError(reason, f"the API responded {status}: {message[:500]}")


async def _read_body(
    reader: asyncio.StreamReader, head: ResponseHead, silence_s: float
) -> AsyncIterator[bytes]:
    left = head.length
    chunks = ChunkedBody() if head.chunked else None
    while left != 0 and not (chunks is not None and chunks.done):
        async with asyncio.timeout(silence_s):
            data = await reader.read(65_536)
        if not data:
            if chunks is not None or left > 0:
                raise DiscoveryError("unreachable", "the API response was cut off")
            return
        if chunks is not None:
            chunks.feed(data)
            for piece in chunks.pieces:
                yield piece
        else:
            if left > 0:
                data = data[:left]
                left -= len(data)
            yield data
