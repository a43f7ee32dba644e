"""Lists, sums and figures visible to team members."""

from __future__ import annotations

from typing import Any

import pytest

from console.accounts import gate
from console.accounts.models import User
from dashboards import selectors as dashboards_selectors
from dashboards.boards import queries
from dashboards.boards.queries import Scope, Times
from dashboards.boards.results import targets
from dashboards.costs.reports.endpoints import report
from dashboards.prometheus.http.client import Prometheus
from endpoints import selectors, teams
from endpoints.controller import selectors as follows
from endpoints.controller.models import Follow, FollowStatus
from endpoints.shell_entries import simulated_banner
from tests.support.people import Cast, client_of
from tests.support.teams import CANARY, NOBODYS, OURS, Teams


def test_endpoints_by_viewer(two_teams: Teams, people: Cast) -> None:
    def names(viewer: Any) -> set[str]:
        return {one.name for one in selectors.endpoints(viewer)}

    every = {CANARY, NOBODYS, OURS}
    assert names(None) == names(people.charlie) == every  # None: a query of the console itself
    assert names(two_teams.frank) == {OURS}
    assert names(two_teams.nora) == set()
    limited = User.objects.get(pk=people.ada.pk)
    limited.team_cap = two_teams.theirs.pk
    assert names(limited) == {CANARY}


def test_sums_and_banners_are_limited_to_the_viewer(two_teams: Teams, people: Cast) -> None:
    assert sum(selectors.read_fleet(two_teams.erin).phases.values()) == 1
    assert sum(selectors.read_fleet(people.ada).phases.values()) == 3
    banner = simulated_banner(two_teams.erin)
    assert banner is not None
    assert OURS in banner.text
    assert CANARY not in banner.text
    assert simulated_banner(two_teams.nora) is None


def test_users_of_a_shared_object_are_counted_and_not_named(two_teams: Teams, people: Cast) -> None:
    words = [f"endpoint {CANARY}", f"endpoint {OURS}", "cache tier default"]
    assert gate.filter_references(words, people.charlie) == words
    assert gate.filter_references(words, two_teams.erin) == [
        f"endpoint {OURS}",
        "cache tier default",
        "1 of other teams",
    ]
    assert gate.filter_references(words[1:], two_teams.erin) == words[1:]


def test_prometheus_is_queried_only_for_endpoints_of_the_team(
    two_teams: Teams, people: Cast
) -> None:
    assert dashboards_selectors.get_fleet_scope(people.charlie) == Scope()
    assert dashboards_selectors.get_fleet_scope(two_teams.erin) == Scope(among=(OURS,))
    nothing = dashboards_selectors.get_fleet_scope(two_teams.nora)
    times = Times(60, 900)
    for name in queries.QUERIES:
        if name.startswith(("l2_", "happened_l2_")) or name == "gpus_allocatable":
            continue  # of pools and of what a cluster has, which are shared
        requested = queries.render_for_chart(name, Scope(among=("a", "b-c")), times)
        assert 'endpoint=~"a|b-c"' in requested or 'endpoint_name=~"a|b-c"' in requested, name
        # A name of no endpoint; the empty pattern would match series without an endpoint.
        requested = queries.render_for_chart(name, nothing, times)
        assert 'endpoint=~"-"' in requested or 'endpoint_name=~"-"' in requested, name
    assert 'endpoint=~"a"' in queries.alerts(Scope(among=("a",)))
    for question in targets.plan_facts([], Scope(among=("a",)), 0).values():
        assert 'endpoint_name=~"a"' in question.query


def test_costs_are_those_of_team_endpoints(two_teams: Teams) -> None:
    found = report(Prometheus(""), "24h", 1.7e9, two_teams.erin)
    assert [row.endpoint.name for row in found.rows] == [OURS]


@pytest.mark.parametrize("name", ["erin", "frank"])
def test_followed_namespaces_belong_to_their_team(
    two_teams: Teams, people: Cast, name: str
) -> None:
    for namespace in ("search", "secret-project"):
        made = Follow.objects.create(cluster="prod", namespace=namespace)
        FollowStatus.objects.create(follow=made)
    two_teams.ours.namespaces = ["search"]
    two_teams.ours.save()
    user = getattr(two_teams, name)
    assert [row.namespace for row in follows.visible_follows(user)] == ["search"]
    assert len(follows.visible_follows(people.charlie)) == 2
    html = client_of(user).get("/endpoints/followed/").content.decode()
    assert "secret-project" not in html
    hidden = Follow.objects.get(namespace="secret-project").pk
    assert client_of(user).get(f"/api/v1/follows/{hidden}/").status_code == 404


@pytest.mark.parametrize(
    ("namespaces", "team", "taken"),
    [([], False, True), ([], True, False), (["work"], True, True), (["lab/work"], True, True)],
)
def test_object_takes_over_where_the_team_lists_its_namespace(
    two_teams: Teams, namespaces: list[str], team: bool, taken: bool
) -> None:
    from endpoints.models import Endpoint

    two_teams.ours.namespaces = namespaces
    two_teams.ours.save()
    there = Endpoint.objects.get(name=OURS if team else NOBODYS)
    assert teams.may_take_over(there, "lab", "work") is taken
