"""Client of one console's REST API: paths below /api/v1/, with safe retries, pages, typed errors.

The token is sent only to the console's own address, whatever links a response contains. Requests
are retried only if they cannot take effect twice. A response uses at most `MAX_BYTES` of memory.
"""

from __future__ import annotations

import json
import ssl
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import httpx

from console.client import errors
from console.client.errors import Unreachable

PREFIX = "/api/v1/"
CONNECT_TIMEOUT_S = 5.0
RESPONSE_TIMEOUT_S = 60.0
"""For one response; the slowest is a preview of a large manifest on a cluster."""
MAX_BYTES = 64 * 1024 * 1024
MAX_TRIES = 4
_FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 30.0
"""Maximum Retry-After that is honoured; longer ones are left to the caller."""
_GATEWAY = (502, 503, 504)
_RETRY_CODES = ("idempotency_key_busy",)
"""Error codes for which the same request is retried at once."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Decoded response of the REST API. `etag` is the value for If-Match, "" if absent."""

    status: int
    body: Any
    etag: str = ""


class Client:
    """Client of one console. Close it, or use it as a context manager.

    `client.get("endpoints", name, "keys", limit=20)` requests /endpoints/NAME/keys/?limit=20 below
    /api/v1; each part of the path is quoted, and query parameters None and "" are left out.

    `transport` replaces the network; `live` states that it delivers streams while they are written.
    `ca_file` is a CA bundle for a certificate that the system does not trust.
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        ca_file: str = "",
        transport: httpx.BaseTransport | None = None,
        live: bool = True,
    ) -> None:
        self.url = base_url(url)
        self.live = live
        self.pause = time.sleep
        headers = {"User-Agent": "emberline-client"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._httpx = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(RESPONSE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            transport=transport,
            verify=_ssl_context(ca_file),
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._httpx.close()

    def get(self, *path: object, **query: Any) -> Any:
        return self.send("GET", *path, query=query).body

    def post(self, *path: object, data: Any = None, once: bool = False, **query: Any) -> Any:
        """Send a POST. `once` adds an Idempotency-Key, for the operations whose documentation has
        that header; such a request is also retried after a lost connection.
        """
        return self.send("POST", *path, data=data, once=once, query=query).body

    def put(self, *path: object, data: Any, generation: int | None = None, **query: Any) -> Any:
        """Replace an object. `generation`: raise `Stale` if the object has another."""
        return self.send("PUT", *path, data=data, if_match=_etag(generation), query=query).body

    def patch(self, *path: object, data: Any, generation: int | None = None, **query: Any) -> Any:
        """Change the fields in `data`. `generation`: raise `Stale` if the object has another."""
        return self.send("PATCH", *path, data=data, if_match=_etag(generation), query=query).body

    def delete(self, *path: object, **query: Any) -> Any:
        return self.send("DELETE", *path, query=query).body

    def pages(self, *path: object, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield the rows of a list, paginated or not."""
        while True:
            body = self.get(*path, **query)
            if isinstance(body, list):
                yield from body
                return
            yield from body["results"]
            if not body.get("next"):
                return
            # Use only the query of the link: its host may differ from the address used here.
            query = dict(parse_qsl(urlsplit(body["next"]).query))

    def text(self, *path: object, **query: Any) -> str:
        with self.stream(*path, query=query) as answer:
            return _read_limited(answer).decode("utf-8", "replace")

    def send(
        self,
        method: str,
        *path: object,
        data: Any = None,
        file: bytes | None = None,
        query: Mapping[str, Any] | None = None,
        if_match: str = "",
        if_none_match: str = "",
        once: bool = False,
    ) -> HttpAnswer:
        """Send `data` as JSON, or `file` as it is; raise `EmberlineError`. `once`: see `post`."""
        headers = {"Accept": "application/json"}
        if if_match:
            headers["If-Match"] = if_match
        if if_none_match:
            headers["If-None-Match"] = if_none_match
        if once:
            headers["Idempotency-Key"] = str(uuid.uuid4())
        content = file
        if file is not None:
            headers["Content-Type"] = "application/octet-stream"
        elif data is not None:
            headers["Content-Type"] = "application/json"
            content = json.dumps(data, allow_nan=False, default=str).encode()
        request = self._httpx.build_request(
            method, _url(path), params=_clean(query), headers=headers, content=content
        )
        return self._answer(request, repeatable=once or method == "GET")

    @contextmanager
    def stream(
        self,
        *path: object,
        query: Mapping[str, Any] | None = None,
        accept: str = "*/*",
        headers: Mapping[str, str] | None = None,
        silence_s: float | None = None,
    ) -> Iterator[httpx.Response]:
        """Open a streaming response; errors are raised. `silence_s` is the read timeout."""
        usual = self._httpx.timeout
        request = self._httpx.build_request(
            "GET",
            _url(path),
            params=_clean(query),
            headers={"Accept": accept, **(headers or {})},
            timeout=usual if silence_s is None else httpx.Timeout(usual.connect, read=silence_s),
        )
        try:
            answer = self._httpx.send(request, stream=True)
            try:
                _raise_for_status(answer)
                yield answer
            finally:
                answer.close()
        except httpx.TransportError as error:
            raise _unreachable(request, error) from error

    def _answer(self, request: httpx.Request, *, repeatable: bool) -> HttpAnswer:
        pause_s = _FIRST_PAUSE_S
        for left in range(MAX_TRIES - 1, -1, -1):
            try:
                return self._once(request)
            except httpx.ConnectError as error:  # not sent, so safe to retry
                if not left:
                    raise _unreachable(request, error) from error
            except httpx.TransportError as error:
                if not left or not repeatable:
                    raise _unreachable(request, error) from error
            except errors.Throttled as error:
                retry_after = float(error.retry_after) if error.retry_after.isdecimal() else 0.0
                if not left or retry_after > LONGEST_PAUSE_S:
                    raise
                pause_s = max(pause_s, retry_after)
            except errors.Conflict as error:
                if not left or error.code not in _RETRY_CODES or not repeatable:
                    raise
            except errors.ServerFailed as error:
                # A response without a code is from a proxy in between.
                passing = error.status in _GATEWAY and error.code == "unknown"
                if not left or not passing or not repeatable:
                    raise
            self.pause(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        raise AssertionError("the last attempt returns or raises")

    def _once(self, request: httpx.Request) -> HttpAnswer:
        answer = self._httpx.send(request, stream=True)
        try:
            _raise_for_status(answer)
            content = _read_limited(answer)
        finally:
            answer.close()
        body = _parse_body(answer, content)
        return HttpAnswer(answer.status_code, body, answer.headers.get("ETag", ""))


def base_url(url: str) -> str:
    """Return the console's base URL without an API path; raise `Unreachable` if invalid."""
    try:
        parts = urlsplit(url.strip())
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.query
        _ = parts.port
    except ValueError:
        good = False
    if not good or parts.username is not None:
        raise Unreachable(
            f"{url!r} is not a valid address. Write https://HOST or http://HOST:PORT."
        )
    return url.strip().rstrip("/").removesuffix(PREFIX.rstrip("/"))


def _url(path: tuple[object, ...]) -> str:
    """Raise NotFound for a part such as "..", which would name another object."""
    for part in map(str, path):
        if part in ("", ".", ".."):
            problem = errors.Problem("not_found", f"No object is named {part!r}.")
            raise errors.NotFound(404, (problem,))
    return PREFIX + "".join(f"{quote(str(part), safe='')}/" for part in path)


def _clean(query: Mapping[str, Any] | None) -> dict[str, Any]:
    """Drop absent parameters and format booleans as JSON."""
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in (query or {}).items()
        if value is not None and value != ""
    }


def _etag(generation: int | None) -> str:
    return "" if generation is None else f'"{generation}"'


def _ssl_context(ca_file: str) -> ssl.SSLContext | bool:
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise Unreachable(f"{ca_file} contains no readable certificate: {error}.") from None


def _raise_for_status(answer: httpx.Response) -> None:
    if answer.is_success or answer.status_code == httpx.codes.NOT_MODIFIED:
        return
    if answer.is_redirect:
        # Following a redirect would send the token to its target.
        where = answer.headers.get("Location", "elsewhere")
        raise Unreachable(f"{answer.url} redirects to {where}. Use that address of the console.")
    try:
        body = json.loads(_read_limited(answer))
    except ValueError:
        body = None
    error = errors.error_from_response(
        answer.status_code, body, answer.headers.get("X-Request-ID", "")
    )
    error.retry_after = answer.headers.get("Retry-After", "")
    raise error


def _parse_body(answer: httpx.Response, content: bytes) -> Any:
    if not content:
        return None
    try:
        return json.loads(content)
    except ValueError:
        raise Unreachable(
            f"{answer.url} responds, but is not an Emberline console. Use the "
            "console's own address, such as https://emberline.example.com."
        ) from None


def _read_limited(answer: httpx.Response) -> bytes:
    received = bytearray()
    for part in answer.iter_bytes():
        received += part
        if len(received) > MAX_BYTES:
            raise Unreachable(f"The response of {answer.url} exceeds {MAX_BYTES >> 20} MiB.")
    return bytes(received)


def _unreachable(request: httpx.Request, error: httpx.TransportError) -> Unreachable:
    place = f"{request.url.scheme}://{request.url.netloc.decode()}"
    why = str(error) or type(error).__name__
    return Unreachable(f"{place} does not respond: {why}.")
