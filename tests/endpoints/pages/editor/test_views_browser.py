"""Endpoint editor in Chromium: live validation, form and YAML as tabs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from pytest_django.live_server_helper import LiveServer

from console.accounts.models import User
from endpoints.models import Endpoint
from tests.endpoints.pages.detail.test_cluster_views_browser import logged_in, picture

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_create_endpoint_on_a_phone(chrome: Browser, alice: User, live_server: LiveServer) -> None:
    watched = logged_in(chrome, live_server.url, 390, "dark")
    watched.open("/endpoints/new/")
    page: Any = watched.page
    expect(page.locator("#look-title")).to_contain_text("Incomplete")
    assert page.locator(".invalid-feedback").count() == 0, "nobody is blamed before typing"
    choose_a_model_by_keyboard(page)
    page.get_by_role("button", name="Apply preset Long documents").click()
    expect(page.locator("[name='cache.l1.policy']")).to_have_value("arc")
    page.wait_for_load_state()  # a preset opens the page anew; its scripts note what is edited
    page.fill("[name=name]", "Not a name")
    expect(page.locator("#live-name")).to_contain_text("is not a valid name")
    expect(page.locator("[name=name]")).to_have_attribute("aria-invalid", "true")
    page.fill("[name=name]", "docs")
    expect(page.locator("#live-name")).to_be_empty()
    expect(page.locator("#look-title")).to_contain_text("Ready to create")
    picture(watched, "editor-form")
    page.get_by_role("button", name="YAML", exact=True).click()
    text = page.locator("#id_yaml")
    expect(text).to_have_value(re.compile("name: docs"))
    expect(page.locator("[name=replicas]")).to_have_count(0)
    text.fill(text.input_value().replace("replicas: 1", "replicas: [3"))
    expect(page.locator("#yaml-errors")).to_contain_text("Line")
    picture(watched, "editor-yaml")
    page.get_by_role("button", name="Form", exact=True).click()
    expect(page.locator("#form-errors")).to_contain_text("Invalid YAML")
    expect(text).to_have_value(re.compile(r"replicas: \[3"))
    page.locator("#yaml-errors [data-line]").first.click()
    expect(text).to_be_focused()
    text.fill(text.input_value().replace("replicas: [3", "replicas: 2"))
    expect(page.locator("#yaml-errors")).to_be_empty()
    page.get_by_role("button", name="Form", exact=True).click()
    expect(page.locator("[name=replicas]")).to_have_value("2")
    assert not watched.overflows()
    requests: list[str] = []
    page.on("dialog", lambda dialog: (requests.append(dialog.type), dialog.dismiss()))
    with page.expect_event("dialog"):
        page.get_by_role("link", name="Endpoints").last.click(no_wait_after=True)
    assert requests == ["beforeunload"], "what is typed is not left without a word"
    page.get_by_role("button", name="Create endpoint").click()
    page.wait_for_url("**/endpoints/docs/")
    assert requests == ["beforeunload"], "saving asks nothing"
    # The refused switch itself is what Chromium reports.
    assert all("400" in complaint for complaint in watched.complaints)


def choose_a_model_by_keyboard(page: Any) -> None:
    model, options = page.get_by_role("combobox", name="Model"), page.locator("#model-options")
    model.fill("qwen 14b")
    expect(options.get_by_role("option")).to_have_count(3)
    model.press("ArrowDown")
    model.press("ArrowUp")
    expect(model).to_have_attribute("aria-activedescendant", "model-option-3")
    chosen = page.locator("#model-option-3").get_attribute("data-value")
    page.evaluate("document.querySelector('#model-options').replaceChildren()")  # a late answer
    model.press("Enter")
    expect(model).to_have_value(chosen)
    expect(options).to_be_hidden()
    expect(page.locator("#model-facts")).to_contain_text("parameters")
    model.fill("smollm2-135m-instruct")
    model.press("Escape")
    expect(options).to_be_hidden()


def test_two_users_edit_one_endpoint(
    chrome: Browser, alice: User, demo_endpoint: Endpoint, live_server: LiveServer
) -> None:
    watched = logged_in(chrome, live_server.url, 1280, "light")
    page: Any = watched.page
    watched.open("/endpoints/demo/edit/")
    page.fill("[name=replicas]", "3")
    expect(page.locator("#changes-title")).to_contain_text("1 change")
    other: Any = page.context.new_page()
    other.goto(f"{watched.base}/endpoints/demo/edit/")
    other.locator("#group-routing summary").click()
    other.select_option("[name='routing.strategy']", "session")
    expect(other.locator("[name='routing.session_key']")).to_be_visible()
    other.fill("#id_note", "for the mornings")
    other.get_by_role("button", name="Save changes").click()
    other.wait_for_url("**/endpoints/demo/")
    page.fill("[name=replicas]", "1")
    expect(page.locator("#look")).to_contain_text("demo was changed after this page was opened")
    page.get_by_role("button", name="Save changes").click()
    expect(page.locator("#conflict")).to_contain_text("for the mornings")
    expect(page.locator("[name=replicas]")).to_have_value("1")
    picture(watched, "editor-conflict")
    assert not watched.overflows()
    page.get_by_role("button", name="Merge and review").click()
    expect(page.locator("[name='routing.strategy']")).to_have_value("session")
    expect(page.locator("#changes-title")).to_contain_text("1 change")
    page.get_by_role("button", name="Save changes").click()
    page.wait_for_url("**/endpoints/demo/")
    # The refusal itself is what Chromium reports.
    assert all("409" in complaint for complaint in watched.complaints)


def test_input_typed_before_the_script_runs_is_validated(
    chrome: Browser, alice: User, live_server: LiveServer
) -> None:
    watched = logged_in(chrome, live_server.url, 1280, "light")
    page: Any = watched.page
    held: list[Any] = []
    page.route("**/editor*.js", lambda route: held.append(route))
    with page.expect_request("**/editor*.js"):
        page.goto(f"{live_server.url}/endpoints/new/", wait_until="commit")
    page.fill("[name=name]", "Not a name")
    held[0].continue_()
    expect(page.locator("#live-name")).to_contain_text("is not a valid name")
    expect(page.locator("[name=name]")).to_have_value("Not a name")
    expect(page.locator("#touched")).to_have_value("name")
