"""Page shell in Chromium: keyboard, themes, phone width, and no blocked script."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from pytest_django.live_server_helper import LiveServer

from tests.support.browser import Watched, watch
from tests.support.people import PASSWORD, Cast, cast, client_of

CLICK_TWICE = """async button => {
  const after = ms => new Promise(resolve => setTimeout(resolve, ms));
  button.click();
  await after(200);
  button.click();
  await after(600);
  return button.className;
}"""  # on a slow connection

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def people(transactional_db: None) -> Cast:
    return cast()


def log_in(watched: Watched, name: str = "ada") -> None:
    watched.open("/login/")
    watched.page.fill("#id_username", name)
    watched.page.fill("#id_password", PASSWORD)
    watched.page.keyboard.press("Enter")
    watched.page.wait_for_selector("aside.navbar")


def test_theme_is_kept(chrome: Browser, people: Cast, live_server: LiveServer) -> None:
    watched = watch(chrome, live_server.url, theme="dark")
    log_in(watched)
    shown = "document.documentElement.dataset.bsTheme"
    assert watched.page.evaluate(shown) == "dark"  # as set by the system
    watched.page.click("[data-theme-choice=light]")
    watched.open("/audit/")
    assert watched.page.evaluate(shown) == "light"
    assert watched.page.get_attribute("[data-theme-choice=light]", "aria-pressed") == "true"
    watched.page.click("[data-theme-choice=auto]")
    assert watched.page.evaluate(shown) == "dark"
    assert watched.complaints == []


def test_palette_and_time_zone(chrome: Browser, people: Cast, live_server: LiveServer) -> None:
    watched = watch(chrome, live_server.url)
    page = watched.page
    zone = {"timezoneId": "Asia/Tokyo"}
    page.context.new_cdp_session(page).send("Emulation.setTimezoneOverride", zone)
    log_in(watched)
    watched.open("/profile/")
    expect(page.locator("footer")).to_contain_text("Time zone: Asia/Tokyo")
    page.click("[data-time-choice=utc]")
    expect(page.locator("footer")).to_contain_text("Time zone: UTC")
    page.keyboard.press("Control+k")
    page.keyboard.type("al")
    chosen = page.locator("#palette-hits [aria-selected=true]")
    expect(chosen).to_contain_text("alice")
    page.keyboard.press("ArrowUp")
    expect(chosen).not_to_contain_text("alice")
    page.keyboard.press("ArrowDown")
    field = page.get_by_role("combobox", name="Search")
    assert field.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()
    # Chromium may still be moving the focus out of the closed dialog.
    page.wait_for_function("document.activeElement === document.body")
    page.keyboard.press("/")
    expect(field).to_be_focused()
    page.keyboard.type("audit log")
    expect(field).to_have_value("audit log")
    expect(chosen).to_contain_text("Audit log")
    page.keyboard.press("Enter")
    page.wait_for_url("**/audit/")
    assert watched.complaints == []


def test_keyboard_reaches_content_and_menu(
    chrome: Browser, people: Cast, live_server: LiveServer
) -> None:
    watched = watch(chrome, live_server.url, width=390)
    watched.take_session(client_of(people.ada))
    watched.open("/audit/")
    watched.page.keyboard.press("Tab")
    assert watched.page.evaluate("document.activeElement.textContent") == "Skip to content"
    watched.page.keyboard.press("Enter")
    watched.page.wait_for_function("document.activeElement.id === 'content'")
    menu = watched.page.locator("button[aria-label=Menu]")
    assert menu.get_attribute("aria-expanded") == "false"
    menu.focus()
    watched.page.keyboard.press("Enter")
    watched.page.locator("#menu.show").wait_for()
    assert watched.page.locator("#menu a[href='/audit/']").is_visible()


def test_audit_filter_updates_the_part_and_the_url(
    chrome: Browser, people: Cast, live_server: LiveServer
) -> None:
    watched = watch(chrome, live_server.url)
    log_in(watched, "alice")
    log_in(watch(chrome, live_server.url), "ada")
    watched.open("/audit/")
    assert watched.page.locator("#audit-rows tbody tr").count() == 2
    with watched.page.expect_response(lambda answer: "actor=ada" in answer.url):
        watched.page.select_option("#audit-actor", "ada")
    watched.page.wait_for_url("**/audit/?actor=ada*")
    watched.page.wait_for_function("document.querySelectorAll('#audit-rows tr').length === 2")
    assert watched.complaints == []


def test_token_is_created_and_revoked_on_the_page(
    chrome: Browser, people: Cast, live_server: LiveServer
) -> None:
    watched = watch(chrome, live_server.url)
    watched.take_session(client_of(people.alice))
    watched.open("/profile/")
    watched.page.fill("#id_name", "ci")
    watched.page.click("text=Create token")
    clear = watched.page.text_content("#secret-once")
    assert clear is not None
    headers = {"Authorization": f"Bearer {clear}"}
    answer = watched.page.request.get("/api/v1/me/", headers=headers)
    assert answer.json()["token"] == "ci"
    revoke = watched.page.locator("form[data-confirm] button")
    revoke.click()
    dialog = watched.page.get_by_role("dialog", name="Revoke “ci”?")
    go = dialog.get_by_role("button", name="Revoke")
    assert "btn-danger" in str(go.get_attribute("class"))
    focus = "document.activeElement.textContent.trim()"
    assert watched.page.evaluate(focus) == "Cancel", "Enter alone destroys nothing"
    watched.page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    watched.page.wait_for_function(f"{focus}.startsWith('Revoke')")  # the focus is back
    revoke.click()
    revoke.evaluate("button => button.form.replaceWith('refreshed')")  # as a polled part is
    go.click()
    watched.page.wait_for_selector("text=“ci” revoked")
    assert watched.page.request.get("/api/v1/me/", headers=headers).status == 401
    assert watched.complaints == []


def test_form_is_sent_once(chrome: Browser, people: Cast, live_server: LiveServer) -> None:
    watched = watch(chrome, live_server.url)
    page = watched.page
    watched.take_session(client_of(people.alice))
    watched.open("/profile/")
    page.fill("#id_name", "ci")
    held: list[Route] = []
    page.route("**/profile/tokens/", lambda route: held.append(route))
    classes = page.get_by_role("button", name="Create token").evaluate(CLICK_TWICE)
    assert "btn-loading" in classes
    assert len(held) == 1
    held[0].continue_()
    page.wait_for_selector("#secret-once")
    page.go_back()
    expect(page.get_by_role("button", name="Create token")).not_to_have_class(
        re.compile("btn-loading")
    )
    assert watched.complaints == []


def end_session(page: Page) -> None:
    (name,) = [
        str(c.get("name")) for c in page.context.cookies() if "session" in str(c.get("name"))
    ]
    page.context.clear_cookies(name=name)


def test_input_of_an_ended_session_is_filled_in_again(
    chrome: Browser, people: Cast, live_server: LiveServer
) -> None:
    watched = watch(chrome, live_server.url)
    page = watched.page
    log_in(watched, "alice")
    watched.open("/costs/budgets/")
    for name in ("Mine", "Ours"):
        page.fill("#id_name", name)
        end_session(page)
        page.get_by_role("button", name="Create budget").click()
        page.wait_for_url("**/login/?next=%2Fcosts%2Fbudgets%2F")
        stored = page.evaluate("sessionStorage.getItem('emberline-input')")
        assert name in stored
        page.fill("#id_username", "alice")
        page.fill("#id_password", PASSWORD)
        page.keyboard.press("Enter")
        expect(page.get_by_text("Your session had ended")).to_be_visible()
        expect(page.locator("#id_name")).to_have_value(name)
    page.fill("#id_name", "Of alice")
    end_session(page)
    page.get_by_role("button", name="Create budget").click()
    log_in(watched, "ada")
    watched.open("/costs/budgets/")
    assert page.evaluate("sessionStorage.getItem('emberline-input')") is None
    assert watched.complaints == []


def test_refreshed_part_of_an_ended_session_keeps_the_input(
    chrome: Browser, people: Cast, live_server: LiveServer
) -> None:
    watched = watch(chrome, live_server.url)
    page = watched.page
    log_in(watched, "alice")
    watched.open("/endpoints/new/")
    page.on("dialog", lambda dialog: dialog.accept())
    end_session(page)
    page.locator("[name=name]").press_sequentially("typed")
    page.wait_for_url("**/login/**")
    page.fill("#id_username", "alice")
    page.fill("#id_password", PASSWORD)
    page.keyboard.press("Enter")
    expect(page.locator("[name=name]")).to_have_value("typed")
