"""Filters of a list that a user saved under a name: shown beside the list's own filter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import Resolver404, resolve
from django.views.decorators.http import require_POST

from console.web import preferences

MAX_FILTERS = 20
MAX_NAME_LENGTH = 40
MAX_QUERY_LENGTH = 1000
_NO_FILTER = ("page", "range", "from", "to")


def saved_filters(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the filters of the page's list with `name`, `query` and whether it is `active`."""
    match = request.resolver_match
    if match is None:
        return []
    stored = preferences.get_preference(request.user, _key(match.view_name)) or {}
    now = clean_query(request.GET.urlencode())
    return [
        {"name": name, "query": query, "active": query == now}
        for name, query in sorted(stored.items())
    ]


def clean_query(query: str) -> str:
    """Return the filter's part of a URL query: without empty fields, page and time range."""
    pairs = parse_qsl(query, max_num_fields=50)
    return urlencode(sorted(pair for pair in pairs if pair[0] not in _NO_FILTER))


@require_POST
def save(request: HttpRequest) -> HttpResponseBase:
    """Save the filter of the page that was left under `name`, or delete the one called `delete`.

    The page is known by its address: htmx changes it with each filter, after the form was made.
    """
    page = urlsplit(request.META.get("HTTP_REFERER", ""))
    try:
        key = _key(resolve(page.path).view_name)
    except Resolver404:
        messages.error(request, "The browser did not send the page's address (Referer).")
        return redirect("/")
    stored: Mapping[str, str] = preferences.get_preference(request.user, key) or {}
    delete, name = request.POST.get("delete", ""), request.POST.get("name", "").strip()
    query = clean_query(page.query) if len(page.query) <= MAX_QUERY_LENGTH else ""
    if delete:
        rest = {other: stored[other] for other in stored if other != delete}
        preferences.set_preference(request.user, key, rest or None)
    elif not query:
        messages.error(request, "The list has no filter. Set one, then save it.")
    elif not name or len(name) > MAX_NAME_LENGTH:
        messages.error(request, f"name: enter 1 to {MAX_NAME_LENGTH} characters.")
    elif len(stored) >= MAX_FILTERS and name not in stored:
        messages.error(request, f"{MAX_FILTERS} filters are saved. Delete one first.")
    else:
        preferences.set_preference(request.user, key, {**stored, name: query})
    return redirect(page.path + (f"?{page.query}" if page.query else ""))


def _key(view_name: str) -> str:
    return f"filters {view_name}"[:60]
