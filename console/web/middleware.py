"""Request id, security headers, request metrics, time zone and login requirement."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.conf import settings
from django.contrib.auth import middleware as auth_middleware
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed
from django.shortcuts import redirect, resolve_url
from django.utils import timezone

from console.core import local_time, request_log
from console.database import release_connections
from console.telemetry import meters
from console.web import errors
from console.web.server import sse

GetResponse = Callable[[HttpRequest], HttpResponseBase]

# Plotly and htmx write style attributes; no inline scripts or other hosts are needed.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
ZONE_COOKIE = "emberline-zone"
_ZONE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
PERMISSIONS_POLICY = ", ".join(
    f"{feature}=()"
    for feature in (
        "accelerometer", "camera", "display-capture", "geolocation", "gyroscope", "hid",
        "magnetometer", "microphone", "midi", "payment", "serial", "usb", "xr-spatial-tracking",
    )
)  # fmt: skip


class RequestIdMiddleware:
    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        chosen = request_log.set_request_id(request.headers.get(request_log.HEADER, ""))
        # Custom attribute, unknown to Django's type.
        request.request_id = chosen  # type: ignore[attr-defined]
        response = self.get_response(request)
        response[request_log.HEADER] = chosen
        if response.get("Content-Type", "").startswith(sse.CONTENT_TYPE):
            release_connections()  # a stream lasts for minutes and would hold one
        return response


class StorableUrlMiddleware:
    """Handle NUL, which PostgreSQL cannot store: no path has it, and pages read their parameters
    without it. REST refuses it in parameters by their schemas.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if "\0" in request.path_info:
            raise Http404
        query = request.META.get("QUERY_STRING", "")
        if "%00" in query and not request.path_info.startswith("/api/"):
            request.META["QUERY_STRING"] = query.replace("%00", "")
        return self.get_response(request)


class MeterMiddleware:
    """Count responses by route: paths would be unbounded labels."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        began = time.monotonic()
        response = self.get_response(request)
        match = request.resolver_match
        if match is not None:
            route = match.route or "/"
        else:
            route = "static" if request.path.startswith(settings.STATIC_URL) else "none"
        method = request.method if request.method in METHODS else "other"
        meters.request_ended(str(method), route, response.status_code, time.monotonic() - began)
        return response


class SecurityHeadersMiddleware:
    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        # Other sites may not embed any response, including images.
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        # Pages are user-specific; static files set their own header.
        response.headers.setdefault("Cache-Control", "private, no-cache")
        return response


class TimeZoneMiddleware:
    """Render pages in the time zone of the cookie, set by theme.js; REST responses stay in UTC.

    Streams keep the zone until they end.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        zone = None if request.path.startswith("/api/") else _find_zone(request)
        if zone is None:
            _activate(None)
            return self.get_response(request)
        _activate(zone)
        response = self.get_response(request)
        if not response.streaming:
            _activate(None)
        return response


def _activate(zone: ZoneInfo | None) -> None:
    """Set the zone of Django and of modules without it; None: UTC."""
    local_time.use_zone(zone)
    if zone is None:
        timezone.deactivate()
    else:
        timezone.activate(zone)


def _find_zone(request: HttpRequest) -> ZoneInfo | None:
    name = request.COOKIES.get(ZONE_COOKIE, "")
    if not _ZONE_NAME.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # unknown here, or a folder of zones
        return None


class LoginRequiredMiddleware(auth_middleware.LoginRequiredMiddleware):
    """Django's middleware, returning to a page: a submitted form to the page that contains it (its
    own address may not be a page), an htmx partial to the whole page.
    """

    def handle_no_permission(  # type: ignore[override]  # Django's own may answer anything
        self, request: HttpRequest, view_func: Any
    ) -> HttpResponseBase:
        is_partial = request.headers.get("HX-Request") == "true"
        if not is_partial and request.method in ("GET", "HEAD"):
            return super().handle_no_permission(request, view_func)
        page = _page_of(request.headers.get("HX-Current-URL" if is_partial else "Referer", ""))
        target = f"{resolve_url(settings.LOGIN_URL)}?{urlencode({'next': page})}"
        if is_partial:
            return HttpResponse(status=401, headers={"HX-Redirect": target})
        return redirect(target)


def _page_of(url: str) -> str:
    """Return path and query of a page of this console; other parts may be another host's."""
    try:
        parts = urlsplit(url)
    except ValueError:  # malformed header
        return "/"
    return urlunsplit(("", "", parts.path or "/", parts.query, ""))


class MethodNotAllowedMiddleware:
    """Show a page where Django answers 405 with an empty one: the address of a form was opened."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if isinstance(response, HttpResponseNotAllowed) and request.method == "GET":
            page = errors.method_not_allowed(request)
            page["Allow"] = response["Allow"]
            return page
        return response
