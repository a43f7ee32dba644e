"""ETags for conditional reads and writes.

An ETag is `"GENERATION-DIGEST"` for objects with a generation, else `"DIGEST"`, over the response
bytes. `If-None-Match` omits the body of a byte-identical response. `If-Match` compares only the
generation (the spec), so that status changes do not reject a write. `"STABLE-DIGEST"` has a digest
of the fields that no use of the object changes, which is compared instead.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.http import parse_etags
from rest_framework.request import Request
from rest_framework.response import Response

from console.core.errors import STALE, Problem, Refused

_OWN_ETAG = re.compile(r'(?:W/)?"?(?:(\d{1,18})(?:-[0-9a-f]{16})?)"?')
_DIGEST = re.compile(r'(?:W/)?"(?:\d{1,18}-)?([0-9a-f]{16})(?:-[0-9a-f]{16})?"')
# Changed by uses of an object, or in the response to its creation only.
_PASSING = ("last_login", "last_used_at", "password", "token")


def with_generation(response: Response, generation: int) -> Response:
    """Mark the response, so that its ETag can be sent back as If-Match."""
    cast(Any, response).generation = generation  # read by the ETag middleware
    return response


def generation_of(response: Any) -> int | None:
    return getattr(response, "generation", None)


def expected_generation(request: Request) -> int | None:
    """Return the generation in If-Match; None accepts any."""
    text = request.headers.get("If-Match", "").strip()
    if text in ("", "*"):
        return None
    match = _OWN_ETAG.fullmatch(text)
    if match is None:
        raise _mismatch_error(text)
    return int(match[1])


@contextmanager
def require_match(
    request: Request, rows: QuerySet[Any], document: Callable[[], Any]
) -> Iterator[None]:
    """Check If-Match of an object without a generation, and change it in the same transaction.

    `document` returns its full representation, None without an object. It is read after `rows` are
    locked, so that of concurrent changes with one ETag only the first takes place.
    """
    text = request.headers.get("If-Match", "").strip()
    if text in ("", "*"):
        yield
        return
    match = _DIGEST.fullmatch(text)
    if match is None:
        raise _mismatch_error(text)
    with transaction.atomic():
        list(rows.select_for_update(no_key=True).values_list("pk"))
        _compare(request, match[1], document())
        yield


def _compare(request: Request, mark: str, data: Any) -> None:
    stable = _without_passing(data) if isinstance(data, dict) else data
    if mark != _rendered_digest(request, stable):
        raise stale_error("The object was changed meanwhile.")


def _without_passing(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in _PASSING}


def _rendered_digest(accepted: Any, data: Any) -> str:
    """`accepted`: request or response after content negotiation."""
    text = accepted.accepted_renderer.render(data, accepted.accepted_media_type, {})
    return digest(text if isinstance(text, bytes) else text.encode())


def stale_error(message: str) -> Refused:
    remedy = "Reload it and repeat the change."
    return Refused(Problem("If-Match", None, message, remedy, STALE), status_code=412)


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def set_etag(response: HttpResponseBase) -> None:
    """Set the ETag of a non-streaming response."""
    if isinstance(response, HttpResponse) and not response.has_header("ETag"):
        compared: Any = generation_of(response)
        data = getattr(response, "data", None)
        if compared is None and isinstance(data, dict) and not data.keys().isdisjoint(_PASSING):
            compared = _rendered_digest(response, _without_passing(data))
        mark = digest(response.content)
        response.headers["ETag"] = f'"{mark}"' if compared is None else f'"{compared}-{mark}"'


def not_modified(response: HttpResponseBase, if_none_match: str) -> HttpResponseBase:
    """Return 304 without a body if If-None-Match has the response's ETag, else the response."""
    etag = response.headers.get("ETag", "")
    marks = {mark.removeprefix("W/") for mark in parse_etags(if_none_match)}
    if not etag or not marks & {etag, "*"}:
        return response
    short = HttpResponse(status=304)
    for name in ("ETag", "Cache-Control", "Vary"):
        if response.has_header(name):
            short.headers[name] = response.headers[name]
    return short


def _mismatch_error(text: str) -> Refused:
    """Return the error for a foreign ETag (no match) or malformed text (invalid)."""
    if parse_etags(text):
        return stale_error("The ETag in If-Match does not match the current version.")
    message, remedy = "Invalid ETag.", "Send the ETag of one response, or omit it."
    return Refused(Problem("If-Match", text[:80], message, remedy, "invalid_etag"))


API_PREFIX = "/api/"


class ConditionalMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if not request.path.startswith(API_PREFIX):
            return response
        # Responses to writes are tagged too, for the next If-Match.
        if 200 <= response.status_code < 300 and not response.streaming:
            set_etag(response)
        if request.method in ("GET", "HEAD") and response.status_code == 200:
            return not_modified(response, request.headers.get("If-None-Match", ""))
        return response
