"""API keys: terms, groups, renewal, usage, budgets and permissions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.test import Client
from django.utils import timezone

from console.accounts.models import User
from console.audit.models import AuditEvent
from console.core.errors import Refused
from endpoints import actions, selectors, tasks
from endpoints.actions import SYSTEM
from endpoints.keys import actions as keys_actions
from endpoints.keys import selectors as keys_selectors
from endpoints.keys import storage
from endpoints.keys import usage as keys_usage
from endpoints.keys.bodies import read_key
from endpoints.keys.terms import KeyTerms, period_of, terms_from_dict
from endpoints.models import Endpoint, EndpointStatus, InferenceKey, KeyUsage, UsageMark
from endpoints.refusals import ConflictError, NotFoundError
from endpoints.router import key_usage
from endpoints.router.compiler import compile_config, compile_keys
from endpoints.spec.endpoint_spec import SpecErrors
from tests.support.console import pretend_ready
from tests.support.http_stub import http_stub
from tests.support.people import client_of

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 21, 17, 0, tzinfo=UTC)


def compiled(endpoint: Endpoint, key: InferenceKey) -> list[dict[str, Any]]:
    """Return the key's entry in the routers' configuration."""
    found = compile_keys(selectors.facts(endpoint))["keys"]
    return [entry for entry in found if entry["id"] == str(key.pk)]


def usage_report(key: InferenceKey, instance: str = "r1", **counts: int) -> dict[str, Any]:
    return {"instance": instance, "keys": {str(key.pk): {**counts, "last_at": 1.79e9}}}


# -- terms


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"requests_per_minute": -1}, "requests_per_minute"),
        ({"tokens_per_minute": True}, "tokens_per_minute"),
        ({"max_in_flight": "seven"}, "max_in_flight"),
        ({"budget_tokens": 10**12}, "budget_tokens"),
        ({"budget_period": "week"}, "budget_period"),
        ({"weight": 0}, "weight"),
        ({"weight": float("nan")}, "weight"),
        ({"pin": "perhaps"}, "pin"),
        ({"models": "llama"}, "models"),
        ({"models": ["a\nb"]}, "models[0]"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_in_days": 0}, "expires_in_days"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_invalid_terms_are_rejected_by_name(data: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refused:
        read_key({"name": "app", **data})
    (error,) = refused.value.errors
    assert error.field == field
    assert error.remedy


def test_terms_survive_storage() -> None:
    data = {"name": "app", "models": ["a", "a", "b"], "expires_in_days": 2, "weight": 2}
    _, first = read_key(data)
    assert first.models == ("a", "b")
    assert first.expires_at is not None
    assert timedelta(days=1) < first.expires_at - timezone.now() <= timedelta(days=2)
    assert terms_from_dict(first.to_dict()) == first
    assert terms_from_dict({}) == KeyTerms()


def test_periods_begin_and_end_in_utc() -> None:
    assert period_of(NOW, "day") == (
        datetime(2026, 11, 21, tzinfo=UTC),
        datetime(2026, 11, 22, tzinfo=UTC),
    )
    december = datetime(2026, 12, 31, 23, 59, tzinfo=UTC)
    assert period_of(december, "month")[1] == datetime(2027, 1, 1, tzinfo=UTC)


# -- the routers' configuration


def test_terms_reach_the_router_file(demo_endpoint: Endpoint, alice: User) -> None:
    terms = {"models": ["m"], "control": True, "requests_per_minute": 60, "weight": 3}
    made = keys_actions.create(alice, "demo", {"name": "app", **terms, "expires_in_days": 1})
    (entry,) = compiled(demo_endpoint, made.key)
    assert (entry["models"], entry["admin"], entry["pin"]) == (["m"], True, False)
    assert entry["limits"] == {"requests_per_minute": 60, "weight": 3}
    end = made.key.allowed.expires_at
    assert end is not None
    assert entry["expires"] == end.timestamp()
    keys_actions.change(alice, str(made.key.pk), {"requests_per_minute": 0, "weight": 1})
    assert "limits" not in compiled(demo_endpoint, made.key)[0]


def test_a_limit_is_shared_among_routers(placed: Endpoint, alice: User) -> None:
    made = keys_actions.create(alice, "demo", {"name": "app", "requests_per_minute": 5})
    assert placed.parsed.routers == 2
    (entry,) = compiled(placed, made.key)
    assert entry["limits"] == {"requests_per_minute": 3}


def test_previous_secret_is_valid_during_the_grace_period(
    demo_endpoint: Endpoint, alice: User
) -> None:
    made = keys_actions.create(alice, "demo", {"name": "app", "requests_per_minute": 60})
    fresh = keys_actions.rotate(alice, str(made.key.pk), {"grace_s": 3600})
    entries = {entry["sha256"]: entry for entry in compiled(demo_endpoint, made.key)}
    assert set(entries) == {storage.hash_key(made.clear), storage.hash_key(fresh.clear)}
    assert "expires" not in entries[storage.hash_key(fresh.clear)]
    assert entries[storage.hash_key(made.clear)]["expires"] > timezone.now().timestamp() + 3500
    InferenceKey.objects.update(old_until=timezone.now() - timedelta(seconds=1))
    assert [entry["sha256"] for entry in compiled(demo_endpoint, made.key)] == [
        storage.hash_key(fresh.clear)
    ]
    last = keys_actions.rotate(alice, str(made.key.pk))
    assert [entry["sha256"] for entry in compiled(demo_endpoint, made.key)] == [
        storage.hash_key(last.clear)
    ]


@pytest.mark.parametrize("grace", [-1, True, "an hour", 10**9])
def test_invalid_grace_period_is_rejected(demo_endpoint: Endpoint, alice: User, grace: Any) -> None:
    made = keys_actions.create(alice, "demo", {"name": "app"})
    with pytest.raises(Refused) as refused:
        keys_actions.rotate(alice, str(made.key.pk), {"grace_s": grace})
    assert [problem.field for problem in refused.value.errors] == ["grace_s"]
    assert compiled(demo_endpoint, made.key)[0]["sha256"] == storage.hash_key(made.clear)


def test_group_key_opens_each_member_and_none_after_removal(
    demo_endpoint: Endpoint, data: dict[str, Any], alice: User
) -> None:
    other = actions.create(SYSTEM, {**data, "name": "other", "replicas": 1})
    group = keys_actions.save_group(alice, None, {"name": "chats", "endpoints": ["demo"]})
    made = keys_actions.create_in_group(alice, str(group.pk), {"name": "app"})
    assert compiled(demo_endpoint, made.key)
    assert not compiled(other, made.key)
    keys_actions.save_group(alice, str(group.pk), {"name": "chats", "endpoints": ["other"]})
    assert not compiled(demo_endpoint, made.key)
    assert compiled(other, made.key)
    keys_actions.delete_group(alice, str(group.pk))
    assert not compiled(other, made.key)
    assert Endpoint.objects.count() == 2


def test_change_is_applied_at_once(demo_endpoint: Endpoint, alice: User) -> None:
    """Affected endpoints are due at once, not in the next round."""
    group = keys_actions.save_group(alice, None, {"name": "chats", "endpoints": ["demo"]})
    made = keys_actions.create_in_group(alice, str(group.pk), {"name": "app"})
    later = timezone.now() + timedelta(hours=1)
    EndpointStatus.objects.update(due_at=later)
    keys_actions.revoke(alice, str(made.key.pk))
    assert EndpointStatus.objects.get(pk=demo_endpoint.pk).due_at < later


def test_console_key_is_kept(demo_endpoint: Endpoint, alice: User) -> None:
    own = demo_endpoint.keys.get(name=storage.CONSOLE)
    for act in (keys_actions.revoke, keys_actions.rotate):
        with pytest.raises(ConflictError, match="own key"):
            act(alice, str(own.pk))
    with pytest.raises(ConflictError):
        keys_actions.change(alice, str(own.pk), {"requests_per_minute": 1})


def test_key_is_found_only_under_its_own_endpoint(
    demo_endpoint: Endpoint, data: dict[str, Any], alice: User
) -> None:
    actions.create(SYSTEM, {**data, "name": "other", "replicas": 1})
    made = keys_actions.create(alice, "demo", {"name": "app"})
    with pytest.raises(NotFoundError):
        keys_actions.revoke(alice, str(made.key.pk), within="other")
    assert client_of(alice).get(f"/endpoints/other/keys/{made.key.pk}/edit/").status_code == 404
    answer = client_of(alice).patch(
        f"/api/v1/endpoints/other/keys/{made.key.pk}/", {}, content_type="application/json"
    )
    assert answer.status_code == 404


def test_every_write_is_audited_without_secrets(demo_endpoint: Endpoint, alice: User) -> None:
    made = keys_actions.create(alice, "demo", {"name": "app", "tokens_per_minute": 5})
    keys_actions.change(alice, str(made.key.pk), {"tokens_per_minute": 6})
    fresh = keys_actions.rotate(alice, str(made.key.pk), {"grace_s": 60})
    keys_actions.revoke(alice, str(made.key.pk))
    lines = AuditEvent.objects.filter(target="endpoint/demo", actor=alice).order_by("pk")
    verbs = [line.verb for line in lines]
    assert verbs == ["key.create", "key.update", "key.rotate", "key.revoke"]
    assert lines[1].changes["tokens_per_minute"] == [5, 6]
    text = str([line.changes for line in lines])
    for secret in (
        made.clear,
        fresh.clear,
        storage.hash_key(made.clear),
        storage.hash_key(fresh.clear),
    ):
        assert secret not in text


@pytest.mark.parametrize("verb", ["create", "change", "rotate", "revoke", "save_group"])
def test_viewer_changes_no_key(
    demo_endpoint: Endpoint, alice: User, charlie: User, verb: str
) -> None:
    made = keys_actions.create(alice, "demo", {"name": "app"})
    key_id = str(made.key.pk)
    acts = {
        "create": lambda: keys_actions.create(charlie, "demo", {"name": "mine"}),
        "change": lambda: keys_actions.change(charlie, key_id, {"pin": True}),
        "rotate": lambda: keys_actions.rotate(charlie, key_id),
        "revoke": lambda: keys_actions.revoke(charlie, key_id),
        "save_group": lambda: keys_actions.save_group(
            charlie, None, {"name": "g", "endpoints": ["demo"]}
        ),
    }
    with pytest.raises(PermissionDenied):
        acts[verb]()
    assert InferenceKey.objects.get(pk=key_id) == made.key
    assert demo_endpoint.keys.count() == 2


# -- use


def test_repeated_usage_reports_are_counted_once(demo_endpoint: Endpoint, alice: User) -> None:
    key = keys_actions.create(alice, "demo", {"name": "app"}).key
    for report in (
        usage_report(key, requests=3, prompt_tokens=30),
        usage_report(key, requests=3, prompt_tokens=30),
        usage_report(key, requests=5, prompt_tokens=50),
        usage_report(key, requests=4, prompt_tokens=40),  # an older answer which came late
        usage_report(key, requests=6, prompt_tokens=60),
    ):
        keys_usage.add_report(demo_endpoint, report, NOW)
    assert keys_usage.used(KeyUsage.objects.all()).requests == 6
    keys_usage.add_report(demo_endpoint, usage_report(key, "r2", requests=2, prompt_tokens=20), NOW)
    keys_usage.add_report(
        demo_endpoint, usage_report(key, requests=7, prompt_tokens=70), NOW + timedelta(hours=1)
    )
    assert keys_usage.used(KeyUsage.objects.all()) == keys_usage.KeyUse(9, 0, 90)
    assert keys_usage.used(keys_usage.usage_since(NOW + timedelta(hours=1))).prompt_tokens == 10
    key.refresh_from_db()
    assert key.last_used_at is not None


def test_a_report_without_increase_is_recognized(demo_endpoint: Endpoint, alice: User) -> None:
    key = keys_actions.create(alice, "demo", {"name": "app"}).key
    report = usage_report(key, requests=3, prompt_tokens=30)

    def is_idle(found: dict[str, Any]) -> bool:
        marks = keys_usage.latest_marks(NOW + timedelta(seconds=5))
        return keys_usage.find_idle(marks, demo_endpoint, found) is not None

    assert not is_idle(report), "never reported"
    keys_usage.add_report(demo_endpoint, report, NOW)
    assert is_idle(report)
    assert not is_idle(usage_report(key, requests=4, prompt_tokens=40))
    assert not is_idle(usage_report(key, "r2", requests=3, prompt_tokens=30)), "another process"


def test_marks_of_idle_routers_are_renewed_in_one_statement(
    demo_endpoint: Endpoint, alice: User, django_assert_num_queries: Any
) -> None:
    key = keys_actions.create(alice, "demo", {"name": "app"}).key
    for instance in ("r1", "r2"):
        keys_usage.add_report(demo_endpoint, usage_report(key, instance, requests=3), NOW)
    later = NOW + timedelta(seconds=30)
    marks = keys_usage.latest_marks(later)
    with django_assert_num_queries(1):
        keys_usage.renew_marks(marks.values(), later)
    assert {mark.seen_at for mark in UsageMark.objects.all()} == {later}
    marks = keys_usage.latest_marks(later)
    with django_assert_num_queries(0):
        keys_usage.renew_marks(marks.values(), later)


@pytest.mark.parametrize("nonsense", [{"requests": "7"}, {"requests": None}, {}, {"x": 1}])
def test_malformed_usage_adds_nothing(demo_endpoint: Endpoint, nonsense: dict[str, Any]) -> None:
    keys_usage.add_report(demo_endpoint, {"instance": "r", "keys": {"k": nonsense}}, NOW)
    assert not KeyUsage.objects.exists()


def test_usage_of_deleted_keys_is_counted(demo_endpoint: Endpoint, alice: User) -> None:
    key = keys_actions.create(alice, "demo", {"name": "app"}).key
    keys_usage.add_report(demo_endpoint, usage_report(key, requests=3), NOW)
    demo_endpoint.delete()
    assert keys_usage.used(KeyUsage.objects.filter(endpoint_name="demo")).requests == 3


def test_spent_budget_closes_the_key_until_the_period_ends(
    demo_endpoint: Endpoint, alice: User
) -> None:
    terms = {"budget_tokens": 100, "budget_period": "day"}
    key = keys_actions.create(alice, "demo", {"name": "app", **terms}).key
    keys_usage.add_report(
        demo_endpoint, usage_report(key, prompt_tokens=60, completion_tokens=39), NOW
    )
    assert keys_usage.update_budgets(NOW) == []
    keys_usage.add_report(
        demo_endpoint, usage_report(key, prompt_tokens=60, completion_tokens=40), NOW
    )
    assert keys_usage.update_budgets(NOW) == [key]
    assert list(keys_usage.endpoints_of_keys([key])) == [demo_endpoint]
    (entry,) = compiled(demo_endpoint, key)
    assert entry["spent_until"] == period_of(NOW, "day")[1].timestamp()
    assert keys_usage.update_budgets(NOW) == [], "it is told once"
    tomorrow = NOW + timedelta(days=1)
    assert keys_usage.update_budgets(tomorrow) == [key]
    assert "spent_until" not in compiled(demo_endpoint, key)[0]


def test_larger_budget_reopens_the_key_at_once(demo_endpoint: Endpoint, alice: User) -> None:
    key = keys_actions.create(alice, "demo", {"name": "app", "budget_tokens": 10}).key
    now = timezone.now()
    keys_usage.add_report(demo_endpoint, usage_report(key, prompt_tokens=10), now)
    keys_usage.update_budgets(now)
    assert "spent_until" in compiled(demo_endpoint, key)[0]
    keys_actions.change(alice, str(key.pk), {"budget_tokens": 11})
    assert "spent_until" not in compiled(demo_endpoint, key)[0]


def test_remaining_budget_is_divided_among_reachable_routers(
    demo_endpoint: Endpoint, data: dict[str, Any], alice: User
) -> None:
    other = actions.create(SYSTEM, {**data, "name": "other", "replicas": 1})
    group = keys_actions.save_group(alice, None, {"name": "chats", "endpoints": ["demo", "other"]})
    terms = {"budget_tokens": 100, "budget_period": "day"}
    key = keys_actions.create_in_group(alice, str(group.pk), {"name": "app", **terms}).key
    keys_usage.add_report(
        demo_endpoint, usage_report(key, "gone", prompt_tokens=4), NOW - timedelta(minutes=5)
    )
    keys_usage.add_report(demo_endpoint, usage_report(key, prompt_tokens=30), NOW)
    keys_usage.add_report(other, usage_report(key, "r2", completion_tokens=6), NOW)
    end = period_of(NOW, "day")[1].timestamp()
    for endpoint in (demo_endpoint, other):
        left = keys_usage.budgets_left(endpoint, NOW)
        mine = left[str(key.pk)]
        together = mine.pop("all")
        assert left == {str(key.pk): {"left": 30, "counted": 0, "resets_at": end}}
        assert together["left"] == 30, "each endpoint has one router"
        wanted = {"gone": 4, "r1": 30} if endpoint == demo_endpoint else {"r2": 6}
        assert together["counted"] == wanted
    keys_usage.add_report(other, usage_report(key, "r2", completion_tokens=76), NOW)
    assert keys_usage.budgets_left(demo_endpoint, NOW)[str(key.pk)]["left"] == -10, (
        "a debt is not shared"
    )


def test_router_receives_its_remaining_budget(demo_endpoint: Endpoint, alice: User) -> None:
    terms = {"budget_tokens": 100}
    key = keys_actions.create(alice, "demo", {"name": "app", **terms}).key
    counted = usage_report(key, prompt_tokens=20, completion_tokens=10)
    with http_stub({"/usage": (200, counted), "/budgets": (200, {})}) as router:
        pretend_ready(demo_endpoint, url=router.url, admin_url=router.url)
        assert key_usage.collect_key_usage() == 1
        (sent,) = [json.loads(body) for _, path, body in router.seen if path == "/budgets"]
        assert sent["instance"] == "r1"
        assert (sent["keys"][str(key.pk)]["left"], sent["keys"][str(key.pk)]["counted"]) == (70, 30)
        router.answers["/budgets"] = (500, "boom")
        assert key_usage.collect_key_usage() == 1, (
            "a router which does not hear it is asked all the same"
        )


def test_endpoint_of_a_silent_router_is_reconciled(
    demo_endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []
    monkeypatch.setattr(tasks.reconcile_endpoint, "nudge", requests.append)
    with http_stub({"/usage": (500, "boom")}) as router:
        assert key_usage.collect_key_usage() == 0
        assert requests == [], "it has no router yet"
        pretend_ready(demo_endpoint, url=router.url, admin_url=router.url)
        assert key_usage.collect_key_usage() == 0
        assert requests == [str(demo_endpoint.pk)]
        router.answers["/usage"] = (200, {"instance": "r1", "keys": {}})
        assert key_usage.collect_key_usage() == 1
        assert len(requests) == 1


def test_estimates_are_marked(demo_endpoint: Endpoint, alice: User) -> None:
    key = keys_actions.create(alice, "demo", {"name": "app", "budget_tokens": 10}).key
    estimated = {"estimated_prompt_tokens": 3, "estimated_completion_tokens": 2, "unreported": 1}
    keys_usage.add_report(
        demo_endpoint, usage_report(key, prompt_tokens=8, completion_tokens=2, **estimated), NOW
    )
    found = keys_usage.used(KeyUsage.objects.all())
    assert (found.tokens, found.estimated_tokens, found.unreported) == (10, 5, 1)
    assert keys_usage.update_budgets(NOW) == [key], "they count for its budget"


def test_isolation_budget_and_group_reach_the_router(demo_endpoint: Endpoint, alice: User) -> None:
    group = keys_actions.save_group(alice, None, {"name": "chats", "endpoints": ["demo"]})
    key = keys_actions.create_in_group(
        alice, str(group.pk), {"name": "app", "budget_tokens": 7}
    ).key
    (entry,) = compiled(demo_endpoint, key)
    assert (entry["budget_tokens"], entry["group"]) == (7, str(group.pk))
    actions.patch(alice, "demo", {"routing": {"cache_isolation": "shared"}})
    for wanted in ("shared", "key"):
        actions.patch(alice, "demo", {"routing.cache_isolation": wanted})
        facts = selectors.facts(Endpoint.objects.get(pk=demo_endpoint.pk))
        assert compile_config(facts, ())["cache_isolation"] == wanted
    with pytest.raises(SpecErrors, match=r"routing\.cache_isolation"):
        actions.patch(alice, "demo", {"routing": {"cache_isolation": "team"}})


def test_old_usage_is_pruned(demo_endpoint: Endpoint) -> None:
    keys_usage.add_report(demo_endpoint, {"instance": "r", "keys": {"k": {"requests": 1}}}, NOW)
    keys_usage.prune(NOW + timedelta(days=keys_usage.KEPT_DAYS - 1))
    assert KeyUsage.objects.exists()
    keys_usage.prune(NOW + timedelta(days=keys_usage.KEPT_DAYS + 1))
    assert not KeyUsage.objects.exists()


# -- pages and REST


def test_key_is_created_changed_renewed_and_revoked_on_the_page(
    demo_endpoint: Endpoint, alice: User
) -> None:
    client: Client = client_of(alice)
    typed = {"name": "app", "expires_in_days": "30", "requests_per_minute": "60", "models": "a, b"}
    page = client.post("/endpoints/demo/keys/", typed)
    assert page.status_code == 200
    key = demo_endpoint.keys.get(name="app")
    assert key.prefix in page.content.decode()
    assert (key.allowed.models, key.allowed.requests_per_minute) == (("a", "b"), 60)
    edit = f"/endpoints/demo/keys/{key.pk}/edit/"
    assert b"unchanged" in client.get(edit).content
    wrong = client.post(edit, {"requests_per_minute": "many", "expires_in_days": "keep"})
    assert wrong.status_code == 400
    assert b"many" in wrong.content
    client.post(edit, {"requests_per_minute": "7", "expires_in_days": "keep"})
    after = demo_endpoint.keys.get(name="app").allowed
    assert (after.requests_per_minute, after.expires_at) == (7, key.allowed.expires_at)
    page = client.post(f"/endpoints/demo/keys/{key.pk}/rotate/", {"grace_s": "3600"})
    assert demo_endpoint.keys.get(name="app").sha256 != key.sha256
    assert "no-store" in page.headers["Cache-Control"]
    client.post(f"/endpoints/demo/keys/{key.pk}/revoke/")
    assert demo_endpoint.keys.get(name="app").revoked_at is not None


def test_group_is_created_used_and_deleted_on_the_page(
    demo_endpoint: Endpoint, alice: User
) -> None:
    client: Client = client_of(alice)
    answer = client.post("/keys/groups/", {"name": "chats", "endpoints": ["demo"]})
    assert answer.status_code == 302
    (group,) = keys_selectors.groups(alice)
    page = client.post(f"/keys/groups/{group.pk}/keys/", {"name": "app"})
    (key,) = keys_selectors.keys_of_group(group)
    assert key.prefix in page.content.decode()
    assert b"chats" in client.get("/endpoints/demo/access/").content
    assert b"app" in client.get("/keys/").content
    client.post(f"/keys/groups/{group.pk}/delete/", {"name": "no"})
    assert keys_selectors.groups().exists()
    client.post(f"/keys/groups/{group.pk}/delete/", {"name": "chats"})
    assert not InferenceKey.objects.filter(name="app").exists()


def test_rest_covers_all_operations(demo_endpoint: Endpoint, alice: User) -> None:
    client: Client = client_of(alice)

    def call(method: str, path: str, body: Any = None) -> Any:
        answer = getattr(client, method)(f"/api/v1/{path}", body, content_type="application/json")
        assert answer.status_code < 300, answer.content
        return answer.json() if answer.content else None

    made = call("post", "endpoints/demo/keys/", {"name": "app", "budget_tokens": 9})
    path = f"endpoints/demo/keys/{made['id']}/"
    assert made["terms"]["budget_tokens"] == 9
    assert call("patch", path, {"weight": 2})["terms"]["weight"] == 2
    assert call("get", path)["terms"]["budget_tokens"] == 9
    assert call("post", f"{path}rotate/", {"grace_s": 60})["key"] != made["key"]
    key = InferenceKey.objects.get(pk=made["id"])
    keys_usage.add_report(
        demo_endpoint, usage_report(key, requests=2, prompt_tokens=5), timezone.now()
    )
    use = call("get", "endpoints/demo/usage/")
    assert use["keys"][0]["key_name"] == "app"
    assert (use["total"]["requests"], use["total"]["prompt_tokens"]) == (2, 5)
    call("delete", path)
    group = call("post", "key-groups/", {"name": "g", "endpoints": ["demo"]})
    inner = call("post", f"key-groups/{group['id']}/keys/", {"name": "one"})
    assert inner["group"] == group["id"]
    assert call("get", "key-groups/")["results"][0]["endpoints"] == ["demo"]
    call("delete", f"key-groups/{group['id']}/")
