"""Live validation fragments of the editor for htmx."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from console.core.state_store import StateStore
from endpoints import actions
from endpoints.actions import SYSTEM
from endpoints.models import Endpoint
from endpoints.placement import installation
from tests.endpoints.pages.detail.test_views import text_of
from tests.endpoints.pages.editor.test_views import EDIT, NEW, sent, sent_yaml
from tests.support.console import browser, make_endpoint

pytestmark = pytest.mark.django_db
LOOK = f"{NEW}look/"


@pytest.fixture
def page(db: None) -> Client:
    return browser("operator")


def words_of(answer: Any) -> str:
    return " ".join(re.sub(r"<[^>]+>", "", answer.content.decode()).split())


def slot(answer: Any, path: str) -> str:
    """What the page is to show below a field; None-like "" when nothing."""
    found = re.search(
        rf'<div id="live-{path.replace(".", "-")}" hx-swap-oob="innerHTML">(.*?)</div>\n<',
        answer.content.decode(),
        re.DOTALL,
    )
    assert found, path
    return found[1]


def test_touched_field_shows_the_api_message(page: Client) -> None:
    typed = sent(page.get(NEW), name="Bad Name", replicas="-1", touched="replicas")
    answer = page.post(LOOK, typed)
    assert answer.status_code == 200
    assert b"<html" not in answer.content
    api = page.post(
        "/api/v1/endpoints/",
        {"name": "demo", "model": "m/m", "engine": "simulated", "replicas": -1},
        content_type="application/json",
    ).json()
    assert f"{api['detail']} {api['remedy']}" in slot(answer, "replicas")
    assert 'id="id_replicas_error"' in slot(answer, "replicas")
    assert slot(answer, "name") == "", "nobody was there yet"
    assert "2 errors" in text_of(answer)
    both = page.post(LOOK, {**typed, "touched": "replicas name"})
    assert "is not a valid name" in slot(both, "name")


@pytest.mark.parametrize(("memory", "is_warned"), [("3", False), ("6", True)])
def test_more_memory_than_this_machine_has_is_a_warning(
    page: Client, monkeypatch: pytest.MonkeyPatch, memory: str, is_warned: bool
) -> None:
    monkeypatch.setattr(installation, "memory_bytes", lambda: 10 * 1024**3)
    make_endpoint("other", resources={"memory_gib": 6}, cache={"l1": {"enabled": False}})
    make_endpoint("paused", resources={"memory_gib": 6}, replicas=0)
    typed = sent(page.get(NEW), name="demo", touched="name", resources__memory_gib=memory)
    typed.pop("cache.l1.enabled", None)
    text = words_of(page.post(LOOK, typed))
    warning = "the endpoints of this machine request 12 GiB of memory; it has 10.0."
    assert (warning in text) is is_warned, text


def test_validation_starts_after_the_first_edit(page: Client) -> None:
    opened = page.post(LOOK, sent(page.get(NEW), model=""))
    text = words_of(opened)
    assert "Incomplete" in text
    assert "To complete: Name, Model." in text
    assert "2 fields to complete" in text
    html = opened.content.decode()
    assert "invalid-feedback" not in html
    assert "bg-red-lt" not in html.partition('id="fit-title"')[0]
    edited = page.post(LOOK, sent(page.get(NEW), model="", replicas="-1", touched="replicas"))
    text = words_of(edited)
    assert "1 error Replicas" in text
    assert "Name is required" not in text, "not edited yet"
    left = page.post(LOOK, sent(page.get(NEW), model="", touched="model"))
    assert "Model is required" in slot(left, "model")
    refused = page.post(NEW, sent(page.get(NEW), model=""))
    assert "Name is required" in words_of(refused), "shown on submit"


def test_cross_field_errors_are_shown_at_their_fields(page: Client) -> None:
    typed = sent(page.get(NEW), name="demo", touched="cache.l1.enabled")
    typed.pop("cache.l1.enabled")
    typed["cache.l2.enabled"] = "on"
    answer = page.post(LOOK, typed)
    assert "L2 requires L1" in slot(answer, "cache.l1.enabled")
    assert '<span id="wrong-cache" hx-swap-oob="innerHTML"><span' in answer.content.decode()
    assert "L1 off" in text_of(answer)


def test_partial_and_empty_numbers_are_no_crash(page: Client) -> None:
    for typed in ({}, {"resources.memory_gib": "4x"}, {"pod.env": "{"}, {"yaml": "{"}):
        assert page.post(LOOK, typed).status_code == 200, typed
    assert not Endpoint.objects.exists()


def test_yaml_is_validated_by_line(page: Client) -> None:
    text = "name: demo\nmodel: smollm2-135m-instruct\nreplicas: 70\n"
    answer = page.post(LOOK, sent_yaml(page.get(NEW), text))
    assert 'id="yaml-errors" hx-swap-oob="innerHTML"' in answer.content.decode()
    assert "Line 3</button>: <code>replicas" in text_of(answer)
    assert "Capacity check" in text_of(answer)
    assert 'id="live-' not in answer.content.decode(), "no field is on the page"


def test_unreadable_yaml_has_its_line_and_no_consequences(page: Client) -> None:
    answer = page.post(LOOK, sent_yaml(page.get(NEW), "name: ["))
    assert "Line 1</button>" in text_of(answer)
    assert "Capacity check" not in text_of(answer)


def test_change_states_its_consequences(page: Client, demo_endpoint: Endpoint) -> None:
    preview_url = f"{EDIT}look/"
    opened = page.get(EDIT)
    assert "No changes" in text_of(page.post(preview_url, sent(opened)))
    live = text_of(page.post(preview_url, sent(opened, replicas="1")))
    assert "1 change to the current spec" in live
    assert "no restart" in live
    heavy = text_of(page.post(preview_url, sent(opened, resources__cpus="2")))
    assert "2 workers, one at a time" in heavy
    actions.patch(SYSTEM, "demo", {"replicas": 1})
    assert "demo was changed after this page was opened" in text_of(
        page.post(preview_url, sent(opened))
    )


def test_viewers_get_no_feedback(demo_endpoint: Endpoint) -> None:
    viewer = browser("viewer")
    for path in (LOOK, f"{EDIT}look/", f"{EDIT}preview/"):
        assert viewer.post(path, {}).status_code == 403
    assert browser("operator").post("/endpoints/nobody/edit/look/", {}).status_code == 404


def test_complete_change_can_be_previewed(page: Client, demo_endpoint: Endpoint) -> None:
    typed = sent(page.get(EDIT), worker_args="--seen-in-preview")
    assert "--seen-in-preview" in text_of(page.post(f"{EDIT}preview/", typed))
    assert Endpoint.objects.get().generation == 1


def test_several_routers_without_a_store_have_a_warning(page: Client, settings: Any) -> None:
    def words(**changes: str) -> str:
        return words_of(page.post(LOOK, sent(page.get(NEW), name="demo", **changes)))

    warning = "3 routers without a state store"
    several = {"router__replicas": "3"}
    assert f"Routers: {warning}" in words(**several)
    assert warning not in words()
    assert warning not in words(**several, router__state_store__url="redis://store:6379/0")
    wrong = words(**several, router__state_store__url="http://store", touched="router.replicas")
    assert "is not supported. Write redis:" in wrong
    assert warning not in wrong
    settings.EMBERLINE = replace(settings.EMBERLINE, state_store=StateStore("redis://store:6379"))
    assert warning not in words(**several)
