"""Audited objects: links to those that exist, the deletion of others, on the log and as a 404."""

from __future__ import annotations

from typing import Any

import pytest

from cachetier import actions as tiers
from cachetier.models import CacheTier
from console.accounts.models import Membership, Team, User
from console.audit import targets
from console.audit.models import AuditEvent
from console.audit.record import record
from console.people import team_actions
from tests.support.console import make_endpoint
from tests.support.people import Cast, cast, client_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def people(db: None) -> Cast:
    return cast()


def test_log_links_existing_objects_and_dates_deleted_ones(people: Cast) -> None:
    make_endpoint("demo")
    tiers.create(people.ada, "old-tier", {})
    CacheTier.objects.all().delete()
    record(people.ada, "delete", "cache-tier/old-tier")
    record(people.ada, "token.create", "user/ada/token/ci")
    page = client_of(people.ada).get("/audit/").content.decode()
    assert '<a href="/endpoints/demo/">endpoint/demo</a>' in page
    assert 'cache-tier/old-tier<div class="small text-secondary">deleted <time' in page
    assert "/cache/old-tier/" not in page
    states = targets.describe(["endpoint/demo", "team/x/member/y", "user/ada"], people.ada)
    assert states["endpoint/demo"].url == "/endpoints/demo/"
    assert states["team/x/member/y"] == targets.TargetState()


@pytest.mark.parametrize("path", ["/endpoints/demo/", "/routing/endpoints/demo/", "/cache/demo/"])
def test_page_of_a_deleted_object_states_time_and_author(people: Cast, path: str) -> None:
    kind = "cache-tier" if path.startswith("/cache") else "endpoint"
    client = client_of(people.charlie)
    missing = client.get(path)
    assert missing.status_code == 404
    assert "does not exist, or you have no access" in missing.content.decode()
    record(people.alice, "delete", f"{kind}/demo")
    record(None, "deleted", f"{kind}/demo")
    page = client.get(path)
    assert page.status_code == 404
    text = page.content.decode()
    assert f"{kind.replace('-', ' ').capitalize()} demo was deleted on <time" in text
    assert "by alice." in text
    assert f'href="/audit/?target={kind}%2Fdemo"' in text


def test_deletions_of_other_teams_are_hidden(people: Cast) -> None:
    blue = team_actions.create(people.ada, {"name": "Blue", "slug": "blue"})
    red = Team.objects.create(name="Red", slug="red")
    eve = User.objects.create_user("eve", password="x", role="member")
    Membership.objects.create(team=red, user=eve, role="viewer", source="hand")
    owned: Any = make_endpoint("demo")
    owned.team = blue
    owned.save()
    record(people.alice, "delete", "endpoint/demo")
    owned.delete()
    page = client_of(eve).get("/endpoints/demo/")
    assert page.status_code == 404
    assert "was deleted" not in page.content.decode()
    assert "was deleted" in client_of(people.ada).get("/endpoints/demo/").content.decode()


@pytest.mark.parametrize(
    ("verb", "is_gone"), [("delete", True), ("endpoint.delete", True), ("trace.delete", False)]
)
def test_deletions_of_earlier_versions_count_and_those_of_parts_do_not(
    people: Cast, verb: str, is_gone: bool
) -> None:
    event = record(None, "update", "endpoint/demo")
    AuditEvent.objects.filter(pk=event.pk).update(verb=verb)
    (state,) = targets.describe(["endpoint/demo"], people.ada).values()
    assert (state.deleted_at is not None) is is_gone
