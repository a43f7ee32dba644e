"""URL map: no open view, no write access for viewers, no inline script."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from tests.support.people import Cast, client_of
from tests.support.urlwalk import OPEN, left_open, places

pytestmark = pytest.mark.django_db

# A viewer may change their own password, tokens and session; all else that answers is a leak.
OWN = re.compile(
    r"^/(login|logout|profile|endpoints/columns|saved-filters|overview/guide|playground/prompts)/|^/api/v1/tokens/"
    r"|^/dashboards/custom/(new|import|pin)/"
)


@login_not_required
def careless(request: HttpRequest) -> HttpResponse:
    return HttpResponse("everybody's")


urlpatterns = [path("careless/", careless)]


def test_every_url_requires_a_login() -> None:
    found = places()
    assert {place.path for place in found} >= OPEN
    assert len(found) > 15
    assert left_open(Client(raise_request_exception=False), found) == []


def test_walk_detects_an_open_view(settings: object) -> None:
    settings.ROOT_URLCONF = __name__  # type: ignore[attr-defined]
    found = places(__name__)
    assert left_open(Client(), found) == [
        "GET /careless/ answered 200",
        "POST /careless/ answered 200",
    ]


def test_public_urls_respond_without_a_login() -> None:
    client = Client()
    assert client.get("/healthz").content == b"ok\n"
    assert client.get("/login/").status_code == 200
    assert client.get("/readyz").status_code in (200, 503)


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_viewer_writes_nowhere(people: Cast, method: str) -> None:
    client = client_of(people.charlie)
    wrote = []
    for place in places():
        if OWN.match(place.path) or place.path in OPEN or method not in place.methods:
            continue
        status = getattr(client, method)(place.path, {}, content_type="application/json")
        if status.status_code not in (401, 403, 404, 405):
            wrote.append(f"{method} {place.path} answered {status.status_code}")
    assert wrote == []


def test_every_page_has_a_strict_policy_and_no_inline_script(people: Cast) -> None:
    client = client_of(people.ada)
    for place in places():
        response = client.get(place.path)
        policy = response.headers["Content-Security-Policy"]
        script = next(part for part in policy.split("; ") if part.startswith("script-src"))
        assert script == "script-src 'self'", place.path
        assert "default-src 'self'" in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.status_code < 500, f"{place.path} answered {response.status_code}"
        if response.headers.get("Content-Type", "").startswith("text/html"):
            assert inline_scripts(response.content.decode()) == [], place.path


def inline_scripts(html: str) -> list[str]:
    """What the policy would block: script bodies, on... attributes, javascript: links."""
    bodies = [
        tag
        for tag, body in re.findall(r"(<script\b[^>]*>)(.*?)</script>", html, re.S)
        if body.strip() and 'type="application/json"' not in tag
    ]
    handlers = re.findall(r"<[^>]*\s(on[a-z]+)=[\"']", html)
    links = re.findall(r"(?:href|src|action)=[\"']\s*javascript:", html)
    return bodies + handlers + links


def test_checker_finds_inline_scripts() -> None:
    assert inline_scripts("<script src='/a.js'></script>") == []
    assert inline_scripts('<script type="application/json">{"a": 1}</script>') == []
    assert inline_scripts("<script>alert(1)</script>")
    assert inline_scripts("<a onclick='x()'>")
    assert inline_scripts("<a href='javascript:x()'>")


def test_pages_use_no_other_host(people: Cast) -> None:
    client = client_of(people.ada)
    for url in ("/login/", "/profile/", "/access/", "/audit/", "/api/v1/docs/"):
        html = client.get(url, follow=True).content.decode()
        assert re.findall(r"(?:src|href|action)=[\"'](?:https?:)?//[^\"']*", html) == [], url
