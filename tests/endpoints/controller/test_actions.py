"""Following and releasing a namespace: REST, page and command line."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from console.audit.models import AuditEvent
from console.clusters import selectors as clusters
from console.core import uses
from endpoints.actions import SYSTEM
from endpoints.controller import actions, tasks
from endpoints.controller.models import Follow, FollowStatus, Owned
from endpoints.keys import actions as keys_actions
from tests.support.console import browser, make_endpoint, program

pytestmark = pytest.mark.django_db
URL = "/api/v1/follows/"


@pytest.fixture(autouse=True)
def west(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "names", lambda: ["west"])


def run(*words: str) -> str:
    out = StringIO()
    call_command("emberline", "follow", *words, stdout=out)
    return out.getvalue()


def test_namespace_is_followed_and_released_over_rest() -> None:
    api = program("admin")
    made = api.post(URL, {"cluster": "west", "namespace": "team-a"})
    assert made.status_code == 201
    body = made.json()
    assert (body["cluster"], body["namespace"], body["phase"]) == ("west", "team-a", "Pending")
    assert api.get(URL).json()["results"] == [body]
    assert api.post(URL, {"cluster": "west", "namespace": "team-a"}).status_code == 409
    gone = api.delete(f"{URL}{body['id']}/")
    assert (gone.status_code, gone.json()["phase"]) == (202, "Deleting")
    assert Follow.objects.exists(), "until its objects are let go"
    verbs = AuditEvent.objects.filter(target="follow/west/team-a").values_list("verb", flat=True)
    assert set(verbs) == {"follow.create", "follow.delete"}


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"cluster": "east", "namespace": "a"}, "cluster"),
        ({"cluster": "west", "namespace": "A_b"}, "namespace"),
        ({"cluster": "west"}, "namespace"),
        ({"cluster": "west", "namespace": "a", "foreign": "perhaps"}, "foreign"),
        ({"cluster": "west", "namespace": "a", "all": True}, "all"),
        ([], None),
    ],
)
def test_errors_are_reported(data: Any, field: str | None) -> None:
    answer = program("admin").post(URL, data, format="json")
    assert answer.status_code == 400
    assert answer.json()["field"] == field
    assert not Follow.objects.exists()


def test_following_needs_an_admin() -> None:
    for role in ("viewer", "operator"):
        assert program(role).post(URL, {"cluster": "west", "namespace": "a"}).status_code == 403
    made = actions.follow(SYSTEM, "west", "a")
    assert program("operator").delete(f"{URL}{made.pk}/").status_code == 403
    assert program("viewer").get(f"{URL}{made.pk}/").status_code == 200
    unknown = "00000000-0000-0000-0000-000000000001"
    assert program("admin").delete(f"{URL}{unknown}/").status_code == 404


def test_namespace_is_followed_and_released_on_the_page() -> None:
    client = browser("admin")
    client.post("/endpoints/followed/add/", {"cluster": "west", "namespace": "team-a"})
    made = Follow.objects.get()
    page = client.get("/endpoints/followed/").content.decode()
    assert "team-a" in page and "Stop following" in page
    client.post(f"/endpoints/followed/{made.pk}/remove/")
    made.refresh_from_db()
    assert made.deleted_at is not None
    again = client.post("/endpoints/followed/add/", {"cluster": "x", "namespace": "a"}, follow=True)
    assert "not found." in again.content.decode()
    assert "Stop following" not in browser("viewer").get("/endpoints/followed/").content.decode()


def test_namespace_is_followed_and_released_on_the_command_line() -> None:
    assert "No followed namespaces" in run("list")
    assert "Following west/team-a." in run("add", "west", "team-a")
    assert "team-a" in run("list") and '"namespace": "team-a"' in run("list", "-o", "json")
    assert "Stopped following west/team-a." in run("remove", "west", "team-a", "--yes")
    with pytest.raises(CommandError, match="not followed"):
        run("remove", "west", "team-b", "--yes")


def test_page_of_an_owned_endpoint_names_its_owner() -> None:
    make_endpoint()
    follow = actions.follow(SYSTEM, "west", "team-a")
    Owned.objects.create(uid="u", follow=follow, name="llama", endpoint="demo")
    page = browser("operator").get("/endpoints/demo/").content.decode()
    assert "<code>team-a/llama</code>" in page
    answer = program("operator").patch("/api/v1/endpoints/demo/", {"replicas": 2}, format="json")
    assert (answer.status_code, answer.json()["code"]) == (409, "managed")
    assert "kubectl edit" in answer.json()["remedy"]
    keys_actions.create(SYSTEM, "demo", {"name": "mine"})


def test_followed_cluster_counts_as_used() -> None:
    actions.follow(SYSTEM, "west", "team-a")
    assert "objects of namespace team-a" in uses.of("cluster", "west")


def test_sweep_reconciles_again(
    monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    made = actions.follow(SYSTEM, "west", "team-a")
    found: list[str] = []
    monkeypatch.setattr(tasks.follow_objects, "_publish", lambda args, _s: found.append(args[0]))
    with django_capture_on_commit_callbacks(execute=True):
        tasks.sweep()
    assert found == [str(made.pk)]
    FollowStatus.objects.update(due_at=None)
    with django_capture_on_commit_callbacks(execute=True):
        tasks.sweep()
    assert found == [str(made.pk)]


def test_manual_pass_reports_its_failure() -> None:
    actions.follow(SYSTEM, "west", "team-a")
    with pytest.raises(CommandError, match="UnknownCluster"):
        call_command("emberline_controller", "--once")
