"""Login in Chromium under our policy: provider, second factor, confirmation."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from django.test import Client
from playwright.sync_api import Browser, expect
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from console.accounts.models import ApiToken, Team, User
from console.signon import factors
from console.signon.core.configuration import Provider
from console.signon.models import Session
from tests.console.signon.test_confirmation import old
from tests.support.browser import Watched, watch
from tests.support.oidc import OpenIdProvider, running
from tests.support.people import PASSWORD, cast, client_of

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
SHOTS = os.environ.get("EMBERLINE_SHOTS", "")
"""Folder for screenshots, if requested."""


@pytest.fixture(scope="module")
def served() -> Iterator[OpenIdProvider]:
    with running() as provider:
        yield provider


@pytest.fixture
def idp(served: OpenIdProvider, settings: Settings) -> OpenIdProvider:
    served.calm()
    roles = {"admin": ("bosses",), "viewer": ("staff", "engineering")}
    settings.OIDC_PROVIDERS = (
        Provider(
            *("acme", "ACME", served.url, "emberline", "s3cret"),
            roles=roles,
            teams={"search": {"operator": ("search",)}},
        ),
    )
    served.person("sub-eve", preferred_username="eve", groups=["bosses"])
    return served


def picture(watched: Watched, name: str) -> None:
    if SHOTS:
        watched.page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=True)


def agree(watched: Watched, subject: str) -> None:
    """On the provider's own page, at another origin."""
    watched.page.wait_for_url(re.compile("/oauth2/authorize"))
    watched.page.fill('input[name="sub"]', subject)
    watched.page.keyboard.press("Enter")


def own(watched: Watched, idp: OpenIdProvider) -> list[str]:
    """Violations, except on the provider's own pages."""
    return [text for text in watched.complaints if not text.startswith(idp.url)]


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_single_sign_on_second_factor_setup_and_login(
    chrome: Browser,
    idp: OpenIdProvider,
    live_server: LiveServer,
    settings: Settings,
    width: int,
    theme: str,
) -> None:
    settings.SIGNON = replace(settings.SIGNON, second_factor="admins", break_glass=("ghost",))
    User.objects.create_user("alice", password=PASSWORD, role="viewer")
    Team.objects.create(name="Search", slug="search")
    watched = watch(chrome, live_server.url, width, theme)
    page = watched.page
    watched.open("/login/?next=/profile/")
    picture(watched, f"login-{width}")
    page.get_by_role("button", name="Sign on with ACME").click()
    agree(watched, "sub-eve")
    # An admin must have a second factor here, and gets nowhere before.
    page.wait_for_url(re.compile("/profile/security/factor/"))
    picture(watched, f"factor-{width}")
    assert not watched.overflows()
    secret = re.sub(r"\s", "", page.locator("li code").inner_text())
    page.get_by_label("Current code of the app").fill(now(secret))
    page.get_by_role("button", name="Enable").click()
    expect(page.locator("h1")).to_have_text("Recovery codes")
    picture(watched, f"recovery-{width}")
    codes = page.locator("pre").inner_text().split()
    page.get_by_role("link", name="Done").click()
    expect(page.locator("h1")).to_have_text("Security")
    picture(watched, f"security-{width}")
    assert not watched.overflows()
    watched.open("/sign-on/")
    page.get_by_role("button", name="Test ACME").click()
    expect(page.get_by_text("is reachable and its issuer matches")).to_be_visible()
    picture(watched, f"sign-on-{width}")
    assert not watched.overflows()
    watched.open("/profile/security/")
    page.get_by_role("button", name="Log out").last.click()
    watched.open("/login/")
    page.get_by_role("button", name="Sign on with ACME").click()
    agree(watched, "sub-eve")
    page.wait_for_url(re.compile("/login/code/"))
    picture(watched, f"code-{width}")
    page.get_by_label("Code").fill(codes[0])
    page.keyboard.press("Enter")
    page.wait_for_selector("aside.navbar")
    assert own(watched, idp) == []
    assert Session.objects.get().method == "with ACME and a recovery code"


def test_confirmation_continues_with_the_input(
    chrome: Browser, live_server: LiveServer, settings: Settings
) -> None:
    people = cast()
    client = old(client_of(people.alice))
    key = client.cookies[settings.SESSION_COOKIE_NAME].value
    watched = watch(chrome, live_server.url, 390, "light")
    page = watched.page
    cookie = {"name": settings.SESSION_COOKIE_NAME, "value": key, "url": live_server.url}
    page.context.add_cookies([cookie])
    watched.open("/profile/")
    page.get_by_label("Name").fill("deploy bot")
    page.get_by_role("button", name="Create token").click()
    expect(page.locator("h1")).to_have_text("Confirm your identity")
    picture(watched, "confirm-390")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_text("deploy bot").first).to_be_visible()
    assert watched.complaints == []
    assert ApiToken.objects.get(user=people.alice).name == "deploy bot"


def test_unreachable_provider_leaves_the_page_usable(
    chrome: Browser, idp: OpenIdProvider, live_server: LiveServer, settings: Settings
) -> None:
    settings.OIDC_PROVIDERS = (replace(settings.OIDC_PROVIDERS[0], issuer="http://127.0.0.1:9"),)
    cast()
    watched = watch(chrome, live_server.url, 390, "dark")
    page = watched.page
    watched.open("/login/")
    page.get_by_role("button", name="Sign on with ACME").click()
    expect(page.get_by_role("alert")).to_contain_text("ACME is not reachable")
    picture(watched, "away-390")
    page.get_by_label("User name").fill("alice")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_selector("aside.navbar")


def with_virtual_authenticator(watched: Watched) -> None:
    """Give Chromium an authenticator that stores passkeys and has verified its owner."""
    session = watched.page.context.new_cdp_session(watched.page)
    session.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    session.send("WebAuthn.addVirtualAuthenticator", {"options": options})


@pytest.mark.parametrize(("width", "theme"), [(1280, "dark"), (390, "light")])
def test_passkey_logs_in_alone_and_as_second_factor_and_confirms(
    chrome: Browser, live_server: LiveServer, settings: Settings, width: int, theme: str
) -> None:
    people = cast()
    watched = watch(chrome, live_server.url, width, theme)
    page = watched.page
    with_virtual_authenticator(watched)
    watched.open("/login/?next=/profile/security/")
    expect(page.get_by_role("button", name="Log in with a passkey")).to_have_count(0)
    page.get_by_label("User name").fill("alice")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Add a passkey").click()
    expect(page.get_by_label("Name", exact=True)).to_be_visible()
    picture(watched, f"passkey-{width}")
    assert not watched.overflows()
    page.get_by_label("Name", exact=True).fill("laptop")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("h1")).to_have_text("Recovery codes")
    page.get_by_role("link", name="Done").click()
    expect(page.get_by_text("logs in without password")).to_be_visible()
    picture(watched, f"security-passkey-{width}")
    assert not watched.overflows()
    page.get_by_role("button", name="Log out").last.click()
    watched.open("/login/?next=/profile/security/")
    picture(watched, f"login-passkey-{width}")
    page.get_by_role("button", name="Log in with a passkey").click()
    expect(page.locator("h1")).to_have_text("Security")
    assert Session.objects.get(user=people.alice).method == "with a passkey"
    page.get_by_role("button", name="Log out").last.click()
    watched.open("/login/?next=/profile/security/")
    page.get_by_label("User name").fill("alice")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.locator("h1")).to_have_text("Security")
    session = Session.objects.get(user=people.alice)
    assert session.method == "with a password and a passkey"
    (cookie,) = (
        one for one in page.context.cookies() if one["name"] == settings.SESSION_COOKIE_NAME
    )
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = cookie["value"]
    old(client)
    page.get_by_role("button", name="Remove laptop").click()
    page.locator("[data-confirm-go]").click()
    picture(watched, f"confirm-passkey-{width}")
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_text("Passkey removed")).to_be_visible()
    assert watched.complaints == []
    assert not factors.is_on(people.alice)


def now(secret: str) -> str:
    return factors.current_code(secret)
