"""All URL patterns with plausible arguments, so that tests cover every view."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.converters import IntConverter, UUIDConverter
from django.views.decorators import http

from dashboards.alerts.settings.url_names import RuleName
from dashboards.boards.page import BoardKey
from dashboards.boards.panels import FIRST
from dashboards.costs.ledger.months import MonthKey

# Public URLs: health, login, and (with its own bearer token) the target list for Prometheus, which
# has its own test.
OPEN = frozenset({"/healthz", "/readyz", "/login/", "/login/with/demo/", "/login/with/demo/back/"})
BEARER = frozenset({"/prometheus/targets", "/prometheus/console"})


METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True)
class Place:
    """`about`: converters in its route, such as "endpoint". `methods`: those its view may run; any
    other answers 405 and runs nothing."""

    path: str
    name: str
    about: frozenset[str] = frozenset()
    methods: tuple[str, ...] = METHODS


def places(urlconf: str | None = None, **values: str) -> list[Place]:
    """`values` by converter: places(endpoint="demo")."""
    found = _walk(get_resolver(urlconf).url_patterns, "/", values)
    return sorted(set(found), key=lambda place: place.path)


def _walk(patterns: list[Any], prefix: str, values: dict[str, str]) -> Iterator[Place]:
    for entry in patterns:
        path = prefix + _filled(entry, values)
        if isinstance(entry, URLResolver):
            yield from _walk(entry.url_patterns, path, values)
        elif isinstance(entry, URLPattern):
            kinds = frozenset(re.findall(r"<(\w+):", str(entry.pattern)))
            yield Place(path, entry.name or "", kinds, _methods(entry.callback))


def _methods(view: Any) -> tuple[str, ...]:
    """Return all where neither the view's actions, its class nor `require_http_methods` lists
    them."""
    known: Any = METHODS
    if made_of := getattr(view, "cls", None) or getattr(view, "view_class", None):
        known = getattr(view, "actions", None) or dir(made_of)
    else:
        while view is not None:
            if view.__code__.co_filename == http.__file__:
                listed = inspect.getclosurevars(view).nonlocals["request_method_list"]
                known = [method.lower() for method in listed]
            view = getattr(view, "__wrapped__", None)
    return tuple(method for method in METHODS if method in known)


def _filled(entry: URLPattern | URLResolver, values: dict[str, str]) -> str:
    text = str(entry.pattern)
    for converter, value in values.items():
        text = re.sub(rf"<{converter}:\w+>", value, text)
    for name, converter in entry.pattern.converters.items():
        if isinstance(converter, IntConverter):
            value = "1"
        elif isinstance(converter, UUIDConverter):
            value = "00000000-0000-0000-0000-000000000001"
        elif isinstance(converter, BoardKey):
            value = FIRST
        elif isinstance(converter, RuleName):
            value = "HighTTFT"
        elif isinstance(converter, MonthKey):
            value = "2026-11"
        else:
            value = "demo"
        text = re.sub(rf"<(\w+:)?{name}>", value, text)
    assert "<" not in text, f"the walk cannot fill {text}; teach it this converter"
    return text


def left_open(client: Client, found: list[Place]) -> list[str]:
    """Return the URLs that give an anonymous client more than a redirect to the login."""
    bad = []
    for place in found:
        if place.path in OPEN:
            continue
        for method in ("get", "post"):
            response = getattr(client, method)(place.path)
            to_login = response.status_code == 302 and response.url.startswith("/login/")
            refused = response.status_code == 401 or (
                response.status_code in (401, 403) and place.path in BEARER
            )
            if not (to_login or refused):
                bad.append(f"{method.upper()} {place.path} answered {response.status_code}")
    return bad
