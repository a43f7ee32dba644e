"""HTTP requests to one console with safe retries, pagination and typed errors.

The token is sent only to the console's own address, whatever links a response contains. Requests
are retried only if they cannot take effect twice. A response uses at most `MAX_BYTES` of memory.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast
from urllib.parse import parse_qsl, quote, urlsplit

import httpx

from console.client import errors
from console.client.errors import Unreachable

PREFIX = "/api/v1/"
MAX_BYTES = 64 * 1024 * 1024
MAX_TRIES = 4
_FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 30.0
"""Maximum Retry-After that is honoured; longer ones are left to the caller."""
_GATEWAY = (502, 503, 504)
_RETRY_CODES = ("idempotency_key_busy",)
"""Error codes for which the same request is retried at once."""
_IDEMPOTENT_METHODS = ("GET", "HEAD")
Params = Mapping[str, Any]
Document = dict[str, Any]
Row = TypeVar("Row", bound=Mapping[str, Any])


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Decoded response of the REST API. `etag` is the value for If-Match, "" if absent; `replayed`:
    an earlier request with the same Idempotency-Key took effect.
    """

    status: int
    body: Any
    etag: str = ""
    replayed: bool = False


@dataclass(slots=True)
class Http:
    client: httpx.Client
    live: bool = True
    """Whether the transport delivers a response while it is being written."""
    pause: Callable[[float], None] = time.sleep

    def get(self, path: str, params: Params | None = None) -> Any:
        return self.send("GET", path, params=params).body

    def send(
        self,
        method: str,
        path: str,
        data: Any = None,
        *,
        params: Params | None = None,
        text: str | None = None,
        file: bytes | None = None,
        if_match: str = "",
        if_none_match: str = "",
        once: bool = False,
    ) -> HttpAnswer:
        """Send a request. `text` is a YAML body instead of JSON, `file` any other; `once` adds an
        Idempotency-Key.
        """
        headers = {"Accept": "application/json"}
        if if_match:
            headers["If-Match"] = if_match
        if if_none_match:
            headers["If-None-Match"] = if_none_match
        if once:
            headers["Idempotency-Key"] = str(uuid.uuid4())
        body: dict[str, Any] = {}
        if text is not None:
            headers["Content-Type"] = "application/yaml"
            body = {"content": text.encode()}
        elif file is not None:
            headers["Content-Type"] = "application/octet-stream"
            body = {"content": file}
        elif data is not None:
            headers["Content-Type"] = "application/json"
            body = {"content": json.dumps(data, allow_nan=False, default=str).encode()}
        request = self.client.build_request(
            method, PREFIX + path, params=_clean_params(params), headers=headers, **body
        )
        return self._answer(request, repeatable=once or method in _IDEMPOTENT_METHODS)

    def pages(self, path: str, params: Params | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a list, paginated or not."""
        query = dict(_clean_params(params))
        while True:
            body = self.get(path, query)
            if isinstance(body, list):
                yield from body
                return
            yield from body["results"]
            if not body.get("next"):
                return
            # Use only the query of the link: its host may differ from the address used here.
            query = dict(parse_qsl(urlsplit(body["next"]).query))

    def text(self, path: str, params: Params | None = None) -> str:
        with self.stream(path, params, accept="*/*") as answer:
            return _read_limited(answer).decode("utf-8", "replace")

    @contextmanager
    def stream(
        self,
        path: str,
        params: Params | None = None,
        *,
        accept: str,
        headers: Mapping[str, str] | None = None,
        silence_s: float | None = None,
    ) -> Iterator[httpx.Response]:
        """Open a streaming response; errors are raised. `silence_s` is the read timeout."""
        request = self.client.build_request(
            "GET",
            PREFIX + path,
            params=_clean_params(params),
            headers={"Accept": accept, **(headers or {})},
            timeout=_stream_timeout(self.client.timeout, silence_s),
        )
        try:
            answer = self.client.send(request, stream=True)
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
                retry_after = _retry_after(error)
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
        answer = self.client.send(request, stream=True)
        try:
            _raise_for_status(answer)
            content = _read_limited(answer)
        finally:
            answer.close()
        replayed = answer.headers.get("Idempotent-Replayed", "") == "true"
        etag = answer.headers.get("ETag", "")
        return HttpAnswer(answer.status_code, _parse_body(answer, content), etag, replayed)


class ResourceClient:
    """Requests below one path of the API."""

    path = ""

    def __init__(self, http: Http) -> None:
        self.http = http

    def _at(self, name: object, *more: str) -> str:
        parts = [quote(str(part), safe="") for part in (name, *more)]
        return "/".join([self.path + parts[0], *parts[1:], ""])

    def _get(self, path: str, params: Params | None = None) -> Document:
        return cast(Document, self.http.get(path, params))

    def _send(self, method: str, path: str, data: Any = None, *, once: bool = False) -> Document:
        return cast(Document, self.http.send(method, path, data, once=once).body)


class ListClient(ResourceClient, Generic[Row]):
    """A list of objects, each with its own path."""

    def list(self, **filters: Any) -> Iterator[Row]:
        return cast(Iterator[Row], self.http.pages(self.path, filters))

    def get(self, name: str) -> Row:
        return cast(Row, self.http.get(self._at(name)))


class ObjectClient(ListClient[Row]):
    """Objects that are created and changed by their fields."""

    def create(self, facts: Mapping[str, Any]) -> Row:
        return cast(Row, self._send("POST", self.path, facts, once=True))

    def change(self, name: str, facts: Mapping[str, Any]) -> Row:
        return cast(Row, self._send("PATCH", self._at(name), facts))

    def set(self, name: str, facts: Mapping[str, Any]) -> Row:
        """Create, or change the given fields."""
        return cast(Row, self._send("PUT", self._at(name), facts))

    def delete(self, name: str) -> Any:
        return self.http.send("DELETE", self._at(name)).body


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


def _retry_after(error: errors.ApiError) -> float:
    return float(error.retry_after) if error.retry_after.isdecimal() else 0.0


def _stream_timeout(usual: httpx.Timeout, silence_s: float | None) -> httpx.Timeout:
    if silence_s is None:
        return usual
    return httpx.Timeout(usual.connect, read=silence_s)


def _clean_params(params: Params | None) -> dict[str, Any]:
    """Drop absent parameters and format booleans as JSON."""
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in (params or {}).items()
        if value is not None and value != ""
    }
