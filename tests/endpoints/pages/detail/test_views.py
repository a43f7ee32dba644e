"""Endpoint pages, with and without script."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.commandline.endpoint.endpoints import _cells, format_endpoint
from endpoints import actions
from endpoints.actions import _expect_no_autoscaler
from endpoints.keys import storage
from endpoints.keys.terms import KeyTerms
from endpoints.models import Endpoint, EndpointEvent, EndpointStatus, InferenceKey
from endpoints.pages.editor.form_sections import groups
from endpoints.pages.keys.views import PAGE
from endpoints.prompt import client
from endpoints.prompt.client import PromptAnswer, PromptRequest
from endpoints.refusals import ConflictError
from endpoints.spec.endpoint_spec import flatten, merge
from tests.support.console import browser, make_endpoint, person, pretend_ready

pytestmark = pytest.mark.django_db


@pytest.fixture
def page(db: None) -> Client:
    return browser("operator")


@pytest.fixture
def ready(db: None) -> Endpoint:
    workers = {f"demo-worker-{n}": f"http://127.0.0.1:2000{n}" for n in (0, 1)}
    return pretend_ready(make_endpoint(replicas=2), url="http://127.0.0.1:9000", workers=workers)


def typed(data: dict[str, Any]) -> dict[str, str]:
    """What a browser posts for a spec: ticked boxes only, everything as text."""
    found = {}
    for path, value in flatten(data).items():
        if value is True:
            found[path] = "on"
        elif isinstance(value, (list, tuple)):
            found[path] = "\r\n".join(value)
        elif value is not False:
            found[path] = str(value)
    return found


def text_of(response: Any) -> str:
    return re.sub(r"\s+", " ", response.content.decode())


def test_empty_list_states_the_next_step(page: Client) -> None:
    text = text_of(page.get("/endpoints/"))
    assert "No endpoints yet" in text
    assert "/endpoints/new/" in text
    assert "needs the operator role" in text_of(browser("viewer").get("/endpoints/"))


def test_list_shows_each_endpoint(page: Client, ready: Endpoint) -> None:
    make_endpoint("other", routing={"enabled": False})
    text = text_of(page.get("/endpoints/"))
    assert 'data-phase="Ready"' in text
    assert 'data-phase="Pending"' in text
    assert "simulated" in text
    part = page.get("/endpoints/", headers={"HX-Request": "true"})
    assert "prefixaware" in text_of(part)
    assert "roundrobin" in text_of(part)
    assert b"<html" not in part.content
    assert b"every 2s" in part.content


def test_settled_list_is_polled_every_5_seconds(page: Client, ready: Endpoint) -> None:
    assert b"every 5s" in page.get("/endpoints/").content


def test_create_on_the_form(page: Client, data: dict[str, Any]) -> None:
    answer = page.post("/endpoints/new/", typed(data))
    assert answer.status_code == 302
    assert answer.url == "/endpoints/demo/"
    assert Endpoint.objects.get().spec == data


def test_form_offers_every_field_with_its_default(page: Client) -> None:
    text = page.get("/endpoints/new/").content.decode()
    sections = [one for group in groups(place=False, cluster=None) for one in group.sections]
    for path in [path for section in sections for path in section.paths]:
        assert f'name="{path}"' in text, path
    assert 'name="placement.cluster"' not in text, "without a cluster there is no choice of where"
    assert 'value="smollm2-135m-instruct"' in text, "known models are offered"
    filled = {"name": "demo", "model": "smollm2-135m-instruct", "cache.l1.enabled": "on"}
    assert page.post("/endpoints/new/", filled).status_code == 302
    spec = Endpoint.objects.get().parsed
    assert (spec.replicas, spec.routing.enabled, spec.engine) == (1, False, "simulated")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"routing.strategy": "magic"}, "routing.strategy"),
        ({"cache.l2.enabled": True, "cache.l2.backend": "redis"}, "cache.l2.url"),
        ({"replicas": -1}, "replicas"),
        ({"replicas": "many"}, "replicas"),
        ({"cache.l1.size_gib": "1,5"}, "cache.l1.size_gib"),
        ({"resources.memory_gib": 100000}, "resources.memory_gib"),
        ({"name": "taken"}, "name"),
        ({"cache.l2.enabled": True, "cache.l1.enabled": False}, "cache.l1.enabled"),
        ({"worker_args": ["--port=1"]}, "worker_args"),
    ],
)
def test_form_and_api_reject_with_the_same_message(
    page: Client, data: dict[str, Any], change: dict[str, Any], path: str
) -> None:
    make_endpoint("taken")
    bad = merge(data, change)
    answer = page.post("/endpoints/new/", typed(bad))
    assert answer.status_code == 400
    form = answer.context["form"]
    assert set(form.errors) == {path}
    (shown,) = form.errors[path]
    api = page.post("/api/v1/endpoints/", bad, content_type="application/json").json()
    assert api["field"] == path
    assert shown == f"{api['detail']} {api['remedy']}"
    from django.utils.html import escape

    assert answer.content.decode().count(escape(shown)) >= 2, "above all and beside the field"
    assert [e.name for e in Endpoint.objects.all()] == ["taken"]


def test_rejected_form_keeps_its_input(page: Client, data: dict[str, Any]) -> None:
    bad = typed(merge(data, {"replicas": -1, "worker_args": ["--a=1", "--b=<2>"]}))
    text = page.post("/endpoints/new/", bad).content.decode()
    assert 'value="-1"' in text
    assert "--a=1\n--b=&lt;2&gt;" in text.replace("\r\n", "\n")
    # A box that was not ticked stays so.
    assert not re.search(r'name="cache\.l2\.enabled"[^>]*checked', text)


def test_edit_form_states_what_restarts(page: Client, ready: Endpoint) -> None:
    text = text_of(page.get("/endpoints/demo/edit/"))
    assert text.count("restarts workers") > 5
    assert text.count("applies live") > 2
    assert "cannot be changed" in text
    assert "restarts workers" not in text_of(page.get("/endpoints/new/"))


def test_edit_changes_only_edited_fields(page: Client, ready: Endpoint) -> None:
    before = ready.spec
    answer = page.post(
        "/endpoints/demo/edit/",
        {**typed(merge(before, {"routing.strategy": "session"})), "generation": "1"},
    )
    assert answer.status_code == 302
    assert Endpoint.objects.get().spec == merge(before, {"routing.strategy": "session"})
    same = page.post(
        "/endpoints/demo/edit/", {**typed(Endpoint.objects.get().spec), "generation": "2"}
    )
    assert same.status_code == 302
    assert Endpoint.objects.get().generation == 2


def test_stale_edit_is_rejected_and_keeps_its_input(page: Client, ready: Endpoint) -> None:
    page.post("/endpoints/demo/scale/", {"replicas": "1", "generation": "1"})
    answer = page.post(
        "/endpoints/demo/edit/", {**typed(merge(ready.spec, {"replicas": 3})), "generation": "1"}
    )
    assert answer.status_code == 409
    assert "was changed since you opened it" in text_of(answer)
    assert Endpoint.objects.get().spec["replicas"] == 1


SHOWN = {
    "": (
        "Accepted",
        "http://127.0.0.1:9000/v1",
        "$EMBERLINE_API_KEY",
        "Send a prompt",
        "simulated",
    ),
    "workers/": ("demo-worker-1", "http://127.0.0.1:20001", "2/2 ready"),
    "cache/": ("L1 (worker memory)", "L2 (shared)"),
    "events/": ("No events yet",),
    "logs/": ("demo-worker-0",),
    "configuration/": ("kind: InferenceEndpointConfig", "Worker command"),
    "configuration/compare/": ("No differences",),
    "revisions/": ("current", "create"),
    "revisions/1/": ("No differences",),
    "access/": ("console key",),
    "settings/": ("Delete this endpoint", "Scale"),
}


@pytest.mark.parametrize("path", SHOWN)
def test_every_tab_has_its_content_and_the_same_header(
    page: Client, ready: Endpoint, path: str
) -> None:
    answer = page.get(f"/endpoints/demo/{path}")
    text = text_of(answer)
    for words in SHOWN[path]:
        assert words in text, words
    assert storage.read_console_key("demo") not in text
    assert 'id="endpoint-head"' in text
    assert "2/2 ready" in text
    assert text.count('aria-current="page"') >= 1
    groups = ("Overview", "Explain", "Improve", "Health", "Boards", "Configuration", "Access")
    for label in groups:
        assert f">{label}</a>" in text, f"{path} has no group {label}"


def test_live_part_is_a_fragment(page: Client, ready: Endpoint) -> None:
    part = page.get("/endpoints/demo/live/")
    assert b"<html" not in part.content
    assert part.content.count(b'hx-swap-oob="true"') == 2
    EndpointStatus.objects.update(phase="Failed", reason="WorkersCrashLooping", detail="Boom <x>")
    text = text_of(page.get("/endpoints/demo/live/"))
    assert "WorkersCrashLooping" in text
    assert "Boom &lt;x&gt;" in text
    assert "every 2s" in text


def test_exposed_endpoint_is_called_at_its_external_address(page: Client, ready: Endpoint) -> None:
    inside = "http://demo-router.llm.svc:8080"
    outside = "https://models.example.org"
    EndpointStatus.objects.update(public_url=outside, url=inside, wanted_replicas=5)
    text = text_of(page.get("/endpoints/demo/live/"))
    assert f'value="{outside}/v1"' in text
    assert f"curl {outside}/v1/chat/completions" in text
    assert f"Inside the cluster: <code>{inside}</code>" in text
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    code = page.post("/playground/endpoints/demo/code/", body, content_type="application/json")
    assert outside in text_of(code)
    assert inside not in text_of(code)
    assert "2/5 worker" in text_of(page.post("/endpoints/bulk/", {"verb": "pause", "name": "demo"}))
    document = page.get("/api/v1/endpoints/demo/").json()
    shown = format_endpoint(document)
    assert (inside in shown, outside in shown) == (True, True)
    assert _cells(document)[-1] == outside
    assert "2/5" in _cells(document)


def test_all_events_are_on_a_separate_page(page: Client, ready: Endpoint) -> None:
    assert "No events yet" in text_of(page.get("/endpoints/demo/events/"))
    for n in range(60):
        EndpointEvent.objects.create(endpoint=ready, kind="WorkerLost", message=f"event {n}!")
    assert text_of(page.get("/endpoints/demo/")).count("WorkerLost") == 8
    first = text_of(page.get("/endpoints/demo/events/"))
    assert "event 59!" in first
    assert "event 0!" not in first
    assert "event 0!" in text_of(page.get("/endpoints/demo/events/?page=2"))


def test_page_of_a_deleted_endpoint_redirects_to_the_list(page: Client) -> None:
    for part in ("live", "head"):
        answer = page.get(f"/endpoints/gone/{part}/")
        assert answer.headers["HX-Redirect"] == "/endpoints/"


def test_scale_pause_resume_rollback(page: Client, ready: Endpoint) -> None:
    page.post("/endpoints/demo/scale/", {"replicas": "1", "generation": "1"})
    assert Endpoint.objects.get().spec["replicas"] == 1
    answer = page.post("/endpoints/demo/scale/", {"replicas": "3", "generation": "1"}, follow=True)
    assert "changed meanwhile" in text_of(answer)
    answer = page.post("/endpoints/demo/scale/", {"replicas": "-1"}, follow=True)
    assert "cannot be less than 0" in text_of(answer)
    answer = page.post("/endpoints/demo/scale/", {"replicas": "x"}, follow=True)
    assert "whole number" in text_of(answer)
    page.post("/endpoints/demo/pause/")
    assert Endpoint.objects.get().spec["replicas"] == 0
    assert "Resume" in text_of(page.get("/endpoints/demo/"))
    page.post("/endpoints/demo/resume/")
    assert Endpoint.objects.get().spec["replicas"] == 1
    page.post("/endpoints/demo/revisions/1/rollback/")
    assert Endpoint.objects.get().spec["replicas"] == 2
    text = text_of(page.get("/endpoints/demo/revisions/"))
    assert "rollback" in text


def test_autoscaled_endpoint_is_not_scaled_by_hand(page: Client, ready: Endpoint) -> None:
    Endpoint.objects.update(spec=ready.spec | {"scaling": {"enabled": True, "min": 1, "max": 9}})
    settings = text_of(page.get("/endpoints/demo/settings/"))
    assert "Autoscaled from 1 to 9 workers." in settings
    assert 'id="scale-replicas"' not in settings
    refused = page.post("/endpoints/demo/scale/", {"replicas": "5"}, follow=True)
    assert "An autoscaler sets the number of workers of demo: 1 to 9." in text_of(refused)
    assert Endpoint.objects.get().spec["replicas"] == 2
    for replicas in (0, "0"):  # pauses
        _expect_no_autoscaler(Endpoint.objects.get(), replicas)
    with pytest.raises(ConflictError, match=r"scaling\.max"):
        actions.scale(person("operator"), "demo", 5)


def test_delete_needs_the_typed_name(page: Client, ready: Endpoint) -> None:
    assert "Type <strong>demo</strong>" in text_of(page.get("/endpoints/demo/delete/"))
    for wrong in ("", "Demo", "other"):
        answer = page.post("/endpoints/demo/delete/", {"name": wrong})
        assert answer.status_code == 400
    assert not Endpoint.objects.get().deleting
    assert page.post("/endpoints/demo/delete/", {"name": "demo"}).status_code == 302
    assert Endpoint.objects.get().deleting
    text = text_of(page.get("/endpoints/demo/"))
    assert 'data-phase="Deleting"' in text
    assert "Being deleted" in text


def test_key_is_shown_once(page: Client, ready: Endpoint) -> None:
    answer = page.post("/endpoints/demo/keys/", {"name": "my app"})
    key = InferenceKey.objects.get(name="my app")
    shown = re.search(r"ebk_[\w-]{20,}", answer.content.decode())
    assert shown
    assert storage.hash_key(shown[0]) == key.sha256
    assert "no-store" in answer.headers["Cache-Control"]
    assert shown[0] not in page.get("/endpoints/demo/access/").content.decode()
    bad = page.post("/endpoints/demo/keys/", {"name": "my app"})
    assert bad.status_code == 400
    assert "exists" in text_of(bad)
    page.post(f"/endpoints/demo/keys/{key.pk}/revoke/")
    assert InferenceKey.objects.get(name="my app").revoked_at is not None


def test_long_lists_of_keys_have_pages_and_a_filter(page: Client, ready: Endpoint) -> None:
    for number in range(PAGE):
        storage.add_key(None, ready, f"app-{number:02}", KeyTerms())
    text = text_of(page.get("/keys/"))
    assert "app-49" in text
    assert "Filter" not in text
    text = page.post("/endpoints/demo/keys/", {"name": "newest"}).text
    assert "app-48" in text
    assert "app-49" not in text, "one page has the console's key too"
    assert 'href="/endpoints/demo/access/?page=2"' in text
    assert 'action="/endpoints/demo/access/"' in text
    assert "newest" in page.get("/endpoints/demo/access/?page=2").text
    text = text_of(page.get("/endpoints/demo/access/?q=PP-1"))
    assert "app-19" in text
    assert "app-20" not in text
    assert "No key name contains zzz." in text_of(page.get("/keys/?q=zzz"))


def test_prompt_goes_through_the_router_and_shows_its_measurements(
    page: Client, ready: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[PromptRequest] = []

    def ask(request: PromptRequest) -> PromptAnswer:
        requests.append(request)
        return PromptAnswer(
            text="A <b>river</b>.",
            status=200,
            worker="demo-worker-1",
            decision="d-1",
            ttft_s=0.05,
            duration_s=1.2,
            prompt_tokens=400,
            cached_tokens=384,
            completion_tokens=8,
        )

    monkeypatch.setattr(client, "ask", ask)
    body = {"prompt": "Tell me.", "max_tokens": "8", "worker": "demo-worker-1"}
    part = page.post("/endpoints/demo/prompt/", body, headers={"HX-Request": "true"})
    whole = page.post("/endpoints/demo/prompt/", body)
    for answer, is_page in ((part, False), (whole, True)):
        text = text_of(answer)
        assert ("<html" in text) is is_page
        for words in ("A &lt;b&gt;river&lt;/b&gt;.", "384", "400", "50 ms", "demo-worker-1"):
            assert words in text
        assert storage.read_console_key("demo") not in text
    (request, _) = requests
    assert (request.url, request.model, request.pin) == (
        "http://127.0.0.1:9000",
        "demo",
        "demo-worker-1",
    )
    assert request.key == storage.read_console_key("demo")
    assert request.key not in repr(request)
    assert "Tell me" not in repr(request)
    for bad in ({"prompt": "", "max_tokens": "8"}, {"prompt": "x", "max_tokens": "0"}):
        text = text_of(page.post("/endpoints/demo/prompt/", bad, headers={"HX-Request": "true"}))
        assert 'role="alert"' in text
    assert len(requests) == 2


def test_viewer_sees_everything_and_cannot_act(ready: Endpoint, data: dict[str, Any]) -> None:
    viewer = browser("viewer")
    for path in ("/endpoints/", "/endpoints/demo/", "/endpoints/demo/live/"):
        assert viewer.get(path).status_code == 200
    assert "need the operator role" in text_of(viewer.get("/endpoints/demo/"))
    # Every form that changes something is switched off, with the reason.
    for tab in ("", "workers/", "cache/", "revisions/", "revisions/1/", "access/", "settings/"):
        text = text_of(viewer.get(f"/endpoints/demo/{tab}"))
        for form in re.findall(r"<form [^>]*/endpoints/demo/[^>]*>.*?</form>", text):
            around = text[: text.index(form)].rpartition("<section")[2] + form
            assert "disabled" in around or "<button" not in form, form[:200]
    key = InferenceKey.objects.get().pk
    for path in (
        "new/",
        "demo/edit/",
        "demo/delete/",
        "demo/scale/",
        "demo/pause/",
        "demo/resume/",
        "demo/prompt/",
        "demo/keys/",
        f"demo/keys/{key}/revoke/",
        "demo/revisions/1/rollback/",
    ):
        answer = viewer.post(f"/endpoints/{path}", {"name": "demo", **typed(data)})
        assert answer.status_code == 403, path
    assert Endpoint.objects.get().generation == 1
    assert InferenceKey.objects.count() == 1


def test_unknown_page_is_404(page: Client) -> None:
    for path in ("", "edit/", "delete/", "events/"):
        assert page.get(f"/endpoints/nobody/{path}").status_code == 404
    for path in ("scale/", "pause/", "prompt/", "keys/"):
        assert page.post(f"/endpoints/nobody/{path}").status_code == 404


def test_list_needs_a_constant_number_of_queries(page: Client, ready: Endpoint) -> None:
    def queries() -> int:
        page.get("/endpoints/")
        with CaptureQueriesContext(connection) as caught:
            page.get("/endpoints/")
        return len(caught)

    few = queries()
    for n in range(15):
        make_endpoint(f"more-{n}")
    assert queries() == few


def test_every_page_states_that_workers_are_simulated(page: Client) -> None:
    assert b'data-banner="simulated"' not in page.get("/audit/").content
    make_endpoint()
    answer = page.get("/audit/")
    assert b'data-banner="simulated"' in answer.content
    assert b"demo" in answer.content


@pytest.mark.parametrize("typed_number", ["--5", "9" * 5000, "٣", "1e3", "-1", "65", ""])
def test_invalid_replica_count_is_rejected_with_a_message(
    page: Client, ready: Endpoint, typed_number: str
) -> None:
    answer = page.post("/endpoints/demo/scale/", {"replicas": typed_number}, follow=True)
    assert answer.status_code == 200
    assert "whole number" in text_of(answer)
    assert Endpoint.objects.get().generation == ready.generation


def test_generation_of_thousands_of_digits_is_ignored(page: Client, ready: Endpoint) -> None:
    sent = {"replicas": "1", "generation": "9" * 5000}
    assert page.post("/endpoints/demo/scale/", sent).status_code == 302
