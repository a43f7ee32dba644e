"""Change notes are stored with the revision and in the audit log, from every interface."""

from __future__ import annotations

from typing import Any

import pytest

from console.audit.models import AuditEvent
from endpoints import actions
from endpoints.actions import SYSTEM
from endpoints.models import Endpoint, Revision
from endpoints.spec.endpoint_spec import SpecErrors
from tests.endpoints.pages.detail.test_views import text_of, typed
from tests.support.console import browser, program

pytestmark = pytest.mark.django_db


def list_notes() -> list[tuple[str, str]]:
    revisions = Revision.objects.order_by("number").values_list("note", flat=True)
    trail = AuditEvent.objects.filter(target="endpoint/demo").order_by("pk")
    return list(zip(revisions, trail.values_list("note", flat=True), strict=True))


def test_by_rest(data: dict[str, Any]) -> None:
    api = program("operator")
    assert api.post("/api/v1/endpoints/", {**data, "note": " first "}).status_code == 201
    one = "/api/v1/endpoints/demo/"
    assert api.patch(one, {"replicas": 1, "note": "fewer"}).status_code == 200
    assert api.put(one, {**data, "note": "more"}).status_code == 200
    back = api.post(f"{one}rollback/", {"revision": 2, "note": "too many"})
    assert back.status_code == 200, back.json()
    assert list_notes() == [(word, word) for word in ("first", "fewer", "more", "too many")]
    assert api.get(f"{one}revisions/").json()["results"][0]["note"] == "too many"
    refused = api.patch(one, {"replicas": 2, "note": [5]})
    assert (refused.status_code, refused.json()["field"]) == (400, "note")


def test_by_the_form(data: dict[str, Any]) -> None:
    page = browser("operator")
    page.post("/endpoints/new/", {**typed(data), "note": "a <b>reason</b>"})
    assert Endpoint.objects.get().spec == data, "a note is not of the spec"
    change = {**typed({**data, "replicas": 1}), "generation": "1", "note": "line 1\r\nline 2"}
    page.post("/endpoints/demo/edit/", change)
    assert [pair[0] for pair in list_notes()] == ["a <b>reason</b>", "line 1\nline 2"]
    assert "a &lt;b&gt;reason&lt;/b&gt;" in text_of(page.get("/endpoints/demo/revisions/"))
    assert "a &lt;b&gt;reason&lt;/b&gt;" in text_of(browser("admin").get("/audit/"))


@pytest.mark.parametrize("note", ["x" * 501, "a\x00b", None, ["a"]])
def test_invalid_note_changes_nothing(demo_endpoint: Endpoint, note: Any) -> None:
    with pytest.raises(SpecErrors) as refused:
        actions.patch(SYSTEM, "demo", {"replicas": 1}, note=note)
    assert refused.value.errors[0].field == "note"
    assert Endpoint.objects.get().generation == 1


def test_password_in_an_address_is_not_stored_in_the_audit_log(demo_endpoint: Endpoint) -> None:
    actions.patch(SYSTEM, "demo", {"replicas": 1}, note="as redis://a:b@host says")
    assert AuditEvent.objects.latest("pk").note == "as redis://(hidden)@host says"
