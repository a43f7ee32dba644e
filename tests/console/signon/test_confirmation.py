"""Confirmation before sensitive operations, without loss of input."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.test import Client
from django.urls import get_resolver, reverse
from pytest_django.fixtures import Settings

from console.accounts.models import ApiToken
from console.audit.models import AuditEvent
from console.signon import confirmation, factors
from console.signon.core.configuration import Provider
from tests.console.signon.test_factors import code, with_factor
from tests.support.oidc import OpenIdProvider, begin, running, sign_on
from tests.support.people import PASSWORD, Cast, client_of

pytestmark = pytest.mark.django_db
NEW_TOKEN = {"name": "deploy bot", "role": "viewer", "days": "30"}


def old(client: Client) -> Client:
    """A session that was confirmed an hour ago."""
    session = client.session
    session["signon"] = {**session["signon"], "confirmed": time.time() - 3600}
    session.save()
    return client


def set_auth_time(at: int | None, claims: dict[str, Any]) -> dict[str, Any]:
    return {**claims, "auth_time": at}


def test_fresh_session_needs_no_confirmation(people: Cast) -> None:
    client_of(people.alice).post("/profile/tokens/", NEW_TOKEN)
    assert ApiToken.objects.count() == 1


def test_old_session_confirms_and_continues_with_its_input(people: Cast) -> None:
    client = old(client_of(people.alice))
    page = client.post("/profile/tokens/", NEW_TOKEN).content.decode()
    assert not ApiToken.objects.exists()
    assert 'name="name" value="deploy bot"' in page
    assert 'name="to" value="/profile/tokens/"' in page
    answer = client.post(
        "/login/again/", {**NEW_TOKEN, "to": "/profile/tokens/", "again_password": PASSWORD}
    )
    assert (answer.status_code, answer.url) == (307, "/profile/tokens/")
    client.post("/profile/tokens/", NEW_TOKEN)
    assert ApiToken.objects.get().name == "deploy bot"


def test_wrong_password_confirms_nothing_and_keeps_the_input(people: Cast) -> None:
    client = old(client_of(people.alice))
    form = {**NEW_TOKEN, "to": "/profile/tokens/", "again_password": "nope"}
    page = client.post("/login/again/", form).content.decode()
    assert 'name="name" value="deploy bot"' in page
    assert "nope" not in page
    client.post("/profile/tokens/", NEW_TOKEN)
    assert not ApiToken.objects.exists()
    assert AuditEvent.objects.get(verb="user.login.refused").changes["reason"] == "confirmation"


def test_guessing_ends_the_session(people: Cast) -> None:
    client = old(client_of(people.alice))
    for _ in range(6):
        client.post("/login/again/", {"to": "/profile/tokens/", "again_password": "nope"})
    assert client.get("/profile/").status_code == 302


def test_second_factor_is_part_of_the_confirmation(people: Cast) -> None:
    with_factor(people.alice)
    client = old(client_of(people.alice))
    form = {"to": "/profile/security/factor/off/", "again_password": PASSWORD}
    assert client.post("/login/again/", form).status_code == 200
    assert client.post("/login/again/", {**form, "again_code": "000000"}).status_code == 200
    assert factors.is_on(people.alice)
    assert client.post("/login/again/", {**form, "again_code": code()}).status_code == 307


@pytest.mark.parametrize("to", ["", "https://evil.example/", "//evil.example/", "/logout/", "/x/"])
def test_confirmation_leads_only_to_protected_operations(people: Cast, to: str) -> None:
    client = client_of(people.alice)
    answer = client.post("/login/again/", {"to": to, "again_password": PASSWORD})
    assert (answer.status_code, answer.url) == (302, "/profile/security/")


def test_htmx_request_becomes_a_page(people: Cast) -> None:
    client = old(client_of(people.alice))
    answer = client.post("/profile/tokens/", NEW_TOKEN, headers={"HX-Request": "true"})
    assert answer.headers["HX-Retarget"] == "body"


def test_every_protected_operation_is_registered() -> None:
    root = get_resolver()
    for route in confirmation.confirmed_routes():
        room, _, name = route.rpartition(":")
        resolver = root.namespace_dict[room][1] if room else root
        assert resolver.reverse_dict.getlist(name), route
    assert reverse("signon:again") == "/login/again/"


@pytest.fixture(scope="module")
def served() -> Iterator[OpenIdProvider]:
    with running() as provider:
        yield provider


def test_single_sign_on_user_confirms_at_the_provider(
    served: OpenIdProvider, settings: Settings
) -> None:
    settings.OIDC_PROVIDERS = (
        Provider("acme", "ACME", served.url, "emberline", "x", roles={"viewer": ("staff",)}),
    )
    served.person("sub-eve", preferred_username="eve", groups=["staff"])
    client = Client()
    sign_on(client, served, "sub-eve")
    old(client)
    page = client.post("/profile/tokens/", NEW_TOKEN).content.decode()
    assert "/login/again/with/acme/" in page
    assert "again_password" not in page
    # Without a recent `auth_time` the provider has not authenticated again.
    for at in (None, int(time.time()) - 3600):
        served.forge = partial(set_auth_time, at)
        url = begin(client, "/login/again/with/acme/")
        assert "max_age=0" in url
        assert "prompt=login" in url
        assert client.get(served.authorize(url, "sub-eve")).status_code == 403
    served.calm()
    someone = served.authorize(begin(client, "/login/again/with/acme/"), "sub-other")
    assert client.get(someone).status_code == 403
    client.get(served.authorize(begin(client, "/login/again/with/acme/"), "sub-eve"))
    client.post("/profile/tokens/", NEW_TOKEN)
    assert ApiToken.objects.count() == 1
