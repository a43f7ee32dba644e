"""REST of endpoints."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from console.accounts.models import Team
from console.audit.models import AuditEvent
from console.processkit.files import make_private_dir
from endpoints import actions, tasks
from endpoints.actions import SYSTEM
from endpoints.keys import actions as keys_actions
from endpoints.keys import storage
from endpoints.models import Endpoint, InferenceKey, Replica, Revision
from endpoints.placement import spec_context
from endpoints.spec.endpoint_spec import merge
from tests.support.console import make_endpoint, pretend_ready, program

pytestmark = pytest.mark.django_db
URL = "/api/v1/endpoints/"
ONE = f"{URL}demo/"


@pytest.fixture
def api(db: None) -> APIClient:
    return program("operator")


@pytest.fixture
def nudged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(
        tasks.reconcile_endpoint, "_publish", lambda args, _s: found.append(args[0])
    )
    return found


def test_create_read_list(
    api: APIClient, data: dict[str, Any], nudged: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        answer = api.post(URL, data)
    assert answer.status_code == 201
    body = answer.json()
    assert body["name"] == "demo"
    assert body["phase"] == "Pending"
    assert body["spec"] == data
    assert (body["generation"], body["observed_generation"]) == (1, 0)
    assert answer.headers["ETag"].startswith('"1-')
    assert nudged == [body["id"]]
    assert api.get(ONE).json() == body
    listed = api.get(URL).json()
    assert len(listed["results"]) == 1
    assert listed["results"] == [body]
    assert Revision.objects.get().spec == data
    event = AuditEvent.objects.get(verb="endpoint.create")
    assert (event.actor_name, event.target) == ("one-operator", "endpoint/demo")
    assert event.changes["replicas"] == [1, 2]
    assert event.request_id


def test_defaults_complete_the_spec(api: APIClient) -> None:
    body = api.post(URL, {"name": "demo", "model": "smollm2-135m-instruct"}).json()
    assert body["spec"]["engine"] == "simulated", "the installation's own"
    assert body["spec"]["cache"]["l1"]["size_gib"] == 0.5


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"routing.strategy": "magic"}, "routing.strategy"),
        ({"cache.l2.enabled": True, "cache.l2.backend": "redis"}, "cache.l2.url"),
        ({"replicas": -1}, "replicas"),
        ({"resources.memory_gib": 100000}, "resources.memory_gib"),
        ({"name": "taken"}, "name"),
        ({"zzz": 1}, "zzz"),
    ],
)
def test_invalid_value_creates_nothing(
    api: APIClient, data: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    make_endpoint("taken")
    before = (AuditEvent.objects.count(), InferenceKey.objects.count())
    answer = api.post(URL, merge(data, change))
    assert answer.status_code == 400
    body = answer.json()
    assert body["field"] == field
    assert body["detail"]
    assert body["remedy"]
    assert body["code"]
    assert "value" in body
    assert body["request_id"]
    assert [e["field"] for e in body["errors"]] == [field]
    assert [e.name for e in Endpoint.objects.all()] == ["taken"]
    assert (AuditEvent.objects.count(), InferenceKey.objects.count()) == before
    assert not storage.console_key_file("demo").exists()


def test_failure_halfway_leaves_nothing(
    api: APIClient, data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(actions, "record", fail)
    with pytest.raises(ZeroDivisionError):
        api.post(URL, data)
    assert not Endpoint.objects.exists()
    assert not Revision.objects.exists()


@pytest.mark.parametrize("body", ["[]", "1", '"demo"', "null", "{"])
def test_non_object_body_is_rejected(api: APIClient, body: str) -> None:
    answer = api.post(URL, body, content_type="application/json")
    assert answer.status_code == 400
    assert answer.json()["code"]


@pytest.mark.parametrize(
    "change", [{"a": [], "a.b": 1}, {"cache": 7, "cache.l1.enabled": True}, {"a": 1, "a.b.c": 2}]
)
def test_path_below_a_non_object_is_rejected(
    api: APIClient, data: dict[str, Any], change: dict[str, Any]
) -> None:
    api.post(URL, data)
    answer = api.patch(ONE, change)
    assert (answer.status_code, answer.json()["field"]) == (400, next(iter(change)))


def test_patch_changes_only_named_fields(api: APIClient, data: dict[str, Any]) -> None:
    api.post(URL, data)
    answer = api.patch(ONE, {"routing": {"strategy": "session"}, "replicas": 1})
    assert answer.status_code == 200
    wanted = merge(data, {"routing.strategy": "session", "replicas": 1})
    assert answer.json()["spec"] == wanted
    assert answer.json()["generation"] == 2
    changes = AuditEvent.objects.get(verb="endpoint.update").changes
    assert changes == {"replicas": [2, 1], "routing.strategy": ["prefixaware", "session"]}


def test_put_replaces_the_spec_and_fills_defaults(api: APIClient, data: dict[str, Any]) -> None:
    api.post(URL, data)
    spec = api.put(ONE, {"model": "smollm2-135m-instruct"}).json()["spec"]
    assert spec["replicas"] == 1
    assert spec["worker_args"] == []
    assert api.put(ONE, {"name": "other", "model": "x"}).json()["field"] in ("name", "model")


def test_unchanged_spec_makes_no_revision(api: APIClient, data: dict[str, Any]) -> None:
    api.post(URL, data)
    assert api.put(ONE, data).json()["generation"] == 1
    assert Revision.objects.count() == 1


def test_stale_change_is_rejected(api: APIClient, data: dict[str, Any]) -> None:
    tag = {"If-Match": api.post(URL, data).headers["ETag"]}
    api.post(f"{ONE}scale/", {"replicas": 1})
    stale = [
        (412, api.patch(ONE, {"replicas": 3}, headers=tag)),
        (409, api.patch(ONE, {"replicas": 3, "generation": 1})),
        (409, api.put(ONE, {**data, "generation": 1})),
        (409, api.post(f"{ONE}scale/", {"replicas": 3, "generation": 1})),
        (412, api.delete(ONE, headers=tag)),
    ]
    for status, answer in stale:
        assert answer.status_code == status
        assert answer.json()["code"] == "stale"
        assert answer.json()["remedy"]
    assert Endpoint.objects.get().generation == 2
    good = api.patch(ONE, {"replicas": 3}, headers={"If-Match": '"2"'})
    assert good.json()["replicas"] == 3
    for bad, status in (("x", 400), ('"-1"', 412)):
        assert api.patch(ONE, {}, headers={"If-Match": bad}).status_code == status
    assert api.patch(ONE, {"generation": "two"}).json()["field"] == "generation"


def test_scale_pause_resume(api: APIClient, data: dict[str, Any]) -> None:
    api.post(URL, data)
    assert api.post(f"{ONE}pause/").json()["replicas"] == 0
    assert api.post(f"{ONE}resume/").json()["replicas"] == 2
    assert api.post(f"{ONE}resume/").json()["generation"] == 3
    for body, field in (({"replicas": -1}, "replicas"), ({}, "replicas"), ({"n": 1}, "n")):
        answer = api.post(f"{ONE}scale/", body)
        assert answer.status_code == 400
        assert answer.json()["field"] == field
    verbs = [r.verb for r in Revision.objects.order_by("number")]
    assert verbs == ["create", "pause", "resume"]


def test_missing_password_file_does_not_block_scaling_down(
    api: APIClient, data: dict[str, Any], settings: Any
) -> None:
    secret = settings.EMBERLINE.l2_secrets / "l2-password"
    make_private_dir(secret.parent.parent)
    make_private_dir(secret.parent)
    secret.write_text("a password")
    redis = {"enabled": True, "backend": "redis", "url": "redis://cache:6379/0"}
    data["cache"]["l2"] = redis | {"password_file": str(secret)}
    assert api.post(URL, data).status_code == 201
    secret.unlink()
    refused = api.post(f"{ONE}scale/", {"replicas": 3})
    assert refused.json()["field"] == "cache.l2.password_file"
    assert api.post(f"{ONE}scale/", {"replicas": 1}).json()["replicas"] == 1
    assert api.post(f"{ONE}pause/").json()["replicas"] == 0


def test_rollback(api: APIClient, data: dict[str, Any]) -> None:
    api.post(URL, data)
    api.patch(ONE, {"replicas": 1})
    answer = api.post(f"{ONE}rollback/", {"revision": 1})
    assert (answer.json()["replicas"], answer.json()["generation"]) == (2, 3)
    assert api.post(f"{ONE}rollback/", {"revision": 9}).status_code == 404
    assert api.post(f"{ONE}rollback/", {"revision": True}).status_code == 400
    listed = api.get(f"{ONE}revisions/").json()["results"]
    assert [r["number"] for r in listed] == [3, 2, 1]
    assert listed[0]["verb"] == "rollback"


def test_delete_is_requested_once_and_stops_changes(api: APIClient, data: dict[str, Any]) -> None:
    api.post(URL, data)
    for _ in range(2):
        answer = api.delete(ONE)
        assert answer.status_code == 202
        assert answer.json()["phase"] == "Deleting"
    assert Endpoint.objects.get().generation == 2
    for answer in (api.patch(ONE, {"replicas": 1}), api.post(f"{ONE}keys/", {"name": "x"})):
        assert answer.status_code == 409
        assert answer.json()["code"] == "being_deleted"
    taken = api.post(URL, data)
    assert taken.json()["code"] == "name_taken"


def test_unknown_endpoint_is_404(api: APIClient, data: dict[str, Any]) -> None:
    make_endpoint("other")
    missing = "00000000-0000-0000-0000-000000000000"
    calls = [
        api.get(ONE),
        api.put(ONE, data),
        api.patch(ONE, {}),
        api.delete(ONE),
        api.post(f"{ONE}scale/", {"replicas": 1}),
        api.post(f"{ONE}pause/"),
        api.get(f"{ONE}events/"),
        api.get(f"{ONE}revisions/"),
        api.get(f"{ONE}keys/"),
        api.post(f"{ONE}keys/", {"name": "x"}),
        api.delete(f"{ONE}keys/{missing}/"),
        api.delete(f"{URL}other/keys/{missing}/"),
    ]
    for answer in calls:
        assert answer.status_code == 404
        assert answer.json()["code"] == "not_found"


def test_keys_are_shown_once_and_revoked(api: APIClient, data: dict[str, Any]) -> None:
    api.post(URL, data)
    answer = api.post(f"{ONE}keys/", {"name": "my app"})
    assert answer.status_code == 201
    clear = answer.json()["key"]
    assert answer.headers["Cache-Control"] == "no-store"
    key = InferenceKey.objects.get(name="my app")
    assert key.sha256 == storage.hash_key(clear)
    listed = api.get(f"{ONE}keys/").json()
    assert [k["name"] for k in listed["results"]] == ["console", "my app"]
    assert clear not in api.get(f"{ONE}keys/").content.decode()
    assert clear not in str(list(AuditEvent.objects.values()))
    twice = api.post(f"{ONE}keys/", {"name": "my app"})
    assert (twice.status_code, twice.json()["code"]) == (400, "name_taken")
    for bad in ("", " ", "x" * 61, [5], None, "a\nb"):
        assert api.post(f"{ONE}keys/", {"name": bad}).json()["field"] == "name"
    for _ in range(2):
        assert api.delete(f"{ONE}keys/{key.pk}/").status_code == 204
    assert len(api.get(f"{ONE}keys/").json()["results"]) == 1
    assert api.post(f"{ONE}keys/", {"name": "my app"}).status_code == 201
    console = InferenceKey.objects.get(name="console")
    assert api.delete(f"{ONE}keys/{console.pk}/").status_code == 409


def test_viewer_reads_and_changes_nothing(data: dict[str, Any]) -> None:
    make_endpoint()
    viewer = program("viewer")
    for path in ("", "demo/", "demo/events/", "demo/revisions/", "demo/keys/"):
        assert viewer.get(URL + path).status_code == 200
    writes = [
        viewer.post(URL, merge(data, {"name": "other"})),
        viewer.put(ONE, data),
        viewer.patch(ONE, {"replicas": 2}),
        viewer.delete(ONE),
        viewer.post(f"{ONE}scale/", {"replicas": 2}),
        viewer.post(f"{ONE}pause/"),
        viewer.post(f"{ONE}resume/"),
        viewer.post(f"{ONE}rollback/", {"revision": 1}),
        viewer.post(f"{ONE}keys/", {"name": "x"}),
        viewer.delete(f"{ONE}keys/{InferenceKey.objects.get().pk}/"),
    ]
    assert [answer.status_code for answer in writes] == [403] * len(writes)
    assert Endpoint.objects.get().generation == 1
    nobody = APIClient()
    assert nobody.get(URL).status_code in (401, 403)
    assert nobody.post(URL, data).status_code in (401, 403)


def test_actions_check_the_role(data: dict[str, Any], charlie: Any) -> None:
    from django.core.exceptions import PermissionDenied

    make_endpoint()
    calls = [
        lambda: actions.create(charlie, merge(data, {"name": "other"})),
        lambda: actions.update(charlie, "demo", data),
        lambda: actions.patch(charlie, "demo", {}),
        lambda: actions.scale(charlie, "demo", 3),
        lambda: actions.pause(charlie, "demo"),
        lambda: actions.resume(charlie, "demo"),
        lambda: actions.rollback(charlie, "demo", 1),
        lambda: actions.delete(charlie, "demo"),
        lambda: keys_actions.create(charlie, "demo", {"name": "x"}),
        lambda: keys_actions.revoke(charlie, "x"),
        lambda: actions.delete(None, "demo"),
    ]
    for call in calls:
        with pytest.raises(PermissionDenied):
            call()


def test_list_is_filtered_by_the_strategy_in_effect(api: APIClient) -> None:
    for name, routing in (
        ("a", {"strategy": "kvaware"}),
        ("b", {"strategy": "kvaware", "enabled": False}),
        ("c", {"strategy": "roundrobin"}),
    ):
        make_endpoint(name, routing=routing)
    for strategy, expected in (("kvaware", ["a"]), ("roundrobin", ["b", "c"]), ("session", [])):
        page = api.get(f"{URL}?strategy={strategy}").json()
        assert [endpoint["name"] for endpoint in page["results"]] == expected


def test_list_needs_a_constant_number_of_queries(api: APIClient) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as caught:
            assert api.get(f"{URL}?page_size=100").status_code == 200
        return len(caught)

    workers = {f"a-worker-{n}": f"http://127.0.0.1:{n}" for n in (1, 2)}
    pretend_ready(make_endpoint("a"), workers=workers)
    few = queries()
    for n in range(12):
        endpoint = make_endpoint(f"b{n}")
        Replica.objects.create(endpoint=endpoint, name="w", index=0, state="ready")
    assert queries() == few


def test_schema_describes_every_operation(api: APIClient) -> None:
    schema = api.get("/api/v1/schema/?format=json").json()
    operations = schema["paths"]
    for path, methods in {
        "/api/v1/endpoints/": ["get", "post"],
        "/api/v1/endpoints/{name}/": ["get", "put", "patch", "delete"],
        "/api/v1/endpoints/{name}/scale/": ["post"],
        "/api/v1/endpoints/{name}/keys/": ["get", "post"],
    }.items():
        for method in methods:
            assert operations[path][method]["summary"]
    spec = schema["components"]["schemas"]["EndpointSpecRequest"]
    assert {"name", "model", "cache", "routing", "worker_args", "resources"} <= set(
        spec["properties"]
    )
    assert sorted(spec["required"]) == ["model", "name"]


def test_document_contains_no_key(api: APIClient, data: dict[str, Any]) -> None:
    api.post(URL, data)
    clear = storage.read_console_key("demo")
    assert clear
    for path in ("", "demo/", "demo/keys/", "demo/events/"):
        assert clear not in api.get(URL + path).content.decode()
    assert SYSTEM is actions.SYSTEM


def test_if_match_of_thousands_of_digits_is_rejected(api: APIClient) -> None:
    make_endpoint()
    answer = api.post(f"{ONE}scale/", {"replicas": 1}, headers={"If-Match": "9" * 5000})
    assert answer.status_code == 400
    assert answer.json()["field"] == "If-Match"


def test_endpoint_is_moved_to_a_team_and_back(api: APIClient, data: dict[str, Any]) -> None:
    Team.objects.create(name="Blue", slug="blue")
    api.post(URL, data)
    assert api.post(f"{ONE}move/?dry_run=true", {"team": "blue"}).status_code == 200
    assert api.get(ONE).json()["team"] is None
    assert api.post(f"{ONE}move/", {"team": "blue"}).json()["team"] == "blue"
    assert api.post(f"{ONE}move/", {"team": None}).json()["team"] is None
    for bad in ({"team": "none-such"}, {"team": 7}, {}):
        assert api.post(f"{ONE}move/", bad).status_code in (400, 404)


def test_worker_arguments_are_validated_before_anything_is_created(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = program("admin")
    small = {"cache": {"l1": {"size_gib": 0.01}}, "resources": {"memory_gib": 0.5}}
    wanted = {"name": "demo", "model": "m/m", "engine": "vllm", **small}
    wanted["worker_args"] = ["--nonsense=1"]
    monkeypatch.setattr(spec_context.installation, "vllm_version", lambda _spec: "")
    assert api.post(URL, wanted).status_code == 201, "of an unknown version nothing is known"
    monkeypatch.setattr(spec_context.installation, "vllm_version", lambda _spec: "0.32.0")
    refused = api.post(URL, {**wanted, "name": "second"})
    assert refused.status_code == 400
    (error,) = refused.json()["errors"]
    assert (error["field"], error["code"]) == ("worker_args", "unknown_argument")
    assert error["detail"] == "vLLM 0.32.0 has no option --nonsense."
    shown = api.post("/api/v1/preview/", wanted).json()["refused"]
    assert "vLLM 0.32.0 has no option --nonsense." in shown
    kept = api.patch(ONE, {"replicas": 2})
    assert kept.status_code == 200, "unchanged arguments block no other change"
    changed = api.patch(ONE, {"worker_args": ["--max-model-len=many"]})
    assert "'many' is not a value of --max-model-len" in changed.content.decode()
